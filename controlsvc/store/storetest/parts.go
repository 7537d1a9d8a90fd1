package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/limit"
)

// testFlood: a thousand at once, for leases and for strict charges, never get more than there is, and never less.
func testFlood(t *testing.T, h Harness) {
	t.Helper()
	const callers, limitUnits = 1000, 100
	for name, ttl := range map[string]time.Duration{"strict": 0, "lease": 10 * sec} {
		k := h.key("flood/"+name, "100/8000h", "150/8784h")
		var granted atomic.Int64
		var wait sync.WaitGroup
		for i := range callers {
			wait.Go(func() {
				out := h.Store.Reserve(context.Background(), []authority.Reserve{{
					Key: k, Call: fmt.Sprintf("%s-%d", name, i), Want: 1 + int64(i%3), Min: 1, TTL: ttl,
				}})
				if out[0].Err != nil {
					t.Errorf("%s %d: %v", name, i, out[0].Err)
				}
				granted.Add(out[0].Units)
			})
		}
		wait.Wait()
		want := int64(limitUnits)
		if h.expected.flows && ttl > 0 {
			want-- // none flows in for as long as the leases last
		}
		if got := granted.Load(); got != want {
			t.Errorf("%s: %d of %d units were granted", name, got, want)
		}
		if got := h.peek(t, k)[0].Remaining; got != 0 {
			t.Errorf("%s: %d remain", name, got)
		}
	}
}

// testDeniedElsewhere: what a request was charged that another limit denied, and what a call that was given up was, is not
// missing afterwards, however many of them there were and whatever was charged in between.
func testDeniedElsewhere(t *testing.T, h Harness) {
	t.Helper()
	const denied = 100
	k := h.key("denied elsewhere", "300/8000h", "400/8784h")
	remains := func(what string, want int64) {
		t.Helper()
		for i, more := range []int64{0, 100} {
			if got := h.peek(t, k)[i].Remaining; got != want+more {
				t.Errorf("%d of %v remain after %s, want %d", got, k.Rates[i], what, want+more)
			}
		}
	}
	for i := range denied {
		r := h.reserve(t, authority.Reserve{Key: k, Call: "1f.1", Part: fmt.Sprintf("p.%d", i), Want: 2, Min: 2})
		if i%10 == 0 {
			h.reserve(t, authority.Reserve{Key: k, Call: "2f.1", Part: fmt.Sprintf("p.%d", i), Want: 1, Min: 1})
		}
		h.settle(t, authority.Settle{Key: k, Lease: r.Lease, Unused: 2})
	}
	remains("what another limit denied", 300-denied/10)
	for i := range denied {
		h.reserve(t, authority.Reserve{Key: k, Call: fmt.Sprintf("3f.%d", i), Part: "p.0", Want: 2, Min: 2})
		h.cancel(t, authority.Cancel{Key: k, Call: fmt.Sprintf("3f.%d", i)})
	}
	remains("calls that were given up", 300-denied/10)
}

