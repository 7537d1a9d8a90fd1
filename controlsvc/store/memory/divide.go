package memory

import "math/bits"

// divide gives a·b÷c, rounded down, and the remainder. None is negative, c is not 0, and the quotient fits.
func divide(a, b, c int64) (quotient, rest int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(high, low, uint64(c))
	return int64(q), int64(r)
}
