package policy

import (
	"regexp"
	"regexp/syntax"
	"strconv"
)

// Bounds on regular expressions: what one may cost is its size times the length of what it is compared with.
const (
	// MaxPatternLength is in bytes.
	MaxPatternLength = 512
	// MaxPatternSize bounds what a pattern compiles to, about the instructions of Go's machine: [a-z]{64} has 64.
	MaxPatternSize = 512
	// MaxPatterns bounds the different patterns of a policy.
	MaxPatterns = 1024
	// MaxPatternInput is the longest text that is compared with a pattern, in bytes.
	MaxPatternInput = 4096
)

// pattern is a regular expression that has to match a whole text.
type pattern struct{ regex *regexp.Regexp }

// newPattern compiles a pattern that CheckPattern has passed, or takes it from those that are compiled.
func newPattern(text string, compiled map[string]*pattern) *pattern {
	p := compiled[text]
	if p == nil {
		p = &pattern{regexp.MustCompile(anchored(text))}
		compiled[text] = p
	}
	return p
}

// anchored gives the pattern of whole texts.
func anchored(text string) string { return `^(?:` + text + `)$` }

// matches gives tooLong for a text that is too long.
func (p *pattern) matches(text string, tooLong bool) bool {
	if len(text) > MaxPatternInput {
		return tooLong
	}
	return p.regex.MatchString(text)
}

// pattern checks one pattern more.
func (c *checker) pattern(text string) string {
	if c.patterns[text] {
		return ""
	}
	if len(c.patterns) >= MaxPatterns {
		return "is one of more than " + strconv.Itoa(MaxPatterns) + " different patterns of the policy"
	}
	problem := CheckPattern(text)
	if problem == "" {
		c.patterns[text] = true
	}
	return problem
}

// CheckPattern says what is wrong with a regular expression; empty where it may be used.
func CheckPattern(text string) string {
	if text == "" || len(text) > MaxPatternLength {
		return "has " + strconv.Itoa(len(text)) + " bytes, want a regular expression of 1 to " + strconv.Itoa(MaxPatternLength)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return strconv.Quote(clip(text)) + " is no regular expression: " + err.Error()
	}
	if _, err := syntax.Parse(anchored(text), syntax.Perl); err != nil { // a \Q without its \E quotes what comes after it
		return strconv.Quote(clip(text)) + " is no regular expression within another one: " + err.Error()
	}
	if size := patternSize(tree); size > MaxPatternSize {
		return strconv.Quote(clip(text)) + " is " + strconv.Itoa(size) + " steps long when its repetitions are written out, want at most " +
			strconv.Itoa(MaxPatternSize)
	}
	return ""
}

// patternSize is about how many instructions a pattern compiles to. The parser has bounded its depth, and the product of
// nested repetitions to 1,000.
func patternSize(tree *syntax.Regexp) int {
	size := 0
	for _, sub := range tree.Sub {
		size += patternSize(sub)
	}
	switch tree.Op {
	case syntax.OpLiteral:
		return len(tree.Rune)
	case syntax.OpRepeat:
		return size * max(tree.Min, tree.Max, 1)
	case syntax.OpConcat:
		return size
	default:
		return size + max(1, len(tree.Sub))
	}
}
