package store

// MostStrict is how many strict charges of a key sliding_buckets keeps by name, at most: of more only the younger half may
// still be taken back. What is taken back is so within a call's time; a name for each would make a key grow with its limit.
const MostStrict = 20

// MostKnown is how many charges a token bucket knows, at most, and in their order: of more only the younger half may still be
// settled or taken back. Leases are among them, and what is recorded.
const MostKnown = 40
