package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/shared/limit"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// shop is testdata/shop.yaml, compiled.
func shop() *policy.Policy {
	return &policy.Policy{
		Version: "dac815e537e1aa96",
		Domain:  "shop",
		Identities: []policy.Identity{
			{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"},
			{Name: "client", Source: policy.FromAddress},
		},
		Limits: []policy.Limit{
			{
				Name: "tenant", Key: []uint32{0}, Rates: []limit.Rate{{Units: 100, Window: time.Second}},
				Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Local,
			},
			{
				Name: "reports", Match: policy.Match{PathPrefix: "/v1/reports", Methods: []string{"POST"}}, Key: []uint32{0},
				Rates:     []limit.Rate{{Units: 10, Window: time.Second}, {Units: 600, Window: time.Minute}},
				Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Local,
			},
		},
	}
}

func load(t testing.TB, path string) *policy.Policy {
	t.Helper()
	p, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// This file has been given to people: it is valid for ever, and means what it meant.
func TestTheFirstPolicyStaysValid(t *testing.T) {
	if diff := cmp.Diff(shop(), load(t, "testdata/shop.yaml"), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// Everything that the format has, in unusual spellings.
func TestEverySpelling(t *testing.T) {
	limits := func(l ...policy.Limit) *policy.Policy {
		return &policy.Policy{Domain: "shop-1.eu_west", Identities: []policy.Identity{
			{Name: "tenant", Source: policy.FromHeader, Header: "x-tenant-id"},
			{Name: "host", Source: policy.FromHeader, Header: ":authority"},
			{Name: "client", Source: policy.FromAddress, TrustedHops: 2},
			{Name: "peer", Source: policy.FromAddress},
		}, Limits: l}
	}
	day := []limit.Rate{{Units: 0, Window: 24 * time.Hour}}
	want := limits(
		policy.Limit{
			Name: "404", Match: policy.Match{PathExact: "/v1/größe", Methods: []string{"GET", "purge"}},
			Key: []uint32{2, 0}, Rates: day, Algorithm: limit.SlidingLog, Mode: limit.Strict, OnUnavailable: limit.Deny,
		},
		policy.Limit{
			Name: "b", Match: policy.Match{PathPrefix: "/v1"}, Key: []uint32{2, 0},
			Rates:     []limit.Rate{{Units: 600, Window: time.Minute}, {Units: 10, Window: time.Second}},
			Algorithm: limit.SlidingLog, Mode: limit.Lease, OnUnavailable: limit.Allow,
			MaxWait: 500 * time.Millisecond, Cost: 10,
		},
		policy.Limit{
			Name: "c", Match: policy.Match{PathPrefix: "/"}, Rates: day,
			Algorithm: limit.SlidingLog, Mode: limit.Async, OnUnavailable: limit.Local,
		},
		policy.Limit{
			Name: "d", Rates: []limit.Rate{{Units: 10, Window: time.Second, Burst: 20}},
			Algorithm: limit.TokenBucket, Mode: limit.Lease, OnUnavailable: limit.Local,
		},
	)
	for name, edit := range map[string]func([]byte) []byte{
		"as it is":          func(b []byte) []byte { return b },
		"carriage returns":  func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) },
		"a byte order mark": func(b []byte) []byte { return append([]byte("\xef\xbb\xbf"), b...) },
		"a document's end":  func(b []byte) []byte { return append(append([]byte("---\n"), b...), "...\n"...) },
	} {
		t.Run(name, func(t *testing.T) {
			file, err := os.ReadFile("testdata/spellings.yaml")
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse("spellings.yaml", edit(file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(policy.Policy{}, "Version")); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheVersionNamesTheMeaning(t *testing.T) {
	file, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, replacement string
		same             bool
	}{
		{"domain: shop", "# a shop\ndomain: 'shop'  # ours", true},
		{"100/s", "100 / 1s", true},
		{"x-tenant-id", "X-Tenant-ID", true},
		{"prefix: /v1/reports", "prefix: /v1/reports/", true},
		{"    mode: strict\n", "", false},
		{"mode: strict", "mode: lease", false},
		{"    mode: strict\n", "    cost: 1\n    mode: strict\n", true},
		{"    mode: strict\n", "    cost: 2\n    mode: strict\n", false},
		{"    mode: strict\n", "    max_wait: 0s\n    mode: strict\n", true},
		{"algorithm: sliding_log", "algorithm: auto", true},
		{"100/s", "101/s", false},
		{"600/m", "600/61s", false},
		{"domain: shop", "domain: shop2", false},
		{"x-tenant-id", "x-tenant", false},
		{"/v1/reports", "/v1/report", false},
		{"on_unavailable: local", "on_unavailable: allow", false},
		{"trusted_hops: 0", "trusted_hops: 1", false},
		{"[POST]", "[PUT]", false},
		{"name: reports", "name: report", false},
		{"name: reports", "name: reports\n    algorithm: auto", true},
	} {
		edited := strings.Replace(string(file), c.old, c.replacement, 1)
		if edited == string(file) {
			t.Fatalf("%q is not in the file", c.old)
		}
		p, err := Parse("shop.yaml", []byte(edited))
		if err != nil {
			t.Fatal(err)
		}
		if same := p.Version == shop().Version; same != c.same {
			t.Errorf("%q instead of %q: same version %v, want %v", c.replacement, c.old, same, c.same)
		}
	}
}

func TestLoad(t *testing.T) {
	if _, err := Load("testdata/none.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	var wrong Errors
	if _, err := Load("testdata"); err == nil || errors.As(err, &wrong) {
		t.Errorf("a directory: %v", err)
	}
	path := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(path, bytes.Repeat([]byte("#"), MaxFileSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	want := path + ": $: the file has more than 1048576 bytes"
	if _, err := Load(path); !errors.As(err, &wrong) || err.Error() != want {
		t.Errorf("a large file: got %v, want %s", err, want)
	}
}

// fill repeats a text to a quarter of the largest file, with a line's number where it has a %d.
func fill(before, line, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < MaxFileSize/4; i++ {
		if strings.Contains(line, "%d") {
			fmt.Fprintf(&b, line, i)
		} else {
			b.WriteString(line)
		}
	}
	b.WriteString(after)
	return b.String()
}

// The first of these take the parser minutes, or its stack, when they get there.
func TestHostileFilesAreRefused(t *testing.T) {
	const head = "domain: shop\nidentities: {t: {header: t}}\n"
	var stairs strings.Builder
	for i := range 1000 {
		stairs.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	bomb := head + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 10; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [", i, i) + strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10) + "]\n"
	}
	for name, c := range map[string]struct{ file, want string }{
		"brackets":           {fill("", "[", ""), "is nested more than 24 deep"},
		"braces":             {fill("", "{a: ", ""), "is nested more than 24 deep"},
		"dashes":             {fill("", "- ", ""), "is nested more than 24 deep"},
		"question marks":     {fill("", "? ", ""), "is nested more than 24 deep"},
		"stairs":             {stairs.String(), "is nested more than 24 deep"},
		"fields":             {fill("", "k%d: v\n", ""), "the mapping has more than 1024 fields"},
		"fields in braces":   {fill("{", "k%d: v, ", "}"), "the mapping has more than 1024 fields"},
		"the same field":     {fill("", "k: v\n", ""), "the mapping has more than 1024 fields"},
		"empty fields":       {fill("x:\n", "- a:\n", ""), "the document has more than 1024 empty values"},
		"empty elements":     {fill("x:\n", "-\n", ""), "the document has more than 1024 empty values"},
		"empty in braces":    {fill("x: [", "{a}, ", "]"), "the document has more than 1024 empty values"},
		"empty in brackets":  {fill("x: [", "a: , ", "]"), "the document has more than 1024 empty values"},
		"commas":             {fill("x: [", ",", "]"), "the document has more than 1024 empty values"},
		"words":              {"x: [" + strings.Repeat("a,", MaxFileSize/2-3) + "]", "the document has more than 500000 words and signs"},
		"anchors":            {fill("x: ", "&a ", ""), "cannot be read as YAML"},
		"tags":               {fill("x: ", "! ", "a"), "cannot be read as YAML"},
		"colons":             {fill("", ": ", ""), "is nested more than 24 deep"},
		"at signs":           {"x: " + strings.Repeat("@", 1<<16), "cannot be read as YAML"},
		"documents":          {fill("", "--- a\n", ""), "a second document begins or ends here"},
		"ends":               {fill("a\n", "...\n", ""), "a second document begins or ends here"},
		"a bomb of aliases":  {bomb + "limits: *a9\n", `unknown field "a0"`},
		"a bomb of limits":   {head + "limits:\n- &l {name: a, key: [t], rates: &r [1/s]}\n" + strings.Repeat("- *l\n", 16_384), "has 16385 elements, want 0 to 16384"},
		"too many limits":    {head + "limits: [" + strings.Repeat("a, ", 16_385) + "]", "has 16385 elements, want 0 to 16384"},
		"too many errors":    {head + "limits: [" + strings.Repeat("a, ", 16_384) + "]", "want a limit"},
		"a zero byte":        {head + "limits: [\x00]", "is not UTF-8 text"},
		"other bytes":        {head + "# \xff\nlimits: []", "is not UTF-8 text"},
		"a compiled monster": {head + "limits:\n" + monster(), "the compiled policy has "},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.file) > MaxFileSize {
				t.Fatalf("the file has %d bytes", len(c.file))
			}
			_, err := Parse("hostile.yaml", []byte(c.file))
			var said Errors
			if !errors.As(err, &said) || len(said) > maxErrors || len(err.Error()) > 200*maxErrors {
				t.Fatalf("got %d errors in %d bytes", len(said), len(err.Error()))
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %.400s\nwant %s", err, c.want)
			}
		})
	}
}

// monster is limits that are small in the file and large when their aliases are written out.
func monster() string {
	methods := make([]string, policy.MaxMethods)
	for i := range methods {
		methods[i] = fmt.Sprintf("M%031d", i)
	}
	var b strings.Builder
	for i := range 8000 {
		match := "*m"
		if i == 0 {
			match = "&m {methods: [" + strings.Join(methods, ", ") + "]}"
		}
		fmt.Fprintf(&b, "- {name: l%d, key: [], rates: [1/s], match: %s}\n", i, match)
	}
	return b.String()
}

func TestAliasesAreBounded(t *testing.T) {
	// 16,384 limits of 32 methods and 8 rates: each is within its bounds, all together are not.
	file := strings.Replace(monster(), "[1/s]", "&r [1/1s, 2/2s, 3/3s, 4/4s, 5/5s, 6/6s, 7/7s, 8/8s]", 1)
	file = strings.ReplaceAll(file, "rates: [1/s]", "rates: *r")
	extra := ""
	for i := range 16_384 - 8000 {
		extra += fmt.Sprintf("- {name: m%d, key: [], rates: *r, match: *m}\n", i)
	}
	_, err := Parse("hostile.yaml", []byte("domain: shop\nlimits:\n"+file+extra))
	if want := "the document has more than 524288 values when its aliases are written out"; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %.400v, want %s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range readBad(f) {
		f.Add([]byte(c.file))
	}
	for _, path := range []string{"testdata/shop.yaml", "testdata/spellings.yaml"} {
		file, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("fuzz.yaml", data)
		var said Errors
		if err != nil {
			if p != nil || !errors.As(err, &said) || len(said) == 0 || len(said) > maxErrors {
				t.Fatalf("got %v, %v", p, err)
			}
			for _, e := range said {
				if e.File != "fuzz.yaml" || !strings.HasPrefix(e.Path, "$") || e.Problem == "" {
					t.Fatalf("%#v says too little", e)
				}
			}
			return
		}
		// What is taken can be given to the filter, and arrives as it is.
		reply := wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: p.Version, Policy: p})
		arrived, err := wire.ParseGetPolicyResponse(reply)
		if err != nil {
			t.Fatalf("the filter would refuse it: %v", err)
		}
		if diff := cmp.Diff(p, arrived.Policy, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	var file strings.Builder
	file.WriteString("domain: shop\nidentities: {tenant: {header: x-tenant-id}}\nlimits:\n")
	for i := range 10_000 {
		fmt.Fprintf(&file, "  - name: limit-%d\n    match: {path: {prefix: /v1/%d}}\n    key: [tenant]\n    rates: [10/s]\n", i, i)
	}
	b.ReportAllocs()
	b.SetBytes(int64(file.Len()))
	for range b.N {
		if _, err := Parse("bench.yaml", []byte(file.String())); err != nil {
			b.Fatal(err)
		}
	}
}
