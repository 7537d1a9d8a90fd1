package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sluice/testharness/load"
)

// closedConnections is how many connections of a closed loop each send the next request as soon as they have an answer.
const closedConnections = 64

// tenantHeader is what the policy tells callers by.
const tenantHeader = "x-tenant-id"

// outcome is what a closed loop got.
type outcome struct {
	requests, refused int64 // refused: neither 2xx nor 3xx
	took              time.Duration
}

// closedLoop loads an address as fast as it answers: with wrk where that is on the PATH, else with this module's own
// generator, which takes more of the machine.
type closedLoop func(ctx context.Context, target, path string, lasts time.Duration) (outcome, error)

// findClosedLoop gives the generator and what it is called.
func findClosedLoop(ctx context.Context) (closedLoop, string) {
	path, err := exec.LookPath("wrk")
	if err != nil {
		return ownClosedLoop, "this module's own generator (there is no wrk on the PATH)"
	}
	// It prints its version and ends with status 1.
	said, _ := exec.CommandContext(ctx, path, "-v").CombinedOutput()
	name, _, _ := strings.Cut(string(said), " [")
	return wrk(path).run, strings.TrimSpace(name) + fmt.Sprintf(" -t1 -c%d", closedConnections)
}

type wrk string

func (w wrk) run(ctx context.Context, target, path string, lasts time.Duration) (outcome, error) {
	return w.with(ctx, lasts, "-H", tenantHeader+": acme", "http://"+target+path)
}

// with runs wrk for a time, which it takes in whole seconds.
func (w wrk) with(ctx context.Context, lasts time.Duration, args ...string) (outcome, error) {
	seconds := max(1, int(lasts.Round(time.Second)/time.Second))
	args = append([]string{"-t1", "-c" + strconv.Itoa(closedConnections), "-d" + strconv.Itoa(seconds) + "s"}, args...)
	command := exec.CommandContext(ctx, string(w), args...)
	output, err := command.CombinedOutput()
	if err != nil {
		return outcome{}, fmt.Errorf("wrk: %w: %s", err, output)
	}
	return readWrk(string(output))
}

// What wrk prints: "  41234 requests in 2.10s, 5.50MB read", and only where there are any "  Non-2xx or 3xx responses: 3"
// and "  Socket errors: connect 0, read 3, write 0, timeout 0".
var (
	wrkTotal   = regexp.MustCompile(`(?m)^\s*(\d+) requests in ([0-9.]+)(us|ms|s|m)\b`)
	wrkRefused = regexp.MustCompile(`(?m)^\s*Non-2xx or 3xx responses: (\d+)`)
	wrkErrors  = regexp.MustCompile(`(?m)^\s*Socket errors: .*`)
)

func readWrk(output string) (outcome, error) {
	total := wrkTotal.FindStringSubmatch(output)
	if total == nil {
		return outcome{}, fmt.Errorf("wrk printed no total: %s", output)
	}
	if broken := wrkErrors.FindString(output); broken != "" {
		return outcome{}, errors.New("wrk: " + strings.TrimSpace(broken))
	}
	var o outcome
	var err error
	if o.requests, err = strconv.ParseInt(total[1], 10, 64); err != nil {
		return outcome{}, fmt.Errorf("wrk's total: %w", err)
	}
	if o.took, err = time.ParseDuration(total[2] + total[3]); err != nil || o.took <= 0 || o.requests == 0 {
		return outcome{}, fmt.Errorf("wrk's total is %q: %w", total[0], err)
	}
	if refused := wrkRefused.FindStringSubmatch(output); refused != nil {
		if o.refused, err = strconv.ParseInt(refused[1], 10, 64); err != nil {
			return outcome{}, fmt.Errorf("wrk's refused requests: %w", err)
		}
	}
	return o, nil
}

func ownClosedLoop(ctx context.Context, target, path string, lasts time.Duration) (outcome, error) {
	o := outcome{took: lasts}
	failed := 0
	err := load.Run(ctx, load.Options{
		Targets: []string{target},
		Flows:   []load.Flow{{Request: tenantRequest(path), Connections: closedConnections}},
		For:     lasts,
		Observe: func(r load.Record) {
			o.requests++
			switch {
			case r.Err != nil:
				failed++
			case !r.Admitted():
				o.refused++
			}
		},
	})
	if err == nil && (failed > 0 || o.requests == 0) {
		err = fmt.Errorf("%d of %d requests got no answer", failed, o.requests)
	}
	return o, err
}

func tenantRequest(path string) load.Request {
	return load.NewRequest(http.MethodGet, path, [][2]string{{tenantHeader, "acme"}}, "")
}
