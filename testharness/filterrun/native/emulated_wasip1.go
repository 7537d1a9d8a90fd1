package native

import "sluice/testharness/filterrun"

// NewEmulated gives nothing where the SDK's adapter is not built. Tests run natively; they are looked at for wasip1 as well.
func NewEmulated(uint64) filterrun.Runner { return nil }
