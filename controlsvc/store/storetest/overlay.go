package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
)

func (h Harness) edit(t *testing.T, e authority.Edit) authority.Overlay {
	t.Helper()
	if e.Domain == "" {
		e.Domain = "shop"
	}
	out, err := h.Store.Overlay(context.Background(), e)
	if err != nil {
		t.Fatalf("overlay %+v: %v", e, err)
	}
	return out
}

// named gives the entries' names and texts.
func named(o authority.Overlay) []string {
	var names []string
	for _, e := range o.Entries {
		names = append(names, e.Name+"="+e.Text)
	}
	return names
}

func put(name, text string, expires time.Duration) authority.Edit {
	return authority.Edit{Put: authority.Entry{Name: name, Text: text, ExpiresIn: expires}}
}

// testOverlay: what is put is there, for everybody who asks, until it is removed; each change has another revision, and who knows
// that is not told again.
func testOverlay(t *testing.T, h Harness) {
	t.Helper()
	seen := map[uint64]bool{}
	check := func(what string, got authority.Overlay, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, named(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if seen[got.Revision] {
			t.Errorf("%s: revision %d was there before", what, got.Revision)
		}
		seen[got.Revision] = true
	}
	check("nothing", h.edit(t, authority.Edit{}))
	hostile := "b\x00 {}\r\n\xff*"
	check("one", h.edit(t, put("a", "1", time.Hour)), "a=1")
	check("two", h.edit(t, put(hostile, "", time.Hour)), "a=1", hostile+"=")
	check("one anew", h.edit(t, put("a", hostile, time.Minute)), "a="+hostile, hostile+"=")
	both := h.edit(t, authority.Edit{Remove: hostile, Put: authority.Entry{Name: "c", Text: "3", ExpiresIn: time.Hour}})
	check("one for the other", both, "a="+hostile, "c=3")
	if left := both.Entries[0].ExpiresIn; !both.Removed || left > time.Minute || left < time.Minute-30*sec {
		t.Errorf("removed %v, and a is left for %v of a minute", both.Removed, left)
	}
	if got := h.edit(t, authority.Edit{Known: both.Revision}); got.Revision != both.Revision || len(got.Entries) > 0 {
		t.Errorf("who knows revision %d is told %+v", both.Revision, got)
	}
	if got := h.edit(t, authority.Edit{Remove: "nobody", Known: both.Revision}); got.Removed || got.Revision != both.Revision {
		t.Errorf("removing what is not there: %+v", got)
	}
	if got := h.edit(t, authority.Edit{Domain: "}"}); got.Revision != 0 || len(got.Entries) > 0 {
		t.Errorf("another domain: %+v", got)
	}
	check("one removed", h.edit(t, authority.Edit{Remove: "c"}), "a="+hostile)
	check("all removed", h.edit(t, authority.Edit{Remove: "a"}))
	check("one again", h.edit(t, put("a", "1", time.Hour)), "a=1")
	testOverlayWrong(t, h)
	if h.exact() { // the same scripts on a real clock; to fill an overlay takes a while
		testOverlayExpires(t, h)
		testOverlayFull(t, h)
	}
}

// testOverlayExpires: by the store's clock, and that is a change.
func testOverlayExpires(t *testing.T, h Harness) {
	t.Helper()
	last := h.edit(t, put("soon", "s", 10*sec))
	h.Advance(10*sec - micro)
	if got := h.edit(t, authority.Edit{Known: last.Revision}); got.Revision != last.Revision {
		t.Errorf("a microsecond before: %+v", got)
	}
	h.Advance(micro)
	got := h.edit(t, authority.Edit{Known: last.Revision})
	if got.Revision == last.Revision || len(got.Entries) != 1 || got.Entries[0].Name != "a" {
		t.Errorf("when it expires: %+v", got)
	}
	h.Advance(2 * time.Hour)
	if got := h.edit(t, authority.Edit{Known: got.Revision}); len(got.Entries) > 0 {
		t.Errorf("when all has expired: %+v", got)
	}
}

// testOverlayFull: there is room for so many, and one more changes nothing.
func testOverlayFull(t *testing.T, h Harness) {
	t.Helper()
	const domain = "full"
	ctx := context.Background()
	var last authority.Overlay
	for i := range authority.MaxEntries {
		e := put(fmt.Sprintf("%04d", i), "x", time.Hour)
		e.Domain, e.Known = domain, last.Revision
		last = h.edit(t, e)
	}
	more := put("more", "x", time.Hour)
	more.Domain = domain
	if _, err := h.Store.Overlay(ctx, more); !errors.Is(err, authority.ErrFull) || errors.Is(err, authority.ErrUnavailable) {
		t.Errorf("one more: %v; want %v", err, authority.ErrFull)
	}
	if got := h.edit(t, authority.Edit{Domain: domain, Known: last.Revision}); got.Revision != last.Revision {
		t.Error("what there was no room for is a change")
	}
	again := put("0000", "y", time.Hour)
	again.Domain = domain
	if got := h.edit(t, again); len(got.Entries) != authority.MaxEntries || got.Entries[0].Text != "y" {
		t.Errorf("an entry anew, of a full overlay: %d entries", len(got.Entries))
	}
	more.Remove = "0000"
	if got := h.edit(t, more); len(got.Entries) != authority.MaxEntries {
		t.Errorf("one for another, of a full overlay: %d entries", len(got.Entries))
	}
}

func testOverlayWrong(t *testing.T, h Harness) {
	t.Helper()
	long := strings.Repeat("x", store.MaxName+1)
	for name, e := range map[string]authority.Edit{
		"no domain":      {Put: authority.Entry{Name: "a", ExpiresIn: sec}},
		"a long name":    {Domain: "shop", Put: authority.Entry{Name: long, ExpiresIn: sec}},
		"a long removal": {Domain: "shop", Remove: long},
		"a long text":    {Domain: "shop", Put: authority.Entry{Name: "a", Text: long, ExpiresIn: sec}},
		"no expiry":      {Domain: "shop", Put: authority.Entry{Name: "a"}},
		"a late expiry":  {Domain: "shop", Put: authority.Entry{Name: "a", ExpiresIn: 400 * 24 * time.Hour}},
	} {
		if _, err := h.Store.Overlay(context.Background(), e); err == nil || errors.Is(err, authority.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
