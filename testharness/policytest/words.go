package policytest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// words is what is left of a line.
type words struct {
	rest []word
}

type word struct {
	text   string
	quoted bool
}

var errQuote = errors.New(`a quote without its end, or an escape that Go does not know`)

// split parts a line into words, and leaves the comment out. Where commas is set, a comma outside quotes is a word.
func split(line string, commas bool) (words, error) {
	var w words
	for {
		line = strings.TrimLeft(line, " \t\r")
		switch {
		case line == "" || line[0] == '#':
			return w, nil
		case line[0] == '"':
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return w, errQuote
			}
			text, err := strconv.Unquote(quoted)
			if err != nil {
				return w, errQuote
			}
			w.rest = append(w.rest, word{text, true})
			line = line[len(quoted):]
		case commas && line[0] == ',':
			w.rest = append(w.rest, word{text: ","})
			line = line[1:]
		default:
			ends := " \t\r"
			if commas {
				ends += ","
			}
			end := strings.IndexAny(line, ends)
			if end < 0 {
				end = len(line)
			}
			w.rest = append(w.rest, word{text: line[:end]})
			line = line[end:]
		}
	}
}

// cutArrow parts a line at its first "->" outside quotes.
func cutArrow(line string) (before, after string, found bool) {
	inQuotes := false
	for i := 0; i+1 < len(line); i++ {
		switch {
		case inQuotes && line[i] == '\\':
			i++
		case line[i] == '"':
			inQuotes = !inQuotes
		case !inQuotes && line[i] == '-' && line[i+1] == '>':
			return line[:i], line[i+2:], true
		}
	}
	return line, "", false
}

func (w *words) empty() bool { return len(w.rest) == 0 }

// next takes a word; want says what it should have been.
func (w *words) next(want string) (string, error) {
	if w.empty() {
		return "", fmt.Errorf("the line ends; want %s", want)
	}
	text := w.rest[0].text
	w.rest = w.rest[1:]
	return text, nil
}

// take takes the next word where it is this one, unquoted.
func (w *words) take(text string) bool {
	if !w.empty() && !w.rest[0].quoted && w.rest[0].text == text {
		w.rest = w.rest[1:]
		return true
	}
	return false
}

// end makes sure that nothing is left.
func (w *words) end() error {
	if w.empty() {
		return nil
	}
	return fmt.Errorf("%q; want the end of the line", w.rest[0].text)
}

// duration takes a time as Go writes it, from 0 to a year.
func (w *words) duration(what string) (time.Duration, error) {
	want := what + `, such as 100ms or 1h30m`
	text, err := w.next(want)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 366*24*time.Hour || d != d.Truncate(time.Microsecond) {
		return 0, fmt.Errorf("%q; want %s, whole microseconds, at most a year", text, want)
	}
	return d, nil
}

// number takes a whole number.
func (w *words) number(what string, least, most int) (int, error) {
	want := fmt.Sprintf("%s, %d to %d", what, least, most)
	text, err := w.next(want)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q; want %s", text, want)
	}
	return n, nil
}
