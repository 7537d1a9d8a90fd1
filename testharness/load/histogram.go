package load

import (
	"math"
	"math/bits"
	"time"
)

// histogramBits is how many bits of a value are kept: a quantile is at most 1/64 above the true one.
const histogramBits = 6

// Histogram counts durations in buckets whose width grows with them, in bounded memory. Its zero value is empty.
type Histogram struct {
	buckets [(64 - histogramBits + 1) << histogramBits]uint32
	count   int64
	max     time.Duration
}

// Add counts a duration; a negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.count++
	h.max = max(h.max, d)
	if bucket := &h.buckets[bucketOf(d)]; *bucket < math.MaxUint32 {
		*bucket++
	}
}

// Count is how many durations were added.
func (h *Histogram) Count() int64 { return h.count }

// Max is the largest one, exactly; 0 where there is none.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile gives a duration that a share q (0 to 1) of all is not above, rounded up to its bucket's end; 0 where there is
// none.
func (h *Histogram) Quantile(q float64) time.Duration {
	wanted := max(1, int64(math.Ceil(q*float64(h.count))))
	seen := int64(0)
	for bucket, count := range h.buckets {
		seen += int64(count)
		if seen >= wanted && h.count > 0 {
			return min(h.max, endOf(bucket))
		}
	}
	return h.max
}

// bucketOf: values below 64 have a bucket each; of the others the leading seven bits, of which the first is 1, choose.
func bucketOf(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-histogramBits-1)
	return shift<<histogramBits + int(uint64(d)>>shift)
}

// endOf is the largest value in a bucket.
func endOf(bucket int) time.Duration {
	shift := max(0, bucket>>histogramBits-1)
	leading := bucket - shift<<histogramBits
	return time.Duration((leading+1)<<shift - 1)
}
