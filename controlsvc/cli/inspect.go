package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/shared/limit"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

func newInspect(p Process) *cobra.Command {
	c, form := client{process: p}, output("")
	var k keyFlags
	var plan string
	command := &cobra.Command{
		Use:   "inspect KEY",
		Short: "Say how a key stands: what it has used, when the next is free, who holds leases",
		Long: "Inspect tells of each of a key's rates how much is used and left, when one request more would fit, and who holds leases:\n" +
			"units that were granted and that may still be spent. Those count as used. A replica of the service holds leases of keys that\n" +
			"are asked for often, and divides them among workers. It charges nothing.\n\n" + keyHelp,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.names((*adminv1.ListNamesResponse).GetLimits, "/"),
		RunE: func(command *cobra.Command, args []string) error {
			key, err := k.key(args)
			if err != nil {
				return err
			}
			if err := form.check(); err != nil {
				return err
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.Inspect, &adminv1.InspectRequest{Key: key, Plan: plan})
			if err != nil {
				return err
			}
			if form == asJSON {
				return failed(printJSON(p.Stdout, inspectedOf(response)))
			}
			return failed(printInspected(p.Stdout, response))
		},
	}
	f := command.Flags()
	c.register(f)
	form.register(f)
	k.register(f)
	f.StringVar(&plan, "plan", "", "the `NAME` of the plan of the key's requests; its rates are told then")
	c.completeLimit(command)
	return command
}

// rateOf gives a rate of the wire.
func rateOf(r *adminv1.Rate) limit.Rate {
	return limit.Rate{Units: int64(r.GetUnits()), Window: micros(r.GetWindow()), Burst: int64(r.GetBurst())}
}

// rateText writes a rate as policies do, with its burst.
func rateText(r *adminv1.Rate) string {
	text := limit.Rate{Units: int64(r.GetUnits()), Window: micros(r.GetWindow())}.String()
	if r.GetBurst() > 0 {
		text += fmt.Sprintf(" burst %d", r.GetBurst())
	}
	return text
}

