package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

func TestSimulate(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	code, stdout, stderr := command(nil, "simulate", "--workers", "2", "--limit", "50/500ms", "--load", "150%", "--rtt", "2ms",
		"--loss", "1%", "--duration", "2s", "--tenants", "2", "--bursts", "--plot", plot)
	if code != 0 || stderr != "" {
		t.Errorf("code %d, %s", code, stderr)
	}
	contain(t, "the table", stdout, "50/500ms in mode lease: 2 workers, 2 tenants with a load of 1.5× each, in bursts, 2s", "requests", "plot: "+plot)

	code, stdout, stderr = command(nil, "simulate", "--limit", "10/s", "--max-wait", "500ms", "--duration", "10s")
	if code != 0 || stderr != "" {
		t.Errorf("code %d, %s", code, stderr)
	}
	contain(t, "the table", stdout, "10/s in mode lease, held for up to 500ms: 4 workers", "or held; those admitted for 4") // 4…ms at most

	code, stdout, stderr = command(map[string]string{"SLUICE_MODE": "strict", "SLUICE_LOAD": "0.5x"}, "simulate", "--duration", "1s", "--algorithm", "token_bucket", "-o", "json")
	var figures struct {
		Scenario struct {
			Algorithm string  `json:"algorithm"`
			Mode      string  `json:"mode"`
			Load      float64 `json:"load"`
		} `json:"scenario"`
		Requests    int64   `json:"requests"`
		WorstWindow float64 `json:"worst_window"`
	}
	if err := json.Unmarshal([]byte(stdout), &figures); err != nil || code != 0 {
		t.Fatalf("code %d, %v, %s", code, err, stderr)
	}
	if figures.Scenario.Algorithm != "token_bucket" || figures.Scenario.Mode != "strict" || figures.Scenario.Load != 0.5 || figures.Requests < 400 || figures.WorstWindow <= 0 || figures.WorstWindow > 1 {
		t.Errorf("%+v; want what the environment says, about 500 requests and a worst window of at most 1", figures)
	}
}

func TestSimulateRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"everything at once": {
			[]string{
				"--workers", "0", "--tenants", "1001", "--mode", "async", "--algorithm", "leaky", "--limit", "0/s", "--load", "0", "--loss", "100%", "--duration", "0s", "--rtt", "1m",
				"--jitter=-1s", "--timeout", "0s", "-o", "yaml", "--plot", "plot.pdf",
			},
			2,
			[]string{
				"--workers (SLUICE_WORKERS): 0: want 1 to 1024", "--tenants (SLUICE_TENANTS): 1001: want 1 to 1000", `"async": want lease or strict`, `"leaky": want auto, sliding_log`,
				"--limit (SLUICE_LIMIT): 0/s: want at least one unit", "--load", "want 0 to below 1", "0s: want 1ms to 8760h", "1m0s: want 0s to 10s", "--jitter",
				"--timeout", `"yaml": want table or json`, `"plot.pdf": want a file that ends in .svg or .png`,
			},
		},
		"nobody is held so long":   {[]string{"--max-wait", "2h"}, 2, []string{"--max-wait (SLUICE_MAX_WAIT): 2h0m0s: want 0s to"}},
		"nobody is held in strict": {[]string{"--max-wait", "1s", "--mode", "strict"}, 2, []string{"--max-wait (SLUICE_MAX_WAIT): 1s: want mode lease, not strict"}},
		"a limit that is none":     {[]string{"--limit", "1000"}, 2, []string{`"1000"`, "--limit", `such as "10/s"`}},
		"a load that is none":      {[]string{"--load", "twice"}, 2, []string{`"twice"`, "--load", "such as 2x"}},
		"a load below nothing":     {[]string{"--load", "-1x"}, 2, []string{"--load", "from 0"}},
		"a loss that is no number": {[]string{"--loss", "NaN"}, 2, []string{"--loss", "from 0"}},
		"too much to remember":     {[]string{"--limit", "1000000/s", "--duration", "1h"}, 2, []string{"7.2e+09 requests", "at most 20000000"}},
		"an extra argument":        {[]string{"lease"}, 2, []string{"sluice simulate"}},
		"a plot nowhere":           {[]string{"--plot", "/nowhere/plot.svg"}, 1, []string{"/nowhere/plot.svg"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := command(nil, append([]string{"simulate"}, test.args...)...)
			if code != test.code {
				t.Errorf("code %d; want %d", code, test.code)
			}
			contain(t, "what it says", stderr, test.says...)
		})
	}
}
