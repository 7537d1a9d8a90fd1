package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/rpc"
	"sluice/controlsvc/store/memory"
	"sluice/controlsvc/store/redis"
	"sluice/shared/instant"
	"sluice/testharness/rig"
)

const envoysPolicy = `
domain: shop
limits:
  - {name: tenant, descriptor: [{key: tenant}], rates: [3/m], mode: strict}
  - {name: acme, descriptor: [{key: tenant, value: acme}], rates: [1000/s], mode: lease}
  - {name: joined, descriptor: [{key: a}, {key: b}], rates: [1/m], mode: strict}
  - {name: route, descriptor: [{key: route}], rates: [5/m, 7/90s], mode: strict}
  - {name: watched, descriptor: [{key: watched}], rates: [1/m], mode: strict, shadow: true}
  - {name: free, descriptor: [{key: free}], rates: unlimited}
  - {name: vip, descriptor: [{key: vip}], rates: [1/m], mode: strict, replaces: [tenant]}
  - {name: costly, descriptor: [{key: costly}], rates: [10/h], mode: strict, cost: 4}
`

// envoys starts a server with the policy that Envoy's own filter is limited by.
func envoys(t *testing.T, text string, wrap func(authority.Store) authority.Store) (*world, ratelimitv3.RateLimitServiceClient) {
	t.Helper()
	w := serve(t, rpc.Config{CallTimeout: time.Minute}, wrap)
	p, err := policyfile.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w.authority.SetPolicy(p)
	return w, ratelimitv3.NewRateLimitServiceClient(w.connection)
}

