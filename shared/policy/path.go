package policy

import (
	"strconv"
	"strings"
)

// Path templates: /v1/reports/{id} matches paths with exactly one segment in the place of {id}, which is not empty;
// {name=**}, at the end only, stands for any segments that follow, also none.

// CheckTemplate says what is wrong with a path template; empty where it may be used.
func CheckTemplate(text string) string {
	if !ValidPath(text) {
		return badPath(text)
	}
	var names []string
	for rest, more := text[1:], true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if !strings.ContainsAny(segment, "{}") {
			continue
		}
		name, all := variableOf(segment)
		switch {
		case name == "":
			return strconv.Quote(clip(segment)) + " is no variable, want one for a whole segment, such as {id}, or {rest=**} for all that follow"
		case all && more:
			return strconv.Quote(clip(segment)) + " stands for all that follows, want nothing after it"
		}
		for _, other := range names {
			if other == name {
				return "{" + clip(name) + "} is there twice"
			}
		}
		names = append(names, name)
	}
	return ""
}

// variableOf gives the name of the variable that a segment is, and whether it stands for all that follow; no name where it
// is none.
func variableOf(segment string) (name string, all bool) {
	if len(segment) < 3 || segment[0] != '{' || segment[len(segment)-1] != '}' {
		return "", false
	}
	name, all = strings.CutSuffix(segment[1:len(segment)-1], "=**")
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' && (i == 0 || c < '0' || c > '9') {
			return "", false
		}
	}
	return name, all
}

// isPathVariable says so of a segment of a template that CheckTemplate has passed.
func isPathVariable(segment string) bool { return segment != "" && segment[0] == '{' }

func isRest(segment string) bool { return strings.HasSuffix(segment, "=**}") }

// matchesTemplate says whether a path is what a template says.
func matchesTemplate(path, template string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for template != "" {
		var want, segment string
		want, template = cutSegment(template)
		if isRest(want) {
			return true
		}
		if path == "" {
			return false
		}
		segment, path = cutSegment(path)
		if isPathVariable(want) && segment == "" || !isPathVariable(want) && segment != want {
			return false
		}
	}
	return path == ""
}

// cutSegment takes the first segment, without its slash, off a path that begins with one.
func cutSegment(path string) (segment, rest string) {
	end := strings.IndexByte(path[1:], '/') + 1
	if end == 0 {
		return path[1:], ""
	}
	return path[1:end], path[end:]
}

// behindSegment gives what stands behind a segment, which has no slash before it.
func behindSegment(path string) string {
	if end := strings.IndexByte(path, '/'); end >= 0 {
		return path[end:]
	}
	return ""
}
