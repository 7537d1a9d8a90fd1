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
			m.Headers = element(&f, "headers", m.Headers, policy.MaxFieldMatches, parseFieldMatch)
		case 8:
			m.Query = element(&f, "query", m.Query, policy.MaxFieldMatches, parseFieldMatch)
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

func parseFieldMatch(b []byte) (m policy.FieldMatch, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			m.Name = f.text("name", policy.MaxNameLength)
		case 2:
			m.Kind = policy.FieldKind(f.number8("kind"))
		case 3:
			m.Value = f.text("value", policy.MaxFieldValue)
		default:
			f.skip()
		}
	}
	return m, f.err
}