// testBatch: the answers come in the order of the operations, on any keys, and one that is wrong harms no other.
func testBatch(t *testing.T, h Harness) {
	t.Helper()
	const keys = 300
	ctx := context.Background()
	reserves := make([]authority.Reserve, keys)
	for i := range reserves {
		reserves[i] = authority.Reserve{Key: h.key(fmt.Sprintf("batch/%d", i/2), "1000/8000h"), Call: "a", Want: int64(i + 1), Min: int64(i + 1)}
	}
	reserves[10].Want = 0
	leases := make([]string, keys)
	for i, out := range h.Store.Reserve(ctx, reserves) {
		if i == 10 {
			if out.Err == nil || out.Units != 0 {
				t.Errorf("a reserve of nothing gave %+v", out)
			}
			continue
		}
		if out.Err != nil || out.Units != int64(i+1) {
			t.Fatalf("reserve %d gave %+v", i, out)
		}
		leases[i] = out.Lease
	}
	settles := make([]authority.Settle, 0, keys)
	cancels := make([]authority.Cancel, 0, keys)
	records := make([]authority.Record, 0, keys)
	for i, r := range reserves {
		settles = append(settles, authority.Settle{Key: r.Key, Lease: leases[i], Unused: 1, Uses: []authority.Use{{Units: int64(i)}}})
		if i%2 == 1 {
			cancels = append(cancels, authority.Cancel{Key: r.Key, Call: "a"})
			records = append(records, authority.Record{Key: r.Key, Call: "b", Uses: []authority.Use{{Units: 5}}})
		}
	}
	settles[20].Unused, cancels[1].Call, records[2].Call = -1, "two words", ""
	for name, errs := range map[string][]error{
		"20": h.Store.Settle(ctx, settles), "1": h.Store.Cancel(ctx, cancels), "2": h.Store.Record(ctx, records),
	} {
		for i, err := range errs {
			if wrong := fmt.Sprint(i) == name; wrong != (err != nil) {
				t.Errorf("operation %d, wrong is %v: %v", i, wrong, err)
			}
		}
	}
	// Of each pair one unit of each is given back, and 5 are recorded; but for those that were wrong.
	for pair, want := range map[int]int64{
		0: 1000 - 0 - 1 - 5, 1: 1000 - 2 - 3 - 5, 100: 1000 - 200 - 201 - 5, 149: 1000 - 298 - 299 - 5,
		5:  1000 - 11 - 5, // one was not granted
		10: 1000 - 21 - 5, // one was not settled, and then cancelled
		2:  1000 - 4 - 5,  // nothing was recorded
	} {
		if got := h.peek(t, h.key(fmt.Sprintf("batch/%d", pair), "1000/8000h"))[0].Remaining; got != want {
			t.Errorf("pair %d: %d remain, want %d", pair, got, want)
		}
	}
	if out := h.Store.Reserve(ctx, nil); len(out) != 0 {
		t.Errorf("no reserve gave %v", out)
	}
}

