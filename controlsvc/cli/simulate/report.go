package simulate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/testharness/sim"
)

// report is what a run came to, as -o json writes it. Shares are 0 where there was nothing to share.
type report struct {
	Scenario scenario `json:"scenario"`

	Requests        int64 `json:"requests"`
	Admitted        int64 `json:"admitted"`
	Denied          int64 `json:"denied"`
	Waited          int64 `json:"waited"`
	Calls           int64 `json:"calls"`
	StoreOperations int64 `json:"store_operations"`
	// Possible is how many the exact limiter admits.
	Possible int64 `json:"possible"`

	CallsPerRequest           float64 `json:"calls_per_request"`
	StoreOperationsPerRequest float64 `json:"store_operations_per_request"`
	WaitedShare               float64 `json:"waited_share"`
	AdmittedOfPossible        float64 `json:"admitted_of_possible"`
	// WorstWindow is the fullest window ÷ the limit.
	WorstWindow float64 `json:"worst_window"`
	// LongestWait is how long the request that waited the longest did until it was admitted.
	LongestWait string   `json:"longest_wait"`
	Violations  []string `json:"violations"`
}

// scenario is what was asked for.
type scenario struct {
	Limit     string  `json:"limit"`
	Mode      string  `json:"mode"`
	Workers   int     `json:"workers"`
	Tenants   int     `json:"tenants"`
	Load      float64 `json:"load"`
	Algorithm string  `json:"algorithm"`
	MaxWait   string  `json:"max_wait"`
	Bursts    bool    `json:"bursts"`
	Duration  string  `json:"duration"`
	RTT       string  `json:"rtt"`
	Jitter    string  `json:"jitter"`
	Timeout   string  `json:"timeout"`
	Loss      float64 `json:"loss"`
	Seed      uint64  `json:"seed"`
}

func (c *Config) report(result sim.Result) *report {
	f := result.Figures
	r := &report{
		Scenario: scenario{
			Limit: c.Limit.String(), Algorithm: c.algorithm().String(), Mode: c.Mode.String(), MaxWait: c.MaxWait.String(),
			Workers: c.Workers, Tenants: c.Tenants, Load: c.Load, Bursts: c.Bursts,
			Duration: c.Duration.String(), RTT: c.RTT.String(), Jitter: c.Jitter.String(), Timeout: c.Timeout.String(),
			Loss: c.Loss, Seed: c.Seed,
		},
		Requests: f.Requests, Admitted: f.Admitted, Denied: f.Denied, Waited: f.Waited, Calls: f.Calls,
		StoreOperations: f.StoreOperations, Possible: f.Possible,
		CallsPerRequest: f.CallsPerRequest(), StoreOperationsPerRequest: float64(f.StoreOperations) / float64(max(1, f.Requests)),
		WaitedShare: f.WaitedShare(), AdmittedOfPossible: f.AdmittedShare(), WorstWindow: f.Worst, LongestWait: f.Longest.String(),
		Violations: result.Violations,
	}
	if r.Violations == nil {
		r.Violations = []string{}
	}
	return r
}

func (r *report) write(c *Config) error {
	if c.JSON {
		encoder := json.NewEncoder(c.Out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("the report: %w", err)
		}
		return nil
	}
	_, err := c.Out.Write([]byte(r.table(c)))
	if err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	return nil
}

// table gives the report for people.
func (r *report) table(c *Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in mode %s%s: %s, %s with a load of %g× each, %s%v of virtual time\n",
		r.Scenario.Limit, r.Scenario.Mode, map[bool]string{true: fmt.Sprintf(", held for up to %v", c.MaxWait)}[c.MaxWait > 0],
		count(r.Scenario.Workers, "worker"), count(r.Scenario.Tenants, "tenant"), r.Scenario.Load,
		map[bool]string{true: "in bursts, "}[r.Scenario.Bursts], c.Duration)
	fmt.Fprintf(&b, "round trips of %v%s%s, timeout %v, %s, seed %d\n\n", c.RTT,
		map[bool]string{true: fmt.Sprintf(" and %v of jitter", c.Jitter)}[c.Jitter > 0],
		map[bool]string{true: fmt.Sprintf(", %.4g %% of messages lost", 100*c.Loss)}[c.Loss > 0], c.Timeout, r.Scenario.Algorithm, c.Seed)
	const padding = 2
	w := tabwriter.NewWriter(&b, 0, 0, padding, ' ', 0)
	line := func(name string, n int64, share string) {
		fmt.Fprintf(w, "%s\t%11s%s\n", name, grouped(n), share)
	}
	line("requests", r.Requests, "")
	line("admitted", r.Admitted, fmt.Sprintf("\t%.2f %% of what the exact limiter admits, %s", 100*r.AdmittedOfPossible, grouped(r.Possible)))
	line("denied", r.Denied, "")
	line("waited", r.Waited, fmt.Sprintf("\t%.2f %% of the requests: they were paused for an answer%s; those admitted for %s at most",
		100*r.WaitedShare, map[bool]string{true: " or held"}[c.MaxWait > 0], r.LongestWait))
	line("calls", r.Calls, fmt.Sprintf("\t%.4f per request, from the workers to the service", r.CallsPerRequest))
	line("store operations", r.StoreOperations, fmt.Sprintf("\t%.4f per request", r.StoreOperationsPerRequest))
	fmt.Fprintf(w, "worst window\t%11.4f\tof the limit: it never held more\n", r.WorstWindow)
	_ = w.Flush() // a strings.Builder takes everything
	text := b.String()
	if len(r.Violations) > 0 {
		text = strings.Replace(text, "of the limit: it never held more", "of the limit", 1)
		text += "\nwhat broke the guarantee, the first of it:\n  " + strings.Join(r.Violations, "\n  ") + "\n"
	}
	if c.Duration < c.Limit.Window {
		text += fmt.Sprintf("\nThe run is shorter than the window of %v: a --duration of several windows says more.\n", c.Limit.Window)
	}
	if c.Plot != "" {
		text += "\nplot: " + c.Plot + "\n"
	}
	return text
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// grouped gives a number with its thousands apart: 1,234,567.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// short gives a duration without its zeros: 10s, 1m30s, 50ms.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
