package store

import (
	"slices"
	"time"

	"sluice/controlsvc/authority"
)

// MaxGroups is how many charges a settled lease or a record becomes at most. One for each unit would make a lease of a
// thousand units cost a thousand entries.
const MaxGroups = 64

// Divide says what becomes of a grant of so many units: groups of them were spent some whole microseconds ago, youngest
// first, and kept units keep the score they have. Where the report says more than the units, the unused are cut first, then
// the earliest uses. An age may come out younger than it went in, by at most 1/63 of the span of ages, never older.
func Divide(units int64, uses []authority.Use, unused int64) (groups []authority.Use, kept int64) {
	groups = group(uses, units, MaxGroups-1)
	kept = units
	for _, g := range groups {
		kept -= g.Units
	}
	return groups, kept - min(kept, unused)
}

// Group gives the charges of a record. Ages may come out younger, as in Divide.
func Group(uses []authority.Use) []authority.Use { return group(uses, MaxHeld, MaxGroups) }

// group sorts uses by age, cuts them at so many units, and joins neighbours until there are at most so many groups.
func group(uses []authority.Use, units int64, most int) []authority.Use {
	sorted := make([]authority.Use, 0, len(uses))
	for _, u := range uses {
		if u.Units > 0 {
			sorted = append(sorted, authority.Use{Age: u.Age.Truncate(time.Microsecond), Units: u.Units})
		}
	}
	slices.SortFunc(sorted, func(a, b authority.Use) int {
		switch {
		case a.Age < b.Age:
			return -1
		case a.Age > b.Age:
			return 1
		}
		return 0
	})
	for i := range sorted {
		sorted[i].Units = min(sorted[i].Units, units)
		units -= sorted[i].Units
		if units == 0 {
			sorted = sorted[:i+1]
			break
		}
	}
	sorted = join(sorted, 0)
	if len(sorted) > most {
		span := sorted[len(sorted)-1].Age - sorted[0].Age
		sorted = join(sorted, span/time.Duration(most))
	}
	return sorted
}

// join makes one group of all that are at most width older than the youngest of them, in place.
func join(sorted []authority.Use, width time.Duration) []authority.Use {
	joined := sorted[:0]
	for _, u := range sorted {
		if last := len(joined) - 1; last >= 0 && u.Age-joined[last].Age <= width {
			joined[last].Units += u.Units
			continue
		}
		joined = append(joined, u)
	}
	return joined
}
