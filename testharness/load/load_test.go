package load

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/testharness/oracle"
	"sluice/testharness/pace"
)

func TestArrivals(t *testing.T) {
	fixed := Fixed(300)
	total := time.Duration(0)
	for range 900 {
		total += fixed()
	}
	if total != 3*time.Second {
		t.Errorf("900 at 300/s take %v", total)
	}
	poisson := Poisson(1000, rand.New(rand.NewPCG(1, 2)))
	total = 0
	for range 100_000 {
		total += poisson()
	}
	if total < 98*time.Second || total > 102*time.Second {
		t.Errorf("100000 at 1000/s take %v", total)
	}
}

func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour)), 1, 200).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		var h Histogram
		for _, v := range values {
			h.Add(time.Duration(v))
		}
		slices.Sort(values)
		rank := max(1, int(ceil(q*float64(len(values)))))
		exact := time.Duration(values[rank-1])
		got := h.Quantile(q)
		if got < exact || float64(got) > float64(exact)*(1+1.0/64)+1 {
			t.Fatalf("quantile %v: %d, exactly %d", q, got, exact)
		}
		if h.Max() != time.Duration(values[len(values)-1]) || h.Count() != int64(len(values)) {
			t.Fatal("max or count")
		}
	})
	var h Histogram
	h.Add(-1)
	h.Add(1<<63 - 1)
	if h.Quantile(0) != 0 || h.Quantile(1) != 1<<63-1 {
		t.Error(h.Quantile(0), h.Quantile(1))
	}
}

func ceil(x float64) float64 {
	n := float64(int64(x))
	if n < x {
		n++
	}
	return n
}

// TestJudgeForgetsNothingThatMatters: the judge, which forgets, agrees with the oracle, which is shown everything at once.
func TestJudgeForgetsNothingThatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := []oracle.Rate{{Units: 10, Window: time.Second}, {Units: 20, Window: 3 * time.Second}}
		judge := NewJudge(rates...)
		var all []oracle.Interval
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "admissions") {
			now += time.Duration(rapid.IntRange(0, 700).Draw(t, "gap")) * time.Millisecond
			answered := now - time.Duration(rapid.IntRange(0, 999).Draw(t, "told late"))*time.Millisecond
			left := answered - time.Duration(rapid.IntRange(0, 2000).Draw(t, "took"))*time.Millisecond
			all = append(all, oracle.Interval{Left: left, Answered: answered, Units: 1})
			judge.Admitted(left, answered)
			if rapid.IntRange(0, 9).Draw(t, "look") == 0 {
				judge.Worst()
			}
		}
		for i, worst := range judge.Worst() {
			if want := oracle.WorstWindow(all, rates[i].Window); worst != want {
				t.Fatalf("%v: worst %d, want %d", rates[i], worst, want)
			}
			if held := oracle.WorstWindow(all, rates[i].Window) <= rates[i].Units; judge.Held(0) && !held {
				t.Fatal("says that it held")
			}
		}
		if len(judge.kept) > 200 {
			t.Fatal("keeps everything")
		}
	})
}

func TestJudge(t *testing.T) {
	judge := NewJudge(oracle.Rate{Units: 2, Window: time.Second})
	judge.Admitted(0, 10*time.Millisecond)
	judge.Admitted(500*time.Millisecond, 510*time.Millisecond)
	if !judge.Held(0) {
		t.Error("2 of 2 do not hold")
	}
	// Left exactly a window before the third answer: it may have been admitted outside.
	judge.Admitted(900*time.Millisecond, time.Second)
	if !judge.Held(0) {
		t.Error("a window is open at its start")
	}
	judge.Admitted(501*time.Millisecond, 999*time.Millisecond)
	if judge.Held(0) || judge.Worst()[0] != 3 || !judge.Held(1) {
		t.Error("3 of 2 hold, or not with one besides")
	}
}

// TestJudgeIsBounded: against a limiter that admits everything, memory stays bounded and the verdict stays "no".
func TestJudgeIsBounded(t *testing.T) {
	judge := NewJudge(oracle.Rate{Units: 1 << 40, Window: time.Hour})
	for i := range mostKept + 3*evaluateAfter {
		at := time.Duration(i)
		judge.kept = append(judge.kept, oracle.Interval{Left: at, Answered: at, Units: 1})
	}
	judge.Admitted(time.Second, time.Second)
	judge.evaluate()
	if len(judge.kept) > mostKept || judge.Held(0) {
		t.Error(len(judge.kept), judge.Held(0))
	}
}

