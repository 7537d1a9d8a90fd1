package wire

import "sluice/shared/policy"

func appendMatch(dst []byte, m *policy.Match) []byte {
	dst = appendText(dst, 1, m.PathExact)
	dst = appendText(dst, 2, m.PathPrefix)
	for _, method := range m.Methods {
		dst = appendPresentText(dst, 3, method)
	}
	dst = appendText(dst, 4, m.Host)
	dst = appendText(dst, 5, m.PathTemplate)
	dst = appendText(dst, 6, m.PathRegex)
	dst = appendFieldMatches(dst, 7, m.Headers)
	dst = appendFieldMatches(dst, 8, m.Query)
	if m.Not != nil {
		var start int
		dst, start = openMessage(dst, 9)
		dst = closeMessage(appendMatch(dst, m.Not), start)
	}
	return dst
}

func appendFieldMatches(dst []byte, number uint32, list []policy.FieldMatch) []byte {
	for i := range list {
		var start int
		dst, start = openMessage(dst, number)
		dst = appendText(dst, 1, list[i].Name)
		dst = appendNumber(dst, 2, uint64(list[i].Kind))
		dst = closeMessage(appendText(dst, 3, list[i].Value), start)
	}
	return dst
}

// parseMatch reads a match, in which another may lie as its negation, and none in that.
func parseMatch(b []byte, m *policy.Match, negated bool) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			m.PathExact = f.text("path_exact", policy.MaxPathLength)
		case 2:
			m.PathPrefix = f.text("path_prefix", policy.MaxPathLength)
		case 3:
			if method := f.text("methods", policy.MaxMethodLength); f.room("methods", len(m.Methods), policy.MaxMethods) {
				m.Methods = append(m.Methods, method)
			}
		case 4:
			m.Host = f.text("host", policy.MaxPathLength)
		case 5:
			m.PathTemplate = f.text("path_template", policy.MaxPathLength)
		case 6:
			m.PathRegex = f.text("path_regex", policy.MaxPatternLength)
		case 7:
			m.Headers = f.fieldMatches("headers", m.Headers)
		case 8:
			m.Query = f.fieldMatches("query", m.Query)
		case 9:
			inner := f.message("not")
			if negated {
				f.fail("not", "has more than one level")
				break
			}
			if m.Not == nil {
				m.Not = &policy.Match{}
			}
			f.nested("not", -1, parseMatch(inner, m.Not, true))
		default:
			f.skip()
		}
	}
	return f.err
}

// fieldMatches reads one more of a list.
func (f *fields) fieldMatches(name string, into []policy.FieldMatch) []policy.FieldMatch {
	b := f.message(name)
	if !f.room(name, len(into), policy.MaxFieldMatches) {
		return into
	}
	var m policy.FieldMatch
	inner := fields{rest: b}
	for inner.next() {
		switch inner.number {
		case 1:
			m.Name = inner.text("name", policy.MaxNameLength)
		case 2:
			m.Kind = policy.FieldKind(inner.number8("kind"))
		case 3:
			m.Value = inner.text("value", policy.MaxFieldValue)
		default:
			inner.skip()
		}
	}
	f.nested(name, len(into), inner.err)
	return append(into, m)
}
