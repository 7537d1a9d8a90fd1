package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/controlsvc/telemetry"
	"sluice/shared/instant"
	"sluice/shared/limit"
	"sluice/shared/policy"
)

// scrape gives what Prometheus would read.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if answer.Code != http.StatusOK {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func contain(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %q:\n%s", line, text)
		}
	}
}

func TestMetrics(t *testing.T) {
	m := telemetry.NewMetrics()
	m.Policy(&policy.Policy{Version: "v0", Domain: "shop"})
	m.Policy(&policy.Policy{Version: "v1", Domain: "shop", Limits: []policy.Limit{{Name: "tenant"}, {Name: "reports"}}})
	m.Decided("tenant", 5, 3, 2)
	m.Decided("tenant", 1, 0, 0)
	m.Synced(codes.OK)
	m.Synced(codes.InvalidArgument)
	m.Shed()
	m.Panicked()
	m.RolledBack(4)
	m.Leaked(6)
	m.Watch(func() int { return 7 }, func() int { return 8 })
	text := scrape(t, m)
	contain(t, text,
		`sluice_asked_total{limit="tenant",result="admitted"} 6`,
		`sluice_asked_total{limit="tenant",result="denied"} 3`,
		`sluice_asked_total{limit="tenant",result="unanswered"} 2`,
		`sluice_asked_total{limit="reports",result="admitted"} 0`,
		`sluice_sync_total{code="OK"} 1`,
		`sluice_sync_total{code="InvalidArgument"} 1`,
		`sluice_shed_total 1`, `sluice_panics_total 1`, `sluice_rollbacks_total 4`, `sluice_leaked_charges_total 6`,
		`sluice_owed_charges 7`, `sluice_in_flight 8`,
		`sluice_policy_info{domain="shop",version="v1"} 1`, `sluice_policy_limits 2`,
	)
	if strings.Contains(text, `version="v0"`) {
		t.Error("the metrics name a policy that is not in force any more")
	}
}

// However many limits policies bring in a process's life, those of the policy in force have series, and no other.
func TestARemovedLimitLeavesNothingBehind(t *testing.T) {
	m := telemetry.NewMetrics()
	for i := range 50 {
		name := "limit-" + strconv.Itoa(i)
		m.Policy(&policy.Policy{Version: name, Domain: "shop", Limits: []policy.Limit{{Name: "stays"}, {Name: name}}})
		m.Decided("stays", 1, 0, 0)
		m.Decided(name, 1, 0, 0)
	}
	m.Decided("limit-7", 3, 0, 0) // by a call that began under that policy
	text := scrape(t, m)
	contain(t, text,
		`sluice_asked_total{limit="stays",result="admitted"} 50`,
		`sluice_asked_total{limit="limit-49",result="admitted"} 1`,
		`sluice_asked_total{limit="(other)",result="admitted"} 3`,
	)
	if n := strings.Count(text, `result="admitted"`); n != 3 {
		t.Errorf("%d limits have series; want 3:\n%s", n, text)
	}
}

func TestReloads(t *testing.T) {
	m := telemetry.NewMetrics()
	contain(t, scrape(t, m), `sluice_policy_last_reload_successful 1`, `sluice_policy_reloads_total{result="invalid"} 0`)
	m.Reloaded(telemetry.ReloadApplied)
	m.Reloaded(telemetry.ReloadInvalid)
	contain(t, scrape(t, m), `sluice_policy_last_reload_successful 0`, `sluice_policy_reloads_total{result="applied"} 1`,
		`sluice_policy_reloads_total{result="invalid"} 1`)
	m.Reloaded(telemetry.ReloadUnchanged)
	contain(t, scrape(t, m), `sluice_policy_last_reload_successful 1`, `sluice_policy_reloads_total{result="unchanged"} 1`)
}

// slow is a store of which every operation takes 3 ms and fails.
type slow struct {
	authority.Store

	now *instant.Instant
}

var errSlow = errors.New("slow")

func (s slow) take() error {
	*s.now = s.now.Add(3 * time.Millisecond)
	return errSlow
}

