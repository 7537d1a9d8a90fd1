package policytest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/filter/host/fake"
)

// expectation is what is expected of one answer.
type expectation struct {
	fate   fake.Fate
	status int // 0 where the client is to be gone
	checks []check
}

// check gives what is wrong with an answer; "" where nothing is.
type check func(a Answer) string

// parseExpectations reads what is expected of so many requests, and gives one for each.
func parseExpectations(text string, times int) ([]expectation, error) {
	w, err := split(text, true)
	if err != nil {
		return nil, err
	}
	var all []expectation
	for {
		count, err := parseCount(&w, times)
		if err != nil {
			return nil, err
		}
		one, err := parseExpectation(&w)
		if err != nil {
			return nil, err
		}
		last := w.empty()
		if !last && !w.take(",") {
			return nil, w.end()
		}
		if count == 0 {
			count = 1
			if last {
				count = max(1, times-len(all))
			}
		}
		for range count {
			all = append(all, one)
		}
		if last {
			break
		}
	}
	if len(all) != times {
		return nil, fmt.Errorf("%d expectations for %d requests", len(all), times)
	}
	return all, nil
}

// parseCount takes "3x"; 0 where there is no such word, for all the rest.
func parseCount(w *words, most int) (int, error) {
	if w.empty() || w.rest[0].quoted {
		return 0, nil
	}
	digits, is := strings.CutSuffix(w.rest[0].text, "x")
	if !is {
		return 0, nil
	}
	count, err := strconv.Atoi(digits)
	if err != nil || count < 1 || count > most {
		return 0, fmt.Errorf("%q; want how many, 1x to %dx", w.rest[0].text, most)
	}
	w.rest = w.rest[1:]
	return count, nil
}

func parseExpectation(w *words) (expectation, error) {
	var e expectation
	const want = "a status such as 200 or 429, or gone"
	text, err := w.next(want)
	if err != nil {
		return e, err
	}
	if text == "gone" {
		e.fate = fake.Gone
		return e, nil
	}
	if e.status, err = strconv.Atoi(text); err != nil || e.status < 200 || e.status > 599 {
		return e, fmt.Errorf("%q; want %s", text, want)
	}
	for !w.empty() && w.rest[0].text != "," {
		c, err := parseCheck(w)
		if err != nil {
			return e, err
		}
		e.checks = append(e.checks, c)
	}
	return e, nil
}

// numbers are the words for what headers say in numbers.
var numbers = map[string]func(Answer) string{
	"remaining":   func(a Answer) string { return parameter(header(a, "ratelimit"), "", "r") },
	"reset":       func(a Answer) string { return parameter(header(a, "ratelimit"), "", "t") },
	"limit":       func(a Answer) string { return parameter(header(a, "ratelimit-policy"), reported(a), "q") },
	"retry-after": func(a Answer) string { return header(a, "retry-after") },
}

// reported gives the name of the limit that ratelimit is about, in its quotes.
func reported(a Answer) string {
	name, _, _ := strings.Cut(header(a, "ratelimit"), ";")
	return name
}

// parameter gives an integer parameter of a list's item: of the one of that name, of the first where it is empty. Empty where
// there is none.
func parameter(list, name, key string) string {
	at := strings.Index(list, name+";")
	if at < 0 {
		return ""
	}
	item, _, _ := strings.Cut(list[at:], ",")
	for part := range strings.SplitSeq(item, ";") {
		if value, is := strings.CutPrefix(part, key+"="); is {
			return value
		}
	}
	return ""
}

func header(a Answer, name string) string {
	for _, h := range a.Headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

func checkNumber(name, want string) check {
	return func(a Answer) string {
		if got := numbers[name](a); got != want {
			return fmt.Sprintf("%s is %q, want %q", name, got, want)
		}
		return ""
	}
}

func parseCheck(w *words) (check, error) {
	const want = "remaining, limit, reset, retry-after, header, no, body, at-once or within"
	text, _ := w.next(want)
	if numbers[text] != nil {
		n, err := w.number(text, 0, 1<<53)
		return checkNumber(text, strconv.Itoa(n)), err
	}
	switch text {
	case "header":
		name, err := w.next("a header's name")
		if err != nil {
			return nil, err
		}
		value, err := w.next("the value of " + name)
		return checkHeader(strings.ToLower(name), value), err
	case "no":
		name, err := w.next("a header's name")
		return checkNoHeader(strings.ToLower(name)), err
	case "body":
		part, err := w.next("a part of the body")
		return checkBody(part), err
	case "at-once":
		return checkWithin(0), nil
	case "within":
		d, err := w.duration("the longest wait")
		return checkWithin(d), err
	}
	return nil, fmt.Errorf("%q; want %s, or a comma", text, want)
}

func checkHeader(name, want string) check {
	return func(a Answer) string {
		for _, h := range a.Headers {
			if h[0] == name {
				if h[1] != want {
					return fmt.Sprintf("%s is %q, want %q", name, h[1], want)
				}
				return ""
			}
		}
		return fmt.Sprintf("no %s, want %q", name, want)
	}
}

func checkNoHeader(name string) check {
	return func(a Answer) string {
		for _, h := range a.Headers {
			if h[0] == name {
				return fmt.Sprintf("%s is %q, want none", name, h[1])
			}
		}
		return ""
	}
}

func checkBody(part string) check {
	return func(a Answer) string {
		if !strings.Contains(a.Body, part) {
			return fmt.Sprintf("the body is %q, want %q in it", a.Body, part)
		}
		return ""
	}
}

func checkWithin(longest time.Duration) check {
	return func(a Answer) string {
		if a.Waited > longest {
			return fmt.Sprintf("decided after %v, want within %v", a.Waited, longest)
		}
		return ""
	}
}

// wrong lists what is wrong with an answer.
func (e expectation) wrong(a Answer) []string {
	if e.status == 0 {
		if a.Fate != e.fate {
			return []string{"it is " + describe(a) + ", want " + e.fate.String()}
		}
		return nil
	}
	if a.Status != e.status || a.Fate == fake.Waiting || a.Fate == fake.Gone {
		return []string{"it is " + describe(a) + ", want " + strconv.Itoa(e.status)}
	}
	var list []string
	for _, c := range e.checks {
		if text := c(a); text != "" {
			list = append(list, text)
		}
	}
	return list
}

func describe(a Answer) string {
	switch a.Fate {
	case fake.Answered:
		return strconv.Itoa(a.Status) + " " + strings.TrimSpace(a.Body)
	case fake.Passed:
		return "200"
	default:
		return a.Fate.String()
	}
}
