package admin_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"sluice/controlsvc/admin"
	"sluice/controlsvc/authority"
	"sluice/controlsvc/overlay"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/store/branch"
	"sluice/controlsvc/store/memory"
	"sluice/controlsvc/traffic"
	"sluice/shared/instant"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
	"sluice/shared/wire"
)

const file = `
domain: shop
hash_key: {env: SLUICE_TEST_HASH_KEY}
identities:
  tenant: {header: x-tenant-id}
  user: {header: x-user, hash: true}
  client: {address: {ipv6_prefix: 64}}
limits:
  - name: tenant
    key: [tenant]
    rates: [10/100s, 100/1000s]
    plans: {gold: {rates: [20/100s]}}
  - name: pair
    key: [tenant, client]
    rates: [5/m]
  - name: secret
    key: [user]
    rates: [5/m]
  - name: everybody
    key: []
    rates: [1000/s]
plans: {by: tenant}
`

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

type world struct {
	client    adminv1.AdminClient
	authority *authority.Authority
	log       *logged
	traffic   func(traffic.Query) traffic.Snapshot
}

// serve starts a server on a memory store whose clock stands still.
func serve(t *testing.T, token string, wrap func(authority.Store) authority.Store) *world {
	t.Helper()
	t.Setenv("SLUICE_TEST_HASH_KEY", strings.Repeat("k", 32))
	p, err := policyfile.Parse("policy.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	now := func() instant.Instant { return 1_764_000_000_000_000 }
	var store authority.Store = memory.New(now, 100)
	if wrap != nil {
		store = wrap(store)
	}
	w := &world{log: &logged{}, traffic: func(q traffic.Query) traffic.Snapshot { return traffic.Snapshot{Range: q.Range} }}
	logger := slog.New(slog.NewJSONHandler(w.log, nil))
	w.authority = authority.New(authority.Config{Store: store, Now: now, Random: func() uint64 { return 7 }})
	laid := overlay.New(overlay.Config{Store: store, Timeout: time.Second, Now: now, Logger: logger, InForce: w.authority.SetPolicy})
	laid.SetFile(p)
	server := admin.New(admin.Config{
		Authority: w.authority, Overlay: laid, Store: store, Now: now, After: time.After, Logger: logger, Token: token, CallTimeout: time.Second,
		Traffic: func(q traffic.Query) traffic.Snapshot { return w.traffic(q) },
		Status:  func() *adminv1.StatusResponse { return &adminv1.StatusResponse{Store: &adminv1.Store{Name: "memory"}} },
	})
	listener := bufconn.Listen(1 << 16)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	connection, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		connection.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w.client = adminv1.NewAdminClient(connection)
	return w
}

// spend asks for units as a worker does; ahead of them it asks for a lease.
func (w *world) spend(t *testing.T, worker uint64, limit, key string, units uint64) {
	t.Helper()
	response, err := w.authority.Sync(t.Context(), &wire.SyncRequest{
		WorkerID: worker, CallID: 1, Asks: []wire.Ask{{KeyRef: wire.KeyRef{Limit: limit, Key: key}, Want: int64(units), Min: 1, Waiting: uint32(units)}},
	})
	if err != nil || response.Results[0].Units != int64(units) {
		t.Fatalf("spending %d: %+v, %v", units, response, err)
	}
}

func wantCode(t *testing.T, what string, err error, code codes.Code, says string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), says) {
		t.Errorf("%s: %v; want %v, and that it says %q", what, err, code, says)
	}
}

