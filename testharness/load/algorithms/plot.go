package main

import (
	"fmt"
	"image/color"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	gonumdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"sluice/shared/limit"
)

// styles are told apart by colour, and by their dashes where a printer makes them grey.
var styles = map[limit.Algorithm]gonumdraw.LineStyle{
	limit.SlidingLog:           {Color: color.NRGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}, Width: vg.Points(2)},
	limit.SlidingWindowCounter: {Color: color.NRGBA{R: 0xe0, G: 0x7b, B: 0x10, A: 0xff}, Width: vg.Points(1.6), Dashes: []vg.Length{vg.Points(8), vg.Points(3)}},
	limit.FixedWindow:          {Color: color.NRGBA{R: 0xc8, G: 0x1e, B: 0x1e, A: 0xff}, Width: vg.Points(1.6), Dashes: []vg.Length{vg.Points(3), vg.Points(3)}},
	limit.TokenBucket:          {Color: color.NRGBA{R: 0x2c, G: 0x8c, B: 0x3c, A: 0xff}, Width: vg.Points(1.2), Dashes: []vg.Length{vg.Points(1), vg.Points(2)}},
}

func ticks(values ...float64) plot.ConstantTicks {
	var marks plot.ConstantTicks
	for _, v := range values {
		marks = append(marks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', -1, 64)})
	}
	return marks
}

// draw draws the curves into an SVG file; the buckets lie on the log, and are left out.
func draw(curves []curve, file string) error {
	p := plot.New()
	p.Title.Text = "1000 a minute, asked for twenty times that from second 55 on"
	p.X.Label.Text, p.Y.Label.Text = "seconds", "admitted within the last minute ÷ limit"
	p.Y.Min, p.Y.Max, p.X.Max = 0, 2.5, burstEnds.Seconds()
	p.X.Tick.Marker = ticks(0, 60, 120, 180)
	p.Y.Tick.Marker = ticks(0, 0.5, 1, 1.5, 2)
	p.Title.Padding, p.X.Label.Padding, p.Y.Label.Padding = vg.Points(8), vg.Points(4), vg.Points(4)
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.ThumbnailWidth = true, true, vg.Points(10), vg.Points(28)
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.Legend.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		style.Font.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	faint := color.NRGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	for _, c := range curves {
		style, drawn := styles[c.algorithm]
		if !drawn {
			continue
		}
		points := make(plotter.XYs, len(c.seconds))
		for i := range points {
			points[i] = plotter.XY{X: c.seconds[i], Y: c.held[i]}
		}
		l, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("%v: %w", c.algorithm, err)
		}
		l.LineStyle = style
		p.Add(l)
		p.Legend.Add(c.algorithm.String(), l)
	}
	canvas := vgsvg.New(22*vg.Centimeter, 11*vg.Centimeter)
	p.Draw(gonumdraw.Crop(gonumdraw.New(canvas), vg.Points(8), -vg.Points(12), vg.Points(8), -vg.Points(8)))
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("the plot: %w", err)
	}
	if _, err := canvas.WriteTo(out); err != nil {
		out.Close()
		return fmt.Errorf("the plot: %w", err)
	}
	return out.Close()
}
