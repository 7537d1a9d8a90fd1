package web

import (
	"fmt"
	"net/http"
	"time"

	"sluice/controlsvc/traffic"
	"sluice/shared/instant"
)

// event is what a page asks to be told of: a range, and one limit, or all where it is empty.
type event struct {
	of    traffic.Range
	limit string
}

// made is an event's text, for all who ask within its freshness.
type made struct {
	at   instant.Instant
	text []byte
}

const (
	// maxEvents bounds the events whose texts are kept.
	maxEvents = 2 * maxStreams
	// writeWithin is how long a page may take to read an event.
	writeWithin = 10 * time.Second
	// retryAfter is when a page that found no room comes back, in seconds.
	retryAfter = "5"
)

// every is how often a page is told of a range: what is drawn by the second changes every second.
func (e event) every() time.Duration {
	switch e.of {
	case traffic.Hour, traffic.Day:
		return 5 * time.Second
	case traffic.FiveMinutes:
	}
	return time.Second
}

func eventOf(r *http.Request) event {
	e := event{of: traffic.Range(r.URL.Query().Get("range")), limit: r.URL.Query().Get("limit")}
	if e.of != traffic.Hour && e.of != traffic.Day {
		e.of = traffic.FiveMinutes
	}
	return e
}

// event gives an event's text, made anew where the last one has grown old.
func (d *dashboard) event(e event) []byte {
	now := d.config.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.events[e]; m != nil && now.Sub(m.at) < e.every()*9/10 {
		return m.text
	}
	if len(d.events) >= maxEvents {
		clear(d.events)
	}
	m := &made{at: now, text: d.see(e)}
	d.events[e] = m
	return m.text
}

// follow tells a page of the traffic until it has gone, as server-sent events.
func (d *dashboard) follow(w http.ResponseWriter, r *http.Request) {
	select {
	case d.streams <- struct{}{}:
		defer func() { <-d.streams }()
	default:
		w.Header().Set("Retry-After", retryAfter)
		http.Error(w, fmt.Sprintf("too many pages are open: %d at most are kept up to date at a time", maxStreams), http.StatusServiceUnavailable)
		return
	}
	e, control := eventOf(r), http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	if control.SetWriteDeadline(time.Time{}) != nil { // the server's is for whole answers
		return
	}
	for {
		if d.tell(w, control, d.event(e)) != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-d.config.Done:
			return
		case <-d.config.After(e.every()):
		}
	}
}

// tell writes an event, and gives a page up that does not read it in time.
func (d *dashboard) tell(w http.ResponseWriter, control *http.ResponseController, text []byte) error {
	written := make(chan struct{})
	defer close(written)
	go func() {
		select {
		case <-written:
		case <-d.config.After(writeWithin):
			_ = control.SetWriteDeadline(time.Unix(1, 0)) // long past, so that the write ends now
		}
	}()
	// JSON of our own, with <, > and & escaped, and no page.
	if _, err := w.Write(append(append([]byte("data: "), text...), "\n\n"...)); err != nil { //nolint:gosec // see above
		return err
	}
	return control.Flush()
}
