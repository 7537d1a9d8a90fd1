package memory_test

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/shared/limit"
)

// Very many keys, a million with SLUICE_LONG=1: as many as were promised find room; those beyond make the ones go
// whose use is longest ago; and all of them go by themselves.
func TestManyKeys(t *testing.T) {
	keys := 40_000
	if os.Getenv("SLUICE_LONG") != "" {
		keys = 1_000_000
	}
	for _, algorithm := range []limit.Algorithm{limit.SlidingLog, limit.SlidingBuckets} {
		t.Run(algorithm.String(), func(t *testing.T) {
			c := newClock()
			s := memory.New(c.read, keys)
			reserves := []authority.Reserve{{Call: "1122334455667788.5", Want: 1, Min: 1}}
			spend := func(i int) int64 {
				reserves[0].Key = authority.Key{
					Name: "shop/tenant/" + strconv.Itoa(i), Algorithm: algorithm, Rates: []limit.Rate{{Units: 100, Window: time.Minute}},
				}
				out := s.Reserve(t.Context(), reserves)
				if out[0].Err != nil {
					t.Fatal(out[0].Err)
				}
				return out[0].State.Remaining
			}
			for i := range keys {
				spend(i)
			}
			for i := range keys {
				if left := spend(i); left != 98 {
					t.Fatalf("key %d has %d left after two", i, left)
				}
			}
			if s.Len() != int64(keys) || s.Evicted() != 0 {
				t.Errorf("%d keys, %d evicted, where there is room for %d", s.Len(), s.Evicted(), keys)
			}
			for i := range keys / 10 {
				spend(keys + i)
			}
			if got, want := s.Evicted(), int64(keys/10); got != want || s.Len() != int64(keys) {
				t.Errorf("%d keys, %d evicted by %d more", s.Len(), got, want)
			}
			// The order of use is each shard's own: of the last half all must be there.
			for i := keys / 2; i < keys; i++ {
				if left := spend(i); left != 97 {
					t.Fatalf("key %d, used lately, has %d left after three", i, left)
				}
			}
			c.advance(2 * time.Minute)
			// An operation clears away one key of the shards at large, on average, whether that one has any left or not.
			for i := 0; s.Len() > int64(keys/100) && i < 4*keys; i++ {
				spend(keys + i%100)
			}
			if s.Len() > int64(keys/100) {
				t.Errorf("%d keys are left when all have expired", s.Len())
			}
		})
	}
}

// What a key takes up by each algorithm, of one charge and of five, each of a call of its own: docs/operations.md has the figures
// of a million keys, which is with SLUICE_LONG=1.
func TestBytesOfAKey(t *testing.T) {
	keys := 2000
	if os.Getenv("SLUICE_LONG") != "" {
		keys = 1_000_000
	}
	for algorithm := limit.SlidingLog; algorithm <= limit.TokenBucket; algorithm++ {
		t.Run(algorithm.String(), func(t *testing.T) {
			c := newClock()
			before := heap()
			s := memory.New(c.read, keys)
			reserves := []authority.Reserve{{Want: 1, Min: 1}}
			for charge := range int64(5) {
				for i := range keys {
					reserves[0].Call = "1ekmrwvhd7r0p." + strconv.FormatInt(1e9+charge*int64(keys)+int64(i), 36)
					reserves[0].Key = authority.Key{
						Name: "shop/tenant/" + strconv.Itoa(i), Algorithm: algorithm, Rates: []limit.Rate{{Units: 5, Window: time.Hour}},
					}
					if out := s.Reserve(t.Context(), reserves)[0]; out.Units != 1 {
						t.Fatalf("charge %d of key %d: %+v", charge, i, out)
					}
				}
				c.advance(time.Minute)
				most, wanted := map[int64]int64{0: 550, 4: 1100}[charge]
				if each := (heap() - before) / int64(keys); wanted {
					t.Logf("%d keys of %d: %d B each", keys, charge+1, each)
					if each > most {
						t.Errorf("a key of %d charges takes up %d B, want at most %d", charge+1, each, most)
					}
				}
			}
			runtime.KeepAlive(s)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