func printInspected(to io.Writer, r *adminv1.InspectResponse) error {
	fmt.Fprintf(to, "limit %s, key %s: %s, mode %s", r.GetLimit(), cmp.Or(r.GetKey(), "(one for all)"), r.GetAlgorithm(), r.GetMode())
	if r.GetPlan() != "" {
		fmt.Fprintf(to, ", plan %s", r.GetPlan())
	}
	if r.GetShadow() {
		fmt.Fprint(to, ", in shadow: never denied")
	}
	if r.GetUnlimited() {
		fmt.Fprint(to, ", unlimited")
	}
	if r.GetCost() > 1 {
		fmt.Fprintf(to, ", a request costs %d", r.GetCost())
	}
	fmt.Fprintln(to)
	if r.GetUnlimited() {
		return nil
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RATE\tUSED\tREMAINING\tNEXT FREE\tEMPTY IN")
	for _, rate := range r.GetRates() {
		free := in(rate.GetFreeIn())
		if rate.GetNever() {
			free = "never"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", rateText(rate.GetRate()), rate.GetUsed(), rate.GetRemaining(), free, in(rate.GetResetIn()))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	holders := holdersOf(r.GetLeases())
	if len(holders) == 0 {
		_, err := fmt.Fprintln(to, "\nno leases are out")
		return err
	}
	fmt.Fprintln(to)
	fmt.Fprintln(table, "HELD BY\tLEASES\tUNITS\tENDS IN")
	for _, h := range holders {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", h.who, h.leases, h.units, brief(h.endIn))
		for _, part := range holdersOf(h.parts) {
			fmt.Fprintf(table, "  of it %s\t%d\t%d\t%s\n", part.who, part.leases, part.units, brief(part.endIn))
		}
	}
	return table.Flush()
}

// holder is a worker with leases of a key, or a replica with such that it divides: what it has given away of them is in parts.
type holder struct {
	who                  string
	leases, units, endIn uint64
	parts                []*adminv1.Lease
}

// holdersOf sums leases up by who holds them, who has most of them first.
func holdersOf(leases []*adminv1.Lease) []holder {
	var holders []holder
	for _, l := range leases {
		who := fmt.Sprintf("worker %016x", l.GetWorkerId())
		if l.GetReplicaId() != 0 {
			who = fmt.Sprintf("replica %016x", l.GetReplicaId())
		}
		at := slices.IndexFunc(holders, func(h holder) bool { return h.who == who })
		if at < 0 {
			at = len(holders)
			holders = append(holders, holder{who: who})
		}
		h := &holders[at]
		h.leases, h.units, h.endIn = h.leases+1, h.units+l.GetUnits(), max(h.endIn, l.GetEndIn())
		h.parts = append(h.parts, l.GetParts()...)
	}
	slices.SortFunc(holders, func(a, b holder) int { return cmp.Or(cmp.Compare(b.units, a.units), cmp.Compare(a.who, b.who)) })
	return holders
}

// inspected is what inspect -o json prints.
type inspected struct {
	Limit     string           `json:"limit"`
	Key       string           `json:"key"`
	Algorithm string           `json:"algorithm"`
	Mode      string           `json:"mode"`
	Plan      string           `json:"plan,omitempty"`
	Unlimited bool             `json:"unlimited"`
	Shadow    bool             `json:"shadow"`
	Cost      uint64           `json:"cost"`
	Rates     []inspectedRate  `json:"rates"`
	Leases    []inspectedLease `json:"leases"`
}

type inspectedRate struct {
	Rate      string  `json:"rate"`
	Units     uint64  `json:"units"`
	Window    float64 `json:"window_seconds"`
	Burst     uint64  `json:"burst,omitempty"`
	Used      uint64  `json:"used"`
	Remaining uint64  `json:"remaining"`
	FreeIn    float64 `json:"free_in_seconds"`
	Never     bool    `json:"never"`
	ResetIn   float64 `json:"reset_in_seconds"`
}

type inspectedLease struct {
	ID string `json:"id"`
	// Worker or Replica holds it. Parts is what a replica has given workers of it, where it is the one that answers.
	Worker  string           `json:"worker,omitempty"`
	Replica string           `json:"replica,omitempty"`
	Units   uint64           `json:"units"`
	Age     float64          `json:"age_seconds"`
	EndIn   float64          `json:"end_in_seconds"`
	Parts   []inspectedLease `json:"parts,omitempty"`
}

func inspectedLeaseOf(l *adminv1.Lease) inspectedLease {
	out := inspectedLease{ID: l.GetId(), Units: l.GetUnits(), Age: seconds(l.GetAge()), EndIn: seconds(l.GetEndIn())}
	if l.GetReplicaId() != 0 {
		out.Replica = fmt.Sprintf("%016x", l.GetReplicaId())
	} else {
		out.Worker = fmt.Sprintf("%016x", l.GetWorkerId())
	}
	for _, part := range l.GetParts() {
		out.Parts = append(out.Parts, inspectedLeaseOf(part))
	}
	return out
}

func inspectedOf(r *adminv1.InspectResponse) inspected {
	out := inspected{
		Limit: r.GetLimit(), Key: r.GetKey(), Algorithm: r.GetAlgorithm(), Mode: r.GetMode(), Plan: r.GetPlan(), Unlimited: r.GetUnlimited(),
		Shadow: r.GetShadow(), Cost: r.GetCost(), Rates: []inspectedRate{}, Leases: []inspectedLease{},
	}
	for _, rate := range r.GetRates() {
		out.Rates = append(out.Rates, inspectedRate{
			Rate: rateOf(rate.GetRate()).String(), Units: rate.GetRate().GetUnits(), Window: seconds(rate.GetRate().GetWindow()),
			Burst: rate.GetRate().GetBurst(), Used: rate.GetUsed(), Remaining: rate.GetRemaining(), FreeIn: seconds(rate.GetFreeIn()),
			Never: rate.GetNever(), ResetIn: seconds(rate.GetResetIn()),
		})
	}
	for _, l := range r.GetLeases() {
		out.Leases = append(out.Leases, inspectedLeaseOf(l))
	}
	return out
}

func newReset(p Process) *cobra.Command {
	c := client{process: p}
	var k keyFlags
	command := &cobra.Command{
		Use:   "reset KEY",
		Short: "Forget what a key has spent",
		Long: "Reset forgets what a key has spent, in all of its windows. A worker that denies the key does so for up to " + deniesFor.String() + " more,\n" +
			"for that is how long it may go by what it knows. Leases that are out may still be spent: see inspect.\n\n" + keyHelp,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.names((*adminv1.ListNamesResponse).GetLimits, "/"),
		RunE: func(command *cobra.Command, args []string) error {
			key, err := k.key(args)
			if err != nil {
				return err
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.Reset, &adminv1.ResetRequest{Key: key})
			if err != nil {
				return err
			}
			fmt.Fprintf(p.Stdout, "limit %s, key %s: nothing is spent any more; workers that deny it find out within %v\n",
				response.GetLimit(), cmp.Or(response.GetKey(), "(one for all)"), deniesFor)
			return nil
		},
	}
	c.register(command.Flags())
	k.register(command.Flags())
	c.completeLimit(command)
	return command
}

// deniesFor is how long a worker goes by a denial before it asks again.
const deniesFor = 5 * time.Second