// Nobody gets in without the token, in no way, and it is in no log.
func TestToken(t *testing.T) {
	const token = "a-secret-of-24-characters"
	w := serve(t, token, nil)
	for name, given := range map[string][]string{
		"none": nil, "another": {"Bearer a-secret-of-24-letters-or"}, "shorter": {"Bearer a-secret"}, "empty": {"Bearer "}, "bare": {token},
		"another scheme": {"Basic " + token}, "two": {"Bearer " + token, "Bearer " + token}, "spaced": {"Bearer  " + token},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{"authorization": given})
		_, err := w.client.Status(ctx, &adminv1.StatusRequest{})
		wantCode(t, name, err, codes.Unauthenticated, "token")
		_, err = w.client.Reset(ctx, &adminv1.ResetRequest{Key: &adminv1.Key{Limit: "tenant", Key: "acme"}})
		wantCode(t, name, err, codes.Unauthenticated, "token")
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	if _, err := w.client.Status(ctx, &adminv1.StatusRequest{}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	log := w.log.String()
	if !strings.Contains(log, `"msg":"refused for want of the admin token","audit":"admin","at":"admin API","count":1,"method":"/sluice.admin`) ||
		strings.Contains(log, "a-secret") {
		t.Errorf("the log:\n%s", log)
	}
}

// Every action is in the log, whether it worked or not, and what a caller gave is there only where the policy has it written so.
func TestAudit(t *testing.T) {
	const raw = "sk-live-mallory"
	w := serve(t, "", nil)
	key := func(limit, key string) *adminv1.Key { return &adminv1.Key{Limit: limit, Key: key} }
	rates := func(r ...*adminv1.Rate) []*adminv1.Rate { return r }
	set := func(r *adminv1.SetOverrideRequest) func() error {
		return func() error { _, err := w.client.SetOverride(t.Context(), r); return err }
	}
	list := func(r *adminv1.Listing) func() error {
		return func() error {
			_, err := w.client.SetListing(t.Context(), &adminv1.SetListingRequest{Listing: r, ExpiresIn: 60e6})
			return err
		}
	}
	for _, c := range []struct {
		do     func() error
		worked bool
		log    string // what follows the peer
	}{
		{
			set(&adminv1.SetOverrideRequest{Key: key("tenant", "acme"), Rates: rates(&adminv1.Rate{Units: 3, Window: 1e6}), ExpiresIn: 60e6}), true,
			`"limit":"tenant","key":"acme","rates":["3/s"],"expires_in":"1m0s"}`,
		},
		{
			set(&adminv1.SetOverrideRequest{Key: key("nope", "x"), Rates: rates(&adminv1.Rate{Units: 3, Window: 1e6}), ExpiresIn: 60e6}), false,
			`"why":"the policy has no limit of that name"}`,
		},
		{set(&adminv1.SetOverrideRequest{Key: key(raw, ""), Unlimited: true, ExpiresIn: 60e6}), false, `"why":"the policy has no limit of that name"}`},
		{
			set(&adminv1.SetOverrideRequest{Key: key("secret", raw), Unlimited: true, ExpiresIn: 60e6}), false,
			`"limit":"secret","why":"the policy hashes user, and what is given is no hash of it`,
		},
		{
			set(&adminv1.SetOverrideRequest{Key: key("tenant", "acme"), Rates: rates(&adminv1.Rate{Units: 1 << 62, Window: 1}), ExpiresIn: 60e6}), false,
			`"limit":"tenant","key":"acme","why":"the rate `,
		},
		{set(&adminv1.SetOverrideRequest{Key: key("tenant", "acme"), Shadow: true}), false, `"limit":"tenant","key":"acme","shadow":true,"why":"it expires after 0`},
		{list(&adminv1.Listing{Kind: 1, Identity: "usr", Value: raw}), false, `"why":"the policy has no identity of that name"}`},
		{list(&adminv1.Listing{Kind: 1, Identity: "client", Cidr: raw}), false, `"why":"want a range of addresses such as 10.0.0.0/8 or 2001:db8::1"}`},
		{list(&adminv1.Listing{Kind: 2, Identity: "tenant", Cidr: "10.0.0.0/8"}), false, `"identity":"tenant","cidr":"10.0.0.0/8","expires_in":"1m0s","why":"it would not`},
		{list(&adminv1.Listing{Kind: 2, Limit: "tenant", Identity: "tenant", Value: "acme"}), true, `"identity":"tenant","limit":"tenant","value":"acme","expires_in":"1m0s"}`},
		{func() error {
			_, err := w.client.RemoveOverride(t.Context(), &adminv1.RemoveOverrideRequest{Key: key("tenant", "nobody")})
			return err
		}, false, `"limit":"tenant","key":"nobody","why":"there is no such override"}`},
		{func() error {
			_, err := w.client.RemoveListing(t.Context(), &adminv1.RemoveListingRequest{Listing: &adminv1.Listing{Kind: 1, Identity: "tenant", Value: "x"}})
			return err
		}, false, `"action":"remove block"`},
		{func() error {
			_, err := w.client.Reset(t.Context(), &adminv1.ResetRequest{Key: key("tenant", "acme")})
			return err
		}, true, `"action":"reset"`},
	} {
		before := w.log.String()
		err := c.do()
		line := strings.TrimPrefix(w.log.String(), before)
		msg := `"msg":"admin action failed","audit":"admin","action":"`
		if c.worked {
			msg = `"msg":"admin action","audit":"admin","action":"`
		}
		if c.worked != (err == nil) || !strings.Contains(line, msg) || !strings.Contains(line, c.log) || strings.Count(line, `"audit":"admin"`) != 1 {
			t.Errorf("%v, and the log has %swant %s… %s", err, line, msg, c.log)
		}
	}
	if strings.Contains(w.log.String(), "mallory") {
		t.Errorf("the log:\n%s", w.log)
	}
}

func TestReadToken(t *testing.T) {
	for text, says := range map[string]string{
		"  0123456789abcdef\n": "", strings.Repeat("x", admin.MaxToken): "", "short": "has 5 bytes", "": "has 0 bytes",
		strings.Repeat("x", admin.MaxToken+1): "has 513 bytes", "0123456789 abcdef": "without spaces", "0123456789abcdé": "printable",
	} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := admin.ReadToken(path)
		switch {
		case says == "" && (err != nil || token != strings.TrimSpace(text)):
			t.Errorf("%q: %q, %v", text, token, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%q: %v; want one that says %q", text, err, says)
		}
	}
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false, "127.0.0.1": false,
	} {
		if got := admin.Loopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

func TestInspect(t *testing.T) {
	w := serve(t, "", nil)
	w.spend(t, 0xabc, "tenant", "acme", 7)
	key := &adminv1.Key{Limit: "tenant", Key: "acme"}
	got, err := w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if r := got.GetRates(); len(r) != 2 || r[0].GetUsed() != 7 || r[0].GetRemaining() != 3 || r[0].GetFreeIn() != 0 || r[1].GetUsed() != 7 || r[1].GetRemaining() != 93 {
		t.Errorf("after 7: %v", got)
	}
	w.spend(t, 0xabd, "tenant", "acme", 3)
	got, err = w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: &adminv1.Key{Limit: "tenant", Values: []string{"acme"}}})
	if err != nil || got.GetRates()[0].GetFreeIn() == 0 || got.GetRates()[0].GetFreeIn() > 101e6 || got.GetRates()[0].GetRemaining() != 0 {
		t.Errorf("after 10: %v, %v", got, err)
	}
	got, err = w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: key, Plan: "gold"})
	if err != nil || len(got.GetRates()) != 1 || got.GetRates()[0].GetRemaining() != 10 || got.GetPlan() != "gold" {
		t.Errorf("for the gold plan: %v, %v", got, err)
	}
	for what, test := range map[string]struct {
		request *adminv1.InspectRequest
		code    codes.Code
		says    string
	}{
		"nothing":         {&adminv1.InspectRequest{}, codes.NotFound, `no limit of that name: ""`},
		"no such limit":   {&adminv1.InspectRequest{Key: &adminv1.Key{Limit: "tenants", Key: "acme"}}, codes.NotFound, `no limit of that name: "tenants"`},
		"no such plan":    {&adminv1.InspectRequest{Key: key, Plan: "lead"}, codes.NotFound, `no plan "lead"`},
		"too few parts":   {&adminv1.InspectRequest{Key: &adminv1.Key{Limit: "pair", Key: "acme"}}, codes.InvalidArgument, "1 parts, and keys of limit pair have 2"},
		"too many values": {&adminv1.InspectRequest{Key: &adminv1.Key{Limit: "tenant", Values: []string{"a", "b"}}}, codes.InvalidArgument, "have 1: tenant"},
		"both": {
			&adminv1.InspectRequest{Key: &adminv1.Key{Limit: "tenant", Key: "a", Values: []string{"b"}}}, codes.InvalidArgument, "one of the two",
		},
		"not as keys are": {&adminv1.InspectRequest{Key: &adminv1.Key{Limit: "tenant", Key: "a b"}}, codes.InvalidArgument, "nothing that tenant is in a key"},
	} {
		_, err := w.client.Inspect(t.Context(), test.request)
		wantCode(t, what, err, test.code, test.says)
	}
}

