package filterrun

import "testing"

// maxSize is what the filter may grow to, in bytes: every worker holds its code. The Makefile has the same number.
const maxSize = 4_450_000

func TestTheFilterIsSmallEnough(t *testing.T) {
	module, err := Build(t.Context(), "../../filter")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, of at most %d", len(module), maxSize)
	if len(module) > maxSize {
		t.Errorf("%d bytes, want at most %d", len(module), maxSize)
	}
}

func TestBuildSaysWhatIsWrong(t *testing.T) {
	if _, err := Build(t.Context(), "../../filter", "-overlay=/nowhere"); err == nil {
		t.Error("built with an overlay that does not exist")
	}
}
