// Package document writes measured figures into Markdown files, each set between marks of its own.
package document

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Section replaces what is between the marks of a name in a Markdown text, or adds both at its end. The marks say which
// make target writes it.
func Section(text, name, target, body string) (string, error) {
	begin, end := "<!-- "+name+": written by `make "+target+"` -->\n", "<!-- end of "+name+" -->\n"
	block := begin + "\n" + strings.TrimSpace(body) + "\n\n" + end
	before, rest, found := strings.Cut(text, begin)
	if !found {
		if text != "" {
			text = strings.TrimRight(text, "\n") + "\n\n"
		}
		return text + block, nil
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", errors.New("no line " + strings.TrimSpace(end) + " after " + strings.TrimSpace(begin))
	}
	return before + block + after, nil
}

// Write does so in a file, which is made where it is not there.
func Write(file, name, target, body string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading a document: %w", err)
	}
	text, err := Section(string(old), name, target, body)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
