package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sluice/shared/instant"
)

const (
	// blockSize is how much is read at once.
	blockSize = 1 << 18
	// detectLines is by how many lines a format is found out.
	detectLines = 32
)

// Reader reads one file in the order in which its requests came.
type Reader struct {
	// Counts may be read at any time.
	Counts Counts

	name   string
	config Config
	format Format
	parser parser
	lines  lines

	// ahead are entries in order, up to sorted; those from next on have not been given. The others follow as they were read,
	// in order too unless mixed.
	ahead  []ordered
	next   int
	sorted int
	mixed  bool
	number uint64
	latest instant.Instant // of those that were read
	given  instant.Instant
	began  bool
	ended  bool
	failed error // why it ended there; nil: it is the end
	free   []*Entry
	last   *Entry
}

// ordered is an entry in its place: by its time, and of one time by its line.
type ordered struct {
	at     instant.Instant
	number uint64
	entry  *Entry
}

// NewReader gives a reader of what is in r, gzipped or not. Name is what problems are told of.
func NewReader(name string, r io.Reader, c Config) (*Reader, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Ahead == 0 {
		c.Ahead = DefaultAhead
	}
	buffered := bufio.NewReaderSize(r, 1<<16)
	var from io.Reader = buffered
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%s: it begins as a gzip file: %w", name, err)
		}
		from = unzipped
	}
	l := &Reader{name: name, config: c, format: c.Format, lines: lines{from: from, block: make([]byte, 0, blockSize)}}
	if err := l.lines.fill(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.lines.text = strings.TrimPrefix(l.lines.text, "\ufeff") // which some programs write in front of UTF-8
	if l.format == Auto {
		first := l.lines.first(detectLines)
		if len(first) == 0 {
			l.format = Common // of nothing
		} else if f, err := detect(first, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		} else {
			l.format = f
		}
	}
	l.parser = newParser(l.format, &c)
	return l, nil
}

// Name is what NewReader was told.
func (l *Reader) Name() string { return l.name }

// Format gives the format that the lines are read as.
func (l *Reader) Format() Format { return l.format }

// FieldNames gives what the file's fields are called: of JSON those of the last line, not those within objects.
func (l *Reader) FieldNames() []string { return l.parser.fields() }

// Next gives the next entry, which is valid until Next is called again; nil at the end. The error is one of reading,
// and comes after all entries that could be read.
func (l *Reader) Next() (*Entry, error) {
	if l.last != nil {
		l.free = append(l.free, l.last)
		l.last = nil
	}
	l.fetch() // one for each that is given, so that whoever takes them never waits for many
	if l.next == l.sorted {
		l.sort()
		if l.sorted == 0 {
			return nil, l.failed // nil at the end, which is no error
		}
	}
	o := &l.ahead[l.next]
	l.next++
	l.last = o.entry
	if o.at < l.given && l.began {
		l.Counts.Late++
		o.entry.At = l.given
	}
	l.began = true
	l.given = max(l.given, o.at)
	return o.entry, nil
}

// fetch reads a line, unless twice as many are there as may be ahead, and says whether it did.
func (l *Reader) fetch() bool {
	if l.ended || len(l.ahead)-l.next >= 2*l.config.Ahead {
		return false
	}
	e, err := l.read()
	if e == nil {
		l.ended, l.failed = true, err
		return false
	}
	if e.At < l.latest {
		l.Counts.Moved++
		l.mixed = true
	}
	l.latest = max(l.latest, e.At)
	l.number++
	l.ahead = append(l.ahead, ordered{e.At, l.number, e})
	return true
}

// sort puts in order what is there when all that was in order is given. The earlier half is sure to be given: whatever comes
// after it that is earlier is late.
func (l *Reader) sort() {
	l.ahead = slices.Delete(l.ahead, 0, l.next)
	l.next = 0
	for l.fetch() { // at the beginning
	}
	if l.mixed {
		slices.SortFunc(l.ahead, func(a, b ordered) int {
			if a.at != b.at {
				return int(a.at - b.at)
			}
			return int(a.number) - int(b.number)
		})
		l.mixed = false
	}
	l.sorted = len(l.ahead)
	if !l.ended {
		l.sorted /= 2
	}
}

