package policytest_test

import (
	"strings"
	"testing"

	"sluice/testharness/filterrun/native"
	"sluice/testharness/policytest"
)

const head = `Two a second.
-- policy.yaml --
domain: shop
identities:
  tenant: {header: x-tenant-id}
limits:
  - name: tenant
    key: [tenant]
    rates: [2/s]
    mode: strict
-- requests --
`

func TestMistakesAreToldAtTheirPlace(t *testing.T) {
	for _, step := range []struct{ text, complaint string }{
		{"at 0s GET / -> 200", ""},
		{"workers 2\nplugin {\"timeout_ms\":50}\nat 0s worker * 3 times every 1ms from ::1 leaves 1ms GET / a: b c: \"d e\" -> 2x 200, gone # x", ""},
		{"", "f:12: no request is sent"},
		{"at 0s", "f:12: the line ends; want a request, or network, policy or asks"},
		{"soon GET / -> 200", `f:12: "soon"; want at, or first workers or plugin`},
		{"\n\nat soon GET / -> 200", `f:14: "soon"; want the time since the start, such as 100ms or 1h30m`},
		{"at -1s GET / -> 200", `f:12: "-1s"; want the time`},
		{"at 2s GET / -> 200\nat 1s GET / -> 200", "f:13: 1s is before 2s, the time of line 12"},
		{"at 0s get / -> 200", `f:12: "get"; want a method such as GET`},
		{"at 0s GET x -> 200", `f:12: "x"; want a path that begins with /`},
		{"at 0s GET / name -> 200", `f:12: "name"; want a header's name with a colon`},
		{"at 0s GET / name: -> 200", `f:12: the line ends; want the value of name`},
		{`at 0s GET / name: "x -> 200`, `f:12: a quote without its end`},
		{"at 0s GET /", "f:12: want -> and what is expected"},
		{"at 0s GET / -> ", "f:12: the line ends; want a status"},
		{"at 0s GET / -> 99", `f:12: "99"; want a status`},
		{"at 0s GET / -> 200 cheap", `f:12: "cheap"; want remaining, limit`},
		{"at 0s GET / -> 200 remaining few", `f:12: "few"; want remaining, 0 to`},
		{"at 0s GET / -> 200, 200", "f:12: 2 expectations for 1 requests"},
		{"at 0s 3 times GET / -> 4x 200", `f:12: "4x"; want how many, 1x to 3x`},
		{"at 0s 3 times GET / -> 2x 200", "f:12: 2 expectations for 3 requests"},
		{"at 0s 0 times GET / -> 200", `f:12: "0"; want how many times, 1 to 100000`},
		{"at 0s 60000 times GET / -> 200\nat 0s 60000 times GET / -> 200", "f:13: more than 100000 requests"},
		{"at 0s worker 2 GET / -> 200", `f:12: "2"; want the worker's number, or *, 1 to 1`},
		{"at 0s GET / -> 200\nworkers 2", "f:13: workers stands once, before what happens"},
		{"at 0s GET / -> 200\nplugin {}", "f:13: plugin stands once, before what happens"},
		{"at 0s network slow", "f:12: network slow; want delay TIME, away"},
		{"at 0s policy other.yaml", `f:12: no file "other.yaml" in this archive`},
		{"at 0s asks 1 -> 200", "f:12: -> stands after a request only"},
		{"at 0s asks 1 2", `f:12: "2"; want the end of the line`},
	} {
		_, err := policytest.ParseScenario("f", []byte(head+step.text))
		switch {
		case step.complaint == "" && err != nil:
			t.Errorf("%q: %v", step.text, err)
		case step.complaint != "" && (err == nil || !strings.HasPrefix(err.Error(), step.complaint)):
			t.Errorf("%q: %v; want %s", step.text, err, step.complaint)
		}
	}
	for text, complaint := range map[string]string{
		"nothing":                 "f: no file policy.yaml",
		"-- policy.yaml --\nx: 1": "f: no file requests",
	} {
		if _, err := policytest.ParseScenario("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), complaint) {
			t.Errorf("%q: %v; want %s", text, err, complaint)
		}
	}
}

// run runs a scenario's text natively.
func run(t *testing.T, text string) (policytest.Result, error) {
	t.Helper()
	s, err := policytest.ParseScenario("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Run(t.Context(), native.NewFake)
}

func TestAWrongPolicyIsToldAtItsLine(t *testing.T) {
	_, err := run(t, strings.Replace(head, "2/s", "2 quick", 1)+"at 0s GET / -> 200")
	if err == nil || !strings.HasPrefix(err.Error(), "f:9:") {
		t.Errorf("%v; want the scenario's line 9", err)
	}
}

// Every kind of expectation that does not hold is told, with its line.
func TestWhatIsNotAsExpectedIsTold(t *testing.T) {
	for line, want := range map[string]string{
		"at 0s GET / x-tenant-id: a -> 429":                                     "f:12: at 0s on worker 1: it is 200, want 429",
		"at 0s GET / x-tenant-id: a -> gone":                                    "f:12: at 0s on worker 1: it is 200, want gone",
		"at 0s 3 times GET / x-tenant-id: a -> 200":                             "f:12: request 3 of 3 at 0s on worker 1: it is 429 ",
		"at 0s GET / x-tenant-id: a -> 200 remaining 2":                         `f:12: at 0s on worker 1: remaining is "1", want "2"`,
		"at 0s GET / x-tenant-id: a -> 200 header x y":                          `f:12: at 0s on worker 1: no x, want "y"`,
		"at 0s GET / x-tenant-id: a -> 200 no ratelimit":                        `f:12: at 0s on worker 1: ratelimit is `,
		"at 0s GET / x-tenant-id: a -> 200 body x":                              `f:12: at 0s on worker 1: the body is "", want "x" in it`,
		"at 0s leaves 1ms GET / x-tenant-id: a -> gone":                         "f:12: at 0s on worker 1: it is 200, want gone",
		"at 0s GET / x-tenant-id: a -> 200\nat 1s asks 2":                       "f:13: 1 calls have asked for units, want 2",
		"at 0s network delay 5ms\nat 0s GET / x-tenant-id: a -> 200 within 4ms": "f:13: at 0s on worker 1: decided after 5ms, want within 4ms",
		"at 0s network delay 5ms\nat 0s GET / x-tenant-id: a -> 200 at-once":    "f:13: at 0s on worker 1: decided after 5ms, want within 0s",
	} {
		result, err := run(t, head+line)
		if err != nil || len(result.Wrong) != 1 || !strings.HasPrefix(result.Wrong[0], want) {
			t.Errorf("%q: %q, %v; want %s", line, result.Wrong, err, want)
		}
	}
}

// FuzzParseScenario: whatever stands in a scenario, it is read or refused.
func FuzzParseScenario(f *testing.F) {
	f.Add(head + "at 0s GET / x-tenant-id: a -> 200 remaining 1, gone")
	f.Add(head + "workers 3\nplugin {}\nat 0s network loses calls\nat 1h worker * 5 times every 1ms from ::1 leaves 1s GET / -> 2x 200")
	f.Add("-- requests --\n-- policy.yaml --\n-- requests --")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = policytest.ParseScenario("f", []byte(text))
	})
}
