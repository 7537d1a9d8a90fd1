package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	return nil
}

// tableRows is how many keys, routes and minutes a table has at most.
const tableRows = 10

// WriteTable writes the report for people.
func (r *Report) WriteTable(to io.Writer) error {
	var b strings.Builder
	if r.Incomplete != "" {
		fmt.Fprintf(&b, "INCOMPLETE: the log could not be read to its end, and this is of what could be: %s\n\n", r.Incomplete)
	}
	r.head(&b)
	r.limitTable(&b)
	r.keyTables(&b)
	r.routeTable(&b)
	r.minuteTable(&b)
	r.tail(&b)
	_, err := io.WriteString(to, b.String())
	if err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	return nil
}

// table writes rows of cells, the first of which are numbers and stand to the right.
func table(b *strings.Builder, rows [][]string) {
	const padding = 2
	widths := make([]int, len(rows[0]))
	number := make([]bool, len(rows[0]))
	for i, row := range rows {
		for j, cell := range row {
			widths[j] = max(widths[j], len([]rune(cell)))
			if i == 1 && j > 0 {
				number[j] = isNumber(cell)
			}
		}
	}
	w := tabwriter.NewWriter(b, 0, 0, padding, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for j, cell := range row {
			cells[j] = cell
			if number[j] {
				cells[j] = strings.Repeat(" ", widths[j]-len([]rune(cell))) + cell
			}
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t "))
	}
	_ = w.Flush() // a strings.Builder takes everything
}

func isNumber(cell string) bool { return cell != "" && strings.Trim(cell, "0123456789,.% ") == "" }

func (r *Report) head(b *strings.Builder) {
	names := make([]string, 0, len(r.Log.Files))
	for _, f := range r.Log.Files {
		names = append(names, f.Name+" ("+f.Format+")")
	}
	fmt.Fprintf(b, "%s of %s, %s to %s UTC\n", count(r.Totals.Requests, "request", "requests"), list(names), stamp(r.Log.From), stamp(r.Log.To))
	against := ""
	if r.Against != nil {
		against = ", against " + r.Against.File + " of today"
	}
	fmt.Fprintf(b, "under %s%s, as limits in mode strict would decide\n\n", r.Policy.File, against)
	rows := [][]string{{"requests", grouped(r.Totals.Requests), "", ""}}
	line := func(name string, n int64, text string) {
		rows = append(rows, []string{name, grouped(n), percent(n, r.Totals.Requests), text})
	}
	line("admitted", r.Totals.Admitted, "")
	if r.Totals.Held > 0 {
		line("  held first", r.Totals.Held, "by max_wait, for "+short(r.Totals.longestHeld)+" at most")
	}
	if r.Totals.Allowed > 0 {
		line("  on an allow list", r.Totals.Allowed, "")
	}
	line("  under no limit", r.Totals.Unlimited, "")
	line("denied", r.Totals.Denied, count(r.Totals.LimitedKeys, "key is limited", "keys are limited"))
	if r.Totals.Blocked > 0 {
		line("  on a block list", r.Totals.Blocked, "")
	}
	if c := r.Compared; c != nil {
		line("denied today", c.DeniedToday, "")
		line("newly denied", c.Newly, "admitted today")
		line("no longer denied", c.Gone, "denied today")
	}
	table(b, rows)
}

func (r *Report) limitTable(b *strings.Builder) {
	compared := r.Compared != nil
	write := func(title, denied, changed string, limits []LimitReport) {
		head := []string{title, "RATES", "REQUESTS", denied, "", "KEYS"}
		if compared {
			head = append(head, changed)
		}
		rows := [][]string{append(head, "FIRST (UTC)", "LAST (UTC)", "")}
		for _, l := range limits {
			row := []string{l.Limit, l.Rates, grouped(l.Requests), grouped(l.Denied), percent(l.Denied, l.Requests), grouped(l.Keys)}
			if compared {
				row = append(row, grouped(l.Changed))
			}
			first, last := "", ""
			if l.First != nil {
				first, last = stamp(*l.First), stamp(*l.Last)
			}
			rows = append(rows, append(row, first, last, l.also()))
		}
		if len(rows) > 1 {
			b.WriteByte('\n')
			table(b, rows)
		}
	}
	write("LIMIT", "DENIED", "NEWLY", r.Limits)
	if compared {
		write("LIMIT OF TODAY", "DENIED TODAY", "NO LONGER", r.Before)
	}
}

// also says what is not in a column of its own.
func (l *LimitReport) also() string {
	var also []string
	for _, part := range []struct {
		n    int64
		text string
	}{
		{l.ShadowDenied, "would be denied: in shadow"}, {l.Held, "held first"}, {l.DeniedToo, "denied with another limit"}, {l.Blocked, "blocked"},
	} {
		if part.n > 0 {
			also = append(also, grouped(part.n)+" "+part.text)
		}
	}
	return strings.Join(also, "; ")
}

func (r *Report) keyTables(b *strings.Builder) {
	write := func(title, limit, denials string, all []KeyReport, columns ...string) {
		if len(all) == 0 {
			return
		}
		head := append([]string{title, limit, "REQUESTS", denials, ""}, columns...)
		rows := [][]string{append(head, "FIRST (UTC)", "LAST (UTC)")}
		for _, k := range all[:min(len(all), tableRows)] {
			denied, first, last := k.Denied, "", ""
			limit := k.Limit
			if k.Denied > 0 {
				first, last = stamp(k.First), stamp(k.Last)
			} else {
				denied = k.ShadowDenied
				limit += " (shadow)"
			}
			row := []string{k.name(), limit, grouped(k.Requests), grouped(denied), percent(denied, k.Requests)}
			for _, n := range []int64{k.Changed, k.Denied - k.Changed}[:len(columns)] {
				row = append(row, grouped(n))
			}
			rows = append(rows, append(row, first, last))
		}
		b.WriteByte('\n')
		table(b, rows)
	}
	var changed []string
	if r.Compared != nil {
		changed = []string{"NEWLY"}
	}
	write("KEY", "LIMIT", "DENIED", r.Keys, changed...)
	write("KEY OF TODAY", "LIMIT OF TODAY", "DENIED TODAY", r.Gone, "NO LONGER", "STILL")
}

// name gives the key, fit for a table.
func (k *KeyReport) name() string {
	const most = 48
	switch {
	case k.Key == "":
		return "(all together)"
	case len(k.Key) > most:
		return k.Key[:most] + "…"
	}
	return k.Key
}

func (r *Report) routeTable(b *strings.Builder) {
	rows := [][]string{{"ROUTE", "REQUESTS", "DENIED", ""}}
	if r.Compared != nil {
		rows[0] = append(rows[0], "NEWLY", "NO LONGER")
	}
	for _, route := range r.Routes[:min(len(r.Routes), tableRows)] {
		row := []string{route.name(), grouped(route.Requests), grouped(route.Denied), percent(route.Denied, route.Requests)}
		if r.Compared != nil {
			row = append(row, grouped(route.Newly), grouped(route.Gone))
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		b.WriteByte('\n')
		table(b, rows)
	}
}

func (r *Route) name() string {
	if r.Route == "" {
		return "(any path)"
	}
	return r.Route
}

func (r *Report) minuteTable(b *strings.Builder) {
	rows := [][]string{{"WORST MINUTE (UTC)", "REQUESTS", "DENIED", ""}}
	if r.Compared != nil {
		rows[0] = append(rows[0], "TODAY", "NEWLY", "NO LONGER")
	}
	for _, m := range r.Minutes[:min(len(r.Minutes), tableRows)] {
		row := []string{m.At.Format("2006-01-02 15:04"), grouped(m.Requests), grouped(m.Denied), percent(m.Denied, m.Requests)}
		if r.Compared != nil {
			row = append(row, grouped(m.Today), grouped(m.Newly), grouped(m.Gone))
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		b.WriteByte('\n')
		table(b, rows)
	}
}

// tail tells what was not read, and what else has to be known.
func (r *Report) tail(b *strings.Builder) {
	line := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	if len(r.Missing) > 0 {
		line("\nThe log lacks what the policy reads, so that the figures may be wrong:")
		for _, m := range r.Missing {
			line("  %s, read by %s; %s", m.What, list(m.By), m.Help)
		}
	}
	if l := r.Log; l.Malformed > 0 {
		line("\n%s of %s could not be read, the first of them:", grouped(l.Malformed), count(l.Lines, "line", "lines"))
		for _, p := range l.Problems {
			line("  %s:%d: %s: %s", p.File, p.Line, p.Why, p.Text)
		}
	}
	if r.Log.Late > 0 {
		line("\n%s out of order by too much, and count as if they had come with the latest before them.", count(r.Log.Late, "line is", "lines are"))
	}
	for _, note := range r.Notes {
		line("\nNote: %s.", note)
	}
}

func stamp(at time.Time) string { return at.Format("2006-01-02 15:04:05") }

func percent(n, of int64) string {
	if of == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 2, 64) + " %"
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// grouped gives a number with its thousands apart: 1,234,567.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// short gives a duration without more digits than people read.
func short(d time.Duration) string {
	if d > time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}
