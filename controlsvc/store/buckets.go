package store

import "time"

// Buckets is into how many parts sliding_buckets divides a window, and a few more where it is not a multiple of so many
// microseconds. A unit counts for at most one of them too long.
const Buckets = 128

// MostStrict is how many strict charges of a key sliding_buckets keeps by name, at most: of more only the younger half may
// still be taken back. What is taken back is so within a call's time; a name for each would make a key grow with its limit.
const MostStrict = 20

// BucketWidth gives the length of one bucket, in whole microseconds.
func BucketWidth(window time.Duration) time.Duration {
	return (window / Buckets).Truncate(time.Microsecond)
}