// A worker that asked ahead of its requests holds a lease, which is told with its id.
func TestInspectTellsLeases(t *testing.T) {
	w := serve(t, "", nil)
	_, err := w.authority.Sync(t.Context(), &wire.SyncRequest{
		WorkerID: 0xfeed, CallID: 9, Asks: []wire.Ask{{KeyRef: wire.KeyRef{Limit: "everybody"}, Want: 200, Min: 1, Waiting: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: &adminv1.Key{Limit: "everybody"}})
	if err != nil || len(got.GetLeases()) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	lease := got.GetLeases()[0]
	if lease.GetWorkerId() != 0xfeed || lease.GetUnits() != got.GetRates()[0].GetUsed() || lease.GetUnits() < 2 || lease.GetEndIn() == 0 {
		t.Errorf("%v of %v", lease, got.GetRates())
	}
}

// Of a key that is asked for often it is a replica that holds a lease of the store's, and the workers hold parts of it.
func TestInspectTellsReplicas(t *testing.T) {
	w := serve(t, "", func(store authority.Store) authority.Store {
		now := func() instant.Instant { return 1_764_000_000_000_000 }
		return branch.New(branch.Config{Store: store, Now: now, Replica: 0xbee, HotAsks: 40})
	})
	for call := range uint64(15) {
		_, err := w.authority.Sync(t.Context(), &wire.SyncRequest{
			WorkerID: 0xfeed, CallID: call + 1, Asks: []wire.Ask{{KeyRef: wire.KeyRef{Limit: "everybody"}, Want: 10, Min: 1, Waiting: 1}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: &adminv1.Key{Limit: "everybody"}})
	if err != nil {
		t.Fatal(err)
	}
	var replicas, parts int
	for _, l := range got.GetLeases() {
		if l.GetReplicaId() == 0 {
			continue
		}
		replicas++
		if l.GetReplicaId() != 0xbee || l.GetWorkerId() != 0 {
			t.Errorf("%v", l)
		}
		for _, part := range l.GetParts() {
			parts++
			if part.GetWorkerId() != 0xfeed || part.GetReplicaId() != 0 || part.GetUnits() == 0 || part.GetEndIn() == 0 {
				t.Errorf("part %v", part)
			}
		}
	}
	if replicas == 0 || parts == 0 {
		t.Errorf("%d leases of the replica's, %d parts: %v", replicas, parts, got.GetLeases())
	}
}

// A reset key is whole again, in all of its windows and for all of its plans; others are as they were.
func TestReset(t *testing.T) {
	w := serve(t, "", nil)
	w.spend(t, 1, "tenant", "acme", 10)
	w.spend(t, 1, "tenant", "globex", 4)
	if _, err := w.client.Reset(t.Context(), &adminv1.ResetRequest{Key: &adminv1.Key{Limit: "tenant", Values: []string{"acme"}}}); err != nil {
		t.Fatal(err)
	}
	for key, used := range map[string]uint64{"acme": 0, "globex": 4} {
		got, err := w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: &adminv1.Key{Limit: "tenant", Key: key}})
		if err != nil || got.GetRates()[0].GetUsed() != used || got.GetRates()[1].GetUsed() != used {
			t.Errorf("%s: %v, %v; want %d used", key, got, err, used)
		}
	}
	w.spend(t, 1, "tenant", "acme", 10)
	_, err := w.client.Reset(t.Context(), &adminv1.ResetRequest{Key: &adminv1.Key{Limit: "none", Key: "x"}})
	wantCode(t, "no such limit", err, codes.NotFound, "none")
	if log := w.log.String(); !strings.Contains(log, `"action":"reset","peer":"bufconn","limit":"tenant","key":"acme"`) {
		t.Errorf("the log:\n%s", log)
	}
}

// Keys and values are written as the policy has them: what it hashes is in no answer, no log, and not in the store.
func TestHashed(t *testing.T) {
	var kept strings.Builder
	w := serve(t, "", func(s authority.Store) authority.Store { return &listening{s, &kept} })
	const secret = "mallory@example.com"
	override, err := w.client.SetOverride(t.Context(), &adminv1.SetOverrideRequest{
		Key: &adminv1.Key{Limit: "secret", Values: []string{secret}}, Unlimited: true, ExpiresIn: 60e6,
	})
	if err != nil || !strings.HasPrefix(override.GetEntry().GetKey().GetKey(), "##") {
		t.Fatalf("%v, %v", override, err)
	}
	listing := &adminv1.Listing{Kind: adminv1.ListKind_LIST_KIND_BLOCK, Identity: "user", Value: secret}
	if _, err := w.client.SetListing(t.Context(), &adminv1.SetListingRequest{Listing: listing, ExpiresIn: 60e6}); err != nil {
		t.Fatal(err)
	}
	all, err := w.client.ListOverlay(t.Context(), &adminv1.ListOverlayRequest{})
	if err != nil || len(all.GetEntries()) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for what, text := range map[string]string{"log": w.log.String(), "list": all.String(), "store": kept.String()} {
		if !strings.Contains(text, "##") || strings.Contains(text, "mallory") {
			t.Errorf("the %s:\n%s", what, text)
		}
	}
	removed, err := w.client.RemoveListing(t.Context(), &adminv1.RemoveListingRequest{Listing: listing})
	if err != nil || !strings.HasPrefix(removed.GetListing().GetValue(), "##") || strings.Contains(removed.String(), "mallory") {
		t.Errorf("%v, %v", removed, err)
	}
	if _, err := w.client.RemoveOverride(t.Context(), &adminv1.RemoveOverrideRequest{Key: &adminv1.Key{Limit: "secret", Values: []string{secret}}}); err != nil {
		t.Error(err)
	}
}

// A key that no request has is refused, and what may be a value that the policy hashes is in no answer, no log, and not in the
// store.
func TestNobodysKey(t *testing.T) {
	var kept strings.Builder
	w := serve(t, "", func(s authority.Store) authority.Store { return &listening{s, &kept} })
	const raw = "sk-live-mallory"
	hash := strings.Repeat("0a", 32)
	for key, says := range map[string]string{
		"secret/" + raw:                  "want ## and 64 digits of hex",
		"secret/##" + raw:                "want ## and 64 digits of hex",
		"secret/##" + hash[1:]:           "want ## and 64 digits of hex",
		"secret/" + hash:                 "want ## and 64 digits of hex",
		"secret/" + raw + "/x":           "2 parts",
		"tenant/%61":                     "nothing that tenant is in a key",
		"tenant/%zz":                     "nothing that tenant is in a key",
		"tenant/%7C":                     "nothing that tenant is in a key",
		"tenant/%7b":                     "nothing that tenant is in a key",
		"tenant/##" + hash:               "nothing that tenant is in a key",
		"pair/acme/10.0.0.01":            "nothing that client is in a key",
		"pair/acme/2001:db8::1":          "nothing that client is in a key", // its network is what the key has
		"pair/acme":                      "1 parts, and keys of limit pair have 2: tenant, client",
		"everybody/" + raw + "/anything": "2 parts, and keys of limit everybody have 0",
	} {
		of, rest, _ := strings.Cut(key, "/")
		k := &adminv1.Key{Limit: of, Key: rest}
		_, err := w.client.SetOverride(t.Context(), &adminv1.SetOverrideRequest{Key: k, Unlimited: true, ExpiresIn: 60e6})
		wantCode(t, "override set "+key, err, codes.InvalidArgument, says)
		_, err = w.client.RemoveOverride(t.Context(), &adminv1.RemoveOverrideRequest{Key: k})
		wantCode(t, "override rm "+key, err, codes.InvalidArgument, says)
		_, err = w.client.Reset(t.Context(), &adminv1.ResetRequest{Key: k})
		wantCode(t, "reset "+key, err, codes.InvalidArgument, says)
		_, err = w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: k})
		wantCode(t, "inspect "+key, err, codes.InvalidArgument, says)
		if strings.Contains(fmt.Sprint(err), "mallory") {
			t.Errorf("%s is told: %v", key, err)
		}
	}
	for _, l := range []*adminv1.Listing{
		{Kind: 1, Identity: "usr", Value: raw},
		{Kind: 1, Limit: "secrets", Identity: "user", Value: raw},
		{Kind: 1, Identity: "usr", Limit: "gone", Value: raw},
	} {
		_, err := w.client.SetListing(t.Context(), &adminv1.SetListingRequest{Listing: l, ExpiresIn: 60e6})
		wantCode(t, l.String(), err, codes.InvalidArgument, "the policy has no")
		_, err = w.client.RemoveListing(t.Context(), &adminv1.RemoveListingRequest{Listing: l})
		wantCode(t, l.String(), err, codes.InvalidArgument, "the policy has no")
	}
	for what, text := range map[string]string{"log": w.log.String(), "store": kept.String()} {
		if strings.Contains(text, "mallory") {
			t.Errorf("the %s:\n%s", what, text)
		}
	}
	// Keys that requests have are taken as logs have them, and a list takes a hash as it does the value.
	for _, k := range []*adminv1.Key{
		{Limit: "secret", Key: "##" + hash},
		{Limit: "tenant", Key: "%"},
		{Limit: "tenant", Key: "%7Bx%7D"},
		{Limit: "tenant", Key: "#" + hash},
		{Limit: "tenant", Key: "#,"},
		{Limit: "pair", Key: "acme/2001:db8::"},
		{Limit: "pair", Key: "acme/%2Frun%2Fx"},
	} {
		if _, err := w.client.SetOverride(t.Context(), &adminv1.SetOverrideRequest{Key: k, Unlimited: true, ExpiresIn: 60e6}); err != nil {
			t.Errorf("%v: %v", k, err)
		}
	}
	listing := &adminv1.Listing{Kind: 1, Identity: "user", Value: "##" + hash}
	set, err := w.client.SetListing(t.Context(), &adminv1.SetListingRequest{Listing: listing, ExpiresIn: 60e6})
	if err != nil || set.GetEntry().GetListing().GetValue() != "##"+hash {
		t.Errorf("a hash is blocked: %v, %v", set, err)
	}
	removed, err := w.client.RemoveListing(t.Context(), &adminv1.RemoveListingRequest{Listing: listing})
	if err != nil || removed.GetListing().GetValue() != "##"+hash {
		t.Errorf("and not any more: %v, %v", removed, err)
	}
}

