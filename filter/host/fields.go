package host

// fields is a header map that the host has handed over.
type fields interface {
	// find gives the value of the field of that name, in lower case, and how many there are; it is valid as long as the map is.
	// Of several fields, it joins the values by what fieldRules says.
	find(name string) (string, int)
}

// noFields is a header map that could not be had.
type noFields struct{}

func (noFields) find(string) (string, int) { return "", 0 }

// fieldRules says under which name the proxy has a field, and what stands between the values of several such fields: a
// comma, and for cookie a semicolon. (RFC 9110, 5.3; RFC 9113, 8.2.3.)
func fieldRules(name string) (stored, separator string) {
	switch name {
	case "host":
		return ":authority", ","
	case "cookie":
		return name, "; "
	default:
		return name, ","
	}
}