// question reads a call: descriptors apart by |, entries by spaces, as in "tenant=acme|a=1 b=2 +3", which has 3 hits of its
// own in its second descriptor. @2/HOUR is a rate that the descriptor brings.
func question(text string) *ratelimitv3.RateLimitRequest {
	r := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for part := range strings.SplitSeq(text, "|") {
		d := &commonv3.RateLimitDescriptor{}
		for field := range strings.FieldsSeq(part) {
			if hits, own := strings.CutPrefix(field, "+"); own {
				var n uint64
				fmt.Sscan(hits, &n)
				d.HitsAddend = wrapperspb.UInt64(n)
				continue
			}
			if rate, own := strings.CutPrefix(field, "@"); own {
				count, unit, _ := strings.Cut(rate, "/")
				var n uint32
				fmt.Sscan(count, &n)
				d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: typev3.RateLimitUnit(typev3.RateLimitUnit_value[unit])}
				continue
			}
			key, value, _ := strings.Cut(field, "=")
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

// says gives an answer in short: a letter for each status and the units that are left, O for OK, X for OVER_LIMIT.
func says(r *ratelimitv3.RateLimitResponse) string {
	var b strings.Builder
	letter := map[ratelimitv3.RateLimitResponse_Code]string{ratelimitv3.RateLimitResponse_OK: "O", ratelimitv3.RateLimitResponse_OVER_LIMIT: "X"}
	b.WriteString(letter[r.GetOverallCode()])
	for _, s := range r.GetStatuses() {
		b.WriteString(" " + letter[s.GetCode()])
		if l := s.GetCurrentLimit(); l != nil {
			fmt.Fprintf(&b, "%s:%d", l.GetName(), s.GetLimitRemaining())
		} else if s.GetLimitRemaining() == math.MaxUint32 {
			b.WriteString(":free")
		}
	}
	return b.String()
}

func TestShouldRateLimit(t *testing.T) {
	_, client := envoys(t, envoysPolicy, nil)
	for _, step := range []struct{ ask, want string }{
		{"tenant=beta", "O Otenant:2"},
		{"tenant=beta", "O Otenant:1"},
		{"tenant=gamma", "O Otenant:2"},
		// All or nothing: the joined limit denies the second, and charges the tenant nothing.
		{"tenant=beta|a=1 b=2", "O Otenant:0 Ojoined:0"},
		{"tenant=gamma|a=1 b=2", "X Otenant:2 Xjoined:0"},
		{"tenant=gamma|a=1 b=2", "X Otenant:2 Xjoined:0"},
		{"tenant=gamma", "O Otenant:1"},
		{"tenant=beta", "X Xtenant:0"},
		// Values that hold what joins them are other callers.
		{"a=1_b b=2", "O Ojoined:0"},
		{"a=1 b=b_2", "O Ojoined:0"},
		{"a=1/b b=2", "O Ojoined:0"},
		{"a=1 b=b/2", "O Ojoined:0"},
		// Unknown descriptors, and none.
		{"nobody=1", "O O"},
		{"tenant=gamma|nobody=1", "O Otenant:0 O"},
		{"free=1", "O O:free"},
		// Hits of its own; 0 only looks.
		{"tenant=delta +2", "O Otenant:1"},
		{"tenant=delta +0", "O Otenant:1"},
		{"tenant=delta +2", "X Xtenant:1"},
		{"tenant=delta +1", "O Otenant:0"},
		{"tenant=delta +0", "X Xtenant:0"},
		{"tenant=delta +0|tenant=epsilon", "X Xtenant:0 O"},
		{"tenant=epsilon", "O Otenant:2"},
		{"tenant=epsilon +18446744073709551615", "X Xtenant:2"},
		{"costly=1", "O Ocostly:6"},
		{"costly=1 +2", "X Xcostly:6"},
		{"costly=1 +1", "O Ocostly:2"},
		// A rate of its own counts apart.
		{"tenant=eta @2/MINUTE", "O Otenant:1"},
		{"tenant=eta @2/MINUTE", "O Otenant:0"},
		{"tenant=eta @2/MINUTE", "X Xtenant:0"},
		{"tenant=eta @2/MINUTE +0", "X Xtenant:0"},
		{"tenant=eta @5/HOUR", "O Otenant:4"},
		{"tenant=theta @2/MINUTE|tenant=theta", "O Otenant:1 Otenant:2"},
		{"tenant=eta", "O Otenant:2"},
		{"acme=1 @2/MINUTE", "O O"},
		{"free=1 @1/MINUTE", "O Ofree:0"},
		{"free=1 @1/MINUTE", "X Xfree:0"},
		{"free=1", "O O:free"},
		{"tenant=acme @1000/SECOND", "O Oacme:999"},
		// The same key twice is one demand.
		{"tenant=zeta|tenant=zeta", "O Otenant:1 Otenant:1"},
		{"tenant=zeta|tenant=zeta", "X Xtenant:1 Xtenant:1"},
		// One limit stands in the place of another.
		{"tenant=beta|vip=1", "O O Ovip:0"},
		{"vip=1", "X Xvip:0"},
		// In shadow nothing is denied.
		{"watched=1", "O O"},
		{"watched=1", "O O"},
		{"watched=1|tenant=iota", "O O Otenant:2"},
		{"watched=1 +0", "O O"},
	} {
		got, err := client.ShouldRateLimit(soon(t), question(step.ask))
		if err != nil {
			t.Fatal(step.ask, err)
		}
		if said := says(got); said != step.want {
			t.Errorf("%s: %s, want %s", step.ask, said, step.want)
		}
	}
}

func TestShouldRateLimitAnswersWhateverIsAsked(t *testing.T) {
	w, client := envoys(t, envoysPolicy, nil)
	request := question("tenant=beta")
	request.HitsAddend = 2
	request.Descriptors[0].IsNegativeHits = true
	for name, step := range map[string]struct {
		ask  *ratelimitv3.RateLimitRequest
		want string
	}{
		"nothing":        {&ratelimitv3.RateLimitRequest{}, "O"},
		"no descriptors": {&ratelimitv3.RateLimitRequest{Domain: "shop"}, "O"},
		"another domain": {&ratelimitv3.RateLimitRequest{Domain: "other", Descriptors: question("tenant=beta").GetDescriptors()}, "O O"},
		"no entries":     {question(""), "O O"},
		"a refund":       {request, "O O"},
		"a long value":   {question("tenant=" + strings.Repeat("x", 100_000)), "O Otenant:2"},
		"any bytes":      {question("tenant={}/%#\x00\n"), "O Otenant:2"},
		"many entries":   {question(strings.Repeat("tenant=1 ", 1000)), "O O"},
	} {
		got, err := client.ShouldRateLimit(soon(t), step.ask)
		if err != nil {
			t.Fatal(name, err)
		}
		if said := says(got); said != step.want {
			t.Errorf("%s: %s, want %s", name, said, step.want)
		}
	}
	_, err := client.ShouldRateLimit(soon(t), question(strings.Repeat("tenant=1|", 100)))
	code(t, err, codes.InvalidArgument)
	_, err = client.ShouldRateLimit(soon(t), question("tenant=1 @2/UNKNOWN"))
	code(t, err, codes.InvalidArgument)
	if w.panicked > 0 || w.strangers != 2 {
		t.Errorf("%d panics, %d calls of unknown domains; want none, and the one of no domain and that of another", w.panicked, w.strangers)
	}
}

// What protobuf would not have as text is a caller like any other, and leaves the other limits in force. What is no message is
// its caller's fault.
func TestTextsOfAnyBytesAreLimited(t *testing.T) {
	w, _ := envoys(t, envoysPolicy, nil)
	send := func(message []byte) (*ratelimitv3.RateLimitResponse, error) {
		var body []byte
		err := w.connection.Invoke(soon(t), ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, message, &body, grpc.ForceCodec(raw{}))
		answer := new(ratelimitv3.RateLimitResponse)
		return answer, errors.Join(err, proto.Unmarshal(body, answer))
	}
	for _, step := range []struct{ ask, broken, want string }{
		{"tenant=beta +3", "", "O Otenant:0"},
		{"tenant=## +2", "\xff\xff", "O Otenant:1"},
		{"tenant=## +2", "\xff\xfe", "O Otenant:1"},
		{"tenant=## +2", "\xff\xff", "X Xtenant:1"},
		{"tenant=beta|a=## b=2", "\xed\xa0", "X Xtenant:0 Ojoined:1"},
		{"tenant=gamma|a=2 b=##", "\xed\xa0", "O Otenant:2 Ojoined:0"},
		{"##=2", "\xff\xff", "O O"},
	} {
		message, err := proto.Marshal(question(step.ask))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := send(bytes.ReplaceAll(message, []byte("##"), []byte(step.broken)))
		if said := says(answer); err != nil || said != step.want {
			t.Errorf("%s with %q: %s, %v; want %s", step.ask, step.broken, said, err, step.want)
		}
	}
	for _, garbage := range []string{"\xff\xff\xff\xff", "\x12\x7f\x01", "\x12\x02\x0a\x05", "\x12\x02\x1a\x05", "\x12\x02\x12\x05", "\x0c"} {
		_, err := send([]byte(garbage))
		code(t, err, codes.InvalidArgument)
		if err != nil && !strings.Contains(err.Error(), "RateLimitRequest") {
			t.Errorf("%q: %v; want it to say what is no RateLimitRequest", garbage, err)
		}
	}
}

func TestAnAnswerTellsWhatIsKnown(t *testing.T) {
	w, client := envoys(t, envoysPolicy, nil)
	got, err := client.ShouldRateLimit(soon(t), question("route=/a +5"))
	if err != nil {
		t.Fatal(err)
	}
	want := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses: []*ratelimitv3.RateLimitResponse_DescriptorStatus{{
			Code:               ratelimitv3.RateLimitResponse_OK,
			CurrentLimit:       &ratelimitv3.RateLimitResponse_RateLimit{Name: "route", RequestsPerUnit: 5, Unit: ratelimitv3.RateLimitResponse_RateLimit_MINUTE},
			DurationUntilReset: durationpb.New(time.Minute),
		}},
	}
	headers := func(r *ratelimitv3.RateLimitResponse) string {
		var b strings.Builder
		for _, h := range r.GetResponseHeadersToAdd() {
			fmt.Fprintf(&b, "%s: %s\n", h.GetKey(), h.GetValue())
		}
		r.ResponseHeadersToAdd = nil
		return b.String()
	}
	const all = `ratelimit-policy: "route/m";q=5;w=60, "route/90s";q=7;w=90` + "\n" + `ratelimit: "route/m";r=0;t=60` + "\n"
	if said := headers(got); said != all {
		t.Errorf("headers %s, want %s", said, all)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err = client.ShouldRateLimit(soon(t), question("route=/a"))
	if err != nil {
		t.Fatal(err)
	}
	if said := headers(got); said != "content-type: application/json\nretry-after: 60\n"+all {
		t.Errorf("headers %s", said)
	}
	if body := `{"error":"rate_limited","message":"Over the limit of 5/m. Retry in 60 s.","limit":"route","retry_after":60}` + "\n"; string(got.GetRawBody()) != body {
		t.Errorf("body %s", got.GetRawBody())
	}
	if diff := cmp.Diff([]string{"route admitted store", "route denied log"}, w.answered); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// Who only looks is told as much as who spends: the fields of the limit with the smallest share left, and of one that holds nothing
// that no wait helps.
func TestALookTells(t *testing.T) {
	_, client := envoys(t, envoysPolicy+"  - {name: closed, descriptor: [{key: closed}], rates: [0/d], mode: strict}\n", nil)
	const closed = `{"error":"rate_limited","message":"The request costs more than its limit of 0/24h holds.","limit":"closed","retry_after":null}` + "\n"
	for _, step := range []struct{ ask, fields, body string }{
		{"tenant=beta +0", `ratelimit-policy: "tenant";q=3;w=60|ratelimit: "tenant";r=3;t=0`, ""},
		{"tenant=beta", `ratelimit-policy: "tenant";q=3;w=60|ratelimit: "tenant";r=2;t=60`, ""},
		{
			"tenant=beta +0|costly=1", `ratelimit-policy: "costly";q=10;w=3600, "tenant";q=3;w=60|ratelimit: "costly";r=6;t=3600`, "",
		},
		{
			"tenant=beta +1|costly=1 +0", `ratelimit-policy: "tenant";q=3;w=60, "costly";q=10;w=3600|ratelimit: "tenant";r=1;t=60`, "",
		},
		{
			"tenant=beta +0|route=/a", `ratelimit-policy: "route/m";q=5;w=60, "route/90s";q=7;w=90, "tenant";q=3;w=60|ratelimit: "tenant";r=1;t=60`, "",
		},
		{"watched=1 +0", "", ""},
		{
			"tenant=beta +1|watched=1 +0", `ratelimit-policy: "tenant";q=3;w=60|ratelimit: "tenant";r=0;t=60`, "",
		},
		{
			"tenant=beta +0", `content-type: application/json|retry-after: 60|ratelimit-policy: "tenant";q=3;w=60|ratelimit: "tenant";r=0;t=60`,
			`{"error":"rate_limited","message":"Over the limit of 3/m. Retry in 60 s.","limit":"tenant","retry_after":60}` + "\n",
		},
		{"closed=1", `content-type: application/json|ratelimit-policy: "closed";q=0;w=86400|ratelimit: "closed";r=0;t=0`, closed},
		{"closed=1 +0", `content-type: application/json|ratelimit-policy: "closed";q=0;w=86400|ratelimit: "closed";r=0;t=0`, closed},
		{
			"tenant=beta +0|closed=1 +0",
			`content-type: application/json|ratelimit-policy: "tenant";q=3;w=60, "closed";q=0;w=86400|ratelimit: "closed";r=0;t=0`, closed,
		},
	} {
		got, err := client.ShouldRateLimit(soon(t), question(step.ask))
		if err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, h := range got.GetResponseHeadersToAdd() {
			fields = append(fields, h.GetKey()+": "+h.GetValue())
		}
		if said := strings.Join(fields, "|"); said != step.fields || string(got.GetRawBody()) != step.body {
			t.Errorf("%s:\n%s\n%s\nwant\n%s\n%s", step.ask, said, got.GetRawBody(), step.fields, step.body)
		}
	}
}

// From cold, however many ask at once, no more than the limit is admitted, in strict and by leases.
func TestNeverOverFromCold(t *testing.T) {
	for _, mode := range []string{"strict", "lease"} {
		_, client := envoys(t, "domain: shop\nlimits: [{name: all, descriptor: [{key: tenant}], rates: [100/h], mode: "+mode+"}]", nil)
		var calls sync.WaitGroup
		var mu sync.Mutex
		admitted := 0
		for range 64 {
			calls.Go(func() {
				for range 10 {
					got, err := client.ShouldRateLimit(soon(t), question("tenant=acme"))
					if err != nil {
						t.Error(err)
					}
					if got.GetOverallCode() == ratelimitv3.RateLimitResponse_OK {
						mu.Lock()
						admitted++
						mu.Unlock()
					}
				}
			})
		}
		calls.Wait()
		if admitted > 100 || admitted < 90 {
			t.Errorf("%s: %d admitted under 100/h", mode, admitted)
		}
	}
}

// Under max_wait a call is held for no longer than its caller waits for the answer, whose deadline goes with the call: one whose
// unit comes later is answered at once, as is one that says how long to wait.
func TestHeldUntilTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := func() instant.Instant { return instant.FromTime(time.Now()) }
		w := serveAt(t, rpc.Config{CallTimeout: 100 * time.Millisecond}, nil, now)
		p, err := policyfile.Parse("policy.yaml", []byte("domain: shop\nlimits:\n  - {name: paced, descriptor: [{key: a}], rates: [1/500ms], max_wait: 1s}"))
		if err != nil {
			t.Fatal(err)
		}
		w.authority.SetPolicy(p)
		client := ratelimitv3.NewRateLimitServiceClient(w.connection)
		for _, step := range []struct {
			deadline time.Duration
			want     string
			after    time.Duration
			retry    bool
		}{
			{time.Second, "O Opaced:0", 0, false},
			{20 * time.Millisecond, "X Xpaced:0", 0, true},
			{400 * time.Millisecond, "X Xpaced:0", 0, true},
			{600 * time.Millisecond, "O Opaced:0", 500 * time.Millisecond, false},
			{time.Minute, "O Opaced:0", 500 * time.Millisecond, false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), step.deadline)
			began := time.Now()
			answer, err := client.ShouldRateLimit(ctx, question("a=1"))
			cancel()
			took := time.Since(began)
			if got := says(answer); err != nil || got != step.want || took < step.after || took > step.after+10*time.Millisecond {
				t.Errorf("a deadline in %v: %q after %v, %v; want %q after %v", step.deadline, got, took, err, step.want, step.after)
			}
			retry := slices.ContainsFunc(answer.GetResponseHeadersToAdd(), func(h *corev3.HeaderValue) bool {
				return h.GetKey() == "retry-after" && h.GetValue() == "1"
			})
			if retry != step.retry {
				t.Errorf("a deadline in %v: %v", step.deadline, answer.GetResponseHeadersToAdd())
			}
		}
	})
}

