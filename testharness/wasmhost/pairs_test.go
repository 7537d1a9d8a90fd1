package wasmhost

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// FuzzPairs: whatever a guest passes as a header map is read or refused, and
// what is read reads the same again.
func FuzzPairs(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{1, 0, 0, 0})
	f.Add(marshalPairs(Headers{{"a", "b"}, {"", ""}, {":path", "/"}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := unmarshalPairs(b)
		if !ok {
			return
		}
		again, ok := unmarshalPairs(marshalPairs(h))
		if diff := cmp.Diff(h, again, cmpopts.EquateEmpty()); !ok || diff != "" {
			t.Errorf("%v (-once +twice):\n%s", ok, diff)
		}
	})
}

// TestHeaders: against a naive list of pairs.
func TestHeaders(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "A", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		var h Headers
		var naive [][2]string
		lower := map[string]string{"a": "a", "A": "a", "b": "b", "c": "c"}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			n, v := name.Draw(t, "name"), rapid.StringMatching(`[0-9]`).Draw(t, "value")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				h.add(n, v)
				naive = append(naive, [2]string{lower[n], v})
			case 1:
				h.remove(n)
				naive = without(naive, lower[n], 0)
			case 2:
				h.replace(n, v)
				at := -1
				for i, p := range naive {
					if p[0] == lower[n] {
						at = i
						break
					}
				}
				if at < 0 {
					naive = append(naive, [2]string{lower[n], v})
				} else {
					naive = append(naive[:at:at], append([][2]string{{lower[n], v}}, without(naive[at:], lower[n], 0)...)...)
				}
			}
			if diff := cmp.Diff(Headers(naive), h, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("(-naive +got):\n%s", diff)
			}
			want := ""
			for _, p := range naive {
				if p[0] == lower[n] {
					want = p[1]
					break
				}
			}
			if h.Get(n) != want || h.Has(n) != (want != "") || len(h.Values(n)) != len(naive)-len(without(naive, lower[n], 0)) {
				t.Fatalf("Get(%q) = %q, Has %v, Values %q in %v", n, h.Get(n), h.Has(n), h.Values(n), h)
			}
		}
	})
}

// without leaves out the name from the i-th pair on.
func without(h [][2]string, name string, i int) [][2]string {
	var out [][2]string
	for j, p := range h {
		if j < i || p[0] != name {
			out = append(out, p)
		}
	}
	return out
}
