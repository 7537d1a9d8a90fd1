package memory

import (
	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
	"sluice/shared/instant"
)

// Entries gives how many charges are stored for each rate.
func (s *Store) Entries(wanted authority.Key) []int {
	rates := store.Windows(wanted.Rates)
	entries := make([]int, len(rates))
	s.with(wanted, false, func(k *key, now instant.Instant) {
		for i, w := range k.count.windows(rates, now) {
			if log, ok := w.(*logWindow); ok {
				entries[i] = log.charges.size()
			}
		}
	})
	return entries
}
