package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/shared/instant"
)

// What holds where a Config does not say otherwise. None of a call's waits is longer, whatever its own deadline.
const (
	DefaultDialTimeout = 500 * time.Millisecond
	DefaultCallTimeout = 500 * time.Millisecond
	DefaultPoolTimeout = time.Second
	DefaultWaitTimeout = 50 * time.Millisecond
)

// The bounds of what a Config may say.
const (
	MaxTimeout     = time.Minute
	MaxPoolSize    = 10_000
	MaxReplicas    = 100
	MaxQuietPeriod = 48 * time.Hour
)

// protocol is RESP2: of what RESP3 has more nothing is used, and its push messages would be looked for in every answer.
const protocol = 2

// Config says which Redis there is (6.2 or newer), and how to speak to it. A field that is not set leaves what the URL says,
// or else the default; one that is set wins over the URL.
type Config struct {
	// URL is, in the forms of go-redis:
	//
	//	redis://user:password@host:6379/0            one server; the path is the database
	//	redis://host:6379?cluster=true               a cluster; addr=host:port names further nodes to ask
	//	redis://host:26379/0?master_name=mymaster    Sentinels; addr=host:port names further ones; the user and password before
	//	                                             the host are for the Sentinels, username= and password= for the server
	//
	// rediss speaks TLS, also to Sentinels. Further parameters are go-redis' (min_idle_conns=, conn_max_idle_time=, …).
	URL string
	// Cluster says that the URL's host is a node of a cluster.
	Cluster bool
	// SentinelMaster says that the URL's host is a Sentinel, and what it calls the server that is wanted.
	SentinelMaster string
	// SentinelUsername and SentinelPassword are for the Sentinels.
	SentinelUsername, SentinelPassword string
	// Addresses are further nodes of a cluster, or further Sentinels, HOST:PORT.
	Addresses []string
	// Username and Password are for the servers: an ACL user, or the default one.
	Username, Password string
	// TLS is for a rediss URL only: private authorities, client certificates. A ServerName that it does not have is the
	// URL's host.
	TLS *tls.Config
	// PoolSize is how many connections there may be to each server, up to MaxPoolSize; 0: go-redis' ten for each processor.
	PoolSize int
	// How long one wait may take, 1 ms to MaxTimeout: for a connection to be made, for an answer, for a write to be taken, for
	// a connection of the pool to be free. A call's own deadline ends each earlier.
	DialTimeout, ReadTimeout, WriteTimeout, PoolTimeout time.Duration
	// WaitReplicas is how many replicas must have a grant or a record before it counts, up to MaxReplicas; 0: none. Where fewer
	// have it within WaitTimeout, the operation fails, and what it took is taken back.
	WaitReplicas int
	WaitTimeout  time.Duration
	// QuietPeriod is for how long nothing is granted after the primary has changed; 0: not at all. Not for a cluster.
	QuietPeriod time.Duration
	// Now reads a clock that never steps back; a QuietPeriod needs it.
	Now func() instant.Instant
	// After gives a channel that is sent to once the duration has passed; nil: nothing is tried a second time.
	After func(time.Duration) <-chan time.Time
}

// Open gives the store in a Redis; the keys' names begin with "sluice:". Nothing is connected to yet: a server that is away
// is no error here, but one of each operation until it is back. No error quotes the URL or a password.
func Open(c Config) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	u, cluster, err := c.url()
	if err != nil {
		return nil, err
	}
	silence.Do(func() { goredis.SetLogger(silent{}) })
	s := newStore(nil, asItIs)
	s.after = c.After
	var onConnect func(context.Context, *goredis.Conn) error
	if c.QuietPeriod > 0 {
		s.quiet = &quiet{period: c.QuietPeriod, now: c.Now}
		onConnect = s.quiet.onConnect
	}
	s.client, err = c.connect(u, cluster, onConnect)
	if err != nil {
		return nil, err
	}
	if c.WaitReplicas > 0 {
		s.addHook(replicated{c.WaitReplicas, cmp.Or(c.WaitTimeout, DefaultWaitTimeout)})
	}
	return s, nil
}

// check says what of the configuration, besides the URL, makes no sense.
func (c *Config) check() error {
	for _, t := range []struct {
		name  string
		value time.Duration
	}{
		{"dial timeout", c.DialTimeout},
		{"read timeout", c.ReadTimeout},
		{"write timeout", c.WriteTimeout},
		{"pool timeout", c.PoolTimeout},
		{"wait timeout", c.WaitTimeout},
	} {
		if t.value != 0 && (t.value < time.Millisecond || t.value > MaxTimeout) {
			return fmt.Errorf("redis: %s %v: expected 1ms to %v", t.name, t.value, MaxTimeout)
		}
	}
	if c.PoolSize < 0 || c.PoolSize > MaxPoolSize {
		return fmt.Errorf("redis: pool of %d connections: expected 1 to %d", c.PoolSize, MaxPoolSize)
	}
	if c.WaitReplicas < 0 || c.WaitReplicas > MaxReplicas {
		return fmt.Errorf("redis: waiting for %d replicas: expected 0 to %d", c.WaitReplicas, MaxReplicas)
	}
	if c.QuietPeriod < 0 || c.QuietPeriod > MaxQuietPeriod {
		return fmt.Errorf("redis: quiet period %v: expected 0s to %v", c.QuietPeriod, MaxQuietPeriod)
	}
	if c.QuietPeriod > 0 && c.Now == nil {
		return errors.New("redis: a quiet period needs a clock")
	}
	for i, address := range c.Addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" || strings.ContainsRune(address, '@') {
			return fmt.Errorf("redis: address %d of %d is no HOST:PORT", i+1, len(c.Addresses))
		}
	}
	return nil
}

