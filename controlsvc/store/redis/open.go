package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Where a call has no deadline of its own, none of its waits is longer than these. A URL may say otherwise.
const (
	dialTimeout = time.Second
	callTimeout = time.Second
	poolTimeout = 3 * time.Second
)

// Option changes how Open connects.
type Option func(*connection)

// connection is what a URL and the options say, for whichever kind of deployment.
type connection struct{ tls *tls.Config }

// WithTLS sets the TLS configuration, for a rediss URL only: private authorities, client certificates. A ServerName that
// it does not have is the URL's host.
func WithTLS(config *tls.Config) Option { return func(c *connection) { c.tls = config } }

// Open gives the store in a Redis (6.2 or newer; the keys' names begin with "sluice:"):
//
//	redis://user:password@host:6379/0            one server; the path is the database
//	redis://host:6379?cluster=true               a cluster; addr=host:port names further nodes to ask
//	redis://host:26379/0?master_name=mymaster    Sentinels; addr=host:port names further ones, username and password are for the server
//
// rediss speaks TLS. Further parameters are go-redis' (pool_size=, read_timeout=, …). Nothing is connected to yet: a
// server that is away is no error here, but one of each operation until it is back.
func Open(rawURL string, options ...Option) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error quotes the URL or parts of it, and the password may be among them.
		return nil, errors.New("redis: the URL does not parse: expected redis://user:password@host:port/database, escaped")
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, fmt.Errorf("redis: scheme %q: expected redis://host:port/database or rediss://…", u.Scheme)
	}
	query := u.Query()
	cluster := query.Has("addr")
	if query.Has("cluster") {
		if cluster, err = strconv.ParseBool(query.Get("cluster")); err != nil {
			return nil, fmt.Errorf("redis: cluster=%q: expected true or false", query.Get("cluster"))
		}
		query.Del("cluster")
		u.RawQuery = query.Encode()
	}
	var c connection
	for _, option := range options {
		option(&c)
	}
	if c.tls != nil && u.Scheme != "rediss" {
		return nil, errors.New("redis: a TLS configuration for a redis:// URL: expected rediss://")
	}
	silence.Do(func() { goredis.SetLogger(silent{}) })
	client, err := c.connect(u, cluster)
	if err != nil {
		return nil, err
	}
	return newStore(client, asItIs), nil
}

func (c connection) connect(u *url.URL, cluster bool) (goredis.UniversalClient, error) {
	switch {
	case u.Query().Has("master_name"):
		return c.sentinel(u)
	case cluster:
		return c.cluster(u)
	}
	o, err := goredis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	c.adjustTLS(&o.TLSConfig)
	o.ContextTimeoutEnabled, o.DisableIdentity, o.PipelinePoolSize = true, true, -1
	adjust(&o.MaxRetries, &o.DialerRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return goredis.NewClient(o), nil
}

func (c connection) sentinel(u *url.URL) (goredis.UniversalClient, error) {
	o, err := goredis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
		return nil, errors.New("redis: a replica cannot be written to: expected no route_by_latency, route_randomly or replica_only")
	}
	c.adjustTLS(&o.TLSConfig)
	o.ContextTimeoutEnabled, o.DisableIdentity, o.PipelinePoolSize = true, true, -1
	adjust(&o.MaxRetries, &o.DialerRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return goredis.NewFailoverClient(o), nil
}

func (c connection) cluster(u *url.URL) (goredis.UniversalClient, error) {
	if u.Path != "" && u.Path != "/" && u.Path != "/0" {
		return nil, fmt.Errorf("redis: path %q: a cluster has only database 0", u.Path)
	}
	o, err := goredis.ParseClusterURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		return nil, errors.New("redis: a replica cannot be written to: expected no read_only, route_by_latency or route_randomly")
	}
	c.adjustTLS(&o.TLSConfig)
	o.ContextTimeoutEnabled, o.DisableIdentity, o.PipelinePoolSize = true, true, -1
	adjust(&o.MaxRetries, &o.DialerRetries, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return goredis.NewClusterClient(o), nil
}

// adjust turns repeats off, which would charge twice, and puts the bounds in that the URL does not have. A time that the URL
// says is unlimited (-1) is bounded too.
func adjust(retries, dialerRetries *int, dial, read, write, pool *time.Duration) {
	*retries, *dialerRetries = -1, 1
	for timeout, bound := range map[*time.Duration]time.Duration{
		dial: dialTimeout, read: callTimeout, write: callTimeout, pool: poolTimeout,
	} {
		if *timeout <= 0 {
			*timeout = bound
		}
	}
}

func (c connection) adjustTLS(config **tls.Config) {
	if c.tls == nil || *config == nil {
		return
	}
	own := c.tls.Clone()
	if own.ServerName == "" {
		own.ServerName = (*config).ServerName
	}
	*config = own
}

// silence keeps go-redis from printing: what it has to say is in the errors that operations return. Its logger is one for
// the process and not guarded, so it is set before the first client is there.
var silence sync.Once

type silent struct{}

// Printf implements go-redis' logger.
func (silent) Printf(context.Context, string, ...any) {}
