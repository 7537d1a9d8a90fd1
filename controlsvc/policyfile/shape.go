package policyfile

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// Bounds on the shape of a document, far above what a policy needs. The YAML parser recurses for every level and for every
// field of a mapping, and moves all that follows for every empty value and document: 1 MiB of them takes it minutes.
const (
	maxTokens = 500_000
	maxDepth  = 24
	maxFields = 1024
	maxEmpty  = 1024
)

// shape follows a document's tokens, to bound it before it is parsed. It need not be exact where the YAML is wrong.
type shape struct {
	open          []collection
	empty         int
	headers, ends int
}

// collection is a mapping or a list that the tokens are in.
type collection struct {
	// flow is a collection in brackets or braces; others are told apart by the column of their keys or dashes.
	flow, list bool
	column     int
	fields     int
	// key says that the entry of a flow mapping has had its colon.
	key bool
}

// checkShape gives the token at which a document goes beyond the bounds, and how; an empty problem where it does not.
func checkShape(tokens token.Tokens) (at *token.Token, problem string) {
	var s shape
	var before *token.Token
	for i, tk := range tokens {
		if tk.Type == token.CommentType {
			continue
		}
		s.countEmpty(before, tk)
		s.follow(before, tk)
		switch {
		case s.headers > 1 || s.ends > 1:
			return tk, "a second document begins or ends here, want one"
		case i >= maxTokens:
			return tk, fmt.Sprintf("the document has more than %d words and signs", maxTokens)
		case len(s.open) > maxDepth:
			return tk, fmt.Sprintf("is nested more than %d deep", maxDepth)
		case len(s.open) > 0 && !s.top().list && s.top().fields > maxFields:
			return tk, fmt.Sprintf("the mapping has more than %d fields", maxFields)
		case s.empty > maxEmpty:
			return tk, fmt.Sprintf("the document has more than %d empty values", maxEmpty)
		}
		before = tk
	}
	return nil, ""
}

func (s *shape) top() *collection { return &s.open[len(s.open)-1] }

func (s *shape) inFlow() bool { return len(s.open) > 0 && s.top().flow }

// follow opens and closes collections.
func (s *shape) follow(before, tk *token.Token) {
	switch tk.Type {
	case token.DocumentHeaderType:
		s.open = s.open[:0]
		s.headers++
	case token.DocumentEndType:
		s.open = s.open[:0]
		s.ends++
	case token.MappingStartType, token.SequenceStartType:
		s.open = append(s.open, collection{flow: true, list: tk.Type == token.SequenceStartType})
	case token.MappingEndType, token.SequenceEndType:
		if s.inFlow() {
			s.open = s.open[:len(s.open)-1]
		}
	case token.CollectEntryType:
		if s.inFlow() {
			s.top().fields++
			s.top().key = false
		}
	case token.SequenceEntryType:
		s.blockEntry(tk.Position.Column, true)
	case token.MappingKeyType:
		s.blockEntry(tk.Position.Column, false)
	case token.MappingValueType:
		if s.inFlow() {
			s.top().key = true
		} else if before != nil {
			s.blockEntry(before.Position.Column, false)
		}
	default:
	}
}

// blockEntry notes a dash, or the key of a field, outside brackets.
func (s *shape) blockEntry(column int, list bool) {
	if s.inFlow() {
		return
	}
	// A list may stand in the column of the field that it belongs to, and ends with the next field there.
	for len(s.open) > 0 && (s.top().column > column || s.top().column == column && s.top().list && !list) {
		s.open = s.open[:len(s.open)-1]
	}
	if len(s.open) == 0 || s.top().column < column || s.top().list != list {
		s.open = append(s.open, collection{list: list, column: column})
	}
	s.top().fields++
}

// leaves says whether a token on a line of its own is outside the innermost mapping, or begins its next field. A list may
// stand in the column of the field that it belongs to.
func (s *shape) leaves(tk *token.Token) bool {
	if len(s.open) == 0 || s.inFlow() {
		return false
	}
	column := s.top().column
	return tk.Position.Column < column || tk.Position.Column == column && tk.Type != token.SequenceEntryType
}

// countEmpty counts values that are not there, between two tokens.
func (s *shape) countEmpty(before, tk *token.Token) {
	if before == nil {
		return
	}
	closes := tk.Type == token.CollectEntryType || tk.Type == token.MappingEndType || tk.Type == token.SequenceEndType
	switch before.Type {
	case token.MappingValueType:
		if closes || tk.Position.Line > before.Position.Line && s.leaves(tk) {
			s.empty++
		}
	case token.SequenceEntryType:
		if tk.Position.Line > before.Position.Line && tk.Position.Column <= before.Position.Column {
			s.empty++
		}
	case token.CollectEntryType, token.MappingStartType, token.SequenceStartType:
		if tk.Type == token.CollectEntryType {
			s.empty++
		}
	default:
		// A key without a colon, as in {a, b}.
		if closes && s.inFlow() && !s.top().list && !s.top().key {
			s.empty++
		}
	}
}