// url gives the URL with the fields put into it that go-redis reads from there, and whether it is a cluster's.
func (c *Config) url() (u *url.URL, cluster bool, err error) {
	u, err = url.Parse(c.URL)
	if err != nil {
		// The error quotes the URL or parts of it, and the password may be among them.
		return nil, false, errors.New("redis: the URL does not parse: expected redis://user:password@host:port/database, escaped")
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, false, fmt.Errorf("redis: scheme %q: expected redis://host:port/database or rediss://…", u.Scheme)
	}
	if c.TLS != nil && u.Scheme != "rediss" {
		return nil, false, errors.New("redis: a TLS configuration for a redis:// URL: expected rediss://")
	}
	query := u.Query()
	for _, address := range query["addr"] {
		if strings.ContainsRune(address, '@') {
			return nil, false, errors.New("redis: addr: expected HOST:PORT, without a user")
		}
	}
	if c.SentinelMaster != "" {
		query.Set("master_name", c.SentinelMaster)
	}
	sentinel := query.Has("master_name")
	cluster = c.Cluster || query.Has("addr") && !sentinel
	if query.Has("cluster") && !c.Cluster {
		if cluster, err = strconv.ParseBool(query.Get("cluster")); err != nil {
			return nil, false, fmt.Errorf("redis: cluster=%q: expected true or false", query.Get("cluster"))
		}
	}
	query.Del("cluster")
	switch {
	case sentinel && cluster:
		return nil, false, errors.New("redis: a cluster has no Sentinels: expected a master's name or a cluster, not both")
	case !sentinel && (c.SentinelUsername != "" || c.SentinelPassword != ""):
		return nil, false, errors.New("redis: a Sentinel's user or password, but no master's name")
	case !sentinel && !cluster && len(c.Addresses) > 0:
		return nil, false, errors.New("redis: several addresses: expected a cluster, or a Sentinel master's name")
	case cluster && c.QuietPeriod > 0:
		return nil, false, errors.New("redis: a quiet period is for one server or Sentinels, not for a cluster")
	}
	for _, address := range c.Addresses {
		query.Add("addr", address)
	}
	c.identify(u, query, sentinel)
	u.RawQuery = query.Encode()
	return u, cluster, nil
}

// identify puts users and passwords where go-redis looks for them.
func (c *Config) identify(u *url.URL, query url.Values, sentinel bool) {
	username, password := c.Username, c.Password
	if sentinel {
		if username != "" {
			query.Set("username", username)
		}
		if password != "" {
			query.Set("password", password)
		}
		username, password = c.SentinelUsername, c.SentinelPassword
	}
	if username == "" && password == "" {
		return
	}
	if username == "" {
		username = u.User.Username()
	}
	if password == "" {
		password, _ = u.User.Password()
	}
	u.User = url.UserPassword(username, password)
}

func (c *Config) connect(u *url.URL, cluster bool, onConnect func(context.Context, *goredis.Conn) error) (goredis.UniversalClient, error) {
	switch {
	case u.Query().Has("master_name"):
		return c.sentinel(u, onConnect)
	case cluster:
		return c.cluster(u)
	}
	o, err := goredis.ParseURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	c.adjustTLS(&o.TLSConfig)
	o.ContextTimeoutEnabled, o.DisableIdentity, o.PipelinePoolSize, o.Protocol = true, true, -1, protocol
	c.adjust(&o.MaxRetries, &o.DialerRetries, &o.PoolSize, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.OnConnect = onConnect
	return goredis.NewClient(o), nil
}

func (c *Config) sentinel(u *url.URL, onConnect func(context.Context, *goredis.Conn) error) (goredis.UniversalClient, error) {
	o, err := goredis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
		return nil, errors.New("redis: a replica cannot be written to: expected no route_by_latency, route_randomly or replica_only")
	}
	c.adjustTLS(&o.TLSConfig)
	o.ContextTimeoutEnabled, o.DisableIdentity, o.PipelinePoolSize, o.Protocol = true, true, -1, protocol
	c.adjust(&o.MaxRetries, &o.DialerRetries, &o.PoolSize, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.OnConnect = onConnect
	return goredis.NewFailoverClient(o), nil
}

func (c *Config) cluster(u *url.URL) (goredis.UniversalClient, error) {
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
	o.ContextTimeoutEnabled, o.DisableIdentity, o.PipelinePoolSize, o.Protocol = true, true, -1, protocol
	// Who is redirected goes there at once: the server that has the slot is known.
	o.MinRetryBackoff = -1
	c.adjust(&o.MaxRetries, &o.DialerRetries, &o.PoolSize, &o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return goredis.NewClusterClient(o), nil
}

// adjust turns repeats off, which would charge twice, and puts the bounds in that the URL does not have. A time that the URL
// says is unlimited (-1) is bounded too.
func (c *Config) adjust(retries, dialerRetries, poolSize *int, dial, read, write, pool *time.Duration) {
	*retries, *dialerRetries = -1, 1
	if c.PoolSize > 0 {
		*poolSize = c.PoolSize
	}
	for _, t := range []struct {
		timeout    *time.Duration
		own, bound time.Duration
	}{
		{dial, c.DialTimeout, DefaultDialTimeout},
		{read, c.ReadTimeout, DefaultCallTimeout},
		{write, c.WriteTimeout, DefaultCallTimeout},
		{pool, c.PoolTimeout, DefaultPoolTimeout},
	} {
		if t.own > 0 {
			*t.timeout = t.own
		}
		if *t.timeout <= 0 {
			*t.timeout = t.bound
		}
	}
}

func (c *Config) adjustTLS(config **tls.Config) {
	if c.TLS == nil || *config == nil {
		return
	}
	own := c.TLS.Clone()
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
