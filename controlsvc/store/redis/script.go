package redis

import (
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

//go:embed account.lua
var accountSource string

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
	// second is what the name of a window's second key has beyond that of the first; empty: it has one.
	second string
}

// newAlgorithms gives all of them, each source after a change.
func newAlgorithms(change func(source string) string) map[limit.Algorithm]*algorithm {
	algorithms := map[limit.Algorithm]*algorithm{}
	add := func(named limit.Algorithm, second, source string) {
		algorithms[named] = &algorithm{script: newScript(change(headSource + contractSource + source + operationsSource)), second: second}
	}
	add(limit.SlidingLog, ":n", accountSource+slidingLogSource)
	add(limit.SlidingBuckets, ":g", grantsSource+slidingBucketsSource)
	add(limit.FixedWindow, ":g", grantsSource+windowsSource+fixedWindowSource)
	add(limit.SlidingWindowCounter, ":g", divideSource+grantsSource+windowsSource+slidingWindowCounterSource)
	add(limit.TokenBucket, ":g", divideSource+tokenBucketSource)
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

// invocation is one execution of a script, or a strict charge, which is executed along with others.
type invocation struct {
	script *script
	// bySource has it sent with the script's source, which the server does not know.
	bySource bool
	// charges says whether it takes units.
	charges bool
	// units is how many strict.lua is to charge, and otherwise gives the invocation that stands in its place where that
	// declines; nil where it is not of that script.
	units     int64
	otherwise func() invocation
	// args are EVALSHA's, with places for the first two: what is executed, how many keys there are, the keys, and the rest.
	args []any
}

// together says whether the invocation is executed along with others of its kind.
func (i *invocation) together() bool { return i.otherwise != nil }

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

// once is a command that the client sends once. Executed a second time it would charge a second time: a cluster client
// would otherwise repeat a whole pipeline, answered commands too, where the connection breaks within it. It still follows
// MOVED and ASK, for such a command was not executed.
type once struct {
	*goredis.IntSliceCmd

	charges bool
}

// NoRetry implements goredis.Cmder.
func (*once) NoRetry() bool { return true }

// name has arguments execute a script by its hash, or by its source.
func (s *script) name(args []any, bySource bool) {
	args[0], args[atScript] = "evalsha", s.hash
	if bySource {
		args[0], args[atScript] = "eval", s.source
	}
}

// tell executes an invocation that charges nothing and answers more than numbers, by itself: such are rare.
func (s *Store) tell(ctx context.Context, i invocation) (answer []any, err error) {
	for _, bySource := range []bool{false, true} {
		i.script.name(i.args, bySource)
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
