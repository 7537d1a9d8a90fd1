package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"sluice/controlsvc/admin"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// client is how the commands for operators reach a service.
type client struct {
	process   Process
	flags     *pflag.FlagSet
	address   string
	tokenFile string
	tlsCA     string
	timeout   time.Duration
}

// maxAnswer bounds an answer of the service, in bytes: a full overlay and more.
const maxAnswer = 16 << 20

func (c *client) register(f *pflag.FlagSet) {
	c.flags = f
	f.StringVar(&c.address, "address", admin.DefaultAddress, "`HOST:PORT` of the service's admin API")
	f.StringVar(&c.tokenFile, "token-file", "", "`FILE` with the admin API's token; SLUICE_ADMIN_TOKEN_FILE, the service's own, will do as well")
	f.StringVar(&c.tlsCA, "tls-ca", "", "`FILE` with the authorities in PEM that vouch for the service, which then has to speak TLS")
	f.DurationVar(&c.timeout, "timeout", 5*time.Second, "how long to wait for an answer")
}

// call asks the service one thing. Its error says what to do, as far as that can be known.
func call[Request, Response any](
	ctx context.Context, c *client, method func(adminv1.AdminClient, context.Context, Request, ...grpc.CallOption) (Response, error), request Request,
) (response Response, err error) {
	if err := c.text(); err != nil {
		return response, err
	}
	transport := insecure.NewCredentials()
	if c.tlsCA != "" {
		if transport, err = c.tls(); err != nil {
			return response, failed(err)
		}
	}
	token, err := c.token()
	if err != nil {
		return response, failed(err)
	}
	connection, err := grpc.NewClient(c.address, grpc.WithTransportCredentials(transport), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return response, fmt.Errorf("--address (%s): %q: %w", variable("address"), c.address, err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	var from peer.Peer // of the call, where there was a connection for it
	response, err = method(adminv1.NewAdminClient(connection), ctx, request, grpc.Peer(&from))
	return response, failed(c.explain(err, token != "", from.Addr != nil))
}

// text says which arguments cannot be sent, for they are no text.
func (c *client) text() error {
	const want = "want UTF-8; a KEY as logs have it stands for any bytes"
	var all error
	for _, argument := range c.flags.Args() {
		if !utf8.ValidString(argument) {
			all = errors.Join(all, fmt.Errorf("argument %.400q: %s", argument, want))
		}
	}
	c.flags.VisitAll(func(f *pflag.Flag) {
		file := f.Name == "token-file" || f.Name == "tls-ca" // which may be called anything
		if value := f.Value.String(); !file && !utf8.ValidString(value) {
			all = errors.Join(all, fmt.Errorf("--%s (%s): %.400q: %s", f.Name, variable(f.Name), value, want))
		}
	})
	return all
}

// explain says what an operator can do about an error.
func (c *client) explain(err error, hasToken, connected bool) error {
	if err == nil {
		return nil
	}
	said := status.Convert(err)
	switch said.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		if connected {
			return fmt.Errorf("%s: %s", c.address, said.Message())
		}
		return fmt.Errorf("%s: %s (is it the admin address of a service that runs? --address says another)", c.address, said.Message())
	case codes.Unauthenticated:
		if hasToken {
			return fmt.Errorf("%s: the service does not take this token", c.address)
		}
		return fmt.Errorf("%s: the service asks for a token: give --token-file", c.address)
	case codes.Unimplemented:
		return fmt.Errorf("%s: the service there has no such admin API; is it the address that filters ask?", c.address)
	default:
		return errors.New(said.Message())
	}
}

func (c *client) token() (string, error) {
	file := c.tokenFile
	if file == "" {
		file, _ = c.process.LookupEnv(variable("admin-token-file"))
	}
	if file == "" {
		return "", nil
	}
	return admin.ReadToken(file)
}

func (c *client) tls() (credentials.TransportCredentials, error) {
	text, err := os.ReadFile(c.tlsCA)
	if err != nil {
		return nil, fmt.Errorf("reading the service's authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate; want the service's authorities in PEM", c.tlsCA)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}), nil
}

// output is the form that a command prints in.
type output string

const (
	asTable output = "table"
	asJSON  output = "json"
)

func (o *output) register(f *pflag.FlagSet) {
	f.StringVarP((*string)(o), "output", "o", string(asTable), "`FORM` to print in: table or json")
}

func (o output) check() error {
	if o != asTable && o != asJSON {
		return fmt.Errorf("--output (%s): %q: want table or json", variable("output"), string(o))
	}
	return nil
}

func printJSON(to io.Writer, what any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(what)
}

// keyFlags are the ways to name a key: as logs have it, or by the values that requests have.
type keyFlags struct {
	limit  string
	values []string
}

const keyHelp = "KEY is LIMIT/KEY, as the logs have it: the identity values as keys are written, hashed where the policy hashes\n" +
	"them. --limit and --identity name it by the values that requests have instead, one --identity for each of the limit's\n" +
	"identities, in their order."

func (k *keyFlags) register(f *pflag.FlagSet) {
	f.StringVar(&k.limit, "limit", "", "the limit's `NAME`, in the place of KEY")
	f.StringArrayVar(&k.values, "identity", nil, "an identity's `VALUE` as requests have it; may be given several times")
}

func (k *keyFlags) key(args []string) (*adminv1.Key, error) {
	switch {
	case len(args) == 1 && k.limit == "" && len(k.values) == 0:
		limit, key, _ := strings.Cut(args[0], "/")
		return &adminv1.Key{Limit: limit, Key: key}, nil
	case len(args) == 0 && k.limit != "":
		return &adminv1.Key{Limit: k.limit, Values: k.values}, nil
	}
	return nil, errors.New("want either KEY, or --limit with --identity")
}

// micros gives a duration of the wire.
func micros(n uint64) time.Duration { return time.Duration(min(n, 1<<62/1000)) * time.Microsecond }

// in writes when something will be.
func in(n uint64) string {
	if n == 0 {
		return "now"
	}
	return brief(n)
}

// brief writes a duration for people: three digits or so.
func brief(n uint64) string {
	d := micros(n)
	switch {
	case d >= 10*time.Minute:
		text := strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
		if hours, whole := strings.CutSuffix(text, "h0m"); whole {
			return hours + "h"
		}
		return text
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}

func seconds(n uint64) float64 { return micros(n).Seconds() }

// completeFlag has a flag's value completed to one of these.
func completeFlag(command *cobra.Command, flag string, values ...string) {
	if err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // only where there is no such flag
	}
}

// completeLimit has the value of --limit completed.
func (c *client) completeLimit(command *cobra.Command) {
	if err := command.RegisterFlagCompletionFunc("limit", c.names((*adminv1.ListNamesResponse).GetLimits, "")); err != nil {
		panic(err) // only where there is no such flag
	}
}

// names completes with the limits or the identities of the policy in force, where the service can be reached.
func (c *client) names(of func(*adminv1.ListNamesResponse) []string, suffix string) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if suffix != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		if len(args) > 0 && suffix != "" || fromEnvironment(command.Flags(), c.process.LookupEnv) != nil {
			return nil, directive
		}
		c.timeout = min(c.timeout, time.Second)
		response, err := call(command.Context(), c, adminv1.AdminClient.ListNames, &adminv1.ListNamesRequest{})
		if err != nil {
			return nil, directive
		}
		var found []string
		for _, name := range of(response) {
			if strings.HasPrefix(name, begun) {
				found = append(found, name+suffix)
			}
		}
		return found, directive
	}
}
