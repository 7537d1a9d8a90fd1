package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Where FreePort looks: below the ports that systems give to outgoing connections. One of those could be taken by a
// connection while whoever listens on it is being restarted; and a client that connects to it meanwhile can meet itself.
const firstPort, endPort = 20_000, 32_768

// FreePort gives a TCP port on the loopback that nothing listened on just now, and that this process has not given before.
// Another process may still take it: what binds it must be ready to be started again with another.
func FreePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	var last error
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		if given.ports[port] {
			continue
		}
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			last = err
			continue
		}
		given.ports[port] = true
		return port, listener.Close()
	}
	return 0, fmt.Errorf("looking for a free port from %d to %d, 1000 times: %w", firstPort, endPort, last)
}

// FreeAddress is FreePort with the loopback's address before it, HOST:PORT.
func FreeAddress() (string, error) {
	port, err := FreePort()
	return address(port), err
}

func address(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }

// retryBind calls start until it fails in another way than ErrAddressInUse, or succeeds, a bounded number of times. Where
// it fails there is no result.
func retryBind[T any](ctx context.Context, start func() (*T, error)) (*T, error) {
	for try := 1; ; try++ {
		result, err := start()
		if err == nil {
			return result, nil
		}
		if !errors.Is(err, ErrAddressInUse) || try == portTries || ctx.Err() != nil {
			return nil, err
		}
	}
}
