package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// Loopback is the only address that anything here listens on.
const Loopback = "127.0.0.1"

// portTries bounds how often a process is started anew because its port was taken between the look and the bind.
const portTries = 5

// given remembers the ports handed out by this process, so that two tests that start at once do not get the same one.
var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// FreePort gives a TCP port on the loopback that nothing listened on just now, and that this process has not given before.
// Another process may still take it: what binds it must be ready to be started again with another, as Retry does.
func FreePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	for range 1000 {
		listener, err := net.Listen("tcp", net.JoinHostPort(Loopback, "0"))
		if err != nil {
			return 0, fmt.Errorf("looking for a free port: %w", err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("looking for a free port: %w", err)
		}
		if !given.ports[port] {
			given.ports[port] = true
			return port, nil
		}
	}
	return 0, errors.New("looking for a free port: 1000 tries gave only ports that were given before")
}

// FreeAddress is FreePort with the loopback's address before it, HOST:PORT.
func FreeAddress() (string, error) {
	port, err := FreePort()
	return address(port), err
}

func address(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }

// retryBind calls start until it fails in another way than ErrAddressInUse, or succeeds, a bounded number of times.
func retryBind[T any](ctx context.Context, start func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		result, err := start()
		if err == nil || !errors.Is(err, ErrAddressInUse) || try == portTries || ctx.Err() != nil {
			return result, err
		}
	}
}
