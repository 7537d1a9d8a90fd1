package accesslog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// parser reads the lines of one format into entries.
type parser interface {
	// parse reads a line into an entry that has been reset. The error says what was expected.
	parse(line string, e *Entry) error
	// fields gives the names of what lines have.
	fields() []string
}

// maxWords bounds the fields of a line of text; those beyond are not looked at.
const maxWords = 64

// layout says which field of a line of text stands where.
type layout struct {
	// least is how many there are at least.
	least                        int
	time, request, status        int
	authority, client, forwarded int // -1 for none
	names                        map[string]int
}

// The fields of each format, by what Envoy calls them, in their order. What stands behind the last is extra1, extra2, ….
var layouts = map[Format]layout{
	Envoy: newLayout(13, "start_time", "request", "response_code", "response_flags", "bytes_received", "bytes_sent", "duration",
		"upstream_service_time", "x_forwarded_for", "user_agent", "request_id", "authority", "upstream_host"),
	Istio: newLayout(20, "start_time", "request", "response_code", "response_flags", "response_code_details",
		"connection_termination_details", "upstream_transport_failure_reason", "bytes_received", "bytes_sent", "duration",
		"upstream_service_time", "x_forwarded_for", "user_agent", "request_id", "authority", "upstream_host", "upstream_cluster",
		"upstream_local_address", "downstream_local_address", "downstream_remote_address", "requested_server_name", "route_name"),
	Common:   newLayout(7, "client", "logname", "user", "start_time", "request", "response_code", "bytes_sent"),
	Combined: newLayout(9, "client", "logname", "user", "start_time", "request", "response_code", "bytes_sent", "referer", "user_agent"),
}

func newLayout(least int, names ...string) layout {
	l := layout{least: least, names: make(map[string]int, len(names))}
	for i, name := range names {
		l.names[name] = i
	}
	for i := len(names); i < maxWords; i++ {
		l.names["extra"+strconv.Itoa(i-len(names)+1)] = i
	}
	l.time, l.request, l.status = l.names["start_time"], l.names["request"], l.names["response_code"]
	l.authority, l.forwarded = l.find("authority"), l.find("x_forwarded_for")
	l.client = l.find("client", "downstream_remote_address")
	return l
}

// find gives where the first field stands that the format has; -1 for none.
func (l *layout) find(names ...string) int {
	for _, name := range names {
		if i, is := l.names[name]; is {
			return i
		}
	}
	return -1
}

// textParser reads the formats that are fields with blanks between them, in quotes or brackets where there is one within.
type textParser struct {
	layout

	escaped bool // a backslash hides what is behind it, as Apache and nginx have it
	wanted  []int
	clock   clock
	words   [maxWords]string
	most    int // of the fields of a line
}

func newText(f Format, c *Config) *textParser {
	p := &textParser{layout: layouts[f], escaped: f == Common || f == Combined}
	for r, to := range map[Role]*int{
		Time: &p.time, Request: &p.request, Authority: &p.authority, Client: &p.client, Status: &p.status,
	} {
		if name := c.Fields[r]; name != "" {
			*to = p.find(name)
		}
	}
	for _, names := range c.Want {
		p.wanted = append(p.wanted, p.find(names...))
	}
	return p
}

func (p *textParser) fields() []string {
	names := slices.SortedFunc(maps.Keys(p.names), func(a, b string) int { return p.names[a] - p.names[b] })
	return names[:min(len(names), p.most)]
}

func (p *textParser) parse(line string, e *Entry) error {
	n := p.split(line)
	p.most = max(p.most, n)
	if n < p.least {
		return fmt.Errorf("%d fields: want at least %d", n, p.least)
	}
	text, _ := p.word(p.time, n)
	at, ok := p.clock.read(text)
	if !ok {
		return errTime
	}
	request, _ := p.word(p.request, n)
	if e.Method, e.Path, ok = cutRequest(request); !ok {
		return errRequest
	}
	e.At = at
	status, _ := p.word(p.status, n)
	if e.Status, ok = readStatus(status); !ok {
		return fmt.Errorf("%q is no status", clip(status))
	}
	e.Authority, _ = p.word(p.authority, n)
	e.Client, _ = p.word(p.client, n)
	if p.client < 0 {
		// Envoy appends the peer's address to what it logs here, unless it is told not to.
		if forwarded, is := p.word(p.forwarded, n); is {
			e.Client = strings.Trim(forwarded[strings.LastIndexByte(forwarded, ',')+1:], " ")
		}
	}
	for i, at := range p.wanted {
		if value, is := p.word(at, n); is {
			e.want(i, value)
		}
	}
	return nil
}

