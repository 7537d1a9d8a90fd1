package policyfile

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml/lexer"
)

// What a policy may look like is far from the bounds, however it is laid out.
func TestOrdinaryShapesAreWithinBounds(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		depth int
	}{
		"lists in the column of their fields": {strings.Repeat("key:\n- a\n- b\n", 200), 2},
		"limits below each other":             {"limits:\n" + strings.Repeat("- name: a\n  match:\n    path: {prefix: /a}\n  key:\n  - a\n", 2000), 5},
		"limits in braces":                    {"limits: [" + strings.Repeat("{name: a, match: {path: {exact: /a}}, key: [a]},\n", 2000) + "]", 5},
		"steps up and down":                   {strings.Repeat("a:\n  b:\n    c: d\n", 300), 3},
		"a few empty values":                  {strings.Repeat("- a:\n  b:\n  -\n", 100), 3},
		"quoted signs":                        {strings.Repeat("- '[{- a: ? '\n", 1000), 1},
	} {
		var s shape
		deepest := 0
		tokens := lexer.Tokenize(c.text)
		for i, tk := range tokens {
			if i > 0 {
				s.follow(tokens[i-1], tk)
			} else {
				s.follow(nil, tk)
			}
			deepest = max(deepest, len(s.open))
		}
		if deepest != c.depth {
			t.Errorf("%s: seen %d deep, want %d", name, deepest, c.depth)
		}
		if at, problem := checkShape(tokens); problem != "" {
			t.Errorf("%s: line %d: %s", name, at.Position.Line, problem)
		}
	}
}
