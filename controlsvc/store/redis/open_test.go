package redis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
	"sluice/testharness/rig"
)

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		url     string
		wrong   string // empty: it opens
		cluster bool
	}{
		{url: "redis://localhost"},
		{url: "redis://127.0.0.1:6379/3"},
		{url: "redis://user:secret@[::1]:6379/0?read_timeout=2s&pool_size=5&max_retries=9"},
		{url: "rediss://localhost:6380"},
		{url: "redis://localhost:7000?cluster=true", cluster: true},
		{url: "redis://localhost:7000/0?addr=localhost:7001&addr=localhost:7002", cluster: true},
		{url: "redis://localhost:7000?cluster=false"},
		{url: "redis://localhost:26379/0?master_name=mymaster&addr=localhost:26380"},
		{url: "", wrong: "expected redis://"},
		{url: "memory", wrong: "expected redis://"},
		{url: "http://localhost", wrong: "expected redis://"},
		{url: "redis://:secret@localhost:port/0", wrong: "does not parse"},
		{url: "redis://:secret@local host/0", wrong: "does not parse"},
		{url: "redis://:secret@localhost/\x00", wrong: "does not parse"},
		{url: "redis://:secret@localhost/zero", wrong: "database"},
		{url: "redis://localhost/0?databse=1", wrong: "databse"},
		{url: "redis://localhost:7000/1?cluster=true", wrong: "only database 0"},
		{url: "redis://localhost:7000?cluster=perhaps", wrong: "expected true or false"},
		{url: "redis://localhost:7000?cluster=true&read_only=true", wrong: "replica"},
		{url: "redis://localhost:26379?master_name=a&replica_only=true", wrong: "replica"},
	} {
		s, err := Open(Config{URL: c.url})
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%q: %v, which says nothing of %q", c.url, err, c.wrong)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: the password is in the error: %v", c.url, err)
			}
		case err != nil:
			t.Errorf("%q: %v", c.url, err)
		default:
			client, cluster := s.client.(*goredis.ClusterClient)
			if cluster != c.cluster {
				t.Errorf("%q: a client of type %T", c.url, s.client)
			}
			if cluster && client.Options().MaxRetries != -1 || !cluster && s.client.(*goredis.Client).Options().MaxRetries != 0 {
				t.Errorf("%q: commands are repeated", c.url)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%q: %v", c.url, err)
			}
		}
	}
	addressed, err := Open(Config{URL: "redis://:secret@localhost:7000/0?read_timeout=2s", Cluster: true, Addresses: []string{"localhost:7001"}, PoolSize: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer addressed.Close()
	o := addressed.client.(*goredis.ClusterClient).Options()
	if len(o.Addrs) != 2 || o.PoolSize != 7 || o.ReadTimeout != 2*time.Second || o.WriteTimeout != DefaultCallTimeout || o.Password != "secret" {
		t.Errorf("a cluster in fields: %+v", o)
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	const url = "redis://user:secret@localhost:7000"
	for _, c := range []struct {
		config Config
		wrong  string
	}{
		{Config{URL: url, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "rediss://"},
		{Config{URL: url, DialTimeout: time.Microsecond}, "dial timeout 1µs: expected 1ms to 1m"},
		{Config{URL: url, ReadTimeout: time.Hour}, "read timeout 1h0m0s"},
		{Config{URL: url, WriteTimeout: -1}, "write timeout"},
		{Config{URL: url, PoolTimeout: time.Hour}, "pool timeout"},
		{Config{URL: url, WaitTimeout: time.Hour}, "wait timeout"},
		{Config{URL: url, PoolSize: -1}, "expected 1 to 10000"},
		{Config{URL: url, PoolSize: 10_001}, "expected 1 to 10000"},
		{Config{URL: url, WaitReplicas: 101}, "expected 0 to 100"},
		{Config{URL: url, QuietPeriod: -1}, "quiet period"},
		{Config{URL: url, QuietPeriod: time.Second}, "a clock"},
		{Config{URL: url, QuietPeriod: time.Second, Now: clock, Cluster: true}, "not for a cluster"},
		{Config{URL: url, Cluster: true, Addresses: []string{"user:secret@localhost:7001"}}, "address 1 of 1"},
		{Config{URL: url, Cluster: true, Addresses: []string{"localhost"}}, "address 1 of 1"},
		{Config{URL: url, Addresses: []string{"localhost:7001"}}, "expected a cluster"},
		{Config{URL: url + "?cluster=true&addr=user:secret@localhost:7001"}, "without a user"},
		{Config{URL: url, Cluster: true, SentinelMaster: "mymaster"}, "not both"},
		{Config{URL: url, SentinelPassword: "secret"}, "no master's name"},
		{Config{URL: url + "?pool_size=secretive"}, "pool_size"},
	} {
		s, err := Open(c.config)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v, which says nothing of %q", c.config, err, c.wrong)
		} else if strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), ":secret") {
			t.Errorf("%+v: the password is in the error: %v", c.config, err)
		}
	}
}

