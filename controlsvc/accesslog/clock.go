package accesslog

import (
	"strconv"
	"strings"
	"time"

	"sluice/shared/instant"
)

// clock reads times. Those of one minute share all but their seconds, which is read once.
type clock struct {
	minute string // as it was written last
	zone   string
	began  instant.Instant
}

const (
	isoMinute    = "2006-01-02T15:04:"
	commonMinute = "02/Jan/2006:15:04:"
)

// read reads 2026-04-15T20:17:00.310Z and the like, 15/Apr/2026:20:17:00 +0000, or a number since 1970.
func (c *clock) read(text string) (instant.Instant, bool) {
	switch {
	case len(text) >= len(isoMinute)+2 && text[4] == '-' && (text[10] == 'T' || text[10] == ' '):
		return c.parts(text, len(isoMinute))
	case len(text) >= len(commonMinute)+2 && text[2] == '/':
		return c.parts(text, len(commonMinute))
	}
	return since1970(text)
}

// parts reads what stands before the seconds, the seconds with their fraction, and the zone.
func (c *clock) parts(text string, minute int) (instant.Instant, bool) {
	a, b := text[minute]-'0', text[minute+1]-'0'
	if a > 6 || b > 9 {
		return 0, false
	}
	second := instant.Instant(a)*10 + instant.Instant(b)
	if second > 60 { // 60 is a leap second
		return 0, false
	}
	micros, rest := fraction(text[minute+2:])
	if c.minute != text[:minute] || c.zone != rest {
		began, ok := readMinute(text[:minute], rest)
		if !ok {
			return 0, false
		}
		// What is kept does not keep the log's text.
		c.minute, c.zone, c.began = strings.Clone(text[:minute]), strings.Clone(rest), began
	}
	return c.began + second*1_000_000 + micros, true
}

// fraction reads what stands behind the seconds' point, in microseconds, and gives what follows it.
func fraction(text string) (micros instant.Instant, rest string) {
	if text == "" || text[0] != '.' && text[0] != ',' {
		return 0, text
	}
	i := 1
	for unit := instant.Instant(100_000); i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		micros += unit * instant.Instant(text[i]-'0')
		unit /= 10
	}
	return micros, text[i:]
}

func readMinute(minute, zone string) (instant.Instant, bool) {
	layout := isoMinute
	if len(minute) == len(commonMinute) {
		layout = commonMinute
	}
	minute = minute[:len(minute)-1]
	layout = layout[:len(layout)-1]
	if len(minute) == len(isoMinute)-1 && minute[10] == ' ' {
		layout = strings.Replace(layout, "T", " ", 1)
	}
	zone = strings.TrimSpace(zone)
	for _, form := range []string{"Z07:00", "-0700", "-07", "Z0700"} {
		at, err := time.Parse(layout+form, minute+zone)
		if err == nil {
			return instant.FromTime(at), inRange(at)
		}
	}
	if zone != "" && zone != "UTC" && zone != "GMT" {
		return 0, false
	}
	at, err := time.Parse(layout, minute)
	return instant.FromTime(at), err == nil && inRange(at)
}

// inRange keeps sums of times and windows far from overflow.
func inRange(at time.Time) bool { return at.Year() >= 1970 && at.Year() < 3000 }

// since1970 reads a number of seconds, milliseconds, microseconds or nanoseconds, whichever makes it a time between 1973 and
// 3000 or so.
func since1970(text string) (instant.Instant, bool) {
	const longest = 30
	const latest = 32_503_680_000 // the year 3000, in seconds
	if text == "" || len(text) > longest || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	whole, rest, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	micros, after := fraction("." + rest)
	if err != nil || after != "" { // such as 1.7e9
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f >= 1<<62 {
			return 0, false
		}
		n, micros = int64(f), 0
	}
	switch {
	case n < 100_000_000:
		return 0, false
	case n < latest:
		return instant.Instant(n)*1_000_000 + micros, true
	case n < latest*1000:
		return instant.Instant(n)*1000 + micros/1000, true
	case n < latest*1_000_000:
		return instant.Instant(n), true
	}
	return instant.Instant(n / 1000), true
}
