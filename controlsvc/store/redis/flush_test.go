package redis

import (
	"errors"
	"testing"
	"time"
)

// Scripts are flushed again and again under load: no call fails for it, and none is executed twice.
func TestScriptsAreFlushedUnderLoad(t *testing.T) {
	s := open(t, startServer(t).URL())
	const most = 1_000_000
	l := startLoad(s, 16, testKey("flush", "1000000/1h"))
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for range 100 {
		<-ticker.C
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l.end(t)
	var unknown int64 // calls whose deadline came first, which a busy machine has: they may have been executed
	for _, o := range l.outcomes {
		switch {
		case fails(o.err):
			t.Errorf("a call failed: %v", o.err)
		case o.err != nil:
			unknown++
		}
	}
	if over, lost := l.judge(t, most); over != 0 || lost != 0 {
		t.Errorf("%d over, %d lost", over, lost)
	}
	charged := most - remaining(t, s, l.keys[0])
	if granted := int64(len(l.grants)); charged < granted || charged > granted+unknown {
		t.Errorf("%d units charged for %d granted and %d calls without an answer", charged, granted, unknown)
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
