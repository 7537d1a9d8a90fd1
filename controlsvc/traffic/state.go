package traffic

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sluice/shared/instant"
)

const (
	// ranksShared is how many keys, and routes, of each range a replica tells the others.
	ranksShared = 200
	// seriesShared is how many limits it tells the series of, those with most requests.
	seriesShared = 20
	// maxPacked is how many bytes it tells them at most; where it is more it tells of fewer keys and routes.
	maxPacked = 200 << 10
	// maxState bounds what another replica may tell, unpacked, in bytes.
	maxState = 8 << 20
)

// state is what a replica knows, in the form in which it tells the others.
type state struct {
	Replica   string          `json:"replica"`
	At        float64         `json:"at"`    // seconds since 1970
	Since     float64         `json:"since"` // when the replica began
	Whole     float64         `json:"whole"` // since when no other is known to have gone
	Last      float64         `json:"last"`  // when it was last told of a request; 0: never
	Policy    string          `json:"policy"`
	Workers   []Worker        `json:"workers,omitempty"`
	Connected int             `json:"connected"`
	Fallbacks []Fallback      `json:"fallbacks,omitempty"`
	Views     map[Range]*view `json:"views"`
}

// view is what a replica knows of a range.
type view struct {
	Total  *Series            `json:"total"`
	Series map[string]*Series `json:"series,omitempty"`
	Limits map[string]Counts  `json:"limits,omitempty"`
	Keys   ranks              `json:"keys"`
	Routes ranks              `json:"routes"`
	// Upstream and Store are how long they took, by the step that a time lies in, in seconds since 1970.
	Upstream map[int64]sparse `json:"upstream,omitempty"`
	Store    map[int64]sparse `json:"store,omitempty"`
}

// sparse is a histogram's buckets that are not empty.
type sparse map[int]int64

// ranks are what is denied most.
type ranks struct {
	Names []rank `json:"names,omitempty"`
	// Floor is the most denials that one can have had that is not listed.
	Floor int64 `json:"floor"`
}

type rank struct {
	Limit string `json:"limit"`
	Name  string `json:"name"`
	Counts

	More int64 `json:"more,omitempty"`
}

// add adds ranks that a replica told.
func (r *ranked) addRanks(told ranks) {
	floor := max(told.Floor, 0)
	for _, at := range told.Names {
		r.addName(name{at.Limit, at.Name}, at.Counts, max(at.More, 0), floor)
	}
	r.floor += floor
}

// list gives those with most denials, of one limit where it is named, at most so many.
func (r *ranked) list(limit string, most int) ranks {
	all := ranks{Floor: r.floor}
	for n, at := range r.names {
		if limit == "" || limit == n.limit {
			all.Names = append(all.Names, rank{Limit: n.limit, Name: n.name, Counts: at.counts, More: r.over(at)})
		}
	}
	slices.SortFunc(all.Names, func(a, b rank) int {
		return cmp.Or(
			cmp.Compare(b.denials(), a.denials()), cmp.Compare(b.Admitted+b.ShadowAdmitted, a.Admitted+a.ShadowAdmitted),
			strings.Compare(a.Limit, b.Limit), strings.Compare(a.Name, b.Name),
		)
	})
	if len(all.Names) > most {
		for _, dropped := range all.Names[most:] {
			all.Floor = max(all.Floor, dropped.denials()+dropped.More)
		}
		all.Names = all.Names[:most]
	}
	return all
}

// state gives what this replica knows. The lock is held for a part at a time, for reports not to wait.
func (t *Traffic) state(now instant.Instant, ranges ...span) state {
	s := state{Replica: t.Replica(), At: seconds(now), Since: seconds(t.since), Whole: seconds(t.since), Views: make(map[Range]*view, len(ranges))}
	t.mu.Lock()
	s.Last = seconds(t.last)
	for _, gone := range t.lost {
		s.Whole = max(s.Whole, seconds(gone.at))
	}
	if t.policy != nil {
		s.Policy = t.policy.Version
	}
	s.Workers, s.Connected = t.workers.list(s.Replica, t.leases.byWorker(now), now)
	s.Fallbacks = slices.Clone(t.fallbacks)
	t.mu.Unlock()
	for _, of := range ranges {
		s.Views[of.of] = t.view(of, now)
	}
	return s
}

