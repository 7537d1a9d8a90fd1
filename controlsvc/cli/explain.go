package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/controlsvc/policyfile"
	"sluice/shared/policy"
)

// asked is a request as the command line describes it.
type asked struct {
	request    string
	headers    []string
	client     string
	attributes []string
}

func newExplain(p Process) *cobra.Command {
	var (
		file string
		a    asked
	)
	command := &cobra.Command{
		Use:   "explain --policy FILE --request 'METHOD PATH'",
		Short: "Say which limits a request is under, and why not the others",
		Long: "Explain reads a policy and says of each of its limits whether it binds the request, with which key, at which rates and\n" +
			"what the request costs; or why it does not. Nothing is counted, and no service is asked. Identities that the policy\n" +
			"hashes are shown as they stand in keys, hashed.\n\n" +
			"  sluice explain --policy policy.yaml --request 'POST /v1/reports?full=1' -H 'x-tenant-id: acme' --client 192.0.2.7\n\n" +
			"It exits with 0 whatever it finds, and with 1 where the policy is invalid.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return errors.New("--policy (SLUICE_POLICY): it is needed: the file with the policy")
			}
			r, err := a.parse()
			if err != nil {
				return err
			}
			loaded, err := policyfile.Load(file)
			if err != nil {
				return failed(err)
			}
			return failed(explain(p.Stdout, loaded, r))
		},
	}
	f := command.Flags()
	f.StringVar(&file, "policy", "", "`FILE` with the policy; needed")
	f.StringVar(&a.request, "request", "", "the request's `METHOD PATH`, or PATH alone for a GET; needed")
	f.StringArrayVarP(&a.headers, "header", "H", nil, "a `NAME: VALUE` of the request; may be given several times")
	f.StringVar(&a.client, "client", "192.0.2.1", "the `ADDRESS` of the peer, as the proxy sees it")
	f.StringArrayVar(&a.attributes, "attribute", nil,
		"a `PATH=VALUE` of the proxy's attributes, such as connection.uri_san_peer_certificate=spiffe://x; may be given several times")
	return command
}

// described is a request that was described.
type described struct {
	headers    map[string][]string
	attributes map[string]string
}

func (r *described) Header(name string) (value string, fields int) {
	values := r.headers[name]
	separator := ","
	if name == "cookie" {
		separator = "; "
	}
	return strings.Join(values, separator), len(values)
}

func (r *described) Property(path ...string) (string, bool) {
	value, ok := r.attributes[strings.Join(path, ".")]
	return value, ok
}

func (a *asked) parse() (*described, error) {
	method, path, both := strings.Cut(strings.TrimSpace(a.request), " ")
	if !both {
		method, path = "GET", method
	}
	path = strings.TrimSpace(path)
	connects := method == http.MethodConnect && path != "" // to an authority; it has no path
	if !strings.HasPrefix(path, "/") && !connects && (method != http.MethodOptions || path != "*") ||
		strings.Contains(path, " ") || !policy.ValidMethod(method) {
		return nil, fmt.Errorf("--request (SLUICE_REQUEST): %q: want METHOD PATH, such as 'POST /v1/reports'", a.request)
	}
	r := &described{
		headers:    map[string][]string{":method": {method}, ":path": {path}, ":scheme": {"https"}},
		attributes: make(map[string]string),
	}
	if connects {
		r.headers = map[string][]string{":method": {method}, ":authority": {path}}
	}
	if address, err := netip.ParseAddr(a.client); err == nil {
		r.attributes["source.address"] = net.JoinHostPort(address.String(), "40000")
	} else {
		return nil, fmt.Errorf("--client (SLUICE_CLIENT): %q: want an IP address", a.client)
	}
	for _, header := range a.headers {
		name, value, ok := strings.Cut(header, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "host" {
			name = ":authority"
		}
		if !ok || !policy.ValidHeader(name) {
			return nil, fmt.Errorf("--header (SLUICE_HEADER): %q: want NAME: VALUE", header)
		}
		r.headers[name] = append(r.headers[name], strings.TrimSpace(value))
	}
	for _, attribute := range a.attributes {
		name, value, ok := strings.Cut(attribute, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--attribute (SLUICE_ATTRIBUTE): %q: want PATH=VALUE", attribute)
		}
		r.attributes[name] = value
	}
	return r, nil
}

func explain(to io.Writer, p *policy.Policy, r policy.Request) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LIMIT\tBINDS\tKEY\tRATES\tCOST\tWHY")
	for _, e := range policy.NewBinder(p).Explain(r) {
		name := "(all limits)"
		if e.Limit >= 0 {
			name = p.Limits[e.Limit].Name
		}
		var rates, cost, why string
		binds, key := "yes", e.Key
		switch {
		case e.Why != "":
			binds, key, why = "no", "", e.Why
		case e.Listed == policy.Blocked:
			binds, why = "denies", "the request is on its block list"
		case e.Listed == policy.Allowed:
			binds, why = "no", "the request is on its allow list"
		default:
			words := make([]string, 0, len(e.Rule.Rates))
			for _, rate := range e.Rule.Rates {
				words = append(words, rate.String())
			}
			rates, cost, why = strings.Join(words, " "), strconv.FormatInt(e.Cost, 10), remarks(&e)
			if key == "" {
				key = "(one for all)"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", name, binds, key, rates, cost, why)
	}
	return table.Flush()
}

// remarks says what else is to be known of a limit that binds.
func remarks(e *policy.Explanation) string {
	var words []string
	if e.Rule.Plan != "" {
		words = append(words, "plan "+e.Rule.Plan)
	}
	if e.Rule.Shadow {
		words = append(words, "in shadow: never denied")
	}
	l := e.Rule.Limit
	words = append(words, "mode "+l.Mode.String(), l.Algorithm.String())
	return strings.Join(words, ", ")
}
