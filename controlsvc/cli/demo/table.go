package demo

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/testharness/oracle"
)

// table gives the state of things, a line for each key.
func (t *tally) table() string {
	const layout = "%-28s %9s %9s %9s %9s %9s   %s\n"
	var b strings.Builder
	fmt.Fprintf(&b, layout, fmt.Sprintf("after %.1f s", t.elapsed.Seconds()), "sent", "admitted", "denied", "p50", "p99", "worst window")
	for _, row := range append(slices.Clip(t.rows), &t.all) {
		worst := ""
		if row.judge != nil {
			worst = row.worst()
		}
		line := fmt.Sprintf(layout, row.name, number(row.sent), number(row.admitted), number(row.denied),
			milliseconds(row.latency.Quantile(0.50)), milliseconds(row.latency.Quantile(0.99)), worst)
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if t.saw.requests > 0 {
		fmt.Fprintf(&b, "decided without a call: %.1f %%; calls of the service per request: %.2f\n",
			100*float64(t.saw.onTheSpot)/float64(t.saw.requests), float64(t.saw.calls)/float64(t.saw.requests))
	}
	if t.saw.held > 0 {
		fmt.Fprintf(&b, "held until a unit was free, instead of denied: %d\n", t.saw.held)
	}
	if t.saw.fallback > 0 {
		fmt.Fprintf(&b, "let through without the service, which did not answer in time: %d\n", t.saw.fallback)
	}
	if t.behind > 0 {
		fmt.Fprintf(&b, "not sent, for this machine does not keep up: %d\n", t.behind)
	}
	if t.all.failed > 0 {
		fmt.Fprintf(&b, "neither let through nor refused for a limit: %d, the first with: %v\n", t.all.failed, t.first)
	}
	return b.String()
}

// worst gives the worst window against each rate: "97 of 100/s", "7 of 10/s, 240 of 600/m".
func (r *row) worst() string {
	var parts []string
	for i, worst := range r.judge.Worst() {
		parts = append(parts, fmt.Sprintf("%d of %s", worst, rateName(r.rates[i])))
	}
	return strings.Join(parts, ", ")
}

func rateName(r oracle.Rate) string {
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m"}[r.Window]
	return fmt.Sprintf("%d/%s", r.Units, unit)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// summary is the last word on the traffic.
func (t *tally) summary(verdict error) string {
	if verdict != nil {
		return "It did not go as it should: " + verdict.Error()
	}
	text := "Every window held: at no instant had more than the limit been admitted within the window before it, as the\n" +
		"clients saw it, over both Envoys."
	if slices.ContainsFunc(t.rows, func(r *row) bool { return !r.judge.Held(0) }) {
		text += fmt.Sprintf("\nBut for %d that were let through without the service, while it did not answer in time.", t.saw.fallback)
	}
	return text
}

// screen shows one table after the other: in place on a terminal, below each other elsewhere.
type screen struct {
	out     io.Writer
	inPlace bool
	// width, in place, gives the terminal's width in characters; longer lines are cut off, for one that wraps is two.
	width func() int
	lines int
}

func (s *screen) draw(table string) {
	if s.inPlace && s.lines > 0 {
		// Up to the first line of the last table, and clear from there to the end.
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.lines)
	}
	if s.inPlace {
		table = clip(table, s.width())
	} else {
		table += "\n"
	}
	s.lines = strings.Count(table, "\n")
	fmt.Fprint(s.out, table)
}

// clip cuts every line down to a width; one of 0 or less is not known.
func clip(table string, width int) string {
	if width <= 0 {
		return table
	}
	var b strings.Builder
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		b.WriteString(line[:min(len(line), width)] + "\n")
	}
	return b.String()
}

// hints gives the lines to try, with the ports of this run.
func hints(f *fleet, executable string) string {
	addresses := f.listeners()
	return fmt.Sprintf(`
All of it is still up. Try:

  curl -i -H 'x-tenant-id: me' http://%[1]s/
  # 150 in a row, of which 100 get through; and at once as many through the other Envoy, which counts the same
  curl -s -o /dev/null -w '%%{http_code}\n' -H 'x-tenant-id: me' 'http://%[1]s/[1-150]' | sort | uniq -c
  curl -s -o /dev/null -w '%%{http_code}\n' -H 'x-tenant-id: me' 'http://%[2]s/[1-150]' | sort | uniq -c
  # under two limits at once
  curl -i -X POST -H 'x-tenant-id: me' http://%[2]s/v1/reports
  # no tenant, no limit
  curl -i http://%[1]s/
  # the dashboard: what is limited, and why
  open http://%[3]s/
  # what operators ask, and the service's log
  %[5]s status --address %[6]s
  %[5]s top --address %[6]s
  tail -f %[7]s
  # what the service counts, and what Envoy's filter does
  curl -s http://%[3]s/metrics | grep ^sluice_
  curl -s 'http://%[4]s/stats?filter=sluice'

Ctrl-C stops everything.
`, addresses[0], addresses[1], f.service.HTTP, f.envoys[0].Admin, executable, f.service.Admin, f.log.Name())
}
