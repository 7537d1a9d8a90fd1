package limit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		text   string
		units  int64
		window time.Duration
		as     string // what String gives
	}{
		{"10/s", 10, time.Second, "10/s"},
		{"600/m", 600, time.Minute, "600/m"},
		{"5/h", 5, time.Hour, "5/h"},
		{"1/d", 1, 24 * time.Hour, "1/24h"},
		{"100/24h", 100, 24 * time.Hour, "100/24h"},
		{"120/60s", 120, time.Minute, "120/m"},
		{"1/7d", 1, 7 * 24 * time.Hour, "1/168h"},
		{"1/366d", 1, MaxWindow, "1/8784h"},
		{"1/90s", 1, 90 * time.Second, "1/90s"},
		{"1/1m30s", 1, 90 * time.Second, "1/90s"},
		{"1/250ms", 1, 250 * time.Millisecond, "1/250ms"},
		{"1/1500us", 1, 1500 * time.Microsecond, "1/1500us"},
		{"1/1.5s", 1, 1500 * time.Millisecond, "1/1500ms"},
		{"1/1ms", 1, MinWindow, "1/1ms"},
		{"0/s", 0, time.Second, "0/s"},
		{"1000000000000/s", MaxUnits, time.Second, "1000000000000/s"},
		{" 10 / 2s\t", 10, 2 * time.Second, "10/2s"},
	} {
		got, err := ParseRate(c.text)
		if want := (Rate{Units: c.units, Window: c.window}); err != nil || got != want {
			t.Errorf("%q: got %v, %v", c.text, got, err)
		}
		if got.String() != c.as {
			t.Errorf("%q: written as %s, want %s", c.text, got, c.as)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	const (
		units  = "units are not a whole number from 0 to 1000000000000"
		window = "the window is not a duration"
		span   = "the window is not from 1ms to 8784h0m0s in whole microseconds"
	)
	for text, what := range map[string]string{
		"": "has no slash", "10": "has no slash", "10 per s": "has no slash",
		"/s": units, "-1/s": units, "1.5/s": units, "1e3/s": units, "1_000/s": units, "ten/s": units,
		"1000000000001/s": units, "9223372036854775808/s": units, "99999999999999999999/s": units,
		"1/": window, "1/x": window, "1/s/s": window, "1/5": window, "1/d5": window, "1/-1d": window, "1/1.5d": window, "1/99999d": window,
		"1/0s": span, "1/0d": span, "1/-1s": span, "1/999us": span, "1/1000.5us": span, "1/1000001ns": span, "1/367d": span,
		"1/8784h1us": span, "1/2562047h": span,
	} {
		_, err := ParseRate(text)
		if !errors.Is(err, ErrRate) || !strings.Contains(err.Error(), what+"; want a rate such as") {
			t.Errorf("%q: got %v, want %s", text, err, what)
		}
	}
	if _, err := ParseRate(strings.Repeat("x", 1<<20)); len(err.Error()) > 300 {
		t.Errorf("the error about a long text has %d bytes", len(err.Error()))
	}
}

func TestARateIsReadAsItIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Rate{
			Units:  rapid.Int64Range(0, MaxUnits).Draw(t, "units"),
			Window: time.Duration(rapid.Int64Range(MinWindow.Microseconds(), MaxWindow.Microseconds()).Draw(t, "window")) * time.Microsecond,
		}
		unit := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
		want.Window = max(want.Window.Truncate(unit), MinWindow)
		if got, err := ParseRate(want.String()); err != nil || got != want {
			t.Fatalf("%v written as %s is read as %v, %v", want.Window, want, got, err)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"10/s", "600/m", "100/24h", "1/7d", "0/1.5s", "/", "-1/s", "1/1h1m1s1ms1us", "1/９s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := ParseRate(text)
		if err != nil {
			if !errors.Is(err, ErrRate) || len(err.Error()) > 600 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if rate.Units < 0 || rate.Units > MaxUnits || rate.Window < MinWindow || rate.Window > MaxWindow || rate.Window%time.Microsecond != 0 {
			t.Fatalf("%q is read as %d per %v", text, rate.Units, rate.Window)
		}
		if again, err := ParseRate(rate.String()); err != nil || again != rate {
			t.Fatalf("%q is read as %s, and that as %v, %v", text, rate, again, err)
		}
	})
}

// The policy's words and the wire's numbers; neither ever changes.
func TestNames(t *testing.T) {
	for n, word := range []string{1: "sliding_log", 2: "sliding_buckets", 3: "sliding_window_counter", 4: "fixed_window", 5: "token_bucket"} {
		if got, ok := ParseAlgorithm(word); ok != (n > 0) || int(got) != n || n > 0 && got.String() != word {
			t.Errorf("algorithm %q: got %v, %v", word, got, ok)
		}
	}
	for n, word := range []string{1: "strict", 2: "lease", 3: "async"} {
		if got, ok := ParseMode(word); ok != (n > 0) || int(got) != n || n > 0 && got.String() != word {
			t.Errorf("mode %q: got %v, %v", word, got, ok)
		}
	}
	for n, word := range []string{1: "local", 2: "allow", 3: "deny"} {
		if got, ok := ParseUnavailable(word); ok != (n > 0) || int(got) != n || n > 0 && got.String() != word {
			t.Errorf("choice %q: got %v, %v", word, got, ok)
		}
	}
	for _, word := range []string{"Strict", " strict", "mode(1)", "strictly"} {
		if got, ok := ParseMode(word); ok {
			t.Errorf("%q is read as %v", word, got)
		}
	}
	for text, want := range map[string]string{
		Algorithm(0).String(): "algorithm(0)", Algorithm(6).String(): "algorithm(6)", Mode(0).String(): "mode(0)",
		Mode(255).String(): "mode(255)", Unavailable(0).String(): "on_unavailable(0)", Unavailable(4).String(): "on_unavailable(4)",
	} {
		if text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}

func TestValidBurst(t *testing.T) {
	for _, c := range []struct {
		units, burst int64
		window       time.Duration
		want         bool
	}{
		{10, 0, time.Second, true},
		{10, 1, time.Second, true},
		{10, -1, time.Second, false},
		{1, 366 * 24, time.Hour, true},
		{1, 366*24 + 1, time.Hour, false},
		{0, 1, time.Hour, false},
		{MaxUnits, MaxUnits, MaxWindow, true},
		{MaxUnits, MaxUnits + 1, time.Second, false},
		{MaxUnits - 1, MaxUnits, MaxWindow, false},
	} {
		if got := (Rate{Units: c.units, Window: c.window, Burst: c.burst}).ValidBurst(); got != c.want {
			t.Errorf("%d/%v, burst %d: %v", c.units, c.window, c.burst, got)
		}
	}
}

// auto goes by the largest of all rates, wherever it stands.
func TestAuto(t *testing.T) {
	for want, lists := range map[Algorithm][][]int64{
		SlidingLog:     {nil, {0}, {1000}, {10, 1000}},
		SlidingBuckets: {{1001}, {10, 1001}, {MaxUnits, 1}},
	} {
		for _, units := range lists {
			var rates []Rate
			for _, n := range units {
				rates = append(rates, Rate{Units: n, Window: time.Second})
			}
			if got := Auto(rates); got != want {
				t.Errorf("%v: got %v, want %v", rates, got, want)
			}
		}
	}
}
