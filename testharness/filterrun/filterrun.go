// Package filterrun runs one worker's filter in each way in which it can be run, behind one interface, so that one suite of
// stories passes on all of them. Here are the interface and the runner of a .wasm; package native has the others.
package filterrun

import (
	"strings"
	"time"

	"sluice/filter/host"
	"sluice/filter/host/fake"
	"sluice/shared/instant"
)

// Runner is one worker's filter. Time stands still until Advance.
type Runner interface {
	// Start configures the plugin, and says whether it accepted. Again: it is configured anew.
	Start(configuration string) bool
	// Now is the proxy's monotonic clock.
	Now() instant.Instant
	// NextTick is how long it is until the plugin is next told of time; false where it is not.
	NextTick() (time.Duration, bool)
	// Advance moves the clock, with ticks at the period that the plugin asked for.
	Advance(d time.Duration)
	// StepWall moves the wall clock alone. Within the test's own process the filter has none, and nothing happens.
	StepWall(d time.Duration)
	// Request shows a request to the filter, and gives its number. Properties are keyed by their paths joined with dots.
	Request(headers []host.Header, properties map[string]string) int
	// Outcome tells what has become of a request.
	Outcome(request int) Outcome
	// Respond lets the upstream's answer, or the filter's own, pass the filter, and gives the header fields that the filter
	// has the client see.
	Respond(request int) []host.Header
	// End ends the request's stream: answered, or its client left.
	End(request int)
	// Calls gives the calls made since it was last asked. Their ends are told by Finish only, and by no timeout.
	Calls() []*fake.Call
	// Finish ends a call; the zero Reply is one that failed. Twice is what a confused proxy does.
	Finish(call *fake.Call, reply fake.Reply)
	// Refuse makes the proxy refuse calls.
	Refuse(on bool)
	// Metric reads a counter or gauge after the next tick; -1 where there is none.
	Metric(name string) int64
	// Log holds the log's lines, each with its level before it: "error: …".
	Log() []string
	// Misuse lists what the filter did that a proxy would not forgive, and its traps.
	Misuse() []string
	// Stop tells the plugin that it is shut down, and says whether it may go at once. Of it only Calls, Finish and Misuse are
	// of use afterwards; no proxy tells it of a call's end any more.
	Stop() bool
	// Close ends it; nothing else is called afterwards.
	Close()
}

// Outcome is what has become of a request. All but Fate, Arrived and Decided is of the filter's own answer.
type Outcome struct {
	Fate             fake.Fate
	Arrived, Decided instant.Instant
	Status           int
	Body             string
	// GRPCStatus is -1 where the request is no gRPC request.
	GRPCStatus int
	Headers    []host.Header
}

// PropertyPath gives the parts of a property's path, with slashes between them, or dots where there is no slash.
func PropertyPath(text string) []string {
	if strings.Contains(text, "/") {
		return strings.Split(text, "/")
	}
	return strings.Split(text, ".")
}
