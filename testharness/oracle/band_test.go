package oracle

import "time"

// Band bounds a limiter that never admits more than the exact one, and forgets a charge later than that, by at most a
// given share of the window. It does not decide itself: it is told what was granted.
type Band struct {
	rates []Rate
	// exact counts every charge for a window; late for as much longer as is allowed.
	exact, late *Limiter
	grants      int
}

// NewBand allows to count each charge for as much as window/share too long.
func NewBand(share int, rates ...Rate) *Band {
	b := &Band{rates: rates, exact: New(rates...)}
	longer := make([]Rate, len(rates))
	for i, rate := range rates {
		longer[i] = Rate{Units: rate.Units, Window: rate.Window + rate.Window/time.Duration(share)}
	}
	b.late = New(longer...)
	return b
}

// Between is what a limiter may say: from Least to Most.
type Between[T int64 | time.Duration] struct{ Least, Most T }

// Holds says whether a value is within.
func (b Between[T]) Holds(value T) bool { return b.Least <= value && value <= b.Most }

// Free is how many units may be granted, of want in multiples of least, from an instant on.
func (b *Band) Free(at time.Duration, want, least int64) Between[int64] {
	return Between[int64]{
		Least: multiple(min(want, b.late.free(at)), least), Most: multiple(min(want, b.exact.free(at)), least),
	}
}

// FirstFree is when least units may first be granted, if nothing more is charged; false: never.
func (b *Band) FirstFree(now time.Duration, least int64) (Between[time.Duration], bool) {
	early, ok := b.exact.firstFree(now, least, b.exact.charges)
	late, _ := b.late.firstFree(now, least, b.late.charges)
	return Between[time.Duration]{Least: early, Most: late}, ok
}

// Remaining is what is left of a rate, by its place, at an instant.
func (b *Band) Remaining(at time.Duration, rate int) Between[int64] {
	return Between[int64]{Least: b.late.States(at)[rate].Remaining, Most: b.exact.States(at)[rate].Remaining}
}

// ResetIn is how long it takes until a rate, by its place, has nothing inside.
func (b *Band) ResetIn(at time.Duration, rate int) Between[time.Duration] {
	return Between[time.Duration]{Least: b.exact.States(at)[rate].Reset, Most: b.late.States(at)[rate].Reset}
}

// Granted notes units that may be spent until score, and gives the grant's number for Settle.
func (b *Band) Granted(call string, units int64, score time.Duration) int {
	b.grants++
	for _, l := range []*Limiter{b.exact, b.late} {
		l.charges = append(l.charges, charge{grant: b.grants, call: call, units: units, score: score})
	}
	return b.grants
}

// Settle is as the exact limiter's.
func (b *Band) Settle(number int, uses []Use, unused int64) {
	b.exact.Settle(number, uses, unused)
	b.late.Settle(number, uses, unused)
}

// Cancel is as the exact limiter's.
func (b *Band) Cancel(call string) {
	b.exact.Cancel(call)
	b.late.Cancel(call)
}

// Record is as the exact limiter's.
func (b *Band) Record(uses []Use) {
	b.exact.Record(uses)
	b.late.Record(uses)
}

// Reset is as the exact limiter's.
func (b *Band) Reset() {
	b.exact.Reset()
	b.late.Reset()
}