// view gives what this replica knows of a range.
func (t *Traffic) view(of span, now instant.Instant) *view {
	v := &view{Limits: make(map[string]Counts), Series: make(map[string]*Series)}
	t.mu.Lock()
	v.Total = t.total.series(of, now)
	timelines := maps.Clone(t.timelines)
	v.Upstream, v.Store = t.upstream.sparse(of, now), t.store.sparse(of, now)
	t.mu.Unlock()
	for limit, l := range timelines {
		t.mu.Lock()
		v.Series[limit] = l.series(of, now)
		t.mu.Unlock()
		v.Limits[limit] = v.Series[limit].sum()
	}
	keys, routes := newRanked(), newRanked()
	from := of.first(now, of.sketchStep)
	for i := range spans {
		if spans[i].of != of.of {
			continue
		}
		for step := from; step <= int64(now)/microsPerSecond; step += of.sketchStep {
			t.mu.Lock()
			t.most[i].each(step, func(second int64, d *denied) {
				if second == step && d.keys != nil {
					keys.add(d.keys)
					routes.add(d.routes)
				}
			})
			t.mu.Unlock()
		}
	}
	v.Keys, v.Routes = keys.list("", len(keys.names)), routes.list("", len(routes.names))
	return v
}

// first is when a range begins that ends now, in seconds since 1970: so that the steps from there on cover all of it.
func (s span) first(now instant.Instant, step int64) int64 {
	return (int64(now)/microsPerSecond - s.length + 1) / step * step
}

func (l *timeline) series(of span, now instant.Instant) *Series {
	s := newSeries(of, now)
	fine := &l.minutes
	if of.fineTimeline {
		fine = &l.seconds
	}
	fine.each(s.From, func(second int64, c *cell) {
		counts, calls := c.wide()
		s.add(second, counts, calls)
	})
	return s
}

func (l *latencies) sparse(of span, now instant.Instant) map[int64]sparse {
	all := make(map[int64]sparse)
	fine := &l.coarse
	if of.fineLatencyRing {
		fine = &l.fine
	}
	fine.each(of.first(now, of.latencyStep), func(second int64, h *histogram) {
		step := second / of.latencyStep * of.latencyStep
		for bucket, n := range h {
			if n > 0 {
				if all[step] == nil {
					all[step] = make(sparse)
				}
				all[step][bucket] += int64(n)
			}
		}
	})
	return all
}

// pack gives the state as the others read it, cut down to what they need and may be told.
func (s state) pack() (packed []byte, err error) {
	for most := ranksShared; most > 0 && err == nil && (packed == nil || len(packed) > maxPacked); most /= 2 {
		packed, err = s.cut(most).compress()
	}
	return packed, err
}

// cut keeps so many keys and routes, and the series of the busiest limits.
func (s state) cut(most int) state {
	for _, v := range s.Views {
		v.Keys, v.Routes = v.Keys.cut(most), v.Routes.cut(most)
		busiest := byRequests(v.Limits)
		for _, limit := range busiest[min(seriesShared, len(busiest)):] {
			delete(v.Series, limit)
		}
	}
	return s
}

func (s state) compress() ([]byte, error) {
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(json.NewEncoder(packed).Encode(s), packed.Close()); err != nil {
		return nil, fmt.Errorf("packing what this replica knows: %w", err)
	}
	return out.Bytes(), nil
}

// cut keeps the first so many.
func (r ranks) cut(most int) ranks {
	if len(r.Names) > most {
		for _, dropped := range r.Names[most:] {
			r.Floor = max(r.Floor, dropped.denials()+dropped.More)
		}
		r.Names = r.Names[:most]
	}
	return r
}

// byRequests gives the limits' names, those with most requests first.
func byRequests(limits map[string]Counts) []string {
	var names []string
	for limit := range limits {
		names = append(names, limit)
	}
	requests := func(of string) int64 {
		c := limits[of]
		return c.Admitted + c.Denied + c.ShadowAdmitted + c.ShadowDenied
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(requests(b), requests(a)), strings.Compare(a, b)) })
	return names
}

// unpack reads what another replica told. What it says is as it may be: nothing is looked for by what it says.
func unpack(packed []byte) (s state, err error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return s, fmt.Errorf("what a replica told: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(reader, maxState+1))
	switch {
	case err != nil:
		return s, fmt.Errorf("what a replica told: %w", err)
	case len(plain) > maxState:
		return s, fmt.Errorf("what a replica told: more than %d bytes", maxState)
	}
	if err := json.Unmarshal(plain, &s); err != nil {
		return s, fmt.Errorf("what a replica told: %w", err)
	}
	return s, nil
}