// listening notes what is put into an overlay.
type listening struct {
	authority.Store

	kept *strings.Builder
}

func (l *listening) Overlay(ctx context.Context, e authority.Edit) (authority.Overlay, error) {
	l.kept.WriteString(e.Put.Name + " " + e.Put.Text + "\n")
	return l.Store.Overlay(ctx, e)
}

func TestOverridesAndLists(t *testing.T) {
	w := serve(t, "", nil)
	key := &adminv1.Key{Limit: "tenant", Key: "acme"}
	rate := []*adminv1.Rate{{Units: 50, Window: 100e6}}
	inspect := func() string {
		got, err := w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return got.String()
	}
	plain := inspect()
	w.spend(t, 1, "tenant", "acme", 8)
	set, err := w.client.SetOverride(t.Context(), &adminv1.SetOverrideRequest{Key: key, Rates: rate, ExpiresIn: 60e6})
	if err != nil || set.GetEntry().GetExpiresIn() != 60e6 {
		t.Fatalf("%v, %v", set, err)
	}
	// What is counted stays: 8 are used of 50 now.
	if got, err := w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: key}); err != nil || len(got.GetRates()) != 1 ||
		got.GetRates()[0].GetUsed() != 8 || got.GetRates()[0].GetRemaining() != 42 {
		t.Errorf("with the override: %v, %v", got, err)
	}
	if _, err := w.client.RemoveOverride(t.Context(), &adminv1.RemoveOverrideRequest{Key: key}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Reset(t.Context(), &adminv1.ResetRequest{Key: key}); err != nil {
		t.Fatal(err)
	}
	if got := inspect(); got != plain {
		t.Errorf("without the override:\n%s\nwant\n%s", got, plain)
	}
	_, err = w.client.RemoveOverride(t.Context(), &adminv1.RemoveOverrideRequest{Key: key})
	wantCode(t, "removed twice", err, codes.NotFound, "no such override")

	for what, test := range map[string]struct {
		request *adminv1.SetOverrideRequest
		code    codes.Code
		says    string
	}{
		"nothing said":  {&adminv1.SetOverrideRequest{Key: key, ExpiresIn: 60e6}, codes.InvalidArgument, "says nothing"},
		"no expiry":     {&adminv1.SetOverrideRequest{Key: key, Rates: rate}, codes.InvalidArgument, "expires"},
		"for ever":      {&adminv1.SetOverrideRequest{Key: key, Rates: rate, ExpiresIn: 1 << 63}, codes.InvalidArgument, "expires"},
		"rates or none": {&adminv1.SetOverrideRequest{Key: key, Rates: rate, Unlimited: true, ExpiresIn: 60e6}, codes.InvalidArgument, "exclude"},
		"a key of all":  {&adminv1.SetOverrideRequest{Key: &adminv1.Key{Limit: "everybody"}, Rates: rate, ExpiresIn: 60e6}, codes.InvalidArgument, "all requests together"},
		"a wild rate": {
			&adminv1.SetOverrideRequest{Key: key, Rates: []*adminv1.Rate{{Units: 1 << 62, Window: 1}}, ExpiresIn: 60e6}, codes.InvalidArgument, "out of range",
		},
		"a window of nothing": {
			&adminv1.SetOverrideRequest{Key: key, Rates: []*adminv1.Rate{{Units: 1}}, ExpiresIn: 60e6}, codes.InvalidArgument, "window",
		},
	} {
		_, err := w.client.SetOverride(t.Context(), test.request)
		wantCode(t, what, err, test.code, test.says)
	}
	for what, test := range map[string]struct {
		listing *adminv1.Listing
		says    string
	}{
		"no kind":        {&adminv1.Listing{Identity: "tenant", Value: "x"}, "want block or allow"},
		"nobody":         {&adminv1.Listing{Kind: 1, Identity: "tenant"}, "either a value or a range"},
		"both":           {&adminv1.Listing{Kind: 1, Identity: "client", Value: "x", Cidr: "10.0.0.0/8"}, "either a value or a range"},
		"no identity":    {&adminv1.Listing{Kind: 1, Identity: "gone", Value: "x"}, `no identity of that name: "gone"`},
		"no limit":       {&adminv1.Listing{Kind: 1, Limit: "gone", Identity: "tenant", Value: "x"}, `no limit of that name: "gone"`},
		"no range":       {&adminv1.Listing{Kind: 1, Identity: "client", Cidr: "ten"}, "want a range of addresses"},
		"bits too many":  {&adminv1.Listing{Kind: 1, Identity: "client", Cidr: "10.0.0.1/8"}, "did you mean 10.0.0.0/8"},
		"a range of all": {&adminv1.Listing{Kind: 1, Identity: "tenant", Cidr: "10.0.0.0/8"}, "no address as it is"},
	} {
		_, err := w.client.SetListing(t.Context(), &adminv1.SetListingRequest{Listing: test.listing, ExpiresIn: 60e6})
		wantCode(t, what, err, codes.InvalidArgument, test.says)
	}
}

