package pace

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestATrialThatIsGoodEnoughIsTheLast(t *testing.T) {
	var names []string
	Try(t, func(p *Trial) {
		if names = append(names, p.Name); len(names) < enough {
			p.Shortf("%d of %d", len(names), enough)
		}
	})
	if want := []string{t.Name() + "-1", t.Name() + "-2", t.Name() + "-3"}; !slices.Equal(names, want) {
		t.Errorf("trials %q, want %q", names, want)
	}
}

// machine, in the environment, has TestTrials say how it goes on that machine.
const machine = "SLUICE_PACE_MACHINE"

// TestTrials: what always falls short fails on a machine that keeps up, and is skipped on another; an error fails on either.
func TestTrials(t *testing.T) {
	if how := os.Getenv(machine); how != "" {
		trials(t, func() func() (bool, string) { return func() (bool, string) { return how == "keeps up", how } }, func(p *Trial) {
			if how == "is over" {
				p.Error("one more than there may be")
			}
			p.Shortf("trial")
		})
		return
	}
	for how, want := range map[string]struct {
		says   string
		trials int
	}{
		"keeps up": {"--- FAIL: TestTrials", enough},
		"stalls":   {"--- SKIP: TestTrials", most},
		"is over":  {"--- FAIL: TestTrials", 0},
	} {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTrials$", "-test.v")
		command.Env = append(os.Environ(), machine+"="+how)
		out, _ := command.CombinedOutput()
		if n := strings.Count(string(out), "falls short"); n != want.trials || !strings.Contains(string(out), want.says) {
			t.Errorf("%s: %d trials fell short, want %d and %q:\n%s", how, n, want.trials, want.says, out)
		}
	}
}
