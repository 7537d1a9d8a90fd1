package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
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
	path, err := findProgram(ctx, log, "redis-server", "redis-server", "Redis 6.2 or newer")
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

// pingWithin is how long a server may take to answer on a busy machine.
const pingWithin = 10 * time.Second

// ping wants PONG, which a Redis that still loads does not say.
func ping(ctx context.Context, address string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(pingWithin)); err != nil {
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
