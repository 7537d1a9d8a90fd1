package simulate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/testharness/sim"
)

// hot is a limit that four workers ask for twice as much of as there is.
func hot(out io.Writer) Config {
	return Config{
		Limit: limit.Rate{Units: 100, Window: time.Second}, Mode: limit.Lease, Workers: 4, Tenants: 2, Load: 2, Duration: 5 * time.Second,
		RTT: time.Millisecond, Jitter: time.Millisecond, Timeout: 200 * time.Millisecond, Loss: 0.01, Seed: 7, Out: out,
		Now: func() instant.Instant { return 0 },
	}
}

func TestFigures(t *testing.T) {
	for _, mode := range []limit.Mode{limit.Lease, limit.Strict} {
		t.Run(mode.String(), func(t *testing.T) {
			var first, second bytes.Buffer
			for _, out := range []*bytes.Buffer{&first, &second} {
				c := hot(out)
				c.Mode, c.JSON = mode, true
				if err := Run(c); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(first.String(), second.String()); diff != "" {
				t.Errorf("the same seed (-first +second):\n%s", diff)
			}
			var got report
			decoder := json.NewDecoder(&first)
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&got); err != nil {
				t.Fatal(err)
			}
			want := scenario{
				Limit: "100/s", Algorithm: "sliding_log", Mode: mode.String(), Workers: 4, Tenants: 2, Load: 2, Duration: "5s", RTT: "1ms", Jitter: "1ms", MaxWait: "0s",
				Timeout: "200ms", Loss: 0.01, Seed: 7,
			}
			if diff := cmp.Diff(want, got.Scenario); diff != "" {
				t.Errorf("the scenario (-want +got):\n%s", diff)
			}
			// Two tenants at twice their 100/s for five seconds.
			if got.Requests < 1800 || got.Requests > 2200 || got.Possible < 900 || got.Possible > 1200 {
				t.Errorf("%d requests, %d possible; want about 2000 and 1000", got.Requests, got.Possible)
			}
			if got.WorstWindow > 1 || got.WorstWindow < 0.9 || len(got.Violations) > 0 {
				t.Errorf("worst window %g, violations %q; want at most 1, none", got.WorstWindow, got.Violations)
			}
			if got.AdmittedOfPossible < 0.8 || got.AdmittedOfPossible > 1.05 || got.Calls == 0 || got.StoreOperations == 0 || got.Waited == 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	c := hot(&out)
	c.Duration = 500 * time.Millisecond
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"100/s in mode lease: 4 workers, 2 tenants with a load of 2× each, 500ms of virtual time\n",
		"round trips of 1ms and 1ms of jitter, 1 % of messages lost, timeout 200ms, sliding_log, seed 7\n",
		"requests  ", "admitted  ", "waited  ", "calls  ", "store operations  ", "per request", "of the limit: it never held more\n", "shorter than the window of 1s",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the table lacks %q:\n%s", part, &out)
		}
	}
}

// TestABrokenGuaranteeIsSaid: a store that admits one unit more is noticed, said, and an error.
func TestABrokenGuaranteeIsSaid(t *testing.T) {
	var out bytes.Buffer
	c := hot(&out)
	s := c.scenario()
	s.Mutation = sim.OneMore
	err := c.run(s)
	if !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "with seed 7") {
		t.Errorf("the error is %v; want ErrBroken with the seed", err)
	}
	for _, part := range []string{"what broke the guarantee", "101 units of tenant/", "1.01"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the table lacks %q:\n%s", part, &out)
		}
	}
	if strings.Contains(out.String(), "never held more") {
		t.Errorf("the table says that it never held more:\n%s", &out)
	}
}

func TestPlots(t *testing.T) {
	for _, name := range PlotFormats {
		t.Run(name, func(t *testing.T) {
			c := hot(io.Discard)
			c.Plot = filepath.Join(t.TempDir(), "plot"+name)
			if err := Run(c); err != nil {
				t.Fatal(err)
			}
			drawn, err := os.ReadFile(c.Plot)
			if err != nil {
				t.Fatal(err)
			}
			if name == ".png" {
				if _, err := png.Decode(bytes.NewReader(drawn)); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err := xml.Unmarshal(drawn, new(struct{})); err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"time (s)", "units within the last 1s", "units per 20ms", "the limit, 100", "admitted", "the first of 2 tenants"} {
				if !bytes.Contains(drawn, []byte(part)) {
					t.Errorf("the plot lacks %q", part)
				}
			}
		})
	}
	c := hot(io.Discard)
	c.Plot = filepath.Join(t.TempDir(), "none", "plot.svg")
	if err := Run(c); err == nil || !strings.Contains(err.Error(), c.Plot) {
		t.Errorf("a plot where there is no folder: %v", err)
	}
}

// TestRecord holds what a plot shows against a count of every admission, at the beginning of each interval.
func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		windows := []time.Duration{10 * time.Millisecond, time.Second, time.Minute}
		l := limit.Rate{Units: 10, Window: rapid.SampledFrom(windows).Draw(t, "window")}
		duration := time.Duration(rapid.Int64Range(int64(l.Window/20), int64(20*l.Window)).Draw(t, "duration"))
		r := newRecord(l, duration)
		if n := len(r.admitted); n < 1 || n > 1001 {
			t.Fatalf("%d intervals of %v within %v", n, r.interval, duration)
		}
		times := rapid.SliceOf(rapid.Int64Range(0, int64(duration-1))).Draw(t, "times")
		for _, at := range times {
			r.spent("tenant", firstTenant, time.Duration(at), 1)
			r.spent("tenant", "tenant1", time.Duration(at), 1)
		}
		most := r.most()
		for i := range most {
			began, want := time.Duration(i)*r.interval, int64(0)
			for _, at := range times {
				if d := time.Duration(at); d < began && d >= began-l.Window {
					want++
				}
			}
			if most[i] != want {
				t.Fatalf("%v after the beginning: %d; want %d", began, most[i], want)
			}
		}
	})
}

func TestTicks(t *testing.T) {
	for _, most := range []float64{0.001, 0.7, 1, 3, 10, 12.5, 60, 1250, 31_536_000} {
		marks := ticks(0, most)
		if len(marks) < 5 || len(marks) > 13 || marks[0].Value != 0 || marks[len(marks)-1].Value > most {
			t.Errorf("0 to %g: %v", most, marks)
		}
	}
	if n := len(ticks(0, math.SmallestNonzeroFloat64)); n > 13 {
		t.Errorf("%d marks for next to nothing", n)
	}
}

// TestProgress: a bar is drawn once a run takes long, and not for one that does not.
func TestProgress(t *testing.T) {
	for _, step := range []struct {
		name string
		tick time.Duration
		bar  bool
	}{{"a short run", time.Microsecond, false}, {"a long run", time.Second, true}} {
		t.Run(step.name, func(t *testing.T) {
			var drawn bytes.Buffer
			now := instant.Instant(0)
			c := hot(io.Discard)
			c.Progress = &drawn
			c.Now = func() instant.Instant { now = now.Add(step.tick); return now }
			if err := Run(c); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(drawn.String(), "simulating 5s") != step.bar {
				t.Errorf("drawn: %q", &drawn)
			}
		})
	}
}
