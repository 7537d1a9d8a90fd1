package cli

import (
	"fmt"
	"io"
	"strconv"
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
			"Keys that are denied seldom may lack some of their denials, at most as many as are said to be missing. Keys and routes are\n" +
			"counted by the minute, 5 minutes or hour: over the range and up to as much more, which is said above them.\n\n" +
			"A request counts under one limit, whatever others it was under: the one that denied it, or else the one with the least\n" +
			"share left. Only limits in shadow each count all of theirs.",
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
	completeFlag(command, "by", "keys", "routes", "limits", "shadow")
	completeFlag(command, "range", string(traffic.FiveMinutes), string(traffic.Hour), string(traffic.Day))
	return command
}

func printTop(to io.Writer, by string, r *adminv1.TopResponse) error {
	t := r.GetTotal()
	fmt.Fprintf(to, "the last %s%s: %d admitted, %d denied, %d whose client left, %d near their limit, %d decided without the service\n",
		r.GetRange(), known(r), t.GetAdmitted(), t.GetDenied(), t.GetLeft(), t.GetNear(), t.GetFallback())
	if t.GetShadowAdmitted()+t.GetShadowDenied() > 0 {
		fmt.Fprintf(to, "limits in shadow would have denied %d and admitted %d\n", t.GetShadowDenied(), t.GetShadowAdmitted())
	}
	if len(r.GetRows()) == 0 {
		_, err := fmt.Fprintf(to, "no %s to list\n", by)
		return err
	}
	heads := map[string]string{"keys": "KEY\t", "shadow": "KEY\t", "routes": "ROUTE\t"}
	switch by {
	case "keys", "routes":
		fmt.Fprintf(to, "%s of the last %s:\n", by, brief(r.GetRankedFor()))
	case "shadow":
		fmt.Fprintf(to, "keys under a limit in shadow, of the last %s:\n", brief(r.GetRankedFor()))
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	if by == "shadow" {
		fmt.Fprintf(table, "LIMIT\t%sWOULD DENY\tWOULD ADMIT\tSHARE\tMISSING\n", heads[by])
	} else {
		fmt.Fprintf(table, "LIMIT\t%sDENIED\tADMITTED\tWOULD DENY\tWOULD ADMIT\tMISSING\n", heads[by])
	}
	for _, row := range r.GetRows() {
		name := ""
		if heads[by] != "" {
			name = printed(row.GetName()) + "\t"
		}
		n := row.GetCounts()
		fmt.Fprintf(table, "%s\t%s", printed(row.GetLimit()), name)
		if by == "shadow" {
			denied, admitted := n.GetShadowDenied(), n.GetShadowAdmitted()
			fmt.Fprintf(table, "%d\t%d\t%s\t", denied, admitted, share(denied, denied+admitted))
		} else {
			fmt.Fprintf(table, "%d\t%d\t%d\t%d\t", n.GetDenied(), n.GetAdmitted(), n.GetShadowDenied(), n.GetShadowAdmitted())
		}
		fmt.Fprintln(table, upTo(row.GetMissing()))
	}
	return table.Flush()
}

// known says how much of the range is known, where that is not all of it.
func known(r *adminv1.TopResponse) string {
	length, err := time.ParseDuration(r.GetRange())
	if err != nil {
		return ""
	}
	some, all := r.GetKnownFor(), r.GetWholeFor()
	lacks := micros(all) < length && brief(all) != brief(some)
	const why = " in full (a replica began or went then)"
	switch {
	case micros(some) >= length && lacks:
		return ", of which the last " + brief(all) + " are known" + why
	case micros(some) >= length:
		return ""
	case lacks:
		return ", of which the last " + brief(some) + " are known, the last " + brief(all) + why
	}
	return ", of which the last " + brief(some) + " are known"
}

// share gives a part in percent.
func share(part, of uint64) string {
	if of == 0 {
		return "none"
	}
	return strconv.FormatFloat(100*float64(part)/float64(of), 'f', 1, 64) + " %"
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
	WholeFor   float64  `json:"whole_for_seconds"`
	RankedFor  float64  `json:"ranked_for_seconds"`
	Total      counted  `json:"total"`
	Rows       []topRow `json:"rows"`
	OthersMost uint64   `json:"others_most"`
}

type counted struct {
	Admitted       uint64 `json:"admitted"`
	Denied         uint64 `json:"denied"`
	Left           uint64 `json:"left"`
	ShadowAdmitted uint64 `json:"shadow_admitted"`
	ShadowDenied   uint64 `json:"shadow_denied"`
	Near           uint64 `json:"near"`
	Fallback       uint64 `json:"fallback"`
}

type topRow struct {
	Limit string `json:"limit"`
	Name  string `json:"name,omitempty"`
	counted

	Missing uint64 `json:"missing"`
}

func countedOf(c *adminv1.Counts) counted {
	return counted{
		Admitted: c.GetAdmitted(), Denied: c.GetDenied(), Left: c.GetLeft(), ShadowAdmitted: c.GetShadowAdmitted(), ShadowDenied: c.GetShadowDenied(),
		Near: c.GetNear(), Fallback: c.GetFallback(),
	}
}

func topOf(r *adminv1.TopResponse) top {
	out := top{
		Range: r.GetRange(), Age: seconds(r.GetAge()), KnownFor: seconds(r.GetKnownFor()), WholeFor: seconds(r.GetWholeFor()),
		RankedFor: seconds(r.GetRankedFor()), Total: countedOf(r.GetTotal()), Rows: []topRow{}, OthersMost: r.GetOthersMost(),
	}
	for _, row := range r.GetRows() {
		out.Rows = append(out.Rows, topRow{row.GetLimit(), row.GetName(), countedOf(row.GetCounts()), row.GetMissing()})
	}
	return out
}
