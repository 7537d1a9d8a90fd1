package web

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"sluice/shared/instant"
)

// What an address may do that says wrong tokens: so many at once, and one more in so long.
const (
	triesAtOnce = 10
	tryEvery    = 6 * time.Second
	// maxTriers bounds the addresses that are kept. More of them at a time count together.
	maxTriers = 1024
)

// tries holds back those who try tokens: by address, for what one of them does is to keep nobody else out.
type tries struct {
	mu sync.Mutex
	by map[netip.Addr]instant.Instant // when an address that has tried may do all of triesAtOnce again
}

// wait is how long an address has to wait before a token of it is looked at; 0: not at all.
func (t *tries) wait(of netip.Addr, now instant.Instant) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.by[t.known(of)].Sub(now)-(triesAtOnce-1)*tryEvery)
}

// wrong notes a wrong token.
func (t *tries) wrong(of netip.Addr, now instant.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[netip.Addr]instant.Instant)
	}
	if len(t.by) >= maxTriers {
		for other, whole := range t.by {
			if whole <= now {
				delete(t.by, other)
			}
		}
	}
	of = t.known(of)
	t.by[of] = max(t.by[of], now).Add(tryEvery)
}

// known gives what an address is kept as: itself, or the one that stands for all for whom there is no room.
func (t *tries) known(of netip.Addr) netip.Addr {
	if _, is := t.by[of]; is || len(t.by) < maxTriers {
		return of
	}
	return netip.Addr{}
}

// peerOf gives whom a request comes from: an address, or of IPv6 the network of 64 bits that one caller has.
func peerOf(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	ip = ip.Unmap().WithZone("")
	if prefix, err := ip.Prefix(64); ip.Is6() && err == nil {
		return prefix.Addr()
	}
	return ip
}