// Without its user nobody gets in; with it, the operations need no more rights than the package's comment says.
func TestUser(t *testing.T) {
	server := startServer(t)
	admin := open(t, server.URL())
	rights := documentedRights(t, "redis.go")
	if diff := cmp.Diff(rights, documentedRights(t, "../../../docs/redis.md")); diff != "" {
		t.Errorf("docs/redis.md has other rights than the package's comment (-comment +docs):\n%s", diff)
	}
	command := []any{"acl", "setuser", "sluice", "on", ">a:secret/?", "~sluice:*"}
	for right := range rights {
		command = append(command, "+"+right)
	}
	if err := admin.client.Do(t.Context(), command...).Err(); err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`redis\.call\('(\w+)'`)
	sources := []string{workersSource, overlaySource, primarySource, exchangeSource, strictSource, headSource, accountSource}
	for _, a := range newAlgorithms(asItIs) {
		sources = append(sources, a.script.source)
	}
	for _, source := range sources {
		for _, call := range calls.FindAllStringSubmatch(source, -1) {
			if !rights[strings.ToLower(call[1])] {
				t.Errorf("a script calls %s, which the package's comment does not name", call[1])
			}
		}
	}
	if err := admin.client.Do(t.Context(), "acl", "setuser", "default", "off").Err(); err != nil {
		t.Fatal(err)
	}
	s := open(t, "redis://sluice:a%3Asecret%2F%3F@"+server.Address+"/0")
	for algorithm := range s.algorithms {
		k := testKey("user", "10/1h")
		k.Algorithm = algorithm
		for name, err := range everyOperation(t.Context(), s, k) {
			if err != nil {
				t.Errorf("%v, %s: %v", algorithm, name, err)
			}
		}
		for range 2 {
			lease := reserve(t, s, authority.Reserve{Key: k, Call: "a", Want: 1, Min: 1, TTL: time.Minute}).Lease
			errs := s.Cancel(t.Context(), []authority.Cancel{{Key: k, Call: "a"}})
			if errs = append(errs, s.Settle(t.Context(), []authority.Settle{{Key: k, Lease: lease, Unused: 1}})...); errors.Join(errs...) != nil {
				t.Errorf("%v: %v", algorithm, errs)
			}
		}
	}
	for _, url := range []string{server.URL(), "redis://sluice:wrong@" + server.Address} {
		for name, err := range everyOperation(t.Context(), open(t, url), testKey("user", "10/1h")) {
			if !errors.Is(err, authority.ErrUnavailable) || strings.Contains(err.Error(), "wrong@") {
				t.Errorf("%s without the password: %v", name, err)
			}
		}
	}
}

// documentedRights are those that a file names, as in +get; of a source file the package's comment.
func documentedRights(t *testing.T, file string) map[string]bool {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(string(source), "\npackage ")
	rights := map[string]bool{}
	for word := range strings.FieldsSeq(comment) {
		if name, is := strings.CutPrefix(strings.Trim(word, "`,."), "+"); is && name != "" {
			rights[name] = true
		}
	}
	return rights
}

func TestTLS(t *testing.T) {
	folder := t.TempDir()
	certificate, key, pool := selfSigned(t, folder)
	port, err := rig.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	startServer(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", certificate, "--tls-key-file", key,
		"--tls-ca-cert-file", certificate, "--tls-auth-clients", "no")
	url := "rediss://" + net.JoinHostPort(rig.Loopback, strconv.Itoa(port)) + "/0"
	s, err := Open(Config{URL: url, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if out := reserve(t, s, authority.Reserve{Key: testKey("tls", "10/1h"), Call: "a", Want: 1, Min: 1}); out.Units != 1 {
		t.Errorf("%+v", out)
	}
	if err := open(t, url).Ping(t.Context()); !errors.Is(err, authority.ErrUnavailable) {
		t.Errorf("an authority that nobody trusts: %v", err)
	}
}

func selfSigned(t *testing.T, folder string) (certificate, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(rig.Loopback)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(folder, "certificate.pem"), filepath.Join(folder, "key.pem")
	for path, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: privateDER},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return certificate, key, pool
}

// Sentinels and servers ask for passwords of their own, the servers for a user's.
func TestSentinelsWithPasswords(t *testing.T) {
	t.Parallel()
	set, err := rig.StartRedisSentinels(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Stop)
	for _, server := range []*rig.Redis{set.Primary, set.Replica} {
		if _, err := server.Do(t.Context(), "acl", "setuser", "sluice", "on", ">server-secret", "~sluice:*", "+@all"); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range set.Sentinels {
		sentinel := &rig.Redis{Address: address}
		if _, err := sentinel.Do(t.Context(), "acl", "setuser", "watcher", "on", ">sentinel-secret", "~*", "&*", "+@all"); err != nil {
			t.Fatal(err)
		}
	}
	config := Config{
		URL: "redis://" + set.Sentinels[0] + "/2", SentinelMaster: rig.SentinelMaster, Addresses: set.Sentinels[1:],
		SentinelUsername: "watcher", SentinelPassword: "sentinel-secret", Username: "sluice", Password: "server-secret",
	}
	k := testKey("sentinel", "10/1h")
	reserve(t, openConfig(t, config), authority.Reserve{Key: k, Call: "a", Want: 1, Min: 1})
	if got := remaining(t, open(t, "redis://sluice:server-secret@"+set.Primary.Address+"/2"), k); got != 9 {
		t.Errorf("the server that the sentinels name has %d left of 10", got)
	}
	wrong := config
	wrong.Password = "mistaken-secret"
	if err := openConfig(t, wrong).Ping(t.Context()); !errors.Is(err, authority.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("another password: %v", err)
	}
	wrong = config
	wrong.SentinelPassword = "mistaken-secret"
	if err := openConfig(t, wrong).Ping(t.Context()); !errors.Is(err, authority.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("another password for the sentinels: %v", err)
	}
}
