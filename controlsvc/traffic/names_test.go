package traffic

import (
	"testing"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

func TestNamesAreThePolicys(t *testing.T) {
	rate := func(window time.Duration) []limit.Rate { return []limit.Rate{{Units: 5, Window: window}} }
	n := NewNames(&policy.Policy{Limits: []policy.Limit{
		{
			Name: "tenant", Match: policy.Match{PathTemplate: "/v1/{id}"}, Rates: rate(2 * time.Second),
			Plans: []policy.Exception{{Name: "paid", Rates: rate(3 * time.Second)}},
		},
		{Name: "all", Rates: rate(5 * time.Second), Overrides: []policy.Exception{{Name: "acme", Rates: rate(7 * time.Second)}}},
	}})
	for named, want := range map[string]string{"": "", "tenant": "tenant", "all": "all", "tenant=10/m": "tenant", "gone": Other, Other: Other, "gone=10/m": Other} {
		if got := n.Limit(named); got != want {
			t.Errorf("limit %q is counted as %q; want %q", named, got, want)
		}
	}
	for named, want := range map[string]string{"": "", "/v1/{id}": "/v1/{id}", "/v1/5": Other, Other: Other} {
		if got := n.Route(named); got != want {
			t.Errorf("route %q is counted as %q; want %q", named, got, want)
		}
	}
	for named, want := range map[time.Duration]time.Duration{0: 0, 2 * time.Second: 2 * time.Second, 3 * time.Second: 3 * time.Second, 7 * time.Second: 7 * time.Second, 4 * time.Second: 0, -1: 0, time.Hour: time.Hour} {
		if got := n.Window(named); got != want {
			t.Errorf("window %v is counted as %v; want %v", named, got, want)
		}
	}
	for _, key := range []struct {
		limit, key, want string
		is               bool
	}{
		{"tenant", "acme", "tenant", true},
		{"tenant", "<b>bold</b>", "tenant", true},
		{"gone", "acme", Other, true},
		{"tenant=10/m", "acme", "tenant=10/m", true},
		{"tenant=0010/m", "acme", "tenant", true},
		{"tenant", "a\nb", "", false},
	} {
		if got, is := n.Key(key.limit, key.key); got != key.want || is != key.is {
			t.Errorf("key %q of limit %q is listed under %q, %v; want %q, %v", key.key, key.limit, got, is, key.want, key.is)
		}
	}
}