// word gives a field of the n that the line has; false where it has none, or a dash for it.
func (p *textParser) word(i, n int) (string, bool) {
	if i < 0 || i >= n || p.words[i] == "-" {
		return "", false
	}
	word := p.words[i]
	if p.escaped && strings.IndexByte(word, '\\') >= 0 {
		word = unescape(word)
	}
	return word, true
}

// split parts a line into words, and counts them.
func (p *textParser) split(line string) int {
	n := 0
	for n < maxWords {
		for line != "" && line[0] == ' ' {
			line = line[1:]
		}
		if line == "" {
			break
		}
		var end, next int
		switch line[0] {
		case '"':
			line = line[1:]
			end = p.closing(line)
			next = end + 1
		case '[':
			line = line[1:]
			end = strings.IndexByte(line, ']')
			next = end + 1
		default:
			if end = strings.IndexByte(line, ' '); end < 0 {
				end = len(line)
			}
			next = end
		}
		if end < 0 { // it was opened and not closed: the line was cut off
			break
		}
		p.words[n] = line[:end]
		n++
		line = line[next:]
	}
	return n
}

// closing gives where a quoted field ends: at a quote with a blank or nothing behind it, for Envoy does not escape those that
// clients send; -1 where it does not.
func (p *textParser) closing(line string) int {
	for from := 0; ; {
		i := strings.IndexByte(line[from:], '"')
		if i < 0 {
			return -1
		}
		i += from
		if i+1 == len(line) || line[i+1] == ' ' {
			if !p.escaped || !hidden(line, i) {
				return i
			}
		}
		from = i + 1
	}
}

// hidden says whether an odd number of backslashes is before a byte.
func hidden(line string, i int) bool {
	from := i
	for from > 0 && line[from-1] == '\\' {
		from--
	}
	return (i-from)%2 == 1
}

// unescape undoes what Apache (\", \\, \n, \t, \xhh) and nginx (\xHH) write for what is not printable.
func unescape(text string) string {
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '\\' || i+1 == len(text) {
			plain = append(plain, c)
			continue
		}
		i++
		switch c = text[i]; c {
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'x':
			if i+2 < len(text) {
				if b, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
					plain = append(plain, byte(b))
					i += 2
					continue
				}
			}
			plain = append(plain, '\\')
		}
		plain = append(plain, c)
	}
	return string(plain)
}

// cutRequest takes a request line apart. The protocol may be missing, and a path have blanks in it.
func cutRequest(line string) (method, path string, ok bool) {
	method, rest, found := strings.Cut(line, " ")
	if !found || !isMethod(method) {
		return "", "", false
	}
	path = rest
	if i := strings.LastIndexByte(rest, ' '); i >= 0 && strings.HasPrefix(rest[i+1:], "HTTP/") {
		path = rest[:i]
	}
	return method, path, path != ""
}

// isMethod says whether text may be a method: what servers log that was no HTTP is none.
func isMethod(text string) bool {
	const longest = 32
	for i := range len(text) {
		if c := text[i] | 0x20; (c < 'a' || c > 'z') && text[i] != '-' && text[i] != '_' {
			return false
		}
	}
	return text != "" && len(text) <= longest
}

// readStatus reads a status. Envoy logs 0 where nothing was answered, others a dash.
func readStatus(text string) (int, bool) {
	if text == "" {
		return 0, true
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' || n > 99 {
			return 0, false
		}
		n = 10*n + int(text[i]-'0')
	}
	return n, true
}
