package redis

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"errors"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"sluice/shared/limit"
)

//go:embed head.lua
var headSource string

//go:embed operations.lua
var operationsSource string

//go:embed sliding_log.lua
var slidingLogSource string

//go:embed sliding_buckets.lua
var slidingBucketsSource string

//go:embed windows.lua
var windowsSource string

//go:embed fixed_window.lua
var fixedWindowSource string

//go:embed sliding_window_counter.lua
var slidingWindowCounterSource string

//go:embed token_bucket.lua
var tokenBucketSource string

//go:embed divide.lua
var divideSource string

//go:embed workers.lua
var workersSource string

//go:embed exchange.lua
var exchangeSource string

// algorithm is how one algorithm keeps a window.
type algorithm struct {
	script script
	// suffixes tell the keys of one window apart: it has as many.
	suffixes []string
}

// newAlgorithms gives all of them, each source after a change.
func newAlgorithms(change func(source string) string) map[limit.Algorithm]*algorithm {
	algorithms := map[limit.Algorithm]*algorithm{}
	add := func(named limit.Algorithm, source string, suffixes ...string) {
		algorithms[named] = &algorithm{script: newScript(change(headSource + source + operationsSource)), suffixes: suffixes}
	}
	add(limit.SlidingLog, slidingLogSource, "", ":n")
	add(limit.SlidingBuckets, slidingBucketsSource, "", ":g")
	add(limit.FixedWindow, windowsSource+fixedWindowSource, "", ":g")
	add(limit.SlidingWindowCounter, divideSource+windowsSource+slidingWindowCounterSource, "", ":g")
	add(limit.TokenBucket, divideSource+tokenBucketSource, "")
	return algorithms
}

func asItIs(source string) string { return source }

// script is a Lua script and the name that Redis gives it: its hash. So one that was changed is another, and services of
// two versions do not disturb each other.
type script struct{ source, hash string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by their SHA-1
	return script{source: source, hash: hex.EncodeToString(sum[:])}
}

// invocation is one execution of a script.
type invocation struct {
	script *script
	keys   []string
	args   []any
}

// once is a command that the client sends once. Executed a second time it would charge a second time: a cluster client
// would otherwise repeat a whole pipeline, answered commands too, where the connection breaks within it. It still follows
// MOVED and ASK, for such a command was not executed.
type once struct {
	*goredis.Cmd

	charges bool
}

// NoRetry implements goredis.Cmder.
func (once) NoRetry() bool { return true }

// command makes an invocation by hash, or with the script's source.
func (i invocation) command(ctx context.Context, bySource bool) once {
	args := make([]any, 0, 3+len(i.keys)+len(i.args))
	if bySource {
		args = append(args, "eval", i.script.source)
	} else {
		args = append(args, "evalsha", i.script.hash)
	}
	args = append(args, strconv.Itoa(len(i.keys)))
	for _, key := range i.keys {
		args = append(args, key)
	}
	return once{Cmd: goredis.NewCmd(ctx, append(args, i.args...)...), charges: i.charges()}
}

// errNoAnswer is the error of a command that neither was answered nor failed.
var errNoAnswer = errors.New("no answer")

// execute executes invocations in one pipeline (one for each node of a cluster), by hash. Those whose script a server does
// not know go out again with its source, and only those. Answers and errors are in the order of the invocations.
func (s *Store) execute(ctx context.Context, invocations []invocation) (answers []any, errs []error) {
	answers, errs = make([]any, len(invocations)), make([]error, len(invocations))
	all := make([]int, len(invocations))
	for i := range all {
		all[i] = i
	}
	unknown := s.send(ctx, invocations, all, false, answers, errs)
	s.send(ctx, invocations, unknown, true, answers, errs)
	return answers, errs
}

// send sends some of the invocations, and gives those of them whose script the server does not know.
func (s *Store) send(
	ctx context.Context, invocations []invocation, which []int, bySource bool, answers []any, errs []error,
) (unknown []int) {
	if len(which) == 0 {
		return nil
	}
	pipeline := s.client.Pipeline()
	commands := make([]once, 0, len(which))
	for _, i := range which {
		command := invocations[i].command(ctx, bySource)
		commands = append(commands, command)
		_ = pipeline.Process(ctx, command) // it only queues
	}
	_, failed := pipeline.Exec(ctx)
	for n, i := range which {
		answers[i], errs[i] = commands[n].Result()
		if answers[i] == nil && errs[i] == nil {
			// A server that refuses the connection with an answer leaves the commands without one; a script always gives one.
			errs[i] = cmp.Or(failed, errNoAnswer)
		}
		if goredis.HasErrorPrefix(errs[i], "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	return unknown
}
