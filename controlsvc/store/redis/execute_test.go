package redis

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/controlsvc/authority"
)

// Strict charges go many to one execution of a script, with all else around them: each has its own answer, in its own place,
// and what is wrong with one key is nothing to the others.
func TestStrictChargesTogether(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"one server": func(t *testing.T) string { return startServer(t).URL() },
		"a cluster":  startCluster,
		"a cluster of one, spoken to as a server": func(t *testing.T) string {
			server := startServer(t, "--cluster-enabled", "yes", "--cluster-config-file", filepath.Join(t.TempDir(), "nodes.conf"))
			s := open(t, server.URL())
			if err := s.client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the cluster to be whole", func() bool {
				return strings.Contains(s.client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
			})
			return server.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, start(t))
			key := func(i int) authority.Key { return testKey(fmt.Sprintf("together/%d", i), "3/1h") }
			const count, broken = 3*maxTogether + 5, maxTogether + 7
			if err := s.client.Set(t.Context(), s.keysOf(key(broken))[0], "no charges", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			for round := int64(1); round <= 4; round++ {
				operations := make([]authority.Reserve, count)
				for i := range operations {
					operations[i] = authority.Reserve{Key: key(i), Call: fmt.Sprint(round), Part: fmt.Sprint(i), Want: 1, Min: 1}
					switch i % 10 {
					case 3:
						operations[i].Want = 2 // of which one is to be had in the second round
					case 5:
						operations[i].TTL = time.Minute
					case 7:
						operations[i].Key = testKey(fmt.Sprintf("together/%d", i), "3/1h", "4/2h")
					}
				}
				for i, out := range s.Reserve(t.Context(), operations) {
					units := min(operations[i].Want, max(0, 3-(round-1)*operations[i].Want))
					left := max(0, 3-round*operations[i].Want)
					switch {
					case i == broken:
						if out.Err == nil {
							t.Errorf("round %d: a key that holds no charges: %+v", round, out)
						}
					case out.Err != nil || out.Units != units || out.State.Remaining != left || out.Denied != (units < operations[i].Want):
						t.Errorf("round %d, %d: %+v; want %d units, and %d left", round, i, out, units, left)
					}
				}
			}
		})
	}
}
