package main

import (
	"os"
	"strings"
	"testing"

	"sluice/shared/limit"
)

// The burst and some traces show what the document says of each algorithm.
func TestPlay(t *testing.T) {
	curves, err := playBurst(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const traces = 50
	played, err := playTraces(t.Context(), traces)
	if err != nil {
		t.Fatal(err)
	}
	for i, algorithm := range algorithms {
		least, most := 1.9, 2.0
		if algorithm == limit.SlidingLog || algorithm == limit.SlidingBuckets {
			least, most = 1, 1
		}
		if got := curves[i].worst; got < least || got > most {
			t.Errorf("%v: %.3f of the limit in a window of the burst, want %v to %v", algorithm, got, least, most)
		}
		highest := 0.0
		for _, held := range curves[i].held {
			highest = max(highest, held)
		}
		if highest < least-0.02 || highest > most {
			t.Errorf("%v: the curve rises to %.3f", algorithm, highest)
		}
		if exact := most == 1; exact != (played[i].over == 0) || played[i].worst > 2.001 || played[i].admitted == 0 {
			t.Errorf("%v: %+v in %d traces", algorithm, played[i], traces)
		}
	}
	table := admissionTable(played, curves, traces) + costTable(make([]cost, len(algorithms)))
	for _, algorithm := range algorithms {
		if strings.Count(table, "| `"+algorithm.String()+"` |") != 2 {
			t.Errorf("%v is not in both of the tables:\n%s", algorithm, table)
		}
	}
	file := t.TempDir() + "/plot.svg"
	if err := draw(curves, file); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(drawn), limit.FixedWindow.String()) || strings.Contains(string(drawn), "NaN") {
		t.Errorf("the plot is no plot: %v, %.100q", err, drawn)
	}
}
