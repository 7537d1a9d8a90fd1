package policy

import (
	"strconv"
	"strings"
)

// Measure says what of a request its cost is read from. The zero value: from nothing, the cost is a constant.
type Measure struct {
	// Header is the name, in lower case, of a request header that says the cost in units. Of several numbers, in fields or
	// between commas, the largest counts: a client cannot make cheaper what a proxy after it has priced.
	Header string
	// Bytes is the size of a unit: a request costs one for each started so many bytes of its content-length. 0: not so.
	Bytes int64
	// Max is what a request costs at most, 1 to MaxCost units.
	Max int64
}

func (m *Measure) measures() bool { return m.Header != "" || m.Bytes > 0 }

// cost gives what a request spends: what it says itself where that is a whole number, at least 1 and at most the measure's
// Max; else RequestCost.
func (b *binding) cost(l *Limit) int64 {
	m := &l.Measure
	switch {
	case m.Header != "":
		text, _ := b.request.Header(m.Header)
		if n, ok := largestNumber(text); ok {
			return min(max(1, n), m.Max)
		}
	case m.Bytes > 0:
		text, _ := b.request.Header("content-length")
		if n, ok := wholeNumber(text); ok {
			return min(max(1, n/m.Bytes+min(1, n%m.Bytes)), m.Max)
		}
	}
	return l.RequestCost()
}

// largestNumber gives the largest whole number of those between commas; false where there is none.
func largestNumber(list string) (largest int64, ok bool) {
	for more := true; more; {
		var text string
		text, list, more = strings.Cut(list, ",")
		if n, is := wholeNumber(strings.Trim(text, " \t")); is {
			largest, ok = max(largest, n), true
		}
	}
	return largest, ok
}

// wholeNumber reads digits; a number that is too large is the largest.
func wholeNumber(text string) (int64, bool) {
	const largest = 1 << 62
	if text == "" {
		return 0, false
	}
	var n int64
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if n >= largest/10 {
			n = largest // the rest still has to be digits
			continue
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

func checkMeasure(m *Measure) *invalid {
	switch {
	case !m.measures() && m.Max == 0:
		return nil
	case m.Header != "" && m.Bytes != 0:
		return &invalid{"measure", "has a header and bytes, want one of the two"}
	case m.Header != "" && !ValidHeader(m.Header):
		return &invalid{"measure.header", strconv.Quote(clip(m.Header)) + " is no header's name in lower case"}
	case m.Bytes < 0 || m.Bytes > MaxUnitBytes:
		return &invalid{"measure.bytes", "is " + strconv.FormatInt(m.Bytes, 10) + ", want 0 to " + strconv.Itoa(MaxUnitBytes)}
	case m.Max < 1 || m.Max > MaxCost:
		return &invalid{"measure.max", "is " + strconv.FormatInt(m.Max, 10) + ", want 1 to " + strconv.Itoa(MaxCost)}
	}
	return nil
}
