package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/shared/instant"
)

// read is an entry with what was wanted: "-" where it is absent.
type read struct {
	At                              time.Time
	Method, Path, Authority, Client string
	Status                          int
	Wanted                          []string
}

func all(t *testing.T, c Config, files ...string) ([]read, Counts) {
	t.Helper()
	var readers []*Reader
	for i, text := range files {
		r, err := NewReader(fmt.Sprintf("file%d", i+1), strings.NewReader(text), c)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	log, err := NewLog(readers...)
	if err != nil {
		t.Fatal(err)
	}
	var entries []read
	for {
		e, err := log.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return entries, log.Counts()
		}
		r := read{
			At: time.UnixMicro(int64(e.At)).UTC(), Method: e.Method, Path: e.Path, Authority: e.Authority, Client: e.Client, Status: e.Status,
		}
		for i := range c.Want {
			value, is := e.Wanted(i)
			if !is {
				value = "(absent)"
			}
			r.Wanted = append(r.Wanted, value)
		}
		entries = append(entries, r)
	}
}

func utc(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return at.UTC()
}

func TestFormats(t *testing.T) {
	want := [][]string{HeaderNames("user-agent"), HeaderNames("x-api-key"), HeaderNames("content-length")}
	for _, step := range []struct {
		name, line string
		format     Format
		config     Config
		want       read
	}{
		{
			name: "Envoy's default", format: Envoy,
			line: `[2026-04-15T20:17:00.310Z] "POST /v1/x?a=b HTTP/2" 204 - 154 0 226 100 "192.0.2.9, 10.0.35.28" "ns "q"2" "cc21" "shop.example:443" "10.0.2.1:80"`,
			want: read{utc("2026-04-15T20:17:00.310Z"), "POST", "/v1/x?a=b", "shop.example:443", "10.0.35.28", 204, []string{`ns "q"2`, "(absent)", "154"}},
		},
		{
			name: "Envoy's default with a field more, and nothing known", format: Envoy,
			line:   `[2026-04-15T20:17:00.310Z] "GET / HTTP/1.1" 0 DC 0 0 1 - "-" "" "cc21" "-" "-" "k1"`,
			config: Config{Want: [][]string{{"user_agent"}, {"extra1"}, {"extra2"}}},
			want:   read{utc("2026-04-15T20:17:00.310Z"), "GET", "/", "", "", 0, []string{"", "k1", "(absent)"}},
		},
		{
			name: "Istio's default", format: Istio,
			line: `[2026-04-15T20:17:00.000Z] "GET /v1/x HTTP/1.1" 200 - via_upstream - "-" 7 95 3 2 "-" "curl/8" "id" "shop:8000" "10.0.0.5:80" ` +
				`outbound|8000||shop 10.0.0.4:37652 10.0.0.8:8000 10.0.0.4:37650 - default`,
			want: read{utc("2026-04-15T20:17:00Z"), "GET", "/v1/x", "shop:8000", "10.0.0.4:37650", 200, []string{"curl/8", "(absent)", "7"}},
		},
		{
			name: "Common", format: Common,
			line: `192.0.2.1 - frank [10/Oct/2026:13:55:36 -0700] "GET /a b.gif HTTP/1.0" 200 2326`,
			want: read{utc("2026-10-10T20:55:36Z"), "GET", "/a b.gif", "", "192.0.2.1", 200, []string{"(absent)", "(absent)", "(absent)"}},
		},
		{
			name: "Combined, with what Apache and nginx escape", format: Combined,
			line: `2001:db8::1 - - [10/Oct/2026:13:55:36 +0000] "GET /\"x\\ HTTP/1.0" 404 - "http://r/" "a\x22b\" c"`,
			want: read{utc("2026-10-10T13:55:36Z"), "GET", `/"x\`, "", "2001:db8::1", 404, []string{`a"b" c`, "(absent)", "(absent)"}},
		},
		{
			name: "Combined, with another client", format: Combined,
			line:   `10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.0" 404 - "-" "-" "192.0.2.77"`,
			config: Config{Fields: map[Role]string{Client: "extra1"}, Want: [][]string{{"user_agent"}}},
			want:   read{utc("2026-10-10T13:55:36Z"), "GET", "/", "", "192.0.2.77", 404, []string{"(absent)"}},
		},
		{
			name: "JSON of Envoy", format: JSON,
			line: `{"start_time":"2026-04-15T20:17:00.310001Z","method":"POST","path":"/v1/x","response_code":204,"authority":"shop",` +
				`"downstream_remote_address":"192.0.2.1:555","User_Agent":"a\"b","x-api-key":null,"bytes_received":7}`,
			want: read{utc("2026-04-15T20:17:00.310001Z"), "POST", "/v1/x", "shop", "192.0.2.1:555", 204, []string{`a"b`, "(absent)", "7"}},
		},
		{
			name: "JSON of Caddy", format: JSON,
			line: `{"ts":1776284220.25,"request":{"remote_ip":"192.0.2.1","method":"GET","host":"shop","uri":"/a?b","headers":{"User-Agent":["x"],"X-Api-Key":["k","l"]}},"status":200}`,
			want: read{utc("2026-04-15T20:17:00.25Z"), "GET", "/a?b", "shop", "192.0.2.1", 200, []string{"x", "k,l", "(absent)"}},
		},
		{
			name: "JSON of nginx", format: JSON,
			line: `{"time_iso8601":"2026-04-15T22:17:00+02:00","remote_addr":"192.0.2.1","request":"GET /a HTTP/1.1","status":"200","http_user_agent":"-","http_host":"shop"}`,
			want: read{utc("2026-04-15T20:17:00Z"), "GET", "/a", "shop", "192.0.2.1", 200, []string{"(absent)", "(absent)", "(absent)"}},
		},
		{
			name: "JSON with names of its own", format: JSON,
			line: `{"when":1776284220250,"what":{"verb":"PUT","target":"/t"},"who":{"key":"k9"},"path":"/no"}`,
			config: Config{
				Fields: map[Role]string{Time: "when", Method: "what.verb", Path: "what.target"}, Want: [][]string{{"who.key"}},
			},
			want: read{utc("2026-04-15T20:17:00.25Z"), "PUT", "/t", "", "", 0, []string{"k9"}},
		},
	} {
		t.Run(step.name, func(t *testing.T) {
			c := step.config
			if c.Want == nil {
				c.Want = want
			}
			r, err := NewReader("log", strings.NewReader(step.line), c)
			if err != nil {
				t.Fatal(err)
			}
			if r.Format() != step.format {
				t.Errorf("it was taken for %v; want %v", r.Format(), step.format)
			}
			c.Format = step.format
			for _, ends := range []string{"", "\n", "\r\n", "\n\n"} {
				got, counts := all(t, c, step.line+ends+step.line+ends)
				if ends == "" {
					got, counts = all(t, c, step.line)
					got = append(got, got...)
				}
				if counts.Malformed > 0 {
					t.Errorf("%+v", counts)
				}
				if diff := cmp.Diff([]read{step.want, step.want}, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
			}
		})
	}
}

func TestTimes(t *testing.T) {
	for _, step := range []struct {
		text, want string // empty: none
	}{
		{"2026-04-15T20:17:00Z", "2026-04-15T20:17:00Z"},
		{"2026-04-15T20:17:00.123456789Z", "2026-04-15T20:17:00.123456Z"},
		{"2026-04-15T20:17:00,5+0200", "2026-04-15T18:17:00.5Z"},
		{"2026-04-15 20:17:00.5 -07:00", "2026-04-16T03:17:00.5Z"},
		{"2026-04-15T20:17:00", "2026-04-15T20:17:00Z"},
		{"2026-12-31T23:59:60Z", "2027-01-01T00:00:00Z"},
		{"15/Apr/2026:20:17:59 +0000", "2026-04-15T20:17:59Z"},
		{"1776284220", "2026-04-15T20:17:00Z"},
		{"1776284220.000250", "2026-04-15T20:17:00.00025Z"},
		{"1776284220123", "2026-04-15T20:17:00.123Z"},
		{"1776284220123456", "2026-04-15T20:17:00.123456Z"},
		{"1776284220123456789", "2026-04-15T20:17:00.123456Z"},
		{"1.77628422e9", "2026-04-15T20:17:00Z"},
		{"", ""},
		{"-", ""},
		{"12", ""},
		{"2026-04-15T20:17:61Z", ""},
		{"2026-13-15T20:17:00Z", ""},
		{"2026-04-15T20:17:0xZ", ""},
		{"2026-04-15T20:17:00 nowhere", ""},
		{"1776284220.12x", ""},
	} {
		var c clock
		for range 2 { // by itself, and after one of the same minute
			at, ok := c.read(step.text)
			if ok != (step.want != "") || ok && at != instant.FromTime(utc(step.want)) {
				t.Errorf("%q: %v, %v; want %s", step.text, time.UnixMicro(int64(at)).UTC(), ok, step.want)
			}
		}
	}
}

func line(at time.Duration, path string) string {
	return fmt.Sprintf("192.0.2.1 - - [%s] \"GET %s HTTP/1.1\" 200 1\n", time.Unix(1776284220, 0).UTC().Add(at).Format("02/Jan/2006:15:04:05 -0700"), path)
}

func paths(entries []read) (paths []string) {
	for _, e := range entries {
		paths = append(paths, e.Path)
	}
	return paths
}

func TestOrder(t *testing.T) {
	second := func(n int, path string) string { return line(time.Duration(n)*time.Second, path) }
	c := Config{Ahead: 2}
	got, counts := all(t, c,
		// Five lines after a later one are in time while four are looked ahead by; /late is not.
		second(10, "/10")+second(12, "/12")+second(11, "/11")+second(11, "/11b")+second(20, "/20")+second(21, "/21")+second(22, "/22")+second(5, "/late")+second(30, "/30"),
		second(0, "/other0")+second(11, "/other11")+second(40, "/other40"))
	want := []string{"/other0", "/10", "/11", "/11b", "/other11", "/12", "/20", "/21", "/22", "/30", "/other40"}
	at := slices.Index(paths(got), "/late")
	if diff := cmp.Diff(want, slices.Delete(paths(got), at, at+1)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.IsSortedFunc(got, func(a, b read) int { return a.At.Compare(b.At) }) {
		t.Errorf("not in order: %v", got)
	}
	if counts.Moved != 3 || counts.Late != 1 {
		t.Errorf("%d moved, %d late; want 3 and 1", counts.Moved, counts.Late)
	}
}

// TestOrderOfAny: whatever the times, what comes out is in order, nothing is lost, and nothing is late whose line is within
// what is looked ahead by.
func TestOrderOfAny(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ahead := rapid.IntRange(1, 8).Draw(rt, "ahead")
		times := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 60).Draw(rt, "times")
		var text strings.Builder
		for i, at := range times {
			text.WriteString(line(time.Duration(at)*time.Second, fmt.Sprint("/", i)))
		}
		got, counts := all(t, Config{Ahead: ahead, Format: Common}, text.String())
		if len(got) != len(times) {
			rt.Fatalf("%d of %d lines", len(got), len(times))
		}
		for i := 1; i < len(got); i++ {
			if got[i].At.Before(got[i-1].At) {
				rt.Fatalf("%v comes after %v", got[i], got[i-1])
			}
		}
		displaced := 0 // by how many lines, at most, one comes too late
		for i := range times {
			for j := range i {
				if times[j] > times[i] {
					displaced = max(displaced, i-j)
				}
			}
		}
		if displaced <= ahead && counts.Late > 0 {
			rt.Fatalf("%d late, though none is by more than %d lines and %d are looked at", counts.Late, displaced, ahead)
		}
	})
}