// What one descriptor denies charges nothing to another, by whatever algorithm and in whatever store that is counted, and however
// many ask at once: those who are over a limit of their own do not spend what is there for all.
func TestDeniedByOneLimitChargesNothingToAnother(t *testing.T) {
	stores := map[string]func(authority.Store) authority.Store{
		"memory": func(authority.Store) authority.Store {
			return memory.New(func() instant.Instant { return 1_764_000_000_000_000 }, 10_000)
		},
		"redis": inRedis(t),
	}
	for _, algorithm := range []string{"sliding_log", "sliding_buckets", "sliding_window_counter", "fixed_window", "token_bucket"} {
		for name, store := range stores {
			t.Run(algorithm+"/"+name, func(t *testing.T) { deniedByOneLimit(t, algorithm, store) })
		}
	}
}

// inRedis gives what puts a Redis in the place of a store.
func inRedis(t *testing.T) func(authority.Store) authority.Store {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	server, err := rig.StartRedis(ctx, t.Output())
	if err != nil {
		cancel()
		t.Fatalf("this test needs a Redis: %v", err)
	}
	store, err := redis.Open(redis.Config{
		URL:         server.URL(),
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		cancel()
	})
	return func(authority.Store) authority.Store { return store }
}

func deniedByOneLimit(t *testing.T, algorithm string, store func(authority.Store) authority.Store) {
	const callers, units = 100, 300
	_, client := envoys(t, fmt.Sprintf("domain: shop\nlimits:\n"+
		"  - {name: own-%[1]s, descriptor: [{key: own}], rates: [1/h], mode: strict, algorithm: %[1]s}\n"+
		"  - {name: all-%[1]s, descriptor: [{key: all}], rates: [%[2]d/h], mode: strict, algorithm: %[1]s}\n", algorithm, units), store)
	asked := func(text string) string {
		got, err := client.ShouldRateLimit(soon(t), question(text))
		if err != nil {
			t.Error(err)
		}
		return says(got)
	}
	// Half are over their own limit when they come to both for the first time, the others the second time: it is the store that
	// denies them then.
	for _, round := range []struct {
		more string
		want func(caller int) string
	}{
		{"", func(int) string { return "O" }},
		{"|all=1", func(caller int) string { return [...]string{"X", "O"}[caller%2] }},
		{"|all=1", func(int) string { return "X" }},
	} {
		var calls sync.WaitGroup
		for i := range callers {
			if round.more == "" && i%2 == 1 {
				continue
			}
			calls.Go(func() {
				text := fmt.Sprintf("own=%d%s", i, round.more)
				if got, want := asked(text), round.want(i); !strings.HasPrefix(got, want+" "+want) {
					t.Errorf("%s: %s; want %s by its own limit", text, got, want)
				}
			})
		}
		calls.Wait()
	}
	if got, want := asked("all=1 +0"), fmt.Sprintf("O Oall-%s:%d", algorithm, units-callers/2); got != want {
		t.Errorf("in the end %s, want %s", got, want)
	}
}
