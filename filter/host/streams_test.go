package host_test

import (
	"testing"

	"pgregory.net/rapid"

	"sluice/filter/host"
)

// Streams does what a map does, for ids that collide as well as for those that follow one another, and never gives a record
// to two streams.
func TestStreamsAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var streams host.Streams[int]
		twin := map[host.ContextID]*int{}
		id := rapid.OneOf(rapid.Uint32Range(0, 40), rapid.Map(rapid.Uint32Range(0, 8), func(n uint32) uint32 { return n * 16 }), rapid.Uint32())
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				id := host.ContextID(id.Draw(t, "id"))
				if twin[id] != nil {
					return
				}
				record := streams.Add(id)
				for other, taken := range twin {
					if taken == record {
						t.Fatalf("%d was given the record of %d", id, other)
					}
				}
				twin[id] = record
			},
			"remove": func(t *rapid.T) {
				id := host.ContextID(id.Draw(t, "id"))
				streams.Remove(id)
				delete(twin, id)
			},
			"": func(t *rapid.T) {
				for id, want := range twin {
					if got := streams.Get(id); got != want {
						t.Fatalf("%d: %p, want %p", id, got, want)
					}
				}
				if id := host.ContextID(id.Draw(t, "asked")); streams.Get(id) != twin[id] {
					t.Fatalf("%d: %p, want %p", id, streams.Get(id), twin[id])
				}
			},
		})
	})
}
