package overlay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/store/memory"
	"sluice/shared/instant"
	"sluice/shared/policy"
)

const file = `
domain: shop
identities:
  tenant: {header: x-tenant-id}
  client: {address: {}}
limits:
  - name: tenant
    key: [tenant]
    rates: [100/s, 1000/m]
    overrides:
      - {key: [globex], rates: [7/s], shadow: true}
  - name: login
    key: [client]
    rates: [5/m]
    block: [{identity: client, cidrs: [10.1.0.0/16, 10.3.0.0/16]}]
  - name: bucket
    key: [tenant]
    rates: [10/s]
    algorithm: token_bucket
`

func parse(t rapid.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policyfile.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// request is one with a tenant, from an address.
type request struct{ tenant, client string }

func (r request) Header(name string) (string, int) {
	if name == "x-tenant-id" && r.tenant != "" {
		return r.tenant, 1
	}
	return "", 0
}

func (r request) Property(path ...string) (string, bool) {
	return r.client + ":4000", strings.Join(path, ".") == "source.address" && r.client != ""
}

// rules gives what holds for a request: of each limit that binds it, or of each list that it is on.
func rules(p *policy.Policy, r request) []string {
	var all []string
	for _, b := range policy.NewBinder(p).Bind(r, nil) {
		name := "policy"
		if b.Limit >= 0 {
			name = p.Limits[b.Limit].Name
		}
		switch b.Listed {
		case policy.Blocked:
			all = append(all, name+" blocks")
		case policy.Allowed:
			all = append(all, name+" allows")
		default:
			text := name
			for _, rate := range b.Rule.Rates {
				text += " " + rate.String()
				if rate.Burst > 0 {
					text += fmt.Sprintf("+%d", rate.Burst)
				}
			}
			if b.Rule.Shadow {
				text += " shadow"
			}
			all = append(all, text)
		}
	}
	return all
}

func TestLay(t *testing.T) {
	acme, globex := request{"acme", "10.2.0.9"}, request{"globex", "10.2.0.9"}
	plain := []string{"tenant 100/s 1000/m", "login 5/m", "bucket 10/s"}
	for name, test := range map[string]struct {
		item Item
		of   request
		want []string
	}{
		"rates": {
			Item{Kind: Override, Limit: "tenant", Key: "acme", Rates: []string{"200/s"}}, acme, []string{"tenant 200/s", "login 5/m", "bucket 10/s"},
		},
		"rates of another key": {Item{Kind: Override, Limit: "tenant", Key: "initech", Rates: []string{"200/s"}}, acme, plain},
		"over the file's, what is not said stays": {
			Item{Kind: Override, Limit: "tenant", Key: "globex", Rates: []string{"9/s"}}, globex, []string{"tenant 9/s shadow", "login 5/m", "bucket 10/s"},
		},
		"enforced over the file's": {
			Item{Kind: Override, Limit: "tenant", Key: "globex", Enforce: true}, globex, []string{"tenant 7/s", "login 5/m", "bucket 10/s"},
		},
		"in shadow": {
			Item{Kind: Override, Limit: "tenant", Key: "acme", Shadow: true}, acme, []string{"tenant 100/s 1000/m shadow", "login 5/m", "bucket 10/s"},
		},
		"unlimited over the file's": {Item{Kind: Override, Limit: "tenant", Key: "globex", Unlimited: true}, globex, []string{"login 5/m", "bucket 10/s"}},
		"a burst": {
			Item{Kind: Override, Limit: "bucket", Key: "acme", Rates: []string{"20/s"}, Burst: 50}, acme, []string{"tenant 100/s 1000/m", "login 5/m", "bucket 20/s+50"},
		},
		"a block":                {Item{Kind: Block, Identity: "tenant", Value: "acme"}, acme, []string{"policy blocks"}},
		"a block of another":     {Item{Kind: Block, Identity: "tenant", Value: "acm"}, acme, plain},
		"a block of a range":     {Item{Kind: Block, Identity: "client", Range: "10.2.0.0/24"}, acme, []string{"policy blocks"}},
		"a block of a limit":     {Item{Kind: Block, Limit: "login", Identity: "client", Range: "10.2.0.0/16"}, acme, []string{"login blocks"}},
		"a range within another": {Item{Kind: Block, Limit: "login", Identity: "client", Range: "10.0.0.0/8"}, acme, []string{"login blocks"}},
		"an allow":               {Item{Kind: Allow, Identity: "tenant", Value: "acme"}, acme, []string{"policy allows"}},
		"an allow of a limit": {
			Item{Kind: Allow, Limit: "tenant", Identity: "tenant", Value: "acme"}, acme, []string{"tenant allows", "login 5/m", "bucket 10/s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := parse(t, file)
			before := rules(base, test.of)
			p, why := Lay(base, []Item{test.item})
			if why[0] != nil {
				t.Fatalf("it is not in force: %v", why[0])
			}
			if diff := cmp.Diff(test.want, rules(p, test.of)); diff != "" {
				t.Errorf("what holds (-want +got):\n%s", diff)
			}
			if p.Version == base.Version || p.Version == "" {
				t.Errorf("version %q, and the file's is %q", p.Version, base.Version)
			}
			if diff := cmp.Diff(before, rules(base, test.of)); diff != "" {
				t.Errorf("the file's policy was written to (-before +after):\n%s", diff)
			}
		})
	}
}

// A limit that is in shadow is enforced for one key.
func TestLayEnforces(t *testing.T) {
	base := parse(t, strings.Replace(file, "name: bucket", "name: bucket\n    shadow: true", 1))
	p, why := Lay(base, []Item{{Kind: Override, Limit: "bucket", Key: "acme", Enforce: true}})
	if why[0] != nil {
		t.Fatal(why[0])
	}
	for tenant, want := range map[string]string{"acme": "bucket 10/s", "initech": "bucket 10/s shadow"} {
		if got := rules(p, request{tenant: tenant}); !slices.Contains(got, want) {
			t.Errorf("%s: %v; want %q", tenant, got, want)
		}
	}
}

func TestLayRefuses(t *testing.T) {
	good := Item{Kind: Override, Limit: "tenant", Key: "acme", Rates: []string{"200/s"}}
	for says, item := range map[string]Item{
		`no limit "gone"`:       {Kind: Override, Limit: "gone", Key: "acme", Unlimited: true},
		`no limit ""`:           {Kind: Override, Key: "acme", Unlimited: true},
		`no identity "nobody"`:  {Kind: Block, Identity: "nobody", Value: "x"},
		"no address as it is":   {Kind: Block, Identity: "tenant", Range: "10.0.0.0/8"},
		"no range of addresses": {Kind: Block, Identity: "client", Range: "10.0.0.0/99"},
		"other bits are 0":      {Kind: Block, Identity: "client", Range: "10.0.0.1/8"},
		"different windows": {
			Kind: Override, Limit: "tenant", Key: "x", Rates: []string{"1/2s", "1/3s", "1/4s", "1/5s", "1/6s", "1/7s", "1/8s"},
		},
		"which only token_bucket has": {Kind: Override, Limit: "tenant", Key: "x", Rates: []string{"1/s"}, Burst: 5},
		"want one of the two":         {Kind: Override, Limit: "tenant", Key: "x", Shadow: true, Enforce: true},
		"rate":                        {Kind: Override, Limit: "tenant", Key: "x", Rates: []string{"fast"}},
		`"%61" is nothing that`:       {Kind: Override, Limit: "tenant", Key: "%61", Unlimited: true},
		"nothing that tenant is":      {Kind: Block, Identity: "tenant", Value: "a/b"},
		"no kind":                     {Kind: "mute", Identity: "tenant", Value: "x"},
	} {
		base := parse(t, file)
		p, why := Lay(base, []Item{item, good})
		if why[0] == nil || !strings.Contains(why[0].Error(), says) || why[1] != nil {
			t.Errorf("%+v: %v, %v; want one that says %q, and the other in force", item, why[0], why[1], says)
		}
		alone, _ := Lay(base, []Item{good})
		if p.Version != alone.Version {
			t.Errorf("%+v: what is not in force changes the policy", item)
		}
		if p, _ := Lay(base, []Item{item}); p != base {
			t.Errorf("%+v: nothing is in force, and the policy is another one", item)
		}
	}
}

// Ranges stay sorted and disjoint, and hold what any of them held.
func TestWithPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all, laid []netip.Prefix
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			address := netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 15).Draw(t, "b")), byte(rapid.IntRange(0, 3).Draw(t, "c") << 6), 0})
			p := netip.PrefixFrom(address, rapid.SampledFrom([]int{8, 12, 14, 16, 18, 24}).Draw(t, "bits")).Masked()
			all, laid = append(all, p), withPrefix(laid, p)
		}
		for i := range laid[:max(0, len(laid)-1)] {
			if laid[i].Overlaps(laid[i+1]) || laid[i].Addr().Compare(laid[i+1].Addr()) >= 0 {
				t.Fatalf("%v and %v of %v", laid[i], laid[i+1], laid)
			}
		}
		asked := netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 16).Draw(t, "askB")), byte(rapid.IntRange(0, 255).Draw(t, "askC")), 1})
		holds := func(list []netip.Prefix) bool {
			return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(asked) })
		}
		if holds(all) != holds(laid) {
			t.Fatalf("%v is in %v: %v; in %v: %v", asked, all, holds(all), laid, holds(laid))
		}
	})
}

