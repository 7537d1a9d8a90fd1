//go:build wasip1

// Command echo is a proxy-wasm filter that does what the request tells it to.
//
// It belongs to the tests of package wasmhost: each callback runs the script
// that a request header (x-on-request, x-on-body, x-on-response, x-on-reply,
// x-on-log, …) or the plugin configuration names, and logs what every host
// function answered. The log is therefore a transcript of the host's behaviour,
// and the same scripts can be run in any proxy-wasm host and compared.
//
// Build: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared
package main

import (
	"strconv"
	"strings"
	"time"
)

// main is never run: a reactor has only its exports.
func main() {}

// booted anchors the monotonic clock.
var booted = time.Now()

// stream is what a stream context was asked to do, by callback.
type stream struct {
	scripts map[string]string
	paused  bool // what the running callback will answer
}

var (
	streams = map[uint32]*stream{}
	// config holds the plugin's scripts, by callback ("configure", "tick", …).
	config = map[string]string{}
	// calls remembers who sent a call, for the reply arrives in the root context.
	calls = map[uint32]uint32{}
	// handles names metrics, queues and calls for later commands.
	handles = map[string]uint32{}
	// kept grows with every "keep" command.
	kept [][]byte
)

// callbacks whose script comes with the request.
var scripted = []string{"request", "body", "trailers", "response", "response-body", "response-trailers", "reply", "grpc", "done", "log", "delete"}

func trace(ctx uint32, callback string, args ...uint32) {
	var b strings.Builder
	b.WriteString(callback)
	if _, isStream := streams[ctx]; isStream {
		b.WriteString(" stream")
	} else {
		b.WriteString(" root")
	}
	for _, a := range args {
		b.WriteByte(' ')
		b.WriteString(strconv.FormatUint(uint64(a), 10))
	}
	logLine(b.String())
}

// act runs the callback's script on the stream, or the plugin's own on its root.
func act(ctx uint32, callback string) uint32 {
	s, isStream := streams[ctx]
	if !isStream {
		run(&stream{}, ctx, config[callback])
		return 0
	}
	s.paused = false
	run(s, ctx, s.scripts[callback])
	if s.paused {
		return 1
	}
	return 0
}

// readConfig takes lines of the form "callback: script".
func readConfig(text string) {
	config = map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, script, ok := strings.Cut(line, ":"); ok {
			config[strings.TrimSpace(name)] = script
		}
	}
}

func run(s *stream, ctx uint32, script string) {
	for _, command := range strings.Split(script, ";") {
		words := strings.Fields(command)
		if len(words) == 0 {
			continue
		}
		do, known := commands[words[0]]
		if !known {
			logLine("unknown command " + words[0])
			continue
		}
		if out := do(s, ctx, arguments(words[1:])); out != "" {
			logLine(strings.Join(words, " ") + " -> " + out)
		}
	}
}

// arguments of a command; one that is missing reads as zero or empty.
type arguments []string

func (a arguments) text(i int) string {
	if i >= len(a) {
		return ""
	}
	return a[i]
}

func (a arguments) num(i int) uint32 {
	n, err := strconv.ParseInt(a.text(i), 0, 64)
	if err != nil {
		return handles[a.text(i)]
	}
	return uint32(n)
}

// pairs reads k=v words from the i-th on.
func (a arguments) pairs(i int) [][2]string {
	var out [][2]string
	for ; i < len(a); i++ {
		k, v, _ := strings.Cut(a[i], "=")
		out = append(out, [2]string{k, v})
	}
	return out
}
