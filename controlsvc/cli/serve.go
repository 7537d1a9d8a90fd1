package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"sluice/controlsvc/admin"
	"sluice/controlsvc/rpc"
)

// options are what serve is told by flags or the environment.
type options struct {
	policy, store   string
	grpc, http      string
	admin           string
	adminToken      string // the file with it
	callTimeout     time.Duration
	shutdownTimeout time.Duration
	maxInFlight     int
	memoryKeys      int
	logLevel        string
	denialLog       time.Duration
	tls             tlsFiles
	redis           redisOptions
}

func newServe(p Process) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "serve --policy FILE",
		Short: "Run the control service",
		Long: "Serve answers the filters over gRPC, out of a store that holds every key's window, until it is told to stop by SIGTERM\n" +
			"or SIGINT; a second one stops it at once. The policy file is read again when it changes, and at a SIGHUP; one that is\n" +
			"invalid changes nothing. On the HTTP address are the dashboard (/), /metrics, /healthz (the process lives)\n" +
			"and /readyz (it has a policy, and its store answers a ping in time, whether it takes writes or not).\n\n" +
			"The admin address is for inspect, reset, override, block, allow, top and status. Without a token it is served on the\n" +
			"loopback only, where everybody on the machine may use it; elsewhere serve refuses to start without one.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			level, err := o.check()
			if err != nil {
				return err
			}
			return failed(serve(c.Context(), p, o, level))
		},
	}
	f := command.Flags()
	f.StringVar(&o.policy, "policy", "", "`FILE` with the policy; needed")
	f.StringVar(&o.store, "store", "memory",
		"where the windows are: memory, for one replica, or redis://[USER:PASSWORD@]HOST:PORT/DB as a `URL`")
	f.StringVar(&o.grpc, "grpc", "127.0.0.1:9090", "`HOST:PORT` to answer filters on; port 0 takes a free one")
	f.StringVar(&o.http, "http", "127.0.0.1:9091", "`HOST:PORT` for the dashboard, metrics and health; port 0 takes a free one")
	f.StringVar(&o.admin, "admin", admin.DefaultAddress, "`HOST:PORT` of the admin API; port 0 takes a free one; off: none")
	f.StringVar(&o.adminToken, "admin-token-file", "",
		"`FILE` with the token that the admin API and the dashboard ask for; without, they are served on the loopback only")
	f.DurationVar(&o.callTimeout, "call-timeout", rpc.DefaultCallTimeout,
		"how long a call, and the store's part of it, may take, 1ms to 1m; keep it below the filters' timeout_ms")
	f.DurationVar(&o.shutdownTimeout, "shutdown-timeout", 10*time.Second, "how long calls under way are waited for when it stops, up to 10m")
	f.IntVar(&o.maxInFlight, "max-in-flight", rpc.DefaultMaxInFlight,
		"how many calls may be under way, 1 to 1000000; one more is refused with RESOURCE_EXHAUSTED")
	f.IntVar(&o.memoryKeys, "memory-keys", 1_000_000, "how many keys the memory store holds, 1 to 1000000000")
	f.StringVar(&o.logLevel, "log-level", "info", "what is logged, at least: debug, info, warn, error")
	f.DurationVar(&o.denialLog, "denial-log", time.Second,
		"how often a denial under a limit is logged at most, with how many there were, up to 1h; 0: never")
	f.StringVar(&o.tls.certificate, "grpc-tls-cert", "", "`FILE` with the certificate chain in PEM; gRPC is plain text without")
	f.StringVar(&o.tls.key, "grpc-tls-key", "", "`FILE` with the certificate's key in PEM")
	f.StringVar(&o.tls.clientCA, "grpc-tls-client-ca", "", "`FILE` with the authorities in PEM one of which has to vouch for every client")
	o.redis.register(f)
	return command
}

// check says, all at once, which options make no sense.
func (o *options) check() (level slog.Level, err error) {
	var all []error
	complain := func(flag, format string, args ...any) {
		all = append(all, fmt.Errorf("--%s (%s): "+format, append([]any{flag, variable(flag)}, args...)...))
	}
	if o.policy == "" {
		complain("policy", "it is needed: the file with the policy")
	}
	for _, address := range []struct{ flag, value string }{{"grpc", o.grpc}, {"http", o.http}} {
		if _, _, err := net.SplitHostPort(address.value); err != nil {
			complain(address.flag, "%q: want HOST:PORT", address.value)
		}
	}
	if o.admin != adminOff {
		if _, _, err := net.SplitHostPort(o.admin); err != nil {
			complain("admin", "%q: want HOST:PORT, or off", o.admin)
		} else if o.adminToken == "" && !admin.Loopback(o.admin) {
			complain("admin", "%s can be reached from elsewhere: want --admin-token-file with it, or an address of the loopback", o.admin)
		}
	}
	if o.callTimeout < time.Millisecond || o.callTimeout > time.Minute {
		complain("call-timeout", "%v: want 1ms to 1m", o.callTimeout)
	}
	if o.shutdownTimeout < 0 || o.shutdownTimeout > 10*time.Minute {
		complain("shutdown-timeout", "%v: want 0s to 10m", o.shutdownTimeout)
	}
	if o.maxInFlight < 1 || o.maxInFlight > 1_000_000 {
		complain("max-in-flight", "%d: want 1 to 1000000", o.maxInFlight)
	}
	if o.memoryKeys < 1 || o.memoryKeys > 1_000_000_000 {
		complain("memory-keys", "%d: want 1 to 1000000000", o.memoryKeys)
	}
	if level.UnmarshalText([]byte(o.logLevel)) != nil {
		complain("log-level", "%q: want debug, info, warn or error", o.logLevel)
	}
	if o.denialLog < 0 || o.denialLog > time.Hour {
		complain("denial-log", "%v: want 0s to 1h", o.denialLog)
	}
	if !knownStore(o.store) {
		complain("store", "%q: want memory, or redis://HOST:PORT/DB", withoutSecrets(o.store))
	}
	o.redis.check(o.store, complain)
	if err := o.tls.check(); err != nil {
		complain("grpc-tls-cert", "%v", err)
	}
	return level, errors.Join(all...)
}
