package policyfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// Error is one thing that is wrong with a policy file.
type Error struct {
	File string
	// Line and Column count from 1, columns in characters; both 0 where the whole file is meant.
	Line, Column int
	// Path is the place in the document: "$.limits[1].rates[0]".
	Path string
	// Problem says what is wrong, and what was expected.
	Problem string
}

// Error gives "FILE:LINE:COLUMN: PATH: PROBLEM".
func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line) + ":" + strconv.Itoa(e.Column)
	}
	return where + ": " + e.Path + ": " + e.Problem
}

// Errors is everything that is wrong with a policy file, in the order of the file, up to 100.
type Errors []*Error

// Error gives a line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// add notes an error, and stops the reader after too many.
func (d *decoder) add(e *Error) {
	if len(d.errors) < maxErrors {
		d.errors = append(d.errors, e)
	}
	d.stopped = d.stopped || len(d.errors) == maxErrors
}

// failAt notes an error at a token; nil is the whole file.
func (d *decoder) failAt(at *token.Token, path, format string, arguments ...any) {
	e := &Error{File: d.file, Path: path, Problem: fmt.Sprintf(format, arguments...)}
	if at != nil && at.Position != nil {
		e.Line, e.Column = at.Position.Line, at.Position.Column
	}
	d.add(e)
}

// fail notes an error at a value.
func (d *decoder) fail(v value, format string, arguments ...any) {
	d.failAt(position(v.node), v.path, format, arguments...)
}

// quote puts text in quotes, cut to a length that a line can hold.
func quote(text string) string {
	const most = 64
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strconv.Quote(text)
}