// TestPossible: against an oracle that is asked for each request in turn.
func TestPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rates []oracle.Rate
		for range rapid.IntRange(1, 3).Draw(t, "rates") {
			rates = append(rates, oracle.Rate{
				Units:  rapid.Int64Range(0, 5).Draw(t, "units"),
				Window: time.Duration(rapid.IntRange(1, 50).Draw(t, "window")),
			})
		}
		limiter := oracle.New(rates...)
		var left []time.Duration
		want := int64(0)
		now := time.Duration(0)
		for range rapid.IntRange(0, 60).Draw(t, "requests") {
			now += time.Duration(rapid.IntRange(0, 10).Draw(t, "gap"))
			left = append(left, now)
			want += limiter.Reserve(now, "", 1, 1, 0, 0).Units
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		if got := Possible(left, rates...); got != want {
			t.Fatalf("%v: %d possible, want %d", rates, got, want)
		}
	})
}

func TestRunOpen(t *testing.T) {
	var seen atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seen.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Header.Get("x-tenant-id")+string(body))
	}))
	defer server.Close()
	pace.Try(t, func(p *pace.Trial) {
		seen.Store(0)
		runOpen(p, server.Listener.Addr().String(), &seen)
	})
}

func runOpen(p *pace.Trial, address string, seen *atomic.Int64) {
	p.Helper()
	t := p.T
	var records []Record
	progress := 0
	err := Run(t.Context(), Options{
		Targets: []string{address, address},
		Flows: []Flow{
			{Name: "a", Request: NewRequest("GET", "/", [][2]string{{"x-tenant-id", "a"}}, ""), Arrivals: Fixed(200)},
			{Name: "b", Request: NewRequest("POST", "/", nil, "body"), Arrivals: Fixed(100)},
		},
		For: 500 * time.Millisecond, Every: 100 * time.Millisecond,
		Observe:  func(r Record) { records = append(records, r) },
		Progress: func(time.Duration) { progress++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	perFlow, perTarget := [2]int{}, [2]int{}
	for _, r := range records {
		perFlow[r.Flow]++
		perTarget[r.Target]++
		if r.Err != nil || r.Due > r.Left || r.Left > r.Answered || r.Admitted() == r.Denied() {
			t.Errorf("%+v", r)
		}
	}
	if perFlow[0] > 100 || perFlow[1] > 50 || perTarget[0]-perTarget[1] > 2 {
		t.Error(perFlow, perTarget)
	}
	if perFlow[0] < 90 || perFlow[1] < 40 || progress < 3 {
		p.Shortf("%v of 100 and 50 sent, told %d times of 5", perFlow, progress)
	}
	if int(seen.Load()) != len(records) {
		t.Errorf("%d arrived, %d noted", seen.Load(), len(records))
	}
}

// TestRunIsOpen: answers that take long do not slow down what is sent, up to the bound, past which it is counted.
func TestRunIsOpen(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const enough = 100
	sent, behind := 0, 0
	err := Run(ctx, Options{
		Targets: []string{server.Listener.Addr().String()},
		Flows:   []Flow{{Request: NewRequest("GET", "/", nil, ""), Arrivals: Fixed(2000), Connections: 2}},
		Timeout: time.Minute,
		Observe: func(r Record) {
			if !errors.Is(r.Err, ErrBehind) {
				sent++
			} else if behind++; behind == enough {
				cancel()
				close(release)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if sent < queueLength || behind < enough {
		t.Error(sent, behind)
	}
}

func TestRunClosed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	// Each sends the next as soon as it has an answer, and nothing else ends the run.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	records := 0
	err := Run(ctx, Options{
		Targets: []string{server.Listener.Addr().String()},
		Flows:   []Flow{{Request: NewRequest("GET", "/", nil, "")}},
		Observe: func(r Record) {
			if records++; records == 500 {
				cancel()
			}
			if r.Err != nil {
				t.Error(r.Err)
			}
		},
	})
	if err != nil || records < 500 {
		t.Error(err, records)
	}
}

// TestFailures: what does not answer ends by its timeout, and is no admission.
func TestFailures(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	var perTarget [2]int
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = Run(ctx, Options{
		Targets: []string{silent.Addr().String(), gone.Addr().String()},
		Flows:   []Flow{{Request: NewRequest("GET", "/", nil, ""), Arrivals: Fixed(50)}},
		Timeout: 100 * time.Millisecond,
		Observe: func(r Record) {
			if perTarget[r.Target]++; perTarget[0] > 0 && perTarget[1] > 0 {
				cancel()
			}
			if r.Err == nil || r.Admitted() || r.Denied() {
				t.Errorf("%+v", r)
			}
		},
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	request := NewRequest("GET", "/", nil, "")
	for name, options := range map[string]Options{
		"no target":              {Flows: []Flow{{Request: request}}},
		"no flow":                {Targets: []string{"127.0.0.1:1"}},
		"no request":             {Targets: []string{"127.0.0.1:1"}, Flows: []Flow{{}}},
		"progress without every": {Targets: []string{"127.0.0.1:1"}, Flows: []Flow{{Request: request}}, Progress: func(time.Duration) {}},
	} {
		if err := Run(t.Context(), options); err == nil {
			t.Error(name, "is taken")
		}
	}
}
