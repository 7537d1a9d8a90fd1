package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SentinelMaster is what the Sentinels call the server that they watch.
const SentinelMaster = "sluice"

// RedisSentinels is a running primary, its replica, and three Sentinels that watch them: two of them agree that the primary
// has gone once it has not answered for half a second.
type RedisSentinels struct {
	Primary, Replica *Redis
	// Sentinels are the addresses, HOST:PORT.
	Sentinels []string
	processes []*Process
}

// URL is what the service's --store takes.
func (s *RedisSentinels) URL() string {
	return "redis://" + s.Sentinels[0] + "/0?master_name=" + SentinelMaster + "&addr=" + s.Sentinels[1] + "&addr=" + s.Sentinels[2]
}

// Stop ends all of them, the Sentinels first, who would fail over otherwise.
func (s *RedisSentinels) Stop() {
	for _, p := range s.processes {
		p.Stop()
	}
	for _, r := range []*Redis{s.Replica, s.Primary} {
		if r != nil {
			r.Stop()
		}
	}
}

// Current gives the address of the server that a Sentinel takes for the primary.
func (s *RedisSentinels) Current(ctx context.Context) (string, error) {
	text, err := redisCLI(ctx, s.Sentinels[0], "sentinel", "get-master-addr-by-name", SentinelMaster)
	if err != nil {
		return "", err
	}
	lines := strings.Fields(text)
	if len(lines) != 2 {
		return "", fmt.Errorf("the Sentinel names %q; want an address and a port", text)
	}
	return net.JoinHostPort(lines[0], lines[1]), nil
}

// StartRedisSentinels starts a primary, a replica and three Sentinels, and waits until they know each other. Further
// arguments go to the two servers.
func StartRedisSentinels(ctx context.Context, log io.Writer, args ...string) (s *RedisSentinels, err error) {
	s = &RedisSentinels{}
	defer func() {
		if err != nil {
			s.Stop()
			s, err = nil, fmt.Errorf("starting Redis with Sentinels: %w", err)
		}
	}()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	if s.Primary, err = StartRedis(ctx, log, args...); err != nil {
		return s, err
	}
	host, port, err := net.SplitHostPort(s.Primary.Address)
	if err != nil {
		return s, err
	}
	if s.Replica, err = StartRedis(ctx, log, append(args, "--replicaof", host+" "+port)...); err != nil {
		return s, err
	}
	err = poll(ctx, "the replica to follow", func() (bool, error) {
		info, err := s.Replica.Do(ctx, "info", "replication")
		return strings.Contains(info, "master_link_status:up"), err
	})
	if err != nil {
		return s, err
	}
	for range 3 {
		address, process, err := startSentinel(ctx, host, port)
		if err != nil {
			return s, err
		}
		s.Sentinels, s.processes = append(s.Sentinels, address), append(s.processes, process)
	}
	for _, address := range s.Sentinels {
		err = poll(ctx, "the Sentinels to know each other and the replica", func() (bool, error) {
			info, err := redisCLI(ctx, address, "info", "sentinel")
			return strings.Contains(info, "status=ok,") && strings.Contains(info, "slaves=1,sentinels=3"), err
		})
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// startSentinel starts one that watches a primary.
func startSentinel(ctx context.Context, host, port string) (address string, process *Process, err error) {
	directory, err := os.MkdirTemp("", "sluice-sentinel-")
	if err != nil {
		return "", nil, err
	}
	process, err = retryBind(ctx, func() (*Process, error) {
		if address, err = FreeAddress(); err != nil {
			return nil, err
		}
		_, own, _ := net.SplitHostPort(address)
		file := filepath.Join(directory, own+".conf")
		configuration := fmt.Sprintf("bind %s\nport %s\ndir %s\nsentinel monitor %s %s %s 2\n"+
			"sentinel down-after-milliseconds %[4]s 500\nsentinel failover-timeout %[4]s 3000\n",
			Loopback, own, strconv.Quote(directory), SentinelMaster, host, port)
		if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
			return nil, err
		}
		return Start(ctx, Command{
			Name: "sentinel", Path: "redis-server", Args: []string{file, "--sentinel"},
			Ready: func(ctx context.Context) error { return ping(ctx, address) },
		})
	})
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(directory))
	}
	go func() {
		<-process.Done()
		os.RemoveAll(directory)
	}()
	return address, process, nil
}