// read gives the next line that can be read; nil at the end.
func (l *Reader) read() (*Entry, error) {
	for {
		line, tooLong, err := l.lines.next()
		if errors.Is(err, io.EOF) {
			return nil, nil //nolint:nilnil // the end is no error
		}
		if err != nil {
			return nil, fmt.Errorf("%s: after line %d: %w", l.name, l.lines.number, err)
		}
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			continue
		}
		l.Counts.Lines++
		if tooLong {
			l.Counts.malformed(l.name, l.lines.number, errTooLong, line)
			continue
		}
		e := l.entry()
		if err := l.parser.parse(line, e); err != nil {
			l.Counts.malformed(l.name, l.lines.number, err, line)
			l.free = append(l.free, e)
			continue
		}
		return e, nil
	}
}

func (l *Reader) entry() *Entry {
	var e *Entry
	if n := len(l.free); n > 0 {
		e = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		e = &Entry{}
	}
	e.reset(len(l.config.Want))
	return e
}

// lines parts what is read into lines. Those of a block are parts of one string.
type lines struct {
	from io.Reader
	// block holds what was read behind the text's end; text is whole lines of which some have been given.
	block  []byte
	text   string
	number int64
	// over: there is nothing more to read, for the reason, which is io.EOF at the end.
	over   bool
	reason error
	// skipping says that the line that the text begins with goes on one that was too long.
	skipping bool
}

// first gives up to n of the lines to come that are there already.
func (l *lines) first(n int) []string {
	var first []string
	for line := range strings.SplitSeq(l.text, "\n") {
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			continue
		}
		if first = append(first, line); len(first) == n {
			break
		}
	}
	return first
}

// next gives the next line without its end; io.EOF behind the last. Of one that is too long it gives the beginning.
func (l *lines) next() (line string, tooLong bool, err error) {
	for l.text == "" {
		if l.over {
			return "", false, l.reason
		}
		if err := l.fill(); err != nil {
			return "", false, err
		}
	}
	end := strings.IndexByte(l.text, '\n')
	l.number++
	if end < 0 { // a line without an end is the last, or one that is too long
		line, l.text = l.text, ""
	} else {
		line, l.text = l.text[:end], l.text[end+1:]
	}
	return line, len(line) > MaxLine, nil
}

// fill reads until there is a whole line, one that is too long, or the end. Its error is why there is nothing, not even a line that
// could be read before; what follows such a line without an end is none.
func (l *lines) fill() error {
	for {
		if len(l.block) == cap(l.block) {
			l.block = slices.Grow(l.block, len(l.block))
		}
		n, err := l.from.Read(l.block[len(l.block):cap(l.block)])
		l.block = l.block[:len(l.block)+n]
		l.over, l.reason = err != nil, err
		whole := errors.Is(err, io.EOF)
		end := bytes.LastIndexByte(l.block, '\n') + 1
		if l.skipping { // the rest of a line that was too long
			first := bytes.IndexByte(l.block, '\n') + 1
			if first == 0 {
				l.block = l.block[:0]
				if l.over && !whole {
					return err
				} else if l.over {
					return nil
				}
				continue
			}
			l.skipping = false
			l.block = l.block[:copy(l.block, l.block[first:])]
			end = max(0, end-first)
		}
		switch {
		case whole:
			end = len(l.block)
		case l.over && end == 0:
			return err
		case l.over:
		case end == 0 && len(l.block) > MaxLine:
			end = len(l.block)
			l.skipping = true
		case end < blockSize/2 && len(l.block) < cap(l.block):
			continue // more for one string
		}
		if end == 0 && !l.over {
			continue
		}
		l.text = string(l.block[:end])
		l.block = l.block[:copy(l.block, l.block[end:])]
		return nil
	}
}
