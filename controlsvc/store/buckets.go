package store

// MostStrict is how many strict charges of a key sliding_buckets keeps by name, at most: of more only the younger half may
// still be taken back. What is taken back is so within a call's time; a name for each would make a key grow with its limit.
const MostStrict = 20
