package rig

import (
	"bufio"
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

// Redis is a running Redis without persistence.
type Redis struct {
	*Process
	// Address is where it listens, HOST:PORT.
	Address string
}

// URL is what the service's --store takes: database 0.
func (r *Redis) URL() string { return "redis://" + r.Address + "/0" }

// StartRedis starts a Redis of its own, empty and without persistence, on a free port of the loopback. Where there is no
// redis-server it is installed from Debian if that is possible, which is told to log.
func StartRedis(ctx context.Context, log io.Writer, args ...string) (*Redis, error) {
	path, err := findRedis(ctx, log)
	if err != nil {
		return nil, err
	}
	return retryBind(ctx, func() (*Redis, error) {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		r := &Redis{Address: address(port)}
		r.Process, err = Start(ctx, Command{
			Name: "redis-server", Path: path,
			Args: append([]string{
				"--bind", Loopback, "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--daemonize", "no",
				"--dir", os.TempDir(), "--maxmemory-policy", "noeviction",
			}, args...),
			Ready: func(ctx context.Context) error { return ping(ctx, r.Address) },
		})
		return r, err
	})
}

// ping wants PONG, which a Redis that still loads does not say.
func ping(ctx context.Context, address string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReaderSize(connection, 64).ReadString('\n')
	if err == nil && strings.TrimSpace(answer) != "+PONG" {
		err = fmt.Errorf("Redis answered PING with %q", answer)
	}
	return err
}

// installing lets one goroutine of this process at a time install; apt has a lock of its own for the others.
var installing sync.Mutex

func findRedis(ctx context.Context, log io.Writer) (string, error) {
	installing.Lock()
	defer installing.Unlock()
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	const wanted = "there is no redis-server on the PATH"
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", errors.New(wanted + ": install Redis 6.2 or newer (Debian: sudo apt-get install redis-server)")
	}
	fmt.Fprintf(log, "%s; installing it from Debian, once\n", wanted)
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	for _, args := range [][]string{
		{"update", "-q"},
		{"install", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "redis-server"},
	} {
		// RUNLEVEL=1: Redis is wanted as a program, not as a running service.
		environment := []string{"RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", apt}
		if err := runStep(ctx, log, "/usr/bin/env", append(environment, args...)...); err != nil {
			return "", fmt.Errorf("%s, and it could not be installed: %w", wanted, err)
		}
	}
	return exec.LookPath("redis-server")
}
