//go:build !wasip1

package native

import (
	"strings"
	"testing"
)

// A second emulator says that there is one already, where the SDK would wait for ever.
func TestOneEmulatorAtATime(t *testing.T) {
	first, second := NewEmulated(1), NewEmulated(2)
	if !first.Start("{}") {
		t.Fatal("the first does not start")
	}
	if second.Start("{}") || !strings.Contains(strings.Join(second.Misuse(), ""), "one emulator at a time") {
		t.Errorf("the second: %v", second.Misuse())
	}
	first.Close()
	if !second.Start("{}") {
		t.Error("the second does not start once the first is closed")
	}
	second.Close()
}
