package memory

import (
	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

// Entries gives how many entries are stored for each rate.
func (s *Store) Entries(wanted authority.Key) []int {
	rates := store.Windows(wanted.Rates)
	entries := make([]int, len(rates))
	s.with(wanted, false, func(k *key, now instant.Instant) {
		for i, w := range k.count.windows(rates, now) {
			switch w := w.(type) {
			case *logWindow:
				entries[i] = w.size()
			case *bucketWindow:
				entries[i] = len(w.buckets) + len(w.live)
			}
		}
	})
	return entries
}
