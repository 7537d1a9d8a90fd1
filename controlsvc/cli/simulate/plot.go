package simulate

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// PlotFormats are the endings of the files that a plot can be drawn into.
var PlotFormats = []string{".svg", ".png"}

// PlotFormat gives a file's format; false where it is none of PlotFormats.
func PlotFormat(file string) (format string, ok bool) {
	format = strings.ToLower(filepath.Ext(file))
	return format, slices.Contains(PlotFormats, format)
}

// The colours tell apart what a printer makes grey, too.
var (
	held     = color.NRGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}
	heldArea = color.NRGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0x30}
	units    = color.NRGBA{R: 0x2c, G: 0x8c, B: 0x3c, A: 0xff}
	unitArea = color.NRGBA{R: 0x2c, G: 0x8c, B: 0x3c, A: 0x50}
	line     = color.NRGBA{R: 0xc8, G: 0x1e, B: 0x1e, A: 0xff}
	faint    = color.NRGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

// plot draws two panels over one axis of time: what the sliding window held, and what was admitted in each interval.
func (c *Config) plot(r *record, out io.Writer) error {
	whose := ""
	if c.Tenants > 1 {
		whose = fmt.Sprintf(", the first of %d tenants", c.Tenants)
	}
	window := newPanel(fmt.Sprintf("%v in mode %v, %s, load %g×, round trips of %v%s", c.Limit, c.Mode, count(c.Workers, "worker"), c.Load, c.RTT, whose),
		fmt.Sprintf("units within the last %s", short(c.Limit.Window)))
	admissions := newPanel("", "units per "+short(r.interval))
	admissions.X.Label.Text = "time (s)"

	seconds := c.Duration.Seconds()
	perInterval := float64(c.Limit.Units) * float64(r.interval) / float64(c.Limit.Window)
	err := firstError(
		add(window, "the sliding window", steps(r, r.most()), held, heldArea, nil),
		add(window, fmt.Sprintf("the limit, %d", c.Limit.Units), flat(seconds, float64(c.Limit.Units)), line, nil, dashes),
		add(admissions, "admitted", steps(r, r.admitted), units, unitArea, nil),
		add(admissions, fmt.Sprintf("the limit's mean, %.4g", perInterval), flat(seconds, perInterval), line, nil, dashes),
	)
	if err != nil {
		return err
	}
	for _, p := range []*plot.Plot{window, admissions} {
		const roomForTheLegend = 1.25
		p.X.Min, p.X.Max, p.Y.Min = 0, seconds, 0
		p.Y.Max *= roomForTheLegend
	}

	const width, height, pad = 25 * vg.Centimeter, 16 * vg.Centimeter, vg.Centimeter / 2
	var canvas vg.CanvasWriterTo = vgsvg.New(width, height)
	if format, _ := PlotFormat(c.Plot); format == ".png" {
		const dotsPerInch = 144
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dotsPerInch))}
	}
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadTop: pad, PadBottom: pad, PadLeft: pad, PadRight: pad, PadY: pad}
	panels := [][]*plot.Plot{{window}, {admissions}}
	for i, row := range plot.Align(panels, tiles, draw.New(canvas)) {
		panels[i][0].Draw(row[0])
	}
	_, err = canvas.WriteTo(out)
	return err
}

func newPanel(title, vertical string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Title.Padding = title, vg.Points(6)
	p.Title.TextStyle.Font.Size = vg.Points(13)
	p.Y.Label.Text = vertical
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(4), vg.Points(6)
	p.Legend.Top, p.Legend.Padding, p.Legend.ThumbnailWidth = true, vg.Points(2), vg.Points(22)
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(6), -vg.Points(4)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(ticks), plot.TickerFunc(ticks)
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.Legend.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		style.Font.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	return p
}

// ticks marks an axis at up to a dozen multiples of 1, 2 or 5 times a power of ten.
func ticks(least, most float64) []plot.Tick {
	const at = 12
	step := math.Pow(10, math.Floor(math.Log10((most-least)/at)))
	for _, factor := range []float64{2, 2.5, 2, 2} { // 2, 5, 10, 20 times a power of ten
		if (most-least)/step <= at {
			break
		}
		step *= factor
	}
	var marks []plot.Tick
	for i := math.Ceil(least / step); i <= math.Floor(most/step) && len(marks) <= at; i++ {
		value := i * step
		const digits = 6 // enough for the marks, too few for the errors of the product
		marks = append(marks, plot.Tick{Value: value, Label: strconv.FormatFloat(value, 'g', digits, 64)})
	}
	return marks
}

var dashes = []vg.Length{vg.Points(6), vg.Points(3)}

// add puts a line into a panel and its legend; with an area beneath it where area is not nil.
func add(p *plot.Plot, name string, points plotter.XYs, colour, area color.Color, dashed []vg.Length) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	l.Color, l.Width, l.FillColor, l.Dashes = colour, vg.Points(1.2), area, dashed
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}

// steps makes a value for each interval a level line over it.
func steps(r *record, values []int64) plotter.XYs {
	points := make(plotter.XYs, 0, 2*len(values))
	for i, value := range values {
		began, width := float64(i)*r.interval.Seconds(), r.interval.Seconds()
		points = append(points, plotter.XY{X: began, Y: float64(value)}, plotter.XY{X: began + width, Y: float64(value)})
	}
	return points
}

func flat(until, value float64) plotter.XYs {
	return plotter.XYs{{X: 0, Y: value}, {X: until, Y: value}}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