// TestReadsOnAsItGives: once it has looked ahead, a reader reads a line for each that it gives, and never many at once.
func TestReadsOnAsItGives(t *testing.T) {
	const ahead, lines = 4, 100
	r, err := NewReader("log", strings.NewReader(strings.Repeat(line(0, "/"), lines)), Config{Ahead: ahead, Format: Common})
	if err != nil {
		t.Fatal(err)
	}
	for given := range int64(lines) {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if want := min(2*ahead+given, lines); r.Counts.Lines != want {
			t.Fatalf("%d lines are read when %d were given before, want %d", r.Counts.Lines, given, want)
		}
	}
}

func TestMalformed(t *testing.T) {
	good := line(0, "/")
	var text strings.Builder
	text.WriteString(good)
	for _, bad := range []string{
		"garbage", `192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HT`, `192.0.2.1 - - [yesterday] "GET / HTTP/1.1" 200 1`,
		`192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "\x16\x03\x01" 400 0`, `192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" abc 0`,
		"\x00\xff\x1b[31m", strings.Repeat("x", 3*MaxLine),
	} {
		text.WriteString(bad + "\n" + good)
	}
	got, counts := all(t, Config{Format: Common}, text.String())
	if len(got) != 8 || counts.Lines != 15 || counts.Malformed != 7 || len(counts.Problems) != MaxProblems {
		t.Errorf("%d entries, %d lines, %d malformed, %d told of", len(got), counts.Lines, counts.Malformed, len(counts.Problems))
	}
	for i, part := range []string{"want at least 7", "want at least 7", "no time", "no request", "no status"} {
		p := counts.Problems[i]
		if p.File != "file1" || p.Line != int64(2+2*i) || !strings.Contains(p.Why, part) || p.Text == "" {
			t.Errorf("%+v; want line %d: %s", p, 2+2*i, part)
		}
	}
	_, counts = all(t, Config{Format: JSON}, `{"time":1776284220}`+"\n"+`{"path":"/"}`+"\n"+`{"time":1776284220,"path":"/"`+"\n[]\n"+`{"time":true,"path":"/"}`+"\n")
	if counts.Malformed != 5 {
		t.Errorf("%+v", counts)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for _, step := range []struct {
		name string
		from io.Reader
		c    Config
		want string
	}{
		{"no format", strings.NewReader("a\nb\n"), Config{}, "none of the formats envoy, istio, json, common, combined: a"},
		{"half a gzip file", bytes.NewReader(zipped(strings.Repeat(line(0, "/"), 100))[:40]), Config{}, "unexpected EOF"},
		{"gzip that is none", strings.NewReader("\x1f\x8bxx"), Config{}, "it begins as a gzip file"},
		{"a broken disk", iotest.ErrReader(errors.New("broken")), Config{}, "log: broken"},
		{"a format that is none", strings.NewReader(""), Config{Format: 99}, "want one of"},
		{"too much", strings.NewReader(""), Config{Want: make([][]string, MaxWanted+1)}, "at most 64"},
	} {
		t.Run(step.name, func(t *testing.T) {
			if _, err := NewReader("log", step.from, step.c); err == nil || !strings.Contains(err.Error(), step.want) {
				t.Errorf("%v; want %q", err, step.want)
			}
		})
	}
	if _, err := NewLog(); err == nil {
		t.Error("a log of no files")
	}
}

// TestLaterFailure: a file that breaks in the middle is an error with the line.
func TestLaterFailure(t *testing.T) {
	r, err := NewReader("log", io.MultiReader(strings.NewReader(strings.Repeat(line(0, "/"), 10_000)), iotest.ErrReader(errors.New("broken"))), Config{Ahead: 10})
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := r.Next()
		if err != nil {
			if !strings.Contains(err.Error(), "log: after line") || !strings.Contains(err.Error(), "broken") {
				t.Error(err)
			}
			return
		}
		if e == nil {
			t.Fatal("it ended without an error")
		}
	}
}

