package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// Top says what is missing, over how long its rows were counted, and what a limit in shadow would have made of how many.
func TestTopTells(t *testing.T) {
	const second, minute = 1_000_000, 60_000_000
	keys := []*adminv1.TopRow{
		{Limit: "tenant", Name: "acme", Counts: &adminv1.Counts{Admitted: 20, Denied: 6}, Missing: 2},
		{Limit: "tenant", Name: "\x1b[2J", Counts: &adminv1.Counts{Denied: 1}},
	}
	total := &adminv1.Counts{Admitted: 50, Denied: 7, Left: 3, Near: 4, Fallback: 5}
	for name, test := range map[string]struct {
		by   string
		r    *adminv1.TopResponse
		want string
	}{
		"keys": {"keys", &adminv1.TopResponse{KnownFor: 10 * minute, WholeFor: 10 * minute, RankedFor: 343 * second, Total: total, Rows: keys}, `
the last 5m: 50 admitted, 7 denied, 3 whose client left, 4 near their limit, 5 decided without the service
keys of the last 5m43s:
LIMIT   KEY   DENIED  ADMITTED  WOULD DENY  WOULD ADMIT  MISSING
tenant  acme  6       20        0           0            up to 2
tenant  �[2J  1       0         0           0            none
`},
		"since the service began": {"keys", &adminv1.TopResponse{KnownFor: 40 * second, WholeFor: 40 * second, RankedFor: 40 * second, Total: total}, `
the last 5m, of which the last 40s are known: 50 admitted, 7 denied, 3 whose client left, 4 near their limit, 5 decided without the service
no keys to list
`},
		"since a replica began": {"routes", &adminv1.TopResponse{KnownFor: 10 * minute, WholeFor: 12 * second, Total: total}, `
the last 5m, of which the last 12s are known in full (a replica began or went then): 50 admitted, 7 denied, 3 whose client left, 4 near their limit, 5 decided without the service
no routes to list
`},
		"since all replicas began": {"limits", &adminv1.TopResponse{KnownFor: 40 * second, WholeFor: 12 * second, Total: total}, `
the last 5m, of which the last 40s are known, the last 12s in full (a replica began or went then): 50 admitted, 7 denied, 3 whose client left, 4 near their limit, 5 decided without the service
no limits to list
`},
		"shadow": {"shadow", &adminv1.TopResponse{
			KnownFor: 10 * minute, WholeFor: 6 * minute, RankedFor: 300 * second, Total: &adminv1.Counts{Admitted: 1000, ShadowAdmitted: 969, ShadowDenied: 31},
			Rows: []*adminv1.TopRow{
				{Limit: "tried", Name: "acme", Counts: &adminv1.Counts{ShadowAdmitted: 969, ShadowDenied: 31}, Missing: 3},
				{Limit: "tried", Name: "globex", Counts: &adminv1.Counts{}},
			},
		}, `
the last 5m: 1000 admitted, 0 denied, 0 whose client left, 0 near their limit, 0 decided without the service
limits in shadow would have denied 31 and admitted 969
keys under a limit in shadow, of the last 5m0s:
LIMIT  KEY     WOULD DENY  WOULD ADMIT  SHARE  MISSING
tried  acme    31          969          3.1 %  up to 3
tried  globex  0           0            none   none
`},
		"limits": {"limits", &adminv1.TopResponse{
			KnownFor: 10 * minute, WholeFor: 10 * minute, Total: &adminv1.Counts{Denied: 1, ShadowDenied: 2},
			Rows: []*adminv1.TopRow{{Limit: "tried", Counts: &adminv1.Counts{ShadowDenied: 2}}},
		}, `
the last 5m: 0 admitted, 1 denied, 0 whose client left, 0 near their limit, 0 decided without the service
limits in shadow would have denied 2 and admitted 0
LIMIT  DENIED  ADMITTED  WOULD DENY  WOULD ADMIT  MISSING
tried  0       0         2           0            none
`},
	} {
		test.r.Range = "5m"
		var text strings.Builder
		if err := printTop(&text, test.by, test.r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), text.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	told, err := json.Marshal(topOf(&adminv1.TopResponse{
		Range: "5m", Age: 2 * second, KnownFor: 4 * second, WholeFor: 3 * second, RankedFor: 5 * second, OthersMost: 1,
		Total: &adminv1.Counts{Admitted: 2, Denied: 3, Left: 4, ShadowAdmitted: 5, ShadowDenied: 6, Near: 7, Fallback: 8},
	}))
	const want = `{"range":"5m","age_seconds":2,"known_for_seconds":4,"whole_for_seconds":3,"ranked_for_seconds":5,"total":{"admitted":2,"denied":3,` +
		`"left":4,"shadow_admitted":5,"shadow_denied":6,"near":7,"fallback":8},"rows":[],"others_most":1}`
	if err != nil || string(told) != want {
		t.Errorf("-o json: %s, %v; want %s", told, err, want)
	}
}
