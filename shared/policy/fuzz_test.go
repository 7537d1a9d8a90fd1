package policy

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"/v1/{id}", "/{rest=**}", "/v1/{a}/b/{rest=**}", "/", "//", "/{", "/{a}/{a}", "/{=**}", "/a{b}"} {
		f.Add(s, "/v1/7/b/c")
	}
	f.Fuzz(func(t *testing.T, template, path string) {
		problem := CheckTemplate(template)
		if problem != "" || !ValidPath(path) {
			return
		}
		_, found := newTemplates([]string{template}).match(path)
		if matches := matchesTemplate(path, template); matches != found {
			t.Fatalf("%q is %q: %v by itself, %v in a tree", path, template, matches, found)
		}
		// A template with something in the place of each variable matches that.
		var filled []string
		for _, segment := range strings.Split(template, "/") {
			if isPathVariable(segment) {
				segment = "x"
			}
			filled = append(filled, segment)
		}
		if !matchesTemplate(strings.Join(filled, "/"), template) {
			t.Fatalf("%q does not match %q", filled, template)
		}
	})
}

func FuzzCIDR(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.1", "::ffff:10.0.0.0/104", "10.0.0.1/8", "fe80::%a/10", "::/0"} {
		f.Add(s, "10.1.2.3")
	}
	f.Fuzz(func(t *testing.T, text, address string) {
		prefix, ok := ParseCIDR(text)
		if !ok {
			return
		}
		if again, ok := ParseCIDR(prefix.String()); !ok || again != prefix {
			t.Fatalf("%q is %v, which is not read again", text, prefix)
		}
		a, err := netip.ParseAddr(address)
		_, found := newNetworks([]Network{{"x", text}}).find(address)
		if want := err == nil && prefix.Contains(a); found != want {
			t.Fatalf("%q in %v: %v, want %v", address, prefix, found, want)
		}
	})
}

func FuzzClaim(f *testing.F) {
	for _, s := range []string{"Bearer " + token(`{"sub":"a"}`), token(`{"sub":1e3}`), "a.b.c", "..", "bearer ", token(`[`), token(`{"sub":"\ud800"}`)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, ok := tokenClaim(text, []string{"sub"})
		if !ok && value != "" || len(value) > len(text)+30 {
			t.Fatalf("%q gives %q, %v", text, value, ok)
		}
	})
}

func FuzzCookie(f *testing.F) {
	for _, s := range []string{"sid=a", `a=b; sid="x"; sid=y`, "sid", ";;sid=;", `sid="`, " sid = a "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, values := cookieValue(text, "sid")
		if values > 0 && !strings.Contains(strings.NewReplacer("\t", "", " ", "").Replace(text), "sid=") {
			t.Fatalf("%q has no cookie, got %q", text, value)
		}
		if before, there := cookieValue("a=b; "+text, "sid"); there != values || before != value {
			t.Fatalf("%q behind another cookie gives %q, %d, want %q, %d", text, before, there, value, values)
		}
		if _, both := cookieValue("sid=(other);"+text, "sid"); values > 0 && value != "(other)" && both != 2 {
			t.Fatalf("%q behind another of its name gives %d values, want 2", text, both)
		}
	})
}

// A query is read as net/url reads it, where that has no objection.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"key=a", "a=b&key=%61+b", "key", "%6bey=", "key=%zz", "a&&key=1&key=2", "key=a;b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, n := queryParameter(text, "key")
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		slices.Sort(values["key"])
		if want := slices.Compact(values["key"]); min(len(want), 2) != n || n == 1 && want[0] != got {
			t.Fatalf("%q: got %q, one of %d, want %q", text, got, n, want)
		}
	})
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"/v[0-9]+/.*", "(a|b){1,10}", `\pL+`, "(?i)x", "((((a{9}){9}){9}){9})", "[", "a**", "(?:)", `\Q/a.b`, `a\Q`, `\Qa.b\E`} {
		f.Add(s, "/v1/x")
	}
	f.Fuzz(func(_ *testing.T, expression, text string) {
		if CheckPattern(expression) == "" {
			newPattern(expression, map[string]*pattern{}).matches(text, true)
		}
	})
}