func TestEmpty(t *testing.T) {
	got, counts := all(t, Config{}, "", "\n\n\r\n", string(zipped("")))
	if len(got) != 0 || counts.Lines != 0 {
		t.Errorf("%v, %+v", got, counts)
	}
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

// TestBlocks: whatever comes in one piece from the file, gzipped or not, the lines are the same.
func TestBlocks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for i := range 6000 {
		text.WriteString(line(time.Duration(i)*time.Millisecond, "/"+strings.Repeat("x", random.IntN(300))+fmt.Sprint(i)))
	}
	want, counts := all(t, Config{}, text.String())
	if len(want) != 6000 || counts.Malformed > 0 {
		t.Fatalf("%d entries, %+v", len(want), counts)
	}
	for name, from := range map[string]io.Reader{
		"gzip": bytes.NewReader(zipped(text.String())), "halves": iotest.HalfReader(strings.NewReader(text.String())),
		"bytes": iotest.OneByteReader(strings.NewReader(text.String())), "with its end": iotest.DataErrReader(strings.NewReader(text.String())),
	} {
		r, err := NewReader("log", from, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if e, err := r.Next(); err != nil || e == nil || e.Path != want[i].Path {
				t.Fatalf("%s: entry %d is %+v, %v; want %s", name, i, e, err, want[i].Path)
			}
		}
		if e, err := r.Next(); e != nil || err != nil {
			t.Errorf("%s: it does not end: %v, %v", name, e, err)
		}
	}
}

