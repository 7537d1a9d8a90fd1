package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
)

// CheckEviction says whether Redis may throw keys away when its memory is full: then a limit would forget what was spent.
// The warning is empty where it may not. It asks INFO, which needs fewer rights than CONFIG.
func (s *Store) CheckEviction(ctx context.Context) (warning string, err error) {
	var mu sync.Mutex
	var found []string
	err = s.everyServer(ctx, func(ctx context.Context, server *goredis.Client) error {
		info, err := server.Info(ctx, "memory").Result()
		if err != nil {
			return err //nolint:wrapcheck // wrapped below
		}
		policy := infoField(info, "maxmemory_policy")
		if policy != "noeviction" {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, fmt.Sprintf("%s: maxmemory-policy is %q, with maxmemory %s",
				server.Options().Addr, policy, infoField(info, "maxmemory")))
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("asking for maxmemory-policy: %w: %w", authority.ErrUnavailable, err)
	}
	if len(found) == 0 {
		return "", nil
	}
	return strings.Join(found, "; ") + ": Redis may throw away what limits have counted; expected noeviction", nil
}

// everyServer runs a function on the server, or on every node of a cluster: a replica may be a master tomorrow.
func (s *Store) everyServer(ctx context.Context, do func(ctx context.Context, server *goredis.Client) error) error {
	if cluster, ok := s.client.(*goredis.ClusterClient); ok {
		return cluster.ForEachShard(ctx, do) //nolint:wrapcheck // its caller does
	}
	return s.eachServer(ctx, do)
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
