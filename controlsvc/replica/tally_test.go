package replica_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replica"
	"sluice/controlsvc/store/memory"
	"sluice/shared/admission"
	"sluice/shared/wire"
)

// told adds up what the replica's workers report.
type told struct {
	authority.Nobody

	mu   sync.Mutex
	sums map[string]int64
	// filters are the calls that are not the replica's own.
	filters []authority.Call
}

func (o *told) Called(call authority.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !call.Own {
		o.filters = append(o.filters, call)
	}
}

func (o *told) Reported(_ uint64, report *wire.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range report.Tallies {
		o.sums[t.Limit+" "+t.Result.String()] += t.Count
	}
}

// What a replica decides is in its workers' reports, each request once, when it has stopped.
func TestAReplicaReportsWhatItDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := policyfile.Parse("policy.yaml", []byte("domain: shop\nlimits:\n- {name: all, descriptor: [{key: tenant}], rates: [20/h]}\n"+
			"- {name: seen, descriptor: [{key: path}], rates: [5/h], shadow: true}\n"))
		if err != nil {
			t.Fatal(err)
		}
		heard := &told{sums: map[string]int64{}}
		a := authority.New(authority.Config{Store: memory.New(now, 1000), Now: now, Random: rand.Uint64, Observer: heard})
		a.SetPolicy(p)
		r := replica.New(replica.Config{Authority: a, Now: now, Random: rand.Uint64, Logger: slog.New(slog.DiscardHandler), Workers: 3})
		want := map[string]int64{"seen shadow_admitted": 5, "seen shadow_denied": 35} // of the 40 that are admitted
		var decision replica.Decision
		for i := range 60 {
			demands := []replica.Demand{{Limit: 1, Key: "x", Cost: 1}, {Key: fmt.Sprint("caller-", i%2), Cost: 1}}
			if err := r.Decide(t.Context(), p, demands, &decision); err != nil {
				t.Fatal(err)
			}
			name := "all admitted"
			if decision.Limits[0].Limit.Name != "all" {
				t.Fatalf("%+v", decision)
			}
			if decision.Verdict != admission.Admit {
				name = "all denied"
			}
			want[name]++
		}
		for _, none := range [][]replica.Demand{nil, {{Key: "looked at"}}} {
			if err := r.Decide(t.Context(), p, none, &decision); err != nil {
				t.Fatal(err)
			}
			want[" admitted"]++
		}
		// A report is on its way when the replica stops, with the question what the shadow makes of this one.
		<-time.After(time.Second)
		if err := r.Decide(t.Context(), p, []replica.Demand{{Limit: 1, Key: "y", Cost: 1}}, &decision); err != nil {
			t.Fatal(err)
		}
		want[" admitted"]++
		want["seen shadow_admitted"]++
		if want["all admitted"] != 40 || want["all denied"] != 20 {
			t.Errorf("decided %v", want)
		}
		r.Stop()
		heard.mu.Lock()
		defer heard.mu.Unlock()
		if fmt.Sprint(heard.sums) != fmt.Sprint(want) {
			t.Errorf("told %v\nwant %v", heard.sums, want)
		}
		if len(heard.filters) > 0 {
			t.Errorf("taken for a filter's: %+v", heard.filters)
		}
	})
}
