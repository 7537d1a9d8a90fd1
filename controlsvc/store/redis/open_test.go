package redis

import (
	"context"
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
	"strconv"
	"strings"
	"testing"
	"time"

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
		s, err := Open(c.url)
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
	if _, err := Open("redis://localhost", WithTLS(&tls.Config{MinVersion: tls.VersionTLS12})); err == nil {
		t.Error("TLS over redis://: no error")
	}
}

// Without its user nobody gets in; with it, the operations need no more rights than the package's comment says.
func TestUser(t *testing.T) {
	server := startServer(t)
	admin := open(t, server.URL())
	err := admin.client.Do(t.Context(), "acl", "setuser", "sluice", "on", ">a:secret/?", "~sluice:*",
		"+eval", "+evalsha", "+ping", "+info", "+time", "+hmget", "+hset", "+zadd", "+zcard", "+zrange", "+zrangebyscore", "+zrank",
		"+zrem", "+zremrangebyrank", "+zscan", "+zscore", "+pttl", "+pexpire", "+del").Err()
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.client.Do(t.Context(), "acl", "setuser", "default", "off").Err(); err != nil {
		t.Fatal(err)
	}
	s := open(t, "redis://sluice:a%3Asecret%2F%3F@"+server.Address+"/0")
	k := testKey("user", "10/1h")
	for name, err := range everyOperation(t.Context(), s, k) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	reserve(t, s, authority.Reserve{Key: k, Call: "a", Want: 1, Min: 1, TTL: time.Minute})
	if errs := s.Cancel(t.Context(), []authority.Cancel{{Key: k, Call: "a"}}); errs[0] != nil {
		t.Error(errs[0])
	}
	for _, url := range []string{server.URL(), "redis://sluice:wrong@" + server.Address} {
		err := open(t, url).Ping(t.Context())
		if !errors.Is(err, authority.ErrUnavailable) || strings.Contains(err.Error(), "wrong@") {
			t.Errorf("without the password: %v", err)
		}
	}
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
	s, err := Open(url, WithTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}))
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

func TestSentinel(t *testing.T) {
	server := startServer(t)
	port, err := rig.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	host, serverPort, _ := strings.Cut(server.Address, ":")
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	configuration := "bind " + rig.Loopback + "\nport " + strconv.Itoa(port) + "\nsentinel monitor mymaster " + host + " " + serverPort + " 1\n"
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, "redis://"+net.JoinHostPort(rig.Loopback, strconv.Itoa(port))+"/2?master_name=mymaster")
	sentinel, err := rig.Start(context.Background(), rig.Command{
		Name: "sentinel", Path: "redis-server", Args: []string{file, "--sentinel"}, Ready: s.Ping,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sentinel.Stop()
	reserve(t, s, authority.Reserve{Key: testKey("sentinel", "10/1h"), Call: "a", Want: 1, Min: 1})
	if got := remaining(t, open(t, "redis://"+server.Address+"/2"), testKey("sentinel", "10/1h")); got != 9 {
		t.Errorf("the server that the sentinel names has %d left of 10", got)
	}
}