// FuzzLines: no file makes a reader panic or give an entry that makes no sense, and each line is read, malformed or empty.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		`[2026-04-15T20:17:00.310Z] "POST /v1/x?a=b HTTP/2" 204 - 154 0 226 100 "192.0.2.9" "n" "c" "shop" "10.0.2.1:80" "k"`,
		`[2026-04-15T20:17:00.000Z] "GET / HTTP/1.1" 200 - via_upstream - "-" 0 9 3 2 "-" "c" "id" "s" "1:80" o 1:3 1:8 1:7 - default`,
		`192.0.2.1 - frank [10/Oct/2026:13:55:36 -0700] "GET /a\x22\" HTTP/1.0" 200 2326 "r" "u" "e"`,
		`{"start_time":"2026-04-15T20:17:00Z","method":"GET","path":"/","request":{"headers":{"X-Api-Key":["a","b"]}},"response_code":200}`,
		`{"ts":1.5e9,"request":"GET / HTTP/1.1"}`, "{\"time\":1776284220123}\n{\"time\"", "\x1f\x8b\x08\x00", "[", `"`, `\`, "\n\r\n\x00",
	} {
		for format := range Formats {
			f.Add([]byte(seed), uint8(format))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, format uint8) {
		c := Config{Format: Format(format % uint8(len(Formats))), Ahead: 2, Want: [][]string{HeaderNames("x-api-key"), {"extra1"}, {"referer"}}}
		r, err := NewReader("fuzz", bytes.NewReader(text), c)
		if err != nil {
			return
		}
		var entries int64
		var last instant.Instant
		for {
			e, err := r.Next()
			if err != nil || e == nil {
				if err == nil && entries+r.Counts.Malformed != r.Counts.Lines {
					t.Fatalf("%d entries and %d malformed of %d lines", entries, r.Counts.Malformed, r.Counts.Lines)
				}
				return
			}
			entries++
			switch {
			case e.At < last && entries > 1:
				t.Fatalf("%d after %d", e.At, last)
			case e.Path == "" || e.Method != "" && !isMethod(e.Method):
				t.Fatalf("%+v", e)
			case e.Status < 0 || e.Status > 999 || e.At < 0 || e.At > 1<<55:
				t.Fatalf("%+v", e)
			}
			last = e.At
		}
	})
}

// TestByteOrderMark: what some programs write in front of UTF-8 is no part of the first line, whatever the format.
func TestByteOrderMark(t *testing.T) {
	const mark = "\ufeff"
	first := line(0, "/first") + "\n"
	for name, test := range map[string]struct {
		text string
		want int64
	}{"plain": {mark + first, 1}, "gzipped": {string(zipped(mark + first)), 1}, "with nothing behind it": {mark, 0}} {
		if got, counts := all(t, Config{}, test.text); int64(len(got)) != test.want || counts.Lines != test.want || counts.Malformed != 0 {
			t.Errorf("%s: %v, %+v", name, got, counts)
		}
	}
}
