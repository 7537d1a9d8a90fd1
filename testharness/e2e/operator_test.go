package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"
)

// operate runs the command for an operator, against the service that runs.
func operate(t *testing.T, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), fleet.sluice, args...)
	command.Env = append(os.Environ(), "SLUICE_ADDRESS="+current.service.Admin, "SLUICE_TIMEOUT="+answerWithin.String())
	output, err := command.Output()
	if err != nil {
		t.Fatalf("sluice %v: %v", args, err)
	}
	return output
}

// used gives what a key of one rate has used, and what its leases still hold of that.
func used(t *testing.T, key string) (units, leased int) {
	t.Helper()
	var told struct {
		Rates []struct {
			Used int `json:"used"`
		} `json:"rates"`
		Leases []struct {
			Units int `json:"units"`
		} `json:"leases"`
	}
	if err := json.Unmarshal(operate(t, "inspect", key, "-o", "json"), &told); err != nil || len(told.Rates) != 1 {
		t.Fatalf("inspect %s: %+v, %v", key, told, err)
	}
	for _, lease := range told.Leases {
		leased += lease.Units
	}
	return told.Rates[0].Used, leased
}

// becomes waits until every Envoy answers with a status, so many times in a row, and fails after within.
func becomes(t *testing.T, what string, within time.Duration, status, row int, path string, headers ...string) {
	t.Helper()
	began := time.Now()
	for proxy := range envoyCount {
		for seen := 0; seen < row; seen++ {
			if got := ask(t, proxy, http.MethodGet, path, headers...).status; got == status {
				continue
			} else if time.Since(began) > within {
				t.Fatalf("%s: %d from proxy %d after %v, want %d", what, got, proxy, time.Since(began), status)
			}
			seen = -1
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Logf("%s: %d from all after %v", what, status, time.Since(began))
}

// all is in a row that hardly leaves a worker out: each request is on a connection of its own, and either takes it.
const all = 10

// follows is how long all workers may take to go by what an operator has set: two seconds, and what a busy machine adds.
const follows = 30 * time.Second

// An operator looks at a key, resets it, raises it for two seconds, and blocks a tenant: clients of both Envoys see it.
func TestOperator(t *testing.T) {
	serve(t, onRedis)
	tenant := []string{"x-tenant-id", "operated"}
	if n := admitted(t, 3, http.MethodGet, "/changing", tenant...); n != 3 {
		t.Fatalf("%d came through of 3 under 5/h", n)
	}
	if n, leased := used(t, "changing/operated"); n != 3 || leased != 0 {
		t.Errorf("inspect says %d used, %d of them leased, after 3 requests", n, leased)
	}
	if n := admitted(t, 6, http.MethodGet, "/changing", tenant...); n != 2 {
		t.Errorf("%d more came through under 5/h", n)
	}

	operate(t, "reset", "changing/operated")
	if n, _ := used(t, "changing/operated"); n != 0 {
		t.Errorf("inspect says %d used after a reset", n)
	}
	// A worker that denies goes by that for up to 5 s; then it asks. The first that comes through is the first of 5 again.
	becomes(t, "reset", follows, http.StatusOK, 1, "/changing", tenant...)
	becomes(t, "used up again", follows, http.StatusTooManyRequests, all, "/changing", tenant...)
	if n, _ := used(t, "changing/operated"); n != 5 {
		t.Errorf("inspect says %d used of 5/h when it denies", n)
	}

	operate(t, "override", "set", "changing/operated", "--rate", "100000/h", "--for", "1h")
	becomes(t, "raised", follows, http.StatusOK, all, "/changing", tenant...)
	operate(t, "override", "set", "changing/operated", "--rate", "100000/h", "--for", "1s")
	becomes(t, "no longer raised", follows, http.StatusTooManyRequests, all, "/changing", tenant...)

	awaitTop(t, "changing", "operated")

	evil := []string{"x-tenant-id", "evil"}
	becomes(t, "before the block", 0, http.StatusOK, 1, "/flood", evil...)
	operate(t, "block", "tenant", "evil", "--for", "1h")
	becomes(t, "blocked", follows, http.StatusForbidden, all, "/flood", evil...)
	if a := ask(t, 0, http.MethodGet, "/flood", "x-tenant-id", "good"); a.status != http.StatusOK {
		t.Errorf("another tenant is answered %d", a.status)
	}
	operate(t, "block", "tenant", "evil", "--remove")
	becomes(t, "no longer blocked", follows, http.StatusOK, all, "/flood", evil...)
}

// awaitTop waits until top lists a key with denials: workers report within a second.
func awaitTop(t *testing.T, limit, key string) {
	t.Helper()
	var told struct {
		Rows []struct {
			Name   string `json:"name"`
			Denied int    `json:"denied"`
		} `json:"rows"`
	}
	for deadline := time.Now().Add(recoverWithin); ; time.Sleep(100 * time.Millisecond) {
		if err := json.Unmarshal(operate(t, "top", "--limit", limit, "-o", "json"), &told); err != nil {
			t.Fatal(err)
		}
		for _, row := range told.Rows {
			if row.Name == key && row.Denied > 0 {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("top --limit %s does not list %s: %+v", limit, key, told)
		}
	}
}

// What inspect says of a key under leases: what came through is used, and what is more is in leases that are out, or were.
func TestOperatorInspectsLeases(t *testing.T) {
	serve(t, onRedis)
	tenant := []string{"x-tenant-id", "inspected"}
	n := admitted(t, 60, http.MethodGet, "/inspected", tenant...)
	units, leased := used(t, "inspected/inspected")
	t.Logf("%d came through, %d used, %d of them in leases", n, units, leased)
	if units > 200 || leased > units || n != 60 || units < n {
		t.Errorf("%d of 60 came through, and inspect says %d used, %d of them in leases, under 200/h", n, units, leased)
	}
}