func (s slow) Reserve(context.Context, []authority.Reserve) []authority.Reserved {
	return []authority.Reserved{{Err: s.take()}, {}, {Err: errSlow}}
}
func (s slow) Settle(context.Context, []authority.Settle) []error { return []error{s.take(), nil} }
func (s slow) Cancel(context.Context, []authority.Cancel) []error { return []error{s.take(), nil} }
func (s slow) Record(context.Context, []authority.Record) []error { return []error{s.take(), nil} }
func (s slow) Reset(context.Context, authority.Key) error         { return s.take() }
func (s slow) Ping(context.Context) error                         { return s.take() }
func (s slow) Peek(context.Context, authority.Key) ([]authority.State, error) {
	return nil, s.take()
}

func (s slow) Connected(context.Context, string, uint64, time.Duration) (authority.Share, error) {
	return authority.Share{}, s.take()
}

func (s slow) Exchange(context.Context, string, uint64, []byte, time.Duration) ([][]byte, error) {
	return nil, s.take()
}

func TestStoreIsMeasured(t *testing.T) {
	m := telemetry.NewMetrics()
	var now instant.Instant
	var awaited []time.Duration
	s := m.Store(slow{now: &now}, func() instant.Instant { return now }, func(took time.Duration) { awaited = append(awaited, took) }, nil)
	ctx := t.Context()
	s.Reserve(ctx, nil)
	s.Settle(ctx, nil)
	s.Cancel(ctx, nil)
	s.Record(ctx, nil)
	_, peek := s.Peek(ctx, authority.Key{})
	_, connected := s.Connected(ctx, "shop", 1, time.Second)
	_, exchange := s.Exchange(ctx, "shop", 1, nil, time.Second)
	for _, err := range []error{peek, connected, exchange, s.Reset(ctx, authority.Key{}), s.Ping(ctx)} {
		if !errors.Is(err, errSlow) {
			t.Errorf("error %v; want the store's", err)
		}
	}
	if of := 3 * time.Millisecond; !slices.Equal(awaited, []time.Duration{of, of, of}) {
		t.Errorf("decisions are said to rest on %v; want what reserve, record and peek took", awaited)
	}
	text := scrape(t, m)
	for operation, failed := range map[string]int{
		"reserve": 2, "settle": 1, "cancel": 1, "record": 1, "peek": 1, "reset": 1, "connected": 1, "ping": 1,
	} {
		contain(t, text,
			`sluice_store_seconds_bucket{operation="`+operation+`",le="0.0025"} 0`,
			`sluice_store_seconds_bucket{operation="`+operation+`",le="0.005"} 1`,
			`sluice_store_errors_total{operation="`+operation+`"} `+strconv.Itoa(failed),
		)
	}
}

// A store that may be too small for its keys says how many it has, and how many had to go.
func TestBoundedStoreIsCounted(t *testing.T) {
	m := telemetry.NewMetrics()
	clock := func() instant.Instant { return 1 }
	s := m.Store(memory.New(clock, 2), clock, nil, nil)
	for i := range 5 {
		out := s.Reserve(t.Context(), []authority.Reserve{{
			Key: authority.Key{
				Name: strconv.Itoa(i), Algorithm: limit.SlidingLog, Rates: []limit.Rate{{Units: 1, Window: time.Minute}},
			},
			Call: "call", Want: 1, Min: 1,
		}})
		if out[0].Err != nil {
			t.Fatal(out[0].Err)
		}
	}
	contain(t, scrape(t, m), `sluice_memory_keys 2`, `sluice_memory_evicted_keys_total 3`)
}

func TestLogger(t *testing.T) {
	var text bytes.Buffer
	logger := telemetry.NewLogger(&text, slog.LevelWarn)
	logger.Info("too quiet")
	logger.Warn("loud", "why", "a\nb")
	var line map[string]any
	if err := json.Unmarshal(text.Bytes(), &line); err != nil || line["msg"] != "loud" || line["why"] != "a\nb" || line["level"] != "WARN" {
		t.Errorf("%q: %v; want one line of JSON", text.String(), err)
	}
}
