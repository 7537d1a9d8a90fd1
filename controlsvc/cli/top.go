package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"sluice/controlsvc/traffic"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// topBy are what top can rank.
var topBy = map[string]adminv1.TopBy{
	"keys": adminv1.TopBy_TOP_BY_KEYS, "routes": adminv1.TopBy_TOP_BY_ROUTES, "limits": adminv1.TopBy_TOP_BY_LIMITS,
	"shadow": adminv1.TopBy_TOP_BY_SHADOW,
}

func newTop(p Process) *cobra.Command {
	c, form := client{process: p}, output("")
	var request adminv1.TopRequest
	var by string
	command := &cobra.Command{
		Use:   "top",
		Short: "List who is denied most: keys, routes or limits",
		Long: "Top lists what is denied most, over all replicas, of what the workers have told by now: a second or some seconds ago.\n" +
			"Keys that are denied seldom may lack some of their denials, at most as many as are said to be missing.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := form.check(); err != nil {
				return err
			}
			var known bool
			if request.By, known = topBy[by]; !known {
				return fmt.Errorf("--by (%s): %q: want keys, routes, limits or shadow", variable("by"), by)
			}
			if _, known = traffic.ParseRange(request.GetRange()); !known {
				return fmt.Errorf("--range (%s): %q: want 5m, 1h or 24h", variable("range"), request.GetRange())
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.Top, &request)
			if err != nil {
				return err
			}
			if form == asJSON {
				return failed(printJSON(p.Stdout, topOf(response)))
			}
			return failed(printTop(p.Stdout, by, response))
		},
	}
	f := command.Flags()
	c.register(f)
	form.register(f)
	f.StringVar(&request.Limit, "limit", "", "the limit's `NAME`; all without")
	f.StringVar(&request.Range, "range", string(traffic.FiveMinutes), "how far back: 5m, 1h or 24h")
	f.StringVar(&by, "by", "keys", "what to list: keys, routes, limits, or shadow: keys that a limit in shadow would have denied")
	f.Uint32VarP(&request.Most, "most", "n", 20, "how many rows at most, up to 200")
	c.completeLimit(command)
	for flag, values := range map[string][]cobra.Completion{
		"by": {"keys", "routes", "limits", "shadow"}, "range": {string(traffic.FiveMinutes), string(traffic.Hour), string(traffic.Day)},
	} {
		if err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // only where there is no such flag
		}
	}
	return command
}

func printTop(to io.Writer, by string, r *adminv1.TopResponse) error {
	t := r.GetTotal()
	known := ""
	if length, err := time.ParseDuration(r.GetRange()); err == nil && micros(r.GetKnownFor()) < length {
		known = ", of which the last " + brief(r.GetKnownFor()) + " are known"
	}
	fmt.Fprintf(to, "the last %s%s: %d admitted, %d denied, %d near their limit, %d decided without the service\n",
		r.GetRange(), known, t.GetAdmitted(), t.GetDenied(), t.GetNear(), t.GetFallback())
	if len(r.GetRows()) == 0 {
		_, err := fmt.Fprintf(to, "no %s to list\n", by)
		return err
	}
	heads := map[string]string{"keys": "KEY\t", "shadow": "KEY\t", "routes": "ROUTE\t"}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "LIMIT\t%sDENIED\tADMITTED\tIN SHADOW\tMISSING\n", heads[by])
	for _, row := range r.GetRows() {
		name := ""
		if heads[by] != "" {
			name = printed(row.GetName()) + "\t"
		}
		n := row.GetCounts()
		fmt.Fprintf(table, "%s\t%s%d\t%d\t%d\t%s\n", printed(row.GetLimit()), name, n.GetDenied(), n.GetAdmitted(), n.GetShadowDenied(), upTo(row.GetMissing()))
	}
	return table.Flush()
}

// printed keeps from a terminal what would do something there: names are what workers report.
func printed(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, name)
}

// upTo says how much is missing at most.
func upTo(n uint64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("up to %d", n)
}

// top is what top -o json prints.
type top struct {
	Range      string   `json:"range"`
	Age        float64  `json:"age_seconds"`
	KnownFor   float64  `json:"known_for_seconds"`
	Total      counted  `json:"total"`
	Rows       []topRow `json:"rows"`
	OthersMost uint64   `json:"others_most"`
}

type counted struct {
	Admitted     uint64 `json:"admitted"`
	Denied       uint64 `json:"denied"`
	ShadowDenied uint64 `json:"shadow_denied"`
	Near         uint64 `json:"near"`
	Fallback     uint64 `json:"fallback"`
}

type topRow struct {
	Limit string `json:"limit"`
	Name  string `json:"name,omitempty"`
	counted

	Missing uint64 `json:"missing"`
}

func countedOf(c *adminv1.Counts) counted {
	return counted{c.GetAdmitted(), c.GetDenied(), c.GetShadowDenied(), c.GetNear(), c.GetFallback()}
}

func topOf(r *adminv1.TopResponse) top {
	out := top{
		Range: r.GetRange(), Age: seconds(r.GetAge()), KnownFor: seconds(r.GetKnownFor()), Total: countedOf(r.GetTotal()), Rows: []topRow{},
		OthersMost: r.GetOthersMost(),
	}
	for _, row := range r.GetRows() {
		out.Rows = append(out.Rows, topRow{row.GetLimit(), row.GetName(), countedOf(row.GetCounts()), row.GetMissing()})
	}
	return out
}
