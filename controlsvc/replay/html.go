package replay

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"
)

//go:embed report.html
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"n": grouped, "percent": percent, "join": list, "stamp": stamp,
	"iso":     func(at time.Time) string { return at.Format(time.RFC3339) },
	"minute":  func(at time.Time) string { return at.Format("2006-01-02 15:04") },
	"len64":   func(rows []KeyReport) int64 { return int64(len(rows)) },
	"first10": func(rows []Moment) []Moment { return rows[:min(len(rows), tableRows)] },
	"also":    func(l LimitReport) string { return l.also() },
	"denials": func(k KeyReport) int64 {
		if k.Denied > 0 {
			return k.Denied
		}
		return k.ShadowDenied
	},
	"share": func(n, of int64) map[string]string {
		return map[string]string{"Text": percent(n, of), "Width": strconv.FormatFloat(100*float64(n)/float64(max(1, of)), 'f', 1, 64)}
	},
	"limits": func(rows []LimitReport, compared *Compared, changed, of string) map[string]any {
		return map[string]any{"Rows": rows, "Compared": compared != nil, "Changed": changed, "Of": of}
	},
	"still": func(k KeyReport) int64 { return k.Denied - k.Changed },
	"keys": func(rows []KeyReport, compared *Compared, of, title string) map[string]any {
		return map[string]any{"Rows": rows, "Compared": compared != nil, "Of": of, "Title": title}
	},
}).Parse(pageText))

// htmlPage is a report with its plots.
type htmlPage struct {
	*Report

	Interval string
	Plots    []plot
	ByLimit  []limitPlot
	Hashed   bool
}

// plot is a picture of intervals, one unit of its width each, as high as the largest.
type plot struct {
	ID, Title, Label string
	Width, Height    int64
	Areas            []area
	Legend           []legend
	X, Y             []string
}

type area struct{ Class, Path string }

type legend struct{ Class, Text string }

type limitPlot struct {
	Name, Text, Path string
	Width, Height    int64
}

// WriteHTML writes the report as a page that needs nothing else: no script, no picture, no network.
func (r *Report) WriteHTML(to io.Writer) error {
	p := htmlPage{Report: r, Interval: words(time.Duration(r.Course.Seconds * float64(time.Second))), Hashed: r.hashed}
	if len(r.Course.Moments) > 0 {
		p.Plots = append(p.Plots, r.coursePlot(p.Interval))
		if r.Compared != nil && r.Compared.Newly+r.Compared.Gone > 0 {
			p.Plots = append(p.Plots, r.changePlot(p.Interval))
		}
	}
	for _, l := range r.Course.Limits {
		p.ByLimit = append(p.ByLimit, l.plot())
	}
	if err := page.Execute(to, p); err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	return nil
}

// coursePlot has what was denied at the bottom, and what was admitted on top of it.
func (r *Report) coursePlot(interval string) plot {
	var most int64
	denied, all := make([]int64, len(r.Course.Moments)), make([]int64, len(r.Course.Moments))
	worst := 0
	for i, m := range r.Course.Moments {
		denied[i], all[i] = m.Denied, m.Requests
		most = max(most, m.Requests)
		if m.Denied > denied[worst] {
			worst = i
		}
	}
	p := plot{
		ID: "requests", Title: "Requests per " + interval,
		Label: fmt.Sprintf("Requests per %s, from %s to %s: %s denied of %s. The figures are in the table at the end.", interval,
			stamp(r.Log.From), stamp(r.Log.To), grouped(r.Totals.Denied), grouped(r.Totals.Requests)),
		Legend: []legend{{"admitted", "admitted"}, {"denied", "denied"}},
	}
	if r.Totals.Denied > 0 {
		p.Label = fmt.Sprintf("%s The most within one interval are %s, at %s.", p.Label, grouped(denied[worst]), stamp(r.Course.Moments[worst].At))
	}
	p.scale(most, r.Course.Moments)
	p.Areas = []area{{"admitted", bars(all, p.Height, 1)}, {"denied", bars(denied, p.Height, 1)}}
	p.Y = []string{grouped(p.Height), grouped(p.Height / 2), "0"}
	return p
}

// changePlot has the newly denied above the line, and those that are no longer below it.
func (r *Report) changePlot(interval string) plot {
	var most int64
	newly, gone := make([]int64, len(r.Course.Moments)), make([]int64, len(r.Course.Moments))
	for i, m := range r.Course.Moments {
		newly[i], gone[i] = m.Newly, m.Gone
		most = max(most, m.Newly, m.Gone)
	}
	p := plot{
		ID: "changes", Title: "What changes from today, per " + interval,
		Label: fmt.Sprintf("Per %s: %s requests newly denied, above the line, and %s no longer denied, below it.", interval,
			grouped(r.Compared.Newly), grouped(r.Compared.Gone)),
		Legend: []legend{{"denied", "newly denied"}, {"gone", "no longer denied"}},
	}
	p.scale(most, r.Course.Moments)
	top := p.Height
	p.Areas = []area{{"denied", bars(newly, top, 1)}, {"gone", bars(gone, top, -1)}}
	p.Height *= 2
	p.Y = []string{grouped(top), "0", grouped(top)}
	return p
}

// scale gives the plot room for the most, a round number, and marks for its times.
func (p *plot) scale(most int64, moments []Moment) {
	p.Width, p.Height = int64(len(moments)), roundUp(most)
	const marks = 5
	first, last := moments[0].At, moments[len(moments)-1].At
	form := "2006-01-02"
	switch span := last.Sub(first); {
	case span < 10*time.Minute:
		form = "15:04:05"
	case span < 48*time.Hour:
		form = "15:04"
	case span < 300*24*time.Hour:
		form = "Jan 2"
	}
	for i := range marks {
		p.X = append(p.X, first.Add(last.Sub(first)*time.Duration(i)/(marks-1)).Format(form))
	}
}

// roundUp gives an even number of one or two digits and zeros, at least n.
func roundUp(n int64) int64 {
	unit := int64(1)
	for n/unit > 20 {
		unit *= 10
	}
	return max(2, (n+2*unit-1)/(2*unit)*2*unit)
}

// bars draws a bar for each number, up from a line or down.
func bars(numbers []int64, line, up int64) string {
	var b strings.Builder
	for i, n := range numbers {
		if n > 0 {
			fmt.Fprintf(&b, "M%d %dV%dh1V%dz", i, line, line-up*n, line)
		}
	}
	return b.String()
}

func (l *LimitCourse) plot() limitPlot {
	var sum, most int64
	for _, n := range l.Denied {
		sum += n
		most = max(most, n)
	}
	return limitPlot{
		Name: l.Limit, Text: grouped(sum) + " denied, " + grouped(most) + " at worst", Path: bars(l.Denied, most, 1),
		Width: int64(len(l.Denied)), Height: max(1, most),
	}
}

// words gives a duration that stands behind "per" or "of".
func words(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if d == unit.of {
			return "1 " + unit.name
		}
		if d%unit.of == 0 {
			return strconv.FormatInt(int64(d/unit.of), 10) + " " + unit.name + "s"
		}
	}
	return strconv.FormatFloat(d.Seconds(), 'g', -1, 64) + " s"
}
