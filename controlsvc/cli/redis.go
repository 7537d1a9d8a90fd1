package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/controlsvc/store/redis"
)

// redisOptions are what serve is told about its Redis besides the URL. What is not said here is as the URL says, or else as
// it is in package redis.
type redisOptions struct {
	redis.Config

	ca, certificate, key, serverName string
}

func (o *redisOptions) register(f *pflag.FlagSet) {
	f.BoolVar(&o.Cluster, "redis-cluster", false, "the store's URL names a node of a cluster")
	f.StringVar(&o.SentinelMaster, "redis-sentinel-master", "", "the store's URL names a Sentinel, which knows the server by this `NAME`")
	f.StringVar(&o.SentinelUsername, "redis-sentinel-username", "", "`USER` for the Sentinels")
	f.StringVar(&o.SentinelPassword, "redis-sentinel-password", "", "`PASSWORD` for the Sentinels; better in the environment")
	f.StringSliceVar(&o.Addresses, "redis-addresses", nil, "further Sentinels, or nodes of the cluster, `HOST:PORT,…`")
	f.StringVar(&o.Username, "redis-username", "", "ACL `USER` for the Redis servers")
	f.StringVar(&o.Password, "redis-password", "", "`PASSWORD` for the Redis servers; better in the environment, for anybody may see a command line")
	f.StringVar(&o.ca, "redis-ca", "", "`FILE` with the authorities in PEM that vouch for the servers of a rediss:// URL; the system's without")
	f.StringVar(&o.certificate, "redis-cert", "", "`FILE` with the certificate chain in PEM to show to the servers of a rediss:// URL")
	f.StringVar(&o.key, "redis-key", "", "`FILE` with that certificate's key in PEM")
	f.StringVar(&o.serverName, "redis-server-name", "", "`NAME` that the servers' certificates must have; the URL's host without")
	f.IntVar(&o.PoolSize, "redis-pool-size", 0, "connections to each server, 1 to 10000; ten for each processor without")
	f.DurationVar(&o.DialTimeout, "redis-dial-timeout", 0, "how long a connection may take to be made, 1ms to 1m; 500ms without")
	f.DurationVar(&o.ReadTimeout, "redis-read-timeout", 0, "how long an answer may take, 1ms to 1m; 500ms without, and never beyond --call-timeout")
	f.DurationVar(&o.WriteTimeout, "redis-write-timeout", 0, "how long a write may take, 1ms to 1m; 500ms without")
	f.DurationVar(&o.PoolTimeout, "redis-pool-timeout", 0, "how long a connection of the pool is waited for, 1ms to 1m; 1s without")
	f.IntVar(&o.WaitReplicas, "redis-wait-replicas", 0,
		"how many replicas must have a grant before it is given, 0 to 100; where fewer have it in time the store counts as away")
	f.DurationVar(&o.WaitTimeout, "redis-wait-timeout", redis.DefaultWaitTimeout, "how long those replicas are waited for, 1ms to 1m")
	f.DurationVar(&o.QuietPeriod, "redis-quiet-period", 0,
		"for how long nothing is granted once the primary has changed, up to 48h; the longest window + 10s lets no failover admit "+
			"too much, but where windows are longer than that")
}

// check says which options make no sense beside this store.
func (o *redisOptions) check(store string, complain func(flag, format string, args ...any)) {
	secure := strings.HasPrefix(store, "rediss://")
	for _, file := range []struct{ flag, value string }{
		{"redis-ca", o.ca}, {"redis-cert", o.certificate}, {"redis-key", o.key}, {"redis-server-name", o.serverName},
	} {
		if file.value != "" && !secure {
			complain(file.flag, "it is for TLS: want a rediss:// URL as --store")
		}
	}
	if (o.certificate == "") != (o.key == "") {
		complain("redis-cert", "a certificate and its key go together: want both --redis-cert and --redis-key, or neither")
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"redis-dial-timeout", o.DialTimeout},
		{"redis-read-timeout", o.ReadTimeout},
		{"redis-write-timeout", o.WriteTimeout},
		{"redis-pool-timeout", o.PoolTimeout},
		{"redis-wait-timeout", o.WaitTimeout},
	} {
		if d.value != 0 && (d.value < time.Millisecond || d.value > redis.MaxTimeout) {
			complain(d.flag, "%v: want 1ms to %v", d.value, redis.MaxTimeout)
		}
	}
	if o.PoolSize < 0 || o.PoolSize > redis.MaxPoolSize {
		complain("redis-pool-size", "%d: want 1 to %d", o.PoolSize, redis.MaxPoolSize)
	}
	if o.WaitReplicas < 0 || o.WaitReplicas > redis.MaxReplicas {
		complain("redis-wait-replicas", "%d: want 0 to %d", o.WaitReplicas, redis.MaxReplicas)
	}
	if o.QuietPeriod < 0 || o.QuietPeriod > redis.MaxQuietPeriod {
		complain("redis-quiet-period", "%v: want 0s to %v", o.QuietPeriod, redis.MaxQuietPeriod)
	}
}

// config gives what the store is opened with.
func (o *redisOptions) config(p Process, url string) (redis.Config, error) {
	c := o.Config
	c.URL, c.Now, c.After = url, p.Now, p.After
	if !strings.HasPrefix(url, "rediss://") || o.ca == "" && o.certificate == "" && o.serverName == "" {
		return c, nil
	}
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.serverName}
	if o.ca != "" {
		text, err := os.ReadFile(o.ca)
		if err != nil {
			return c, fmt.Errorf("--redis-ca: %w", err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return c, fmt.Errorf("--redis-ca: %s holds no certificate; want authorities in PEM", o.ca)
		}
	}
	if o.certificate != "" {
		certificate, err := tls.LoadX509KeyPair(o.certificate, o.key)
		if err != nil {
			return c, fmt.Errorf("--redis-cert %s and --redis-key %s: %w", o.certificate, o.key, err)
		}
		c.TLS.Certificates = []tls.Certificate{certificate}
	}
	return c, nil
}

// withoutSecrets gives what of a store's name may be said where the name makes no sense: what stands before a URL's user.
func withoutSecrets(store string) string {
	if scheme, _, found := strings.Cut(store, "://"); found && strings.ContainsRune(store, '@') {
		return scheme + "://…"
	}
	return store
}