// What top tells is what is known of the traffic, with since when it is.
func TestTop(t *testing.T) {
	w := serve(t, "", nil)
	most, least := traffic.Counts{Admitted: 70, Denied: 6, Left: 5, ShadowAdmitted: 4, ShadowDenied: 3, Near: 2, Fallback: 1}, traffic.Counts{Denied: 1}
	w.traffic = func(q traffic.Query) traffic.Snapshot {
		return traffic.Snapshot{
			Range: q.Range, At: 1000, Until: 998, Since: 100, Whole: 400, Ranked: 660.5, Total: most,
			Limits:   []traffic.Limit{{Name: "reports", Counts: least}, {Name: "tenant", Counts: most}},
			Keys:     []traffic.Key{{Limit: "tenant", Key: "acme", Counts: most, More: 8}},
			KeysMost: 9, Shadow: []traffic.Key{{Limit: "tried", Key: "globex", Counts: most, More: 10}}, ShadowMost: 11,
			Routes: []traffic.Route{{Limit: "tenant", Route: "/v1", Counts: least, More: 12}}, RoutesMost: 13,
		}
	}
	counts := &adminv1.Counts{Admitted: 70, Denied: 6, Left: 5, ShadowAdmitted: 4, ShadowDenied: 3, Near: 2, Fallback: 1}
	one := &adminv1.Counts{Denied: 1}
	for by, want := range map[adminv1.TopBy]*adminv1.TopResponse{
		adminv1.TopBy_TOP_BY_KEYS:   {OthersMost: 9, Rows: []*adminv1.TopRow{{Limit: "tenant", Name: "acme", Counts: counts, Missing: 8}}},
		adminv1.TopBy_TOP_BY_SHADOW: {OthersMost: 11, Rows: []*adminv1.TopRow{{Limit: "tried", Name: "globex", Counts: counts, Missing: 10}}},
		adminv1.TopBy_TOP_BY_ROUTES: {OthersMost: 13, Rows: []*adminv1.TopRow{{Limit: "tenant", Name: "/v1", Counts: one, Missing: 12}}},
		adminv1.TopBy_TOP_BY_LIMITS: {Rows: []*adminv1.TopRow{{Limit: "tenant", Counts: counts}, {Limit: "reports", Counts: one}}},
	} {
		want.Range, want.Total = "1h", counts
		want.Age, want.KnownFor, want.WholeFor, want.RankedFor = 2_000_000, 900_000_000, 600_000_000, 339_500_000
		got, err := w.client.Top(t.Context(), &adminv1.TopRequest{Range: "1h", By: by})
		if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%v: %v (-want +got):\n%s", by, err, diff)
		}
	}
}

