package host

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestRequestHeader(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	for id, headers := range map[uint32][]Header{
		2: {{":authority", "a.test"}, {"x", ""}, {"y", "1"}, {"cookie", "a=1"}, {"y", "\xff"}, {"cookie", "b=2"}, {"y", ""}, {"pad", strings.Repeat("p", 400)}},
		3: {{"x", "another"}, {"y", strings.Repeat("y", 300)}}, // over the first one's values, for the host uses its memory again
	} {
		w.begin(id, 1)
		w.envoy.request[id] = headers
	}
	plugin := w.plugins[0]
	found := map[string]string{}
	plugin.onRequest = func(s ContextID) Action {
		if s == 3 {
			x, _ := plugin.proxy.RequestHeader("x")
			found["another"] = strings.Clone(x)
			return Proceed
		}
		for _, name := range []string{":authority", "host", "x", "y", "cookie", "z", "X"} {
			if value, n := plugin.proxy.RequestHeader(name); n > 0 {
				found[name] = value
			}
		}
		// What was read first is still as it was, when all has been read.
		for name, value := range found {
			found[name] = strings.Clone(value)
		}
		return Proceed
	}
	w.in(2, func() { w.requestHeaders(2) })
	w.in(3, func() { w.requestHeaders(3) })
	want := map[string]string{
		":authority": "a.test", "host": "a.test", "x": "", "y": "1,\xff,", "cookie": "a=1; b=2", "another": "another",
	}
	for name, value := range want {
		if got, ok := found[name]; !ok || got != value {
			t.Errorf("%s is %q, %t; want %q", name, got, ok, value)
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %q, want only %q", found, want)
	}
}

func TestProperty(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	p := w.plugins[0].proxy
	if address, ok := p.Property("source", "address"); !ok || address != "192.0.2.1:1234" {
		t.Errorf("source.address is %q, %t", address, ok)
	}
	if value, ok := p.Property("no", "such"); ok || value != "" {
		t.Errorf("a property that is not there is %q, %t", value, ok)
	}
	if w.hostErrors() != 0 {
		t.Errorf("%d errors counted, want none", w.hostErrors())
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	w.begin(2, 0)
	p, q := w.plugins[0].proxy, w.plugins[1].proxy
	c, g := p.Counter("c"), p.Gauge("g")
	if c == g || q.Counter("c") != c || p.Gauge("g") != g {
		t.Errorf("the metrics are %d, %d; want one for each name", c, g)
	}
	p.Add(c, 2)
	q.Add(c, 3)
	p.Add(c, 0)
	p.Add(c, -1)
	p.Add(g, -4)
	p.Record(g, 7)
	p.Add(g, -5)
	p.Add(noMetric, 1)
	p.Record(noMetric, 1)
	counter, gauge := w.envoy.metrics[w.metrics[c].id], w.envoy.metrics[w.metrics[g].id]
	if counter != 5 || gauge != 2 || w.hostErrors() != 1 {
		t.Errorf("counter %d, gauge %d, errors %d; want 5, 2, and 1 for counting down", counter, gauge, w.hostErrors())
	}
}

func TestMillis(t *testing.T) {
	for _, step := range []struct {
		d    time.Duration
		want uint32
	}{
		{math.MinInt64, 0},
		{-1, 0},
		{0, 0},
		{1, 1},
		{time.Millisecond, 1},
		{time.Millisecond + 1, 2},
		{time.Second, 1000},
		{math.MaxInt64, 24 * 60 * 60 * 1000},
	} {
		if got := millis(step.d); got != step.want {
			t.Errorf("millis(%v) = %d, want %d", step.d, got, step.want)
		}
	}
}

func TestLogLineIsCutOff(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	w.envoy.took()
	w.plugins[0].proxy.Log(Warn, strings.Repeat("x", maxLogLine+1))
	w.plugins[0].proxy.Log(Debug, "x")
	same(t, "the host did", w.envoy.took(), []string{"1 log 2, 4096 bytes", "1 log 0, 1 bytes"})
}

func TestNowAndRandom(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	p := w.plugins[0].proxy
	first := p.Now()
	for range 1000 {
		if next := p.Now(); next < first {
			t.Fatalf("the clock went from %d to %d", first, next)
		}
	}
	if one, other := p.Random(), p.Random(); one == other {
		t.Error("two random numbers are the same")
	}
}

// What a request costs in memory, in the steady state: one allocation for each header that the plugin reads.
func TestAllocationsPerRequest(t *testing.T) {
	w := newWorld(t)
	w.begin(1, 0)
	quiet := &quietPlugin{proxy: w.plugins[0].proxy}
	w.roots[1].plugin = quiet
	w.envoy.request[2] = []Header{{":authority", "a.test"}, {":path", "/"}, {"x-tenant-id", "acme"}, {"y", "1"}}
	w.envoy.contexts[2] = true
	allocations := testing.AllocsPerRun(1000, func() {
		w.contextCreate(2, 1)
		w.envoy.effective = 2
		w.requestHeaders(2)
		w.responseHeaders(2)
		w.done(2)
	})
	if allocations > 2 || quiet.done != 1001 {
		t.Errorf("%v allocations for a request, want 2; %d were done, want 1001", allocations, quiet.done)
	}
}

type quietPlugin struct {
	recorder

	proxy Proxy
	done  int
}

func (q *quietPlugin) RequestHeaders(ContextID) Action {
	q.proxy.RequestHeader("x-tenant-id")
	q.proxy.RequestHeader("x-none")
	q.proxy.RequestHeader(":path")
	return Proceed
}

func (*quietPlugin) ResponseHeaders(ContextID) {}

func (q *quietPlugin) Done(ContextID) { q.done++ }
