package admin

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
)

// Bounds on a token, in bytes.
const (
	MinToken = 16
	MaxToken = 512
)

// ReadToken reads a token from a file, without the space around it. No error quotes it.
func ReadToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading the admin token: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, 2*MaxToken))
	if err != nil {
		return "", fmt.Errorf("reading the admin token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", fmt.Errorf("the admin token in %s: want it printable, on one line, without spaces", path)
		}
	}
	if len(token) < MinToken || len(token) > MaxToken {
		return "", fmt.Errorf("the admin token in %s has %d bytes, want %d to %d", path, len(token), MinToken, MaxToken)
	}
	return token, nil
}

// Loopback says whether only this machine can reach an address to listen on, HOST:PORT.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