// testHostileNames: no two callers share a count, whatever bytes they are named with.
func testHostileNames(t *testing.T, h Harness) {
	t.Helper()
	names := []string{
		"a", "a/b", "a/", "/a", "a:b", "a:", "a{b", "a}b", "a}{b", "{}", "{}a", "a}:sliding_log:3600000000", "a:sliding_log:3600000000",
		"a}:sliding_log:3600000000:n", "a}:fixed_window:28800000000000:g", "a:g", "a b", " a", "a\x00", "a\x00b", "a\n", "a\r\nb", "\xff\xfe", "\u00e9", "e\u0301", "a%", "a%%s", "%s", "a%2F",
		"*", "a*", "a?", "a[b]", "'", `"`, `\`, "$(a)", "-1", "+inf", "nan", "ﬀ", strings.Repeat("x", 3000), strings.Repeat("x", 3001),
	}
	lasts := int64(0)
	if h.expected.flows {
		lasts = 1 // what does not flow in for as long as the lease lasts
	}
	for i, name := range names {
		k := h.key("", "1000/8000h", "2000/8784h")
		k.Name = name
		r := h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: int64(i + 1), Min: int64(i + 1), TTL: sec})
		if r.State.Remaining != 1000-int64(i+1)-lasts {
			t.Errorf("%q: %d remain after %d", name, r.State.Remaining, i+1)
		}
		if i%2 == 0 {
			h.settle(t, authority.Settle{Key: k, Lease: r.Lease, Unused: int64(i)})
		}
	}
	for i, name := range names {
		k := h.key("", "1000/8000h")
		k.Name = name
		want := 1000 - int64(i+1) - lasts
		if i%2 == 0 {
			want = 1000 - 1 - lasts
		}
		if got := h.peek(t, k)[0].Remaining; got != want {
			t.Errorf("%q: %d remain, want %d", name, got, want)
		}
	}
}

// testWrong: what an operation must not say is an error, and charges nothing.
func testWrong(t *testing.T, h Harness) {
	t.Helper()
	ctx := context.Background()
	good := authority.Reserve{Key: h.key("wrong", "10/8000h"), Call: "a", Want: 1, Min: 1}
	for name, change := range map[string]func(r *authority.Reserve){
		"no name":             func(r *authority.Reserve) { r.Key.Name = "" },
		"a name too long":     func(r *authority.Reserve) { r.Key.Name = strings.Repeat("x", 5000) },
		"another algorithm":   func(r *authority.Reserve) { r.Key.Algorithm = limit.TokenBucket + 1 },
		"no algorithm":        func(r *authority.Reserve) { r.Key.Algorithm = 0 },
		"no rate":             func(r *authority.Reserve) { r.Key.Rates = nil },
		"too many rates":      func(r *authority.Reserve) { r.Key.Rates = make([]limit.Rate, limit.MaxRates+1) },
		"a negative rate":     func(r *authority.Reserve) { r.Key.Rates = []limit.Rate{{Units: -1, Window: sec}} },
		"a rate of too many":  func(r *authority.Reserve) { r.Key.Rates = []limit.Rate{{Units: limit.MaxUnits + 1, Window: sec}} },
		"no window":           func(r *authority.Reserve) { r.Key.Rates = []limit.Rate{{Units: 1}} },
		"a window of 1.5 µs":  func(r *authority.Reserve) { r.Key.Rates = []limit.Rate{{Units: 1, Window: sec + 1500}} },
		"a window too long":   func(r *authority.Reserve) { r.Key.Rates = []limit.Rate{{Units: 1, Window: 2 * limit.MaxWindow}} },
		"a negative burst":    func(r *authority.Reserve) { r.Key.Rates = []limit.Rate{{Units: 1, Window: sec, Burst: -1}} },
		"a burst too large":   func(r *authority.Reserve) { r.Key.Rates = []limit.Rate{{Units: 1, Window: sec, Burst: 1 << 25}} },
		"no call":             func(r *authority.Reserve) { r.Call = "" },
		"a call with a colon": func(r *authority.Reserve) { r.Call = "a:b" },
		"a call with a star":  func(r *authority.Reserve) { r.Call = "a*" },
		"a call too long":     func(r *authority.Reserve) { r.Call = strings.Repeat("a", 65) },
		"min of 0":            func(r *authority.Reserve) { r.Min = 0 },
		"want below min":      func(r *authority.Reserve) { r.Want, r.Min = 1, 2 },
		"a negative ttl":      func(r *authority.Reserve) { r.TTL = -1 },
		"a ttl too long":      func(r *authority.Reserve) { r.TTL = 1 << 62 },
		"a negative horizon":  func(r *authority.Reserve) { r.Horizon = -1 },
	} {
		r := good
		change(&r)
		if out := h.Store.Reserve(ctx, []authority.Reserve{r})[0]; out.Err == nil || out.Units != 0 || out.Lease != "" {
			t.Errorf("%s: %+v", name, out)
		} else if errors.Is(out.Err, authority.ErrUnavailable) {
			t.Errorf("%s: the store did answer: %v", name, out.Err)
		}
	}
	lease := h.reserve(t, authority.Reserve{Key: good.Key, Call: "b", Want: 4, Min: 4, TTL: sec}).Lease
	for name, s := range map[string]authority.Settle{
		"negative units":  {Key: good.Key, Lease: lease, Uses: []authority.Use{{Units: -1}}},
		"negative age":    {Key: good.Key, Lease: lease, Uses: []authority.Use{{Age: -1, Units: 1}}},
		"negative unused": {Key: good.Key, Lease: lease, Unused: -1},
		"too many units":  {Key: good.Key, Lease: lease, Uses: []authority.Use{{Units: limit.MaxUnits + 1}}},
		"too many uses":   {Key: good.Key, Lease: lease, Uses: make([]authority.Use, 1<<17)},
	} {
		if err := h.Store.Settle(ctx, []authority.Settle{s})[0]; err == nil {
			t.Errorf("settle with %s: no error", name)
		}
	}
	// A lease that no store ever named may come from anywhere; it is not there, and that is all.
	for _, lease := range []string{"", "l", "l::::", "s:b::1:4", "r:b::1:4", "l:b::1:-4", "l:b::+1:4", "l:*::1:4", lease + "0", strings.Repeat("l", 1<<16)} {
		h.settle(t, authority.Settle{Key: good.Key, Lease: lease, Unused: 4})
	}
	want := int64(6)
	if h.expected.flows {
		want-- // for as long as the lease lasts
	}
	if got := h.peek(t, good.Key)[0].Remaining; got != want {
		t.Errorf("%d remain, want %d", got, want)
	}
	// Nor is one whose name is the beginning of another's.
	large := authority.Reserve{Key: h.key("wrong/large", "50/8000h"), Call: "c", Want: 40, Min: 40}
	lease, _ = strings.CutSuffix(h.reserve(t, large).Lease, "0")
	h.settle(t, authority.Settle{Key: large.Key, Lease: lease, Unused: 4})
	if got := h.peek(t, large.Key)[0].Remaining; got != 10 {
		t.Errorf("%d remain, want 10", got)
	}
	if _, err := h.Store.Connected(ctx, "", 1, sec); err == nil {
		t.Error("a worker of no domain: no error")
	}
	if _, err := h.Store.Connected(ctx, "shop", 1, 0); err == nil {
		t.Error("a worker for no time: no error")
	}
}

// testEntries: a lease of a thousand costs one entry for each rate, as a lease of one does.
func testEntries(t *testing.T, h Harness) {
	t.Helper()
	if h.Entries == nil {
		t.Log("this store cannot tell its entries")
		return
	}
	k := h.key("entries", "10000/1h", "20000/2h")
	check := func(what string, want ...int) {
		t.Helper()
		if diff := cmp.Diff(want, h.Entries(k)); diff != "" {
			t.Errorf("entries after %s (-want +got):\n%s", what, diff)
		}
	}
	h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: 1, Min: 1, TTL: sec})
	check("a lease of 1", 1, 1)
	large := h.reserve(t, authority.Reserve{Key: k, Call: "b", Want: 1000, Min: 1, TTL: sec})
	check("a lease of 1000", 2, 2)
	h.reserve(t, authority.Reserve{Key: k, Call: "c", Want: 1000, Min: 1})
	check("1000 strict units", 3, 3)
	h.settle(t, authority.Settle{Key: k, Lease: large.Lease, Uses: []authority.Use{{Units: 999}}, Unused: 1})
	check("a settle of units spent together", 3, 3)
	h.record(t, authority.Record{Key: k, Call: "d", Uses: []authority.Use{{Units: 500}}})
	check("a record", 4, 4)
	h.cancel(t, authority.Cancel{Key: k, Call: "c"})
	check("a cancel", 3, 3)
}

// testLongReport: a thousand different instants become at most 64 entries, none of them earlier than it was.
func testLongReport(t *testing.T, h Harness) {
	t.Helper()
	if !h.needsClock(t) {
		return
	}
	k := h.key("long report", "10000/100s")
	lease := h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: 1001, Min: 1, TTL: 20 * sec})
	h.Advance(10 * sec)
	uses := make([]authority.Use, 1000)
	for i := range uses {
		uses[(i*7)%1000] = used(time.Duration(i)*10*time.Millisecond, 1) // 0 to 9.99 s ago
	}
	h.settle(t, authority.Settle{Key: k, Lease: lease.Lease, Uses: uses})
	h.record(t, authority.Record{Key: k, Call: "b", Uses: uses})
	if h.Entries != nil {
		if got := h.Entries(k)[0]; got > 128 {
			t.Errorf("%d entries of a settle and a record", got)
		}
	}
	h.Advance(90 * sec) // the oldest use is 99.99 s ago
	for age := 9990 * time.Millisecond; age > 0; age -= 10 * time.Millisecond {
		h.Advance(10 * time.Millisecond) // it has left, and the others that are older
		held := 10000 - h.peek(t, k)[0].Remaining
		inside := 2*int64(age/(10*time.Millisecond)) + 1
		most := 2*int64((age+h.expected.late(100*sec))/(10*time.Millisecond)) + 1 + 2*1000/63 + 2
		if held < inside || held > most {
			t.Fatalf("%d are held when %d are inside", held, inside)
		}
	}
}

// testLifetimes: what is stored for a key lives until its last charge has left the window, and 10 s more, whatever comes
// later; and not for ever.
func testLifetimes(t *testing.T, h Harness) {
	t.Helper()
	if h.Lifetimes == nil {
		t.Log("this store cannot tell how long it keeps a key")
		return
	}
	k := h.key("lifetimes", "10/100s", "10/200s")
	check := func(what string, want ...time.Duration) {
		t.Helper()
		got := h.Lifetimes(k)
		for i := range want {
			// Some time passes until it is looked at, also where the store's own clock stands still.
			if len(got) != len(want) || got[i] > want[i]+h.expected.late(k.Rates[i].Window)+2*time.Millisecond || got[i] < want[i]-2*sec {
				t.Errorf("after %s what is stored lives for %v, want %v", what, got, want)
				return
			}
		}
	}
	h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: 1, Min: 1})
	check("a strict charge", 110*sec, 210*sec)
	long := h.reserve(t, authority.Reserve{Key: k, Call: "b", Want: 4, Min: 1, TTL: 50 * sec})
	check("a lease", 160*sec, 260*sec)
	h.reserve(t, authority.Reserve{Key: k, Call: "c", Want: 1, Min: 1})
	check("a strict charge after the lease", 160*sec, 260*sec)
	h.reserve(t, authority.Reserve{Key: k, Call: "d", Want: 9, Min: 9})
	check("a denial", 160*sec, 260*sec)
	h.settle(t, authority.Settle{Key: k, Lease: long.Lease, Uses: []authority.Use{{Units: 4}}})
	check("a settle", 160*sec, 260*sec)
	h.cancel(t, authority.Cancel{Key: k, Call: "a"})
	check("a cancel", 160*sec, 260*sec)
	h.record(t, authority.Record{Key: k, Call: "e", Uses: []authority.Use{{Age: 90 * sec, Units: 1}}})
	check("a record", 160*sec, 260*sec)

	// The last charge of a key is taken out while a settle puts others in.
	alone := h.key("lifetimes/alone", "10/100s", "10/200s")
	k = alone
	lease := h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: 4, Min: 1, TTL: 50 * sec})
	h.settle(t, authority.Settle{Key: k, Lease: lease.Lease, Uses: []authority.Use{{Units: 4}}})
	check("a settle of the only charge", 160*sec, 260*sec)

	k = h.key("lifetimes/longer", "10/100s", "10/200s")
	for _, ttl := range []time.Duration{20 * sec, 50 * sec} {
		h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: 2, Min: 1, TTL: ttl})
	}
	check("a lease that is longer than another", 160*sec, 260*sec)

	// All is given back, and something else is charged: it has an end, too.
	for _, ttl := range []time.Duration{0, 20 * sec} {
		k := h.key("lifetimes/given back/"+ttl.String(), "10/100s")
		lease := h.reserve(t, authority.Reserve{Key: k, Call: "a", Want: 4, Min: 1, TTL: 50 * sec})
		h.settle(t, authority.Settle{Key: k, Lease: lease.Lease, Unused: 4})
		for range 2 {
			h.reserve(t, authority.Reserve{Key: k, Call: "b", Want: 1, Min: 1, TTL: ttl})
			if lives := h.Lifetimes(k)[0]; lives < 100*sec+ttl || lives > 160*sec+h.expected.late(k.Rates[0].Window)+2*time.Millisecond {
				t.Errorf("all was given back, and what is charged then lives for %v", lives)
			}
		}
	}
}

// testWorkers: each has a rank of its own, and keeps it while nobody comes or goes.
func testWorkers(t *testing.T, h Harness) {
	t.Helper()
	connected := func(domain string, worker uint64, want authority.Share) {
		t.Helper()
		got, err := h.Store.Connected(context.Background(), domain, worker, 10*sec)
		if err != nil || got != want {
			t.Errorf("%s's worker %d: %+v, %v; want %+v", domain, worker, got, err, want)
		}
	}
	connected("shop", 7, authority.Share{Workers: 1, Rank: 0})
	connected("shop", 1<<63, authority.Share{Workers: 2, Rank: 1})
	connected("shop", 0, authority.Share{Workers: 3, Rank: 0})
	connected("shop", 7, authority.Share{Workers: 3, Rank: 1})
	connected("shop}", 7, authority.Share{Workers: 1, Rank: 0})
	connected("}", 7, authority.Share{Workers: 1, Rank: 0})
	connected("shop", 1<<63, authority.Share{Workers: 3, Rank: 2})
	if !h.needsClock(t) {
		return
	}
	h.Advance(5 * sec)
	connected("shop", 0, authority.Share{Workers: 3, Rank: 0})
	h.Advance(5 * sec)
	connected("shop", 0, authority.Share{Workers: 1, Rank: 0})
	connected("shop", 7, authority.Share{Workers: 2, Rank: 1})
	h.Advance(time.Hour)
	connected("shop", 9, authority.Share{Workers: 1, Rank: 0})
}

// testReplicas: each hears what the others of its domain said last, for as long as that holds.
func testReplicas(t *testing.T, h Harness) {
	t.Helper()
	ctx := context.Background()
	exchange := func(domain string, replica uint64, says string, ttl time.Duration, want ...string) {
		t.Helper()
		others, err := h.Store.Exchange(ctx, domain, replica, []byte(says), ttl)
		var got []string
		for _, one := range others {
			got = append(got, string(one))
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s's replica %d hears %q, %v; want %q", domain, replica, got, err, want)
		}
	}
	exchange("shop", 7, "a:\x00\xff", 10*sec)
	exchange("shop", 1<<63, "", 20*sec, "a:\x00\xff")
	exchange("shop", 7, "b", 10*sec, "")
	exchange("shop", 9, "c", 30*sec, "", "b")
	exchange("shop}", 7, "elsewhere", 10*sec)
	large := strings.Repeat("x", store.MaxSays)
	exchange("}", 1, large, 10*sec)
	exchange("}", 2, "d", 10*sec, large)
	if _, err := h.Store.Exchange(ctx, "shop", 8, []byte(large+"x"), sec); err == nil {
		t.Error("more than there is room for is taken")
	}
	if _, err := h.Store.Exchange(ctx, "", 8, nil, sec); err == nil {
		t.Error("no domain is one")
	}
	if _, err := h.Store.Exchange(ctx, "shop", 8, nil, 0); err == nil {
		t.Error("something is kept for no time")
	}
	for i := range store.MaxReplicas { // the memory store counts those of all domains
		_, _ = h.Store.Exchange(ctx, "many", uint64(i+1), []byte("e"), 10*sec)
	}
	if _, err := h.Store.Exchange(ctx, "many", 1000, []byte("e"), 10*sec); err == nil {
		t.Error("any number of replicas may say something")
	}
	if !h.needsClock(t) {
		return
	}
	h.Advance(10 * sec)
	exchange("shop", 1<<63, "f", 20*sec, "c")
	h.Advance(20 * sec)
	exchange("shop", 7, "g", 10*sec)
}

// testEnded: too late is too late, and says so.
func testEnded(t *testing.T, h Harness) {
	t.Helper()
	if err := h.Store.Ping(context.Background()); err != nil {
		t.Errorf("ping: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	k := h.key("ended", "10/1h")
	errs := []error{h.Store.Reserve(ctx, []authority.Reserve{{Key: k, Call: "a", Want: 1, Min: 1}})[0].Err}
	errs = append(errs, h.Store.Settle(ctx, []authority.Settle{{Key: k, Lease: "l:a::1:1"}})...)
	errs = append(errs, h.Store.Cancel(ctx, []authority.Cancel{{Key: k, Call: "a"}})...)
	errs = append(errs, h.Store.Record(ctx, []authority.Record{{Key: k, Call: "a", Uses: []authority.Use{{Units: 1}}}})...)
	_, err := h.Store.Peek(ctx, k)
	errs = append(errs, err, h.Store.Reset(ctx, k), h.Store.Ping(ctx))
	_, err = h.Store.Connected(ctx, "shop", 1, sec)
	errs = append(errs, err)
	_, err = h.Store.Exchange(ctx, "shop", 1, nil, sec)
	errs = append(errs, err)
	_, err = h.Store.Inspect(ctx, k, 1)
	errs = append(errs, err)
	_, err = h.Store.Overlay(ctx, authority.Edit{Domain: "shop"})
	errs = append(errs, err)
	for i, err := range errs {
		if !errors.Is(err, authority.ErrUnavailable) {
			t.Errorf("operation %d: %v, which is not %v", i, err, authority.ErrUnavailable)
		}
	}
	if got := h.peek(t, k)[0].Remaining; got != 10 {
		t.Errorf("%d remain of 10", got)
	}
}
