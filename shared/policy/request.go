package policy

import "strings"

// readPath reads the path, without its query, once. False where the request has none, as with CONNECT. An empty path is a
// slash (RFC 9110, 4.2.3).
func (b *binding) readPath() bool {
	if !b.pathRead {
		var fields int
		b.path, fields = b.request.Header(":path")
		b.hasPath = fields > 0
		for end := range len(b.path) {
			if c := b.path[end]; c == '?' || c == '#' {
				if c == '?' {
					b.query, _, _ = strings.Cut(b.path[end+1:], "#")
				}
				b.path = b.path[:end]
				break
			}
		}
		if b.path == "" && b.hasPath {
			b.path = "/"
		}
		b.pathRead = true
	}
	return b.hasPath
}

// readQuery gives what stands behind the path's question mark.
func (b *binding) readQuery() string {
	b.readPath()
	return b.query
}

// readMethod reads the method once.
func (b *binding) readMethod() {
	if !b.methodRead {
		var fields int
		b.method, fields = b.request.Header(":method")
		b.hasMethod = fields > 0
		b.methodRead = true
	}
}

// readHost gives the name of the host that the request is for, as canonicalHost has it; empty where there is none.
func (b *binding) readHost() string {
	if !b.hostRead {
		authority, _ := b.request.Header(":authority")
		b.host, b.hostRead = canonicalHost(authority), true
	}
	return b.host
}

// canonicalHost gives the name or the address in an authority without its port, in lower case and without the dot at its end
// that says that it is complete: all spellings of one host are one.
func canonicalHost(authority string) string {
	if isCanonicalHost(authority) {
		return authority
	}
	if colon := strings.LastIndexByte(authority, ':'); colon >= 0 && strings.IndexByte(authority[colon:], ']') < 0 {
		authority = authority[:colon]
	}
	return lowerASCII(strings.TrimSuffix(authority, "."))
}

// isCanonicalHost says so of most authorities, in one look at them; false may be either.
func isCanonicalHost(authority string) bool {
	for i := range len(authority) {
		if c := authority[i]; c == ':' || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return !strings.HasSuffix(authority, ".")
}

// ValidHost says whether text may be a host to match: a name in lower case, as canonicalHost gives it, or an address, in
// brackets if it is one of IPv6, or *. before a name.
func ValidHost(text string) bool {
	name, all := strings.CutPrefix(text, "*.")
	if name == "" || len(text) > maxHostLength || canonicalHost(name) != name || all && name[0] == '[' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte("-._[]:", c) < 0 {
			return false
		}
	}
	return name[0] != '.'
}

// maxHostLength is that of a domain's name (RFC 1035, 2.3.4), with *. before it.
const maxHostLength = 255

// lowerASCII leaves bytes that are not ASCII alone: values that differ in them stay apart, be they text or not.
func lowerASCII(text string) string {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'Z' {
			lower := []byte(text)
			for ; i < len(lower); i++ {
				if c := lower[i]; c >= 'A' && c <= 'Z' {
					lower[i] = c + 'a' - 'A'
				}
			}
			return string(lower)
		}
	}
	return text
}

// queryParameter gives the value of the parameter of that name, and how many different ones it has: 0, 1, or 2 for several.
func queryParameter(query, name string) (value string, values int) {
	for {
		one, rest, ok := cutParameter(query, name)
		switch {
		case !ok:
			return value, values
		case values > 0 && one != value:
			return "", 2
		}
		value, values, query = one, 1, rest
	}
}

// cutParameter gives the value of the first parameter of that name, and what is behind it, as HTML's forms write them
// (https://url.spec.whatwg.org/#urlencoded-parsing): "+" is a blank and %XX a byte, in names as in values, so that no other
// spelling makes another caller of one; an escape that is none stands for itself.
func cutParameter(query, name string) (value, rest string, ok bool) {
	for query != "" {
		var parameter string
		parameter, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(parameter, "=")
		if parameter != "" && isUnescaped(key, name) {
			return unescapeParameter(value), query, true
		}
	}
	return "", "", false
}

// isUnescaped compares without making anything of the many parameters that are others.
func isUnescaped(key, name string) bool {
	if !strings.ContainsAny(key, "%+") {
		return key == name
	}
	return len(key) <= 3*len(name) && unescapeParameter(key) == name
}

func unescapeParameter(text string) string {
	if !strings.ContainsAny(text, "%+") {
		return text
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '+':
			plain = append(plain, ' ')
		case c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			plain = append(plain, unhex(text[i+1])<<4|unhex(text[i+2]))
			i += 2
		default:
			plain = append(plain, c)
		}
	}
	return string(plain)
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// cookieValue gives the value of the cookie of that name, without the quotes and the blanks around it, and otherwise as it
// stands (RFC 6265, 4.1.1 and 5.2), and how many different ones it has: 0, 1, or 2 for several.
func cookieValue(cookies, name string) (value string, values int) {
	for cookies != "" {
		var pair string
		pair, cookies, _ = strings.Cut(cookies, ";")
		key, one, ok := strings.Cut(pair, "=")
		if !ok || strings.Trim(key, " \t") != name {
			continue
		}
		one = strings.Trim(one, " \t")
		if n := len(one); n >= 2 && one[0] == '"' && one[n-1] == '"' {
			one = one[1 : n-1]
		}
		if values > 0 && one != value {
			return "", 2
		}
		value, values = one, 1
	}
	return value, values
}

// ValidParameter says whether text may be the name of a query parameter: 1 to MaxNameLength bytes.
func ValidParameter(text string) bool { return text != "" && len(text) <= MaxNameLength }

// ValidCookie says whether text may be a cookie's name: 1 to MaxNameLength token characters.
func ValidCookie(text string) bool {
	for i := range len(text) {
		if !isToken(text[i]) {
			return false
		}
	}
	return text != "" && len(text) <= MaxNameLength
}
