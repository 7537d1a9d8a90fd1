package redis

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"errors"

	goredis "github.com/redis/go-redis/v9"

	"sluice/shared/limit"
)

//go:embed head.lua
var headSource string

//go:embed strict.lua
var strictSource string

//go:embed contract.lua
var contractSource string

//go:embed grants.lua
var grantsSource string

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
		first := headSource
		if named == limit.SlidingLog {
			first += strictSource
		}
		algorithms[named] = &algorithm{script: newScript(change(first + contractSource + source + operationsSource)), suffixes: suffixes}
	}
	add(limit.SlidingLog, slidingLogSource, "", ":n")
	add(limit.SlidingBuckets, grantsSource+slidingBucketsSource, "", ":g")
	add(limit.FixedWindow, grantsSource+windowsSource+fixedWindowSource, "", ":g")
	add(limit.SlidingWindowCounter, divideSource+grantsSource+windowsSource+slidingWindowCounterSource, "", ":g")
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
	// charges says whether it takes units.
	charges bool
	// args are EVALSHA's, with places for the first two: what is executed, how many keys there are, the keys, and the rest.
	args []any
}

// What is where in an invocation's arguments.
const (
	atScript = 1
	atCount  = 2
	atKeys   = 3
)

// key is the first of its keys.
func (i *invocation) key() string { return i.args[atKeys].(string) } //nolint:forcetypeassert // invoke has put it there

// invoke gives an execution of a script that is no algorithm's.
func (s *script) invoke(keys []string, args ...any) invocation {
	all := make([]any, atKeys, atKeys+len(keys)+len(args))
	all[atCount] = len(keys)
	for _, key := range keys {
		all = append(all, key)
	}
	return invocation{script: s, args: append(all, args...)}
}

// name has an invocation be sent by the script's hash, or with its source.
func (i *invocation) name(bySource bool) {
	i.args[0], i.args[atScript] = "evalsha", i.script.hash
	if bySource {
		i.args[0], i.args[atScript] = "eval", i.script.source
	}
}

// once is a command that the client sends once. Executed a second time it would charge a second time: a cluster client
// would otherwise repeat a whole pipeline, answered commands too, where the connection breaks within it. It still follows
// MOVED and ASK, for such a command was not executed.
type once struct {
	*goredis.IntSliceCmd

	charges bool
}

// NoRetry implements goredis.Cmder.
func (*once) NoRetry() bool { return true }

// command makes an invocation by hash, or with the script's source, in the place of what it was before.
func (i *invocation) command(ctx context.Context, bySource bool) once {
	i.name(bySource)
	return once{IntSliceCmd: goredis.NewIntSliceCmd(ctx, i.args...), charges: i.charges}
}

// tell executes an invocation that charges nothing and answers more than numbers, by itself: such are rare.
func (s *Store) tell(ctx context.Context, i invocation) (answer []any, err error) {
	for _, bySource := range []bool{false, true} {
		i.name(bySource)
		answer, err = s.client.Do(ctx, i.args...).Slice()
		if err == nil {
			return answer, nil
		}
		if !goredis.HasErrorPrefix(err, "NOSCRIPT") {
			break
		}
	}
	return nil, explain(err)
}

// errNoAnswer is the error of a command that neither was answered nor failed.
var errNoAnswer = errors.New("no answer")

// execute executes invocations in one pipeline (one for each node of a cluster), by hash. Those whose script a server does
// not know go out again with its source, and only those. Answers and errors are in the order of the invocations.
func (s *Store) execute(ctx context.Context, invocations []invocation) (answers [][]int64, errs []error) {
	answers, errs = make([][]int64, len(invocations)), make([]error, len(invocations))
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
	ctx context.Context, invocations []invocation, which []int, bySource bool, answers [][]int64, errs []error,
) (unknown []int) {
	if len(which) == 0 {
		return nil
	}
	pipeline := s.client.Pipeline()
	commands := make([]once, len(which))
	for n, i := range which {
		commands[n] = invocations[i].command(ctx, bySource)
		_ = pipeline.Process(ctx, &commands[n]) // it only queues
	}
	_, failed := pipeline.Exec(ctx)
	for n, i := range which {
		answers[i], errs[i] = commands[n].Result()
		switch {
		case answers[i] == nil && errs[i] == nil:
			// A server that refuses the connection with an answer leaves the commands without one; a script always gives one.
			errs[i] = cmp.Or(failed, errNoAnswer)
		case errs[i] != nil && goredis.HasErrorPrefix(errs[i], "NOSCRIPT"):
			unknown = append(unknown, i)
		}
	}
	return unknown
}
