package cli

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

func newStatus(p Process) *cobra.Command {
	c, form := client{process: p}, output("")
	command := &cobra.Command{
		Use:   "status",
		Short: "Say how a replica is: policy, store, workers, and what operators have set",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := form.check(); err != nil {
				return err
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.Status, &adminv1.StatusRequest{})
			if err != nil {
				return err
			}
			if form == asJSON {
				return failed(printJSON(p.Stdout, statusOf(response)))
			}
			return failed(printStatus(p.Stdout, response))
		},
	}
	c.register(command.Flags())
	form.register(command.Flags())
	return command
}

func printStatus(to io.Writer, r *adminv1.StatusResponse) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("service", "%s, up for %s", r.GetVersion(), brief(r.GetUpFor()))
	overlaid := ""
	if r.GetFileVersion() != r.GetPolicyVersion() {
		overlaid = ", the file's is " + r.GetFileVersion()
	}
	row("policy", "%s, version %s%s, %s, for %s",
		r.GetDomain(), r.GetPolicyVersion(), overlaid, count(int(r.GetLimits()), "limit", "limits"), brief(r.GetPolicyAge()))
	reload := r.GetReload()
	if reload.GetProblem() != "" {
		row("file", "INVALID, and not in force: %s", reload.GetProblem())
	} else {
		row("file", "in force")
	}
	read := "not read again since the start"
	if n := reload.GetApplied() + reload.GetUnchanged() + reload.GetInvalid(); n > 0 {
		read = fmt.Sprintf("%d applied, %d unchanged, %d invalid, the last %s ago",
			reload.GetApplied(), reload.GetUnchanged(), reload.GetInvalid(), brief(reload.GetAge()))
	}
	row("reloads", "%s", read)
	store := r.GetStore()
	if store.GetProblem() != "" {
		row("store", "%s DOES NOT ANSWER: %s", store.GetName(), store.GetProblem())
	} else {
		row("store", "%s answers in %s", store.GetName(), brief(store.GetLatency()))
	}
	if store.GetOwed() > 0 {
		row("owed", "%s to be taken back", count(int(store.GetOwed()), "charge", "charges"))
	}
	row("replicas", "%d", len(r.GetReplicas()))
	row("workers", "%d", r.GetConnected())
	going := 0
	for _, f := range r.GetFallbacks() {
		if f.GetEnded() == 0 {
			going++
		}
	}
	if going > 0 {
		row("fallback", "NOW, of %s: see below", count(going, "limit", "limits"))
	} else {
		row("fallback", "none; %s within the last hour", count(len(r.GetFallbacks()), "period", "periods"))
	}
	if err := errors.Join(table.Flush(), printPeers(to, r), printFallbacks(to, r.GetFallbacks())); err != nil {
		return err
	}
	if len(r.GetOverlay()) == 0 {
		_, err := fmt.Fprintln(to, "\nno overrides, blocks or allows are set")
		return err
	}
	fmt.Fprintln(to)
	return printOverlay(to, r.GetOverlay())
}

// workersShown is how many workers the table has.
const workersShown = 20

// printPeers prints the replicas, and the workers that were heard of last.
func printPeers(to io.Writer, r *adminv1.StatusResponse) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	follows := func(version string) string {
		switch version {
		case r.GetPolicyVersion():
			return version
		case "":
			return "none"
		}
		return version + " (another)"
	}
	fmt.Fprintln(table, "\nREPLICA\tPOLICY\tUP FOR\tHEARD OF")
	for i, replica := range r.GetReplicas() {
		heard := brief(replica.GetAge()) + " ago"
		if i == 0 {
			heard = "this one"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", replica.GetId(), follows(replica.GetPolicyVersion()), brief(replica.GetUpFor()), heard)
	}
	if len(r.GetWorkers()) > 0 {
		fmt.Fprintln(table, "\nWORKER\tPOLICY\tUP FOR\tLAST CALL\tREQUESTS\tAWAY")
	}
	for _, w := range r.GetWorkers()[:min(len(r.GetWorkers()), workersShown)] {
		lived := "not known"
		if w.GetUpFor() > 0 {
			lived = brief(w.GetUpFor())
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s ago\t%d\t%s\n",
			w.GetId(), follows(w.GetPolicyVersion()), lived, brief(w.GetSeen()), w.GetRequests(), brief(w.GetAway()))
	}
	if more := int(r.GetConnected()) - workersShown; more > 0 {
		fmt.Fprintf(table, "and %d more\n", more)
	}
	return table.Flush()
}

