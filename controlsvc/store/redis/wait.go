package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// errNotReplicated is what the errors of operations wrap that were executed, but that too few replicas had in time.
var errNotReplicated = errors.New("executed, but fewer replicas than wanted had it in time")

// replicated is a hook of a server's client. Behind every pipeline that charges something it sends WAIT, on the same
// connection, and fails what was charged where too few replicas have it: who asked for that takes it back. What gives units
// back need not last: lost, it costs capacity.
type replicated struct {
	replicas int
	within   time.Duration
}

var _ goredis.Hook = replicated{}

// DialHook implements goredis.Hook.
func (replicated) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements goredis.Hook.
func (replicated) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements goredis.Hook.
func (r replicated) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		var charges []*once
		for _, command := range commands {
			if c, ok := command.(*once); ok && c.charges {
				charges = append(charges, c)
			}
		}
		if len(charges) == 0 {
			return next(ctx, commands)
		}
		wait := goredis.NewIntCmd(ctx, "wait", r.replicas, r.within.Milliseconds())
		err := next(ctx, append(slices.Clip(commands), wait))
		if n, failed := wait.Result(); failed == nil && n >= int64(r.replicas) {
			return err
		}
		for _, c := range charges {
			if c.Err() == nil {
				c.SetErr(errNotReplicated)
			}
		}
		return err
	}
}

// addHook adds a hook to every server's client.
func (s *Store) addHook(hook goredis.Hook) {
	switch client := s.client.(type) {
	case *goredis.Client:
		client.AddHook(hook)
	case *goredis.ClusterClient:
		client.OnNewNode(func(node *goredis.Client) { node.AddHook(hook) })
	}
}
