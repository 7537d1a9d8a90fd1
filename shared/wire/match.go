package wire

import "sluice/shared/policy"

func appendMatch(dst []byte, m *policy.Match) []byte {
	dst = appendText(dst, 1, m.PathExact)
	dst = appendText(dst, 2, m.PathPrefix)
	for _, method := range m.Methods {
		dst = appendPresentText(dst, 3, method)
	}
	return dst
}

func parseMatch(b []byte, m *policy.Match) *FieldError {
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
		default:
			f.skip()
		}
	}
	return f.err
}