// away is a store that can be made not to answer.
type away struct {
	authority.Store

	gone  atomic.Bool
	empty atomic.Bool // it has lost everything
	edits atomic.Int64
}

func (a *away) Overlay(ctx context.Context, e authority.Edit) (authority.Overlay, error) {
	a.edits.Add(1)
	if a.gone.Load() {
		return authority.Overlay{}, fmt.Errorf("gone: %w", authority.ErrUnavailable)
	}
	if a.empty.Load() {
		return authority.Overlay{}, nil
	}
	return a.Store.Overlay(ctx, e)
}

// world is some replicas on one store, at a clock that stands still until it is moved.
type world struct {
	now   atomic.Int64
	store *away
}

func newWorld() *world {
	w := &world{}
	w.now.Store(1_764_000_000_000_000)
	w.store = &away{Store: memory.New(w.read, 100)}
	return w
}

func (w *world) read() instant.Instant   { return instant.Instant(w.now.Load()) }
func (w *world) advance(d time.Duration) { w.now.Add(d.Microseconds()) }

// replica gives an overlay with the file in force, and counts how often another policy was put in force.
func (w *world) replica(t *testing.T, text string) (*Overlay, *int) {
	t.Helper()
	changes := new(int)
	o := New(Config{
		Store: w.store, Timeout: time.Second, Now: w.read, Logger: slog.New(slog.DiscardHandler), InForce: func(*policy.Policy) { *changes++ },
	})
	o.SetFile(parse(t, text))
	w.poll(t, o)
	return o, changes
}