func printFallbacks(to io.Writer, periods []*adminv1.Fallback) error {
	if len(periods) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nWITHOUT THE SERVICE\tBEGAN\tENDED\tREQUESTS")
	for _, f := range periods {
		ended := "goes on"
		if f.GetEnded() > 0 {
			ended = brief(f.GetEnded()) + " ago"
		}
		fmt.Fprintf(table, "%s\t%s ago\t%s\t%d\n", f.GetLimit(), brief(f.GetBegan()), ended, f.GetRequests())
	}
	return table.Flush()
}

// replicaStatus is what status -o json prints.
type replicaStatus struct {
	Version       string         `json:"version"`
	UpFor         float64        `json:"up_for_seconds"`
	Domain        string         `json:"domain"`
	PolicyVersion string         `json:"policy_version"`
	FileVersion   string         `json:"file_version"`
	Limits        uint64         `json:"limits"`
	PolicyAge     float64        `json:"policy_age_seconds"`
	Reloads       reloadStatus   `json:"reloads"`
	Store         storeStatus    `json:"store"`
	Replicas      []replicaPeer  `json:"replicas"`
	Connected     uint32         `json:"connected_workers"`
	Workers       []workerPeer   `json:"workers"`
	Fallbacks     []fallback     `json:"fallbacks"`
	Overlay       []overlayEntry `json:"overlay"`
}

type replicaPeer struct {
	ID     string  `json:"id"`
	Policy string  `json:"policy_version"`
	UpFor  float64 `json:"up_for_seconds"`
	Age    float64 `json:"age_seconds"`
}

type workerPeer struct {
	ID       string  `json:"id"`
	Replica  string  `json:"replica"`
	Policy   string  `json:"policy_version"`
	UpFor    float64 `json:"up_for_seconds,omitempty"`
	Seen     float64 `json:"last_call_seconds"`
	Requests uint64  `json:"requests"`
	Away     float64 `json:"away_seconds"`
}

type fallback struct {
	Limit    string  `json:"limit"`
	Began    float64 `json:"began_seconds"`
	Ended    float64 `json:"ended_seconds"`
	Open     bool    `json:"open"`
	Requests uint64  `json:"requests"`
}

type reloadStatus struct {
	Applied   uint64  `json:"applied"`
	Unchanged uint64  `json:"unchanged"`
	Invalid   uint64  `json:"invalid"`
	Problem   string  `json:"problem,omitempty"`
	Age       float64 `json:"age_seconds"`
}

type storeStatus struct {
	Name    string  `json:"name"`
	Problem string  `json:"problem,omitempty"`
	Latency float64 `json:"latency_seconds"`
	Owed    uint64  `json:"owed_charges"`
}

func statusOf(r *adminv1.StatusResponse) replicaStatus {
	reload, store := r.GetReload(), r.GetStore()
	out := replicaStatus{
		Version: r.GetVersion(), UpFor: seconds(r.GetUpFor()), Domain: r.GetDomain(), PolicyVersion: r.GetPolicyVersion(),
		FileVersion: r.GetFileVersion(), Limits: r.GetLimits(), PolicyAge: seconds(r.GetPolicyAge()),
		Reloads:   reloadStatus{reload.GetApplied(), reload.GetUnchanged(), reload.GetInvalid(), reload.GetProblem(), seconds(reload.GetAge())},
		Store:     storeStatus{store.GetName(), store.GetProblem(), seconds(store.GetLatency()), store.GetOwed()},
		Connected: r.GetConnected(), Replicas: []replicaPeer{}, Workers: []workerPeer{}, Fallbacks: []fallback{}, Overlay: entriesOf(r.GetOverlay()),
	}
	for _, one := range r.GetReplicas() {
		out.Replicas = append(out.Replicas, replicaPeer{one.GetId(), one.GetPolicyVersion(), seconds(one.GetUpFor()), seconds(one.GetAge())})
	}
	for _, w := range r.GetWorkers() {
		out.Workers = append(out.Workers, workerPeer{
			w.GetId(), w.GetReplica(), w.GetPolicyVersion(), seconds(w.GetUpFor()), seconds(w.GetSeen()), w.GetRequests(), seconds(w.GetAway()),
		})
	}
	for _, f := range r.GetFallbacks() {
		out.Fallbacks = append(out.Fallbacks, fallback{f.GetLimit(), seconds(f.GetBegan()), seconds(f.GetEnded()), f.GetEnded() == 0, f.GetRequests()})
	}
	return out
}
