package cli

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	sluicev1 "sluice/shared/proto/sluice/v1"
	"sluice/testharness/rig"
)

func TestRedisOptionsThatMakeNoSense(t *testing.T) {
	file := write(t, goodPolicy)
	for name, test := range map[string]struct {
		environment map[string]string
		args        []string
		says        []string
	}{
		"everything at once": {
			map[string]string{"SLUICE_REDIS_WAIT_TIMEOUT": "2m", "SLUICE_REDIS_QUIET_PERIOD": "-1s", "SLUICE_REDIS_WAIT_REPLICAS": "101"},
			[]string{
				"--store", "redis://localhost", "--redis-ca", "x", "--redis-cert", "y", "--redis-pool-size", "10001",
				"--redis-dial-timeout", "1us", "--redis-read-timeout=-1s", "--redis-write-timeout", "1h", "--redis-pool-timeout", "1h",
			},
			[]string{
				"--redis-ca (SLUICE_REDIS_CA): it is for TLS", "--redis-key, or neither", "--redis-pool-size", "--redis-dial-timeout", "--redis-read-timeout",
				"--redis-write-timeout", "--redis-pool-timeout", "(SLUICE_REDIS_WAIT_TIMEOUT): 2m0s", "(SLUICE_REDIS_QUIET_PERIOD): -1s", "--redis-wait-replicas",
			},
		},
		"another store with a password": {nil, []string{"--store", "rediis://user:secret@localhost"}, []string{`"rediis://…": want memory`}},
		"a cluster that is quiet": {
			map[string]string{"SLUICE_REDIS_CLUSTER": "true", "SLUICE_REDIS_PASSWORD": "secret"},
			[]string{"--store", "redis://localhost:7000", "--redis-quiet-period", "1m"},
			[]string{"not for a cluster"},
		},
		"no such authority": {nil, []string{"--store", "rediss://:secret@localhost", "--redis-ca", "/nowhere.pem"}, []string{"--redis-ca", "/nowhere.pem"}},
		"no certificate in it": {
			nil, []string{"--store", "rediss://:secret@localhost", "--redis-ca", file}, []string{"--redis-ca", "holds no certificate"},
		},
		"addresses of nobody": {
			nil, []string{"--store", "redis://localhost", "--redis-cluster", "--redis-addresses", "localhost:7001,:secret@x:1"}, []string{"address 2 of 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"serve", "--policy", file, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, test.args...)
			code, _, stderr := command(test.environment, args...)
			if code == 0 {
				t.Error("code 0")
			}
			contain(t, "what it says", stderr, test.says...)
			if strings.Contains(stderr, "secret") {
				t.Errorf("it says a password:\n%s", stderr)
			}
		})
	}
}

// A Redis that wants TLS, a certificate of its clients, and a user: all of it told by the environment.
func TestRedisByTheEnvironment(t *testing.T) {
	files := issue(t)
	port, err := rig.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	redis, err := rig.StartRedis(t.Context(), t.Output(), "--tls-port", strconv.Itoa(port), "--tls-cert-file", files.certificate,
		"--tls-key-file", files.key, "--tls-ca-cert-file", files.ca, "--tls-auth-clients", "yes",
		"--user", "sluice", "on", ">a secret", "~sluice:*", "+@all")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	for name, value := range map[string]string{
		"CA": files.ca, "CERT": files.certificate, "KEY": files.key, "USERNAME": "sluice", "PASSWORD": "a secret", "SERVER_NAME": "127.0.0.1",
		"POOL_SIZE": "3", "READ_TIMEOUT": "1s",
	} {
		t.Setenv("SLUICE_REDIS_"+name, value)
	}
	service := start(t, rig.ServiceOptions{Store: "rediss://" + net.JoinHostPort("localhost", strconv.Itoa(port)) + "/0"})
	w := &worker{client: sluicev1.NewControlClient(connect(t, service.GRPC, insecure.NewCredentials())), id: 1}
	if got := w.ask(t, "slow", 2); got.GetUnits() != 2 {
		t.Errorf("%v; it printed:\n%s", got, service.Output())
	}
	if strings.Contains(service.Output(), "a secret") {
		t.Errorf("it prints a password:\n%s", service.Output())
	}
}