func (w *world) poll(t *testing.T, all ...*Overlay) {
	t.Helper()
	for _, o := range all {
		if err := o.Poll(t.Context()); err != nil && !w.store.gone.Load() {
			t.Fatal(err)
		}
	}
}

func isBlocked(o *Overlay, tenant string) bool {
	return slices.Equal(rules(o.State().InForce, request{tenant: tenant}), []string{"policy blocks"})
}

func block(tenant string) Item { return Item{Kind: Block, Identity: "tenant", Value: tenant} }

// What is set at one replica is in force at the others with their next poll, and at one that starts later; it ends for all when
// it expires or is removed. While nothing changes, nothing is put in force.
func TestReplicas(t *testing.T) {
	w := newWorld()
	first, firstChanges := w.replica(t, file)
	second, changes := w.replica(t, file)
	plain := second.State().InForce.Version
	if err := first.Put(t.Context(), block("acme"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := first.Put(t.Context(), block("globex"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if !isBlocked(first, "acme") || isBlocked(second, "acme") {
		t.Errorf("before the poll: blocked at the first %v, at the second %v", isBlocked(first, "acme"), isBlocked(second, "acme"))
	}
	for range 3 {
		w.poll(t, first, second)
	}
	third, _ := w.replica(t, file)
	for name, o := range map[string]*Overlay{"first": first, "second": second, "one that starts": third} {
		if !isBlocked(o, "acme") || !isBlocked(o, "globex") || o.State().InForce.Version != first.State().InForce.Version {
			t.Errorf("%s: %+v", name, o.State().Entries)
		}
	}
	if *firstChanges != 3 || *changes != 2 {
		t.Errorf("%d and %d policies were put in force; want 3, the file's and two of Put, and 2", *firstChanges, *changes)
	}
	w.advance(time.Minute - time.Microsecond)
	if w.poll(t, second); !isBlocked(second, "acme") {
		t.Error("it is over before it expires")
	}
	w.advance(time.Microsecond)
	w.poll(t, first, second)
	if isBlocked(second, "acme") || !isBlocked(second, "globex") {
		t.Errorf("after one has expired: %+v", second.State().Entries)
	}
	if there, err := second.Remove(t.Context(), block("globex").clone().Name()); !there || err != nil {
		t.Errorf("removed: %v, %v", there, err)
	}
	if there, err := second.Remove(t.Context(), block("globex").clone().Name()); there || err != nil {
		t.Errorf("removed twice: %v, %v", there, err)
	}
	if w.poll(t, first); first.State().InForce.Version != plain || len(first.State().Entries) > 0 {
		t.Errorf("after all: version %s, the file's is %s; %+v", first.State().InForce.Version, plain, first.State().Entries)
	}
}

func (i Item) clone() *Item { return &i }

// A file that is read again keeps the overlay; what it has no limit for is kept, and not in force until it has.
func TestReload(t *testing.T) {
	w := newWorld()
	o, _ := w.replica(t, file)
	raise := Item{Kind: Override, Limit: "login", Key: "10.2.0.9", Rates: []string{"50/m"}}
	for _, item := range []Item{block("acme"), raise} {
		if err := o.Put(t.Context(), item, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	o.SetFile(parse(t, strings.Replace(file, "name: login", "name: signin", 1)))
	if !isBlocked(o, "acme") {
		t.Error("a new file undoes a block")
	}
	why := map[Kind]error{}
	for _, e := range o.State().Entries {
		why[e.Kind] = e.WhyNot
	}
	if why[Override] == nil || !strings.Contains(why[Override].Error(), `no limit "login"`) || why[Block] != nil {
		t.Errorf("an override of a limit that has gone: %v", why)
	}
	o.SetFile(parse(t, strings.Replace(file, "100/s, 1000/m", "300/s", 1)))
	want := []string{"tenant 300/s", "login 50/m", "bucket 10/s"}
	if diff := cmp.Diff(want, rules(o.State().InForce, request{"initech", "10.2.0.9"})); diff != "" {
		t.Errorf("with the limit again (-want +got):\n%s", diff)
	}
	if err := o.Put(t.Context(), Item{Kind: Override, Limit: "gone", Key: "x", Unlimited: true}, time.Hour); !errors.Is(err, ErrRefused) {
		t.Errorf("an override of no limit is set: %v", err)
	}
}

// While the store is away the last overlay holds, but for what expires; then the store's holds.
func TestStoreAway(t *testing.T) {
	w := newWorld()
	o, _ := w.replica(t, file)
	other, _ := w.replica(t, file)
	if err := errors.Join(o.Put(t.Context(), block("acme"), time.Hour), o.Put(t.Context(), block("globex"), time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.store.gone.Store(true)
	if err := o.Poll(t.Context()); !errors.Is(err, authority.ErrUnavailable) {
		t.Errorf("a poll without a store: %v", err)
	}
	if err := o.Put(t.Context(), block("initech"), time.Hour); !errors.Is(err, authority.ErrUnavailable) {
		t.Errorf("set without a store: %v", err)
	}
	health := func(blocks int, age time.Duration, failures int64) {
		t.Helper()
		want := Health{Items: map[Kind]int{Override: 0, Block: blocks, Allow: 0}, Age: age, Failures: failures}
		if diff := cmp.Diff(want, o.Health()); diff != "" {
			t.Errorf("health (-want +got):\n%s", diff)
		}
	}
	health(2, 0, 2)
	if o.State().Problem == nil || !isBlocked(o, "acme") || !isBlocked(o, "globex") || isBlocked(o, "initech") {
		t.Errorf("without a store: %+v", o.State())
	}
	w.advance(time.Minute)
	w.poll(t, o)
	health(1, time.Minute, 3)
	if !isBlocked(o, "acme") || isBlocked(o, "globex") {
		t.Errorf("what has expired without a store: %+v", o.State().Entries)
	}
	o.SetFile(parse(t, strings.Replace(file, "100/s", "101/s", 1)))
	if !isBlocked(o, "acme") {
		t.Error("a new file undoes a block without a store")
	}
	w.store.gone.Store(false)
	if _, err := other.Remove(t.Context(), block("acme").clone().Name()); err != nil {
		t.Fatal(err)
	}
	if w.poll(t, o); o.State().Problem != nil || isBlocked(o, "acme") || len(o.State().Entries) > 0 {
		t.Errorf("with the store again: %+v", o.State())
	}
	health(0, 0, 3)
}

// A store that comes back without what it held has nothing to say, and nothing is in force.
func TestStoreThatLost(t *testing.T) {
	for _, expired := range []bool{false, true} {
		w := newWorld()
		o, _ := w.replica(t, file)
		if err := errors.Join(o.Put(t.Context(), block("acme"), time.Hour), o.Put(t.Context(), block("globex"), time.Minute)); err != nil {
			t.Fatal(err)
		}
		w.store.gone.Store(true)
		if expired {
			w.advance(2 * time.Minute)
		}
		w.poll(t, o)
		w.store.gone.Store(false)
		w.store.empty.Store(true)
		if w.poll(t, o); isBlocked(o, "acme") || len(o.State().Entries) > 0 {
			t.Errorf("something had expired before: %v; what is still in force: %+v", expired, o.State().Entries)
		}
	}
}

// What has expired by a replica's clock and not by the store's, whose clock is behind, is the store's to say; all else stays.
func TestStoreWithAClockBehind(t *testing.T) {
	w := newWorld()
	stands := w.read()
	w.store.Store = memory.New(func() instant.Instant { return stands }, 10)
	o, _ := w.replica(t, file)
	if err := errors.Join(o.Put(t.Context(), block("acme"), time.Hour), o.Put(t.Context(), block("globex"), time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.store.gone.Store(true)
	w.advance(2 * time.Minute)
	w.poll(t, o)
	w.store.gone.Store(false)
	if w.poll(t, o); !isBlocked(o, "acme") || !isBlocked(o, "globex") {
		t.Errorf("with the store again: %+v", o.State().Entries)
	}
}

// What another build wrote is kept and said, and does no harm.
func TestStrangeEntries(t *testing.T) {
	w := newWorld()
	for name, text := range map[string]string{"override/tenant/acme": "{", "mute//x": `{"kind":"mute"}`, "\xff": ""} {
		_, err := w.store.Overlay(t.Context(), authority.Edit{Domain: "shop", Put: authority.Entry{Name: name, Text: text, ExpiresIn: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
	}
	o, _ := w.replica(t, file)
	if err := o.Put(t.Context(), block("acme"), time.Hour); err != nil || !isBlocked(o, "acme") {
		t.Errorf("beside them: %v", err)
	}
	strange := 0
	for _, e := range o.State().Entries {
		if e.WhyNot != nil {
			strange++
		}
	}
	if strange != 3 {
		t.Errorf("%d of 3 are said not to be in force", strange)
	}
}

// Why what is in force changes is in the log of every replica: set or removed here or elsewhere, or expired.
func TestChangesAreLogged(t *testing.T) {
	w := newWorld()
	var text [2]bytes.Buffer
	var o [2]*Overlay
	for i := range o {
		o[i] = New(Config{
			Store: w.store, Timeout: time.Second, Now: w.read, Logger: slog.New(slog.NewJSONHandler(&text[i], nil)), InForce: func(*policy.Policy) {},
		})
		o[i].SetFile(parse(t, file))
	}
	logs := func(what string, want ...string) {
		t.Helper()
		w.poll(t, o[:]...)
		for i := range o {
			if got := text[i].String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"level":`+want[i]) {
				t.Errorf("%s: replica %d logs %s, want %s", what, i, got, want[i])
			}
			text[i].Reset()
		}
	}
	if err := o[0].Put(t.Context(), block("acme"), time.Minute); err != nil {
		t.Fatal(err)
	}
	const line = `"msg":"what operators set has changed","audit":"overlay","item":`
	const item = `"INFO",` + line + `"block//tenant/acme/","why":`
	logs("set", item+`"set here","expires_in":"1m0s"`, item+`"set at another replica, or before this one began","expires_in":"1m0s"`)
	w.advance(time.Minute)
	logs("expired", item+`"expired"`, item+`"expired"`)
	if err := o[1].Put(t.Context(), block("acme"), time.Minute); err != nil {
		t.Fatal(err)
	}
	logs("set again", item+`"set at another`, item+`"set here"`)
	if _, err := o[0].Remove(t.Context(), (&Item{Kind: Block, Identity: "tenant", Value: "acme"}).Name()); err != nil {
		t.Fatal(err)
	}
	logs("removed", item+`"removed here"`, item+`"removed at another replica, or lost with the store"`)
	for tenant, ttl := range map[string]time.Duration{"acme": time.Hour, "globex": time.Minute} {
		if err := o[0].Put(t.Context(), block(tenant), ttl); err != nil {
			t.Fatal(err)
		}
		w.poll(t, o[1])
	}
	text[0].Reset()
	text[1].Reset()
	w.store.gone.Store(true)
	w.advance(2 * time.Minute)
	expired := strings.Replace(item, "acme", "globex", 1) + `"expired"`
	logs("expired while the store is away", expired, expired)
	w.store.gone.Store(false)
	kept := w.store.Store
	if _, err := kept.Overlay(t.Context(), authority.Edit{Domain: "shop"}); err != nil { // which forgets what has expired
		t.Fatal(err)
	}
	w.store.Store = memory.New(w.read, 10)
	lost := strings.Replace(item, "INFO", "WARN", 1) + `"lost with the store: nobody removed it","expires_in":"58m0s"`
	logs("lost by a store that is empty now", lost, lost)
	w.advance(time.Second)
	if err := o[0].Put(t.Context(), block("initech"), time.Minute); err != nil {
		t.Fatal(err)
	}
	w.poll(t, o[1])
	text[0].Reset()
	text[1].Reset()
	w.store.Store = kept
	w.poll(t, o[:]...)
	for i := range text {
		for item, why := range map[string]string{"acme": "back with an earlier state of the store", "initech": "lost with the store: nobody removed it"} {
			if want := `"WARN",` + line + `"block//tenant/` + item + `/","why":"` + why + `"`; !strings.Contains(text[i].String(), want) {
				t.Errorf("the store goes back: replica %d logs %s, want %s", i, text[i].String(), want)
			}
		}
	}
}