// broken does not answer, or panics.
type broken struct{ authority.Store }

func (broken) Inspect(context.Context, authority.Key, int64) (authority.Inspection, error) {
	panic("a bug")
}
func (broken) Reset(context.Context, authority.Key) error { return authority.ErrUnavailable }
func (broken) Overlay(context.Context, authority.Edit) (authority.Overlay, error) {
	return authority.Overlay{}, authority.ErrUnavailable
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	w := serve(t, "", func(s authority.Store) authority.Store { return broken{s} })
	key := &adminv1.Key{Limit: "tenant", Key: "acme"}
	_, err := w.client.Reset(t.Context(), &adminv1.ResetRequest{Key: key})
	wantCode(t, "reset", err, codes.Unavailable, "the store did not answer")
	_, err = w.client.SetOverride(t.Context(), &adminv1.SetOverrideRequest{Key: key, Unlimited: true, ExpiresIn: 60e6})
	wantCode(t, "override", err, codes.Unavailable, "the store did not answer")
	_, err = w.client.Inspect(t.Context(), &adminv1.InspectRequest{Key: key})
	wantCode(t, "inspect that panics", err, codes.Internal, "internal error")
	if log := w.log.String(); !strings.Contains(log, `"admin action failed","audit":"admin","action":"reset"`) || !strings.Contains(log, "a bug") {
		t.Errorf("the log:\n%s", log)
	}
}
