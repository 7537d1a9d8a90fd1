package accesslog

import (
	"errors"
	"fmt"
)

// Log is several files, merged by the times of their requests.
type Log struct {
	readers []*Reader
	// heads are the next entries of the readers, nil where one has none left; last is whose entry was given.
	heads []*Entry
	last  int
	// failed is why files ended early.
	failed error
}

// NewLog merges the readers, at least one.
func NewLog(readers ...*Reader) (*Log, error) {
	if len(readers) == 0 || len(readers) > MaxFiles {
		return nil, fmt.Errorf("%d files: want 1 to %d", len(readers), MaxFiles)
	}
	l := &Log{readers: readers, heads: make([]*Entry, len(readers)), last: -1}
	for i := range readers {
		l.advance(i)
	}
	return l, nil
}

func (l *Log) advance(i int) {
	var err error
	l.heads[i], err = l.readers[i].Next()
	l.failed = errors.Join(l.failed, err)
}

// Next gives the earliest entry of all files, of those of one time the one of the first file; nil at the end. It is valid
// until Next is called again.
func (l *Log) Next() (*Entry, error) {
	if l.last >= 0 {
		l.advance(l.last)
	}
	l.last = -1
	for i, head := range l.heads {
		if head != nil && (l.last < 0 || head.At < l.heads[l.last].At) {
			l.last = i
		}
	}
	if l.last < 0 {
		return nil, l.failed // nil at the end, which is no error
	}
	return l.heads[l.last], nil
}

// Readers gives the files' readers.
func (l *Log) Readers() []*Reader { return l.readers }

// Counts sums up what was read of all files.
func (l *Log) Counts() Counts {
	var sum Counts
	for _, r := range l.readers {
		c := &r.Counts
		sum.Lines += c.Lines
		sum.Malformed += c.Malformed
		sum.Moved += c.Moved
		sum.Late += c.Late
		for _, p := range c.Problems {
			if len(sum.Problems) < MaxProblems {
				sum.Problems = append(sum.Problems, p)
			}
		}
	}
	return sum
}
