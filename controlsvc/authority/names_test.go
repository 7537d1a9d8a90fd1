package authority

import (
	"math"
	"testing"
)

// A call's name says whose it is, and no two of a worker, a replica and a record have the same; whatever digits a number has.
func TestCallNames(t *testing.T) {
	seen := map[string]bool{}
	for _, who := range []uint64{1, 10, 27, 36, math.MaxUint64} {
		for _, number := range []uint64{1, 10, 11, 27, 35, 36, 10 * 36, 27 * 36, 1 << 40, math.MaxUint64} {
			call, replica, record := callName(who, number), ReplicaCall(who, number), nameOf(who, recordMark, number)
			for _, name := range []string{call, replica, record} {
				if seen[name] {
					t.Errorf("%s is a name twice", name)
				}
				seen[name] = true
				if len(name) > 28 {
					t.Errorf("%s has %d bytes, want at most 28", name, len(name))
				}
			}
			for _, of := range []struct {
				call    string
				replica bool
			}{{call, false}, {replica, true}} {
				lease := LiveLease{Call: of.call}
				if id, is := lease.Holder(); id != who || is != of.replica {
					t.Errorf("%s is of %d, a replica: %t; want %d, %t", of.call, id, is, who, of.replica)
				}
			}
		}
	}
}
