package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// slots is how many a cluster has.
const slots = 16384

// RedisCluster is a running Redis Cluster.
type RedisCluster struct {
	// Nodes are the masters, as they were at the start, and then their replicas, in the same order.
	Nodes []*Redis
}

// URL is what the service's --store takes. It names two nodes; the client finds the others.
func (c *RedisCluster) URL() string {
	return "redis://" + c.Nodes[0].Address + "?cluster=true&addr=" + c.Nodes[1].Address
}

// Stop ends all nodes.
func (c *RedisCluster) Stop() {
	var wait sync.WaitGroup
	for _, node := range c.Nodes {
		if node != nil {
			wait.Go(node.Stop)
		}
	}
	wait.Wait()
}

// StartRedisCluster starts a cluster of so many masters, at least two, that share the slots evenly, each with a replica if so
// asked, and waits until all of them say that it is whole. Further arguments go to every node.
func StartRedisCluster(ctx context.Context, log io.Writer, masters int, replicas bool, args ...string) (*RedisCluster, error) {
	count := masters
	if replicas {
		count *= 2
	}
	c := &RedisCluster{Nodes: make([]*Redis, count)}
	errs := make([]error, count)
	bus := make([]string, count)
	var wait sync.WaitGroup
	for i := range count {
		wait.Go(func() { c.Nodes[i], bus[i], errs[i] = startClusterNode(ctx, log, args) })
	}
	wait.Wait()
	err := errors.Join(errs...)
	if err == nil {
		err = c.join(ctx, masters, bus)
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("starting a Redis Cluster: %w", err)
	}
	return c, nil
}

func startClusterNode(ctx context.Context, log io.Writer, args []string) (node *Redis, bus string, err error) {
	directory, err := os.MkdirTemp("", "sluice-redis-cluster-")
	if err != nil {
		return nil, "", err
	}
	node, err = retryBind(ctx, func() (*Redis, error) {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		bus = strconv.Itoa(port)
		return StartRedis(ctx, log, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", bus, "--dir", directory, "--cluster-node-timeout", "2000",
			"--repl-diskless-sync-delay", "0",
		}, args...)...)
	})
	if err != nil {
		os.RemoveAll(directory)
		return nil, "", err
	}
	go func() {
		<-node.Done()
		os.RemoveAll(directory)
	}()
	return node, bus, nil
}

// join makes one cluster of the nodes.
func (c *RedisCluster) join(ctx context.Context, masters int, bus []string) error {
	host, port, _ := net.SplitHostPort(c.Nodes[0].Address)
	for i, node := range c.Nodes {
		if _, err := node.Do(ctx, "cluster", "set-config-epoch", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i < masters {
			from, to := strconv.Itoa(i*slots/masters), strconv.Itoa((i+1)*slots/masters-1)
			if _, err := node.Do(ctx, "cluster", "addslotsrange", from, to); err != nil {
				return err
			}
		}
		if i > 0 {
			if _, err := node.Do(ctx, "cluster", "meet", host, port, bus[0]); err != nil {
				return err
			}
		}
	}
	if err := c.until(ctx, "the cluster's state to be ok", func(node *Redis) (bool, error) {
		info, err := node.Do(ctx, "cluster", "info")
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:"+strconv.Itoa(slots)) &&
			strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(c.Nodes))), err
	}); err != nil || masters == len(c.Nodes) {
		return err
	}
	for i, replica := range c.Nodes[masters:] {
		id, err := c.Nodes[i].Do(ctx, "cluster", "myid")
		if err != nil {
			return err
		}
		if _, err := replica.Do(ctx, "cluster", "replicate", id); err != nil {
			return err
		}
	}
	return c.until(ctx, "the replicas to follow, and all to know it", func(node *Redis) (bool, error) {
		known, err := node.Do(ctx, "cluster", "nodes")
		if err != nil || strings.Count(known, "slave ") != masters {
			return false, err
		}
		info, err := node.Do(ctx, "info", "replication")
		return strings.Contains(info, "master_link_status:up") || strings.Contains(info, "connected_slaves:1"), err
	})
}

// Reshard moves so many slots, the lowest, from one master to another, by redis-cli, as an operator would.
func (c *RedisCluster) Reshard(ctx context.Context, from, to *Redis, count int) error {
	source, err := from.Do(ctx, "cluster", "myid")
	if err != nil {
		return err
	}
	target, err := to.Do(ctx, "cluster", "myid")
	if err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, "redis-cli", "--cluster", "reshard", from.Address, "--cluster-from", source,
		"--cluster-to", target, "--cluster-slots", strconv.Itoa(count), "--cluster-yes").CombinedOutput()
	if err != nil {
		return fmt.Errorf("resharding: %w: %s", err, output)
	}
	return nil
}

// until waits until every node is as it should be.
func (c *RedisCluster) until(ctx context.Context, what string, reached func(node *Redis) (bool, error)) error {
	for _, node := range c.Nodes {
		if err := poll(ctx, what, func() (bool, error) { return reached(node) }); err != nil {
			return fmt.Errorf("%s: %w", node.Address, err)
		}
	}
	return nil
}

// poll looks until it is so, within DefaultReadyWithin.
func poll(ctx context.Context, what string, reached func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultReadyWithin)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		is, err := reached()
		if is && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

// Do sends the server a command by redis-cli, which comes with it, and gives what that prints, without the last line's end.
func (r *Redis) Do(ctx context.Context, args ...string) (string, error) {
	return redisCLI(ctx, r.Address, args...)
}

func redisCLI(ctx context.Context, address string, args ...string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	output, err := exec.CommandContext(ctx, "redis-cli", append([]string{"-e", "-h", host, "-p", port}, args...)...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w: %s", strings.Join(args, " "), address, err, text)
	}
	return text, nil
}
