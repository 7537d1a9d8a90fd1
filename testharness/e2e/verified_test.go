package e2e

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/envoy"
	"sluice/testharness/rig"
)

// absent is what an identity reads as that a request does not have.
const absent = "(absent)"

// vouched is an identity that Envoy vouches for, in a policy's words, and what it reads as.
type vouched struct{ identity, want string }

// TestIdentitiesThatEnvoyVouchesFor: what a filter before this one has verified or set, and what TLS says of the caller, to
// the letter: each identity has a limit whose override is for the one key that it should make.
func TestIdentitiesThatEnvoyVouchesFor(t *testing.T) {
	serve(t, onRedis)
	cases := []vouched{
		{"jwt: {claim: sub, metadata: payload}", "acme"},
		{"jwt: {claim: letters, metadata: payload}", "abcdefgh"}, // as long as a number is
		{"jwt: {claim: accents, metadata: payload}", "Zoë/1"},
		{"jwt: {claim: level, metadata: payload}", "42"},
		{"jwt: {claim: minus, metadata: payload}", "-7"},
		{"jwt: {claim: share, metadata: payload}", "1.5"},
		{"jwt: {claim: beta, metadata: payload}", "true"},
		{"jwt: {claim: gone, metadata: payload}", "false"},
		{"jwt: {claim: realm_access.role, metadata: payload}", "admin"},
		{"jwt: {claim: realm_access.deep.er, metadata: payload}", "7"},
		{`jwt: {claim: ["https://shop.test/tenant"], metadata: payload}`, "t1"},
		{"jwt: {claim: nobody, metadata: payload}", absent},
		{"jwt: {claim: sub.sub, metadata: payload}", absent},
		{"jwt: {claim: list, metadata: payload}", absent},
		{"jwt: {claim: realm_access, metadata: payload}", absent},
		{"jwt: {claim: nothing, metadata: payload}", absent},
		{"jwt: {claim: sub, metadata: other}", absent},
		{"attribute: [filter_state, shop.tenant]", "acme"},
		{"attribute: [filter_state, envoy.network.upstream_server_name]", "acme.test"},
		{"attribute: [filter_state, nobody]", absent},
		{"attribute: [connection, uri_san_peer_certificate]", "spiffe://shop/cart"},
		{"attribute: [connection, dns_san_peer_certificate]", "cart.shop.test"},
		{"attribute: [connection, subject_peer_certificate]", "CN=cart"},
		{"attribute: [connection, requested_server_name]", "shop.test"},
		{"attribute: [connection, tls_version]", "TLSv1.3"},
		{"attribute: [connection, mtls]", "true"},
	}
	reloadPolicy(t, vouchedPolicy(cases))
	defer reloadPolicy(t, policy)
	keys := newIssuer(t)
	authority := newAuthority(t)
	e := startVouching(t, keys, authority)
	if err := rig.AwaitFilter(t.Context(), e.Listener(envoy.Listener), map[string]string{"x-probe": "1"}, `"vouched"`, recoverWithin); err != nil {
		t.Fatal(err)
	}
	client := authority.client(t, e.Listener("mtls"))
	// The second listener's filter may have the policy later than the first's.
	for deadline := time.Now().Add(recoverWithin); ; {
		if _, limited := get(t, client, "/", "x-probe", "1"); strings.Contains(limited, `"vouched"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v after the first listener the second is under no limit", recoverWithin)
		}
	}
	token := "Bearer " + keys.token(t, map[string]any{
		"sub": "acme", "letters": "abcdefgh", "accents": "Zoë/1", "level": 42, "minus": -7, "share": 1.5, "beta": true, "gone": false,
		"realm_access":             map[string]any{"role": "admin", "deep": map[string]any{"er": 7}},
		"https://shop.test/tenant": "t1", "nothing": nil, "list": []string{"a", "b"},
	})
	for i, c := range cases {
		path := "/" + strconv.Itoa(i)
		status, limited := get(t, client, path, "authorization", token, "x-state", "acme", "x-sni", "acme.test")
		want := ""
		if c.want != absent {
			want = fmt.Sprintf(`"limit-%d";q=2;w=3600`, i)
		}
		if status != http.StatusOK || limited != want {
			t.Errorf("%s: status %d under %q, want %q, which is for %q", c.identity, status, limited, want, c.want)
		}
		if !strings.Contains(c.identity, "connection") {
			if status, limited := get(t, client, path); status != http.StatusOK || limited != "" {
				t.Errorf("%s of a request without it: status %d under %q", c.identity, status, limited)
			}
		}
	}
	forged := "Bearer " + newIssuer(t).token(t, map[string]any{"sub": "acme"})
	if status, limited := get(t, client, "/0", "authorization", forged); status != http.StatusUnauthorized || limited != "" {
		t.Errorf("a forged token: status %d under %q", status, limited)
	}
}

// vouchedPolicy has a limit for each case, of 1 a hour, and of 2 for the key that is expected.
func vouchedPolicy(cases []vouched) string {
	var identities, limits strings.Builder
	for i, c := range cases {
		fmt.Fprintf(&identities, "  identity-%d: {%s}\n", i, c.identity)
		fmt.Fprintf(&limits, "  - {name: limit-%d, match: {path: {exact: /%d}}, key: [identity-%d], rates: [1/h], mode: strict, "+
			"overrides: [{key: [%q], rates: [2/h]}]}\n", i, i, i, c.want)
	}
	return "domain: e2e\nidentities:\n  probe: {header: x-probe}\n" + identities.String() +
		"limits:\n  - {name: vouched, key: [probe], rates: [1000000/s], mode: strict}\n" + limits.String()
}

// get gives an answer's status and the limits that it says it is under.
func get(t *testing.T, client *http.Client, path string, headers ...string) (status int, limited string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://shop.test"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode, response.Header.Get("ratelimit-policy")
}

// startVouching starts an Envoy with two listeners, the second with TLS for callers with a certificate of the authority's,
// and filters before this one that verify the issuer's tokens and keep headers in the request's state.
func startVouching(t *testing.T, keys *issuer, authority *authority) *rig.Envoy {
	t.Helper()
	text, err := envoy.Bootstrap{Control: fleet.control, Wasm: fleet.wasm, Plugin: plugin}.JSON()
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	var tree object
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	state := func(key, factory, header string) object {
		return object{
			"object_key": key, "factory_key": factory, "skip_if_empty": true,
			"format_string": object{"omit_empty_values": true, "text_format_source": object{"inline_string": "%REQ(" + header + ")%"}},
		}
	}
	before := []any{
		object{"name": "envoy.filters.http.jwt_authn", "typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
			"providers": object{"shop": object{
				"issuer": issuerName, "local_jwks": object{"inline_string": keys.jwks(t)}, "payload_in_metadata": "payload",
			}},
			"rules": []any{object{"match": object{"prefix": "/"}, "requires": object{"requires_any": object{"requirements": []any{
				object{"provider_name": "shop"}, object{"allow_missing": object{}},
			}}}}},
		}},
		object{"name": "envoy.filters.http.set_filter_state", "typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config",
			"on_request_headers": []any{
				state("shop.tenant", "envoy.string", "x-state"), state("envoy.network.upstream_server_name", "", "x-sni"),
			},
		}},
	}
	resources := tree["static_resources"].(object)
	plain := resources["listeners"].([]any)[0].(object)
	manager := plain["filter_chains"].([]any)[0].(object)["filters"].([]any)[0].(object)["typed_config"].(object)
	manager["http_filters"] = append(before, manager["http_filters"].([]any)...)
	manager["route_config"] = object{"virtual_hosts": []any{object{"name": "all", "domains": []string{"*"}, "routes": []any{
		object{"match": object{"prefix": "/"}, "direct_response": object{"status": http.StatusOK}},
	}}}}
	certificate, key := authority.issue(t, &x509.Certificate{DNSNames: []string{"shop.test"}})
	resources["listeners"] = []any{plain, object{
		"name": "mtls", "address": plain["address"],
		// What says which name was asked for; without, it is empty.
		"listener_filters": []any{object{"name": "envoy.filters.listener.tls_inspector", "typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector",
		}}},
		"filter_chains": []any{object{
			"filters": plain["filter_chains"].([]any)[0].(object)["filters"],
			"transport_socket": object{"name": "envoy.transport_sockets.tls", "typed_config": object{
				"@type":                      "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
				"require_client_certificate": true,
				"common_tls_context": object{
					"tls_params":         object{"tls_maximum_protocol_version": "TLSv1_3"},
					"tls_certificates":   []any{object{"certificate_chain": object{"inline_string": certificate}, "private_key": object{"inline_string": key}}},
					"validation_context": object{"trusted_ca": object{"inline_string": authority.text}},
				},
			}},
		}},
	}}
	bootstrap, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	e, err := rig.StartEnvoy(t.Context(), rig.EnvoyOptions{Binary: fleet.envoyBinary, Bootstrap: bootstrap, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

// issuer signs JSON Web Tokens.
type issuer struct{ key *rsa.PrivateKey }

const issuerName = "https://issuer.test"

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key}
}

func encoded(bytes []byte) string { return base64.RawURLEncoding.EncodeToString(bytes) }

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (s *issuer) jwks(t *testing.T) string {
	t.Helper()
	return string(asJSON(t, map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "alg": "RS256", "use": "sig", "n": encoded(s.key.N.Bytes()), "e": encoded(big.NewInt(int64(s.key.E)).Bytes()),
	}}}))
}

// token gives a token of those claims, valid for an hour.
func (s *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	claims["iss"], claims["exp"] = issuerName, time.Now().Add(time.Hour).Unix()
	signed := encoded(asJSON(t, map[string]any{"alg": "RS256"})) + "." + encoded(asJSON(t, claims))
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + encoded(signature)
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	text        string // PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	text, key := a.issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	pair, err := tls.X509KeyPair([]byte(text), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate: pair.Leaf, key: pair.PrivateKey.(*ecdsa.PrivateKey), text: text}
}

// issue gives a certificate and its key, in PEM; the authority's own where it has none yet.
func (a *authority) issue(t *testing.T, template *x509.Certificate) (certificate, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// client gives a client with a certificate, of two names of each kind, that finds shop.test at the address.
func (a *authority) client(t *testing.T, address string) *http.Client {
	t.Helper()
	certificate, key := a.issue(t, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "cart"},
		URIs:     []*url.URL{{Scheme: "spiffe", Host: "shop", Path: "/cart"}, {Scheme: "spiffe", Host: "shop", Path: "/second"}},
		DNSNames: []string{"cart.shop.test", "second.shop.test"},
	})
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
	}
	var dialer net.Dialer
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: answerWithin}
}
