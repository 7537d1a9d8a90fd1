package traffic

import (
	"fmt"
	"slices"

	"sluice/shared/instant"
)

// Query says what a Snapshot is to show.
type Query struct {
	// Range is FiveMinutes where it is empty.
	Range Range
	// Limit has only what concerns that limit; empty: all.
	Limit string
	// Top is how many keys and routes are listed, at most 200; 0: 20.
	Top int
}

// Snapshot is what all replicas know of the traffic. Its form as JSON is stable: fields are added, never changed.
// Instants are seconds since 1970.
type Snapshot struct {
	Range Range   `json:"range"`
	Limit string  `json:"limit,omitempty"`
	At    float64 `json:"at"`
	// Until is through when every replica has told what it knows; the last points of a series are missing something.
	Until float64 `json:"until"`
	// Since is when the replica began that is longest up: from before nothing is known.
	Since float64 `json:"since"`
	// Whole is since when nothing is missing: of what was before, a replica that has begun or gone since may have known a part
	// that nobody knows now.
	Whole float64 `json:"whole_since"`
	// Last is when a request was last reported; 0: never, as far as is known.
	Last     float64   `json:"last_request"`
	Replicas []Replica `json:"replicas"`
	// Total is over all requests, or those that Query.Limit decided.
	Total Counts `json:"total"`
	// Calls is the workers' calls that ask for something, without those that only report, and CallsPerRequest their share, 0
	// where there were no requests. Neither is of one limit.
	Calls           int64   `json:"calls"`
	CallsPerRequest float64 `json:"calls_per_request"`
	Series          *Series `json:"series"`
	// Limits are those that were heard of, by their requests.
	Limits []Limit `json:"limits"`
	// Keys and Routes are those with most denials, Shadow the keys with most that a limit in shadow would have denied. One that
	// is not listed can have had as many as the field beside says, at most. They are since Ranked: of the range, and of up to a
	// step more of what they are kept by, which is a minute, five minutes or an hour.
	Ranked     float64 `json:"ranked_since"`
	Keys       []Key   `json:"keys"`
	KeysMost   int64   `json:"keys_most"`
	Routes     []Route `json:"routes"`
	RoutesMost int64   `json:"routes_most"`
	Shadow     []Key   `json:"shadow"`
	ShadowMost int64   `json:"shadow_most"`
	// Upstream is how long admitted requests were there, as a sample, and Store how long its calls took.
	Upstream  Latency    `json:"upstream"`
	Store     Latency    `json:"store"`
	Fallbacks []Fallback `json:"fallbacks"`
	// Workers are those last heard of, Connected how many filters' workers there are, over all replicas.
	Workers   []Worker `json:"workers"`
	Connected int      `json:"connected"`
}

// Replica is one of those that told what they know.
type Replica struct {
	ID     string  `json:"id"`
	At     float64 `json:"at"`
	Since  float64 `json:"since"`
	Policy string  `json:"policy"`
}

// Series is counts over time, one for each step; a list without a number is left out.
type Series struct {
	// From is when the first step begins, Step how long each is, in seconds, and Points how many there are. The last one is
	// not over yet.
	From   int64 `json:"from"`
	Step   int64 `json:"step"`
	Points int   `json:"points"`

	Admitted       []int64 `json:"admitted,omitempty"`
	Denied         []int64 `json:"denied,omitempty"`
	Left           []int64 `json:"left,omitempty"`
	ShadowAdmitted []int64 `json:"shadow_admitted,omitempty"`
	ShadowDenied   []int64 `json:"shadow_denied,omitempty"`
	Near           []int64 `json:"near,omitempty"`
	Fallback       []int64 `json:"fallback,omitempty"`
	Calls          []int64 `json:"calls,omitempty"`
}

// Limit is a limit's counts, and for the busiest of them over time.
type Limit struct {
	Name string `json:"name"`
	Counts

	Series *Series `json:"series,omitempty"`
}

// Key is what a key of a limit had. Its counts may lack what it had before it was denied often; of its denials, shadow's and
// others', at most More are missing.
type Key struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	Counts

	More int64 `json:"more,omitempty"`
	// ShadowShare is which share of its requests a limit in shadow would have denied, 0 to 1.
	ShadowShare float64 `json:"shadow_share,omitempty"`
}

// Route is what requests of a path pattern had that a limit decided.
type Route struct {
	Limit string `json:"limit"`
	Route string `json:"route"`
	Counts

	More int64 `json:"more,omitempty"`
}

// Latency is quantiles in microseconds, off by at most an eighth; 0 where Count is.
type Latency struct {
	Count int64   `json:"count"`
	P50   int64   `json:"p50_us"`
	P95   int64   `json:"p95_us"`
	Step  int64   `json:"step"`
	Steps []Steps `json:"steps"`
}

// Steps is the quantiles of a step, which begins at From.
type Steps struct {
	From  int64 `json:"from"`
	Count int64 `json:"count"`
	P50   int64 `json:"p50_us"`
	P95   int64 `json:"p95_us"`
}

const (
	defaultTop = 20
	maxTop     = ranksShared
)

// Replica gives the id of this replica: 16 hexadecimal digits.
func (t *Traffic) Replica() string { return fmt.Sprintf("%016x", t.config.Replica) }

// Snapshot shows what all replicas know: this one as of now, the others as of some seconds ago.
func (t *Traffic) Snapshot(query Query) Snapshot {
	if query.Top <= 0 {
		query.Top = defaultTop
	}
	query.Top = min(query.Top, maxTop)
	of := spans[0]
	for _, s := range spans {
		if s.of == query.Range {
			of = s
		}
	}
	now := t.config.Now()
	states := []state{t.state(now, of)}
	t.mu.Lock()
	if now.Sub(t.heard) < othersKept {
		states = append(states, t.others...)
	} else if len(t.others) > 0 {
		states[0].Whole = seconds(now)
	}
	t.mu.Unlock()
	return merge(states, of, query, now)
}

// merge adds up what replicas told of a range.
func merge(states []state, of span, query Query, now instant.Instant) Snapshot {
	s := Snapshot{
		Range: of.of, Limit: query.Limit, At: seconds(now), Until: seconds(now), Since: seconds(now), Ranked: seconds(now), Series: newSeries(of, now),
		Upstream: Latency{Step: of.latencyStep}, Store: Latency{Step: of.latencyStep},
	}
	total, limits, series := newSeries(of, now), make(map[string]Counts), make(map[string]*Series)
	keys, routes := newRanked(), newRanked()
	upstream, store := make(map[int64]sparse), make(map[int64]sparse)
	for i := range states {
		from := &states[i]
		s.Replicas = append(s.Replicas, Replica{ID: from.Replica, At: from.At, Since: from.Since, Policy: from.Policy})
		s.Until, s.Since = min(s.Until, from.At), min(s.Since, from.Since)
		s.Whole, s.Last = max(s.Whole, from.Whole), max(s.Last, from.Last)
		s.Ranked = min(s.Ranked, max(float64(of.first(instant.Instant(from.At*microsPerSecond), of.sketchStep)), from.Since))
		s.Workers = append(s.Workers, from.Workers...)
		s.Connected += from.Connected
		for _, f := range from.Fallbacks {
			if query.Limit == "" || f.Limit == query.Limit {
				s.Fallbacks = append(s.Fallbacks, f)
			}
		}
		v := from.Views[of.of]
		if v == nil {
			continue
		}
		total.merge(v.Total)
		for limit, counts := range v.Limits {
			sum := limits[limit]
			sum.add(counts)
			limits[limit] = sum
		}
		for limit, told := range v.Series {
			if series[limit] == nil {
				series[limit] = newSeries(of, now)
			}
			series[limit].merge(told)
		}
		keys.addRanks(v.Keys)
		routes.addRanks(v.Routes)
		mergeSparse(upstream, v.Upstream, of, now)
		mergeSparse(store, v.Store, of, now)
	}
	for _, at := range total.Calls {
		s.Calls += at
	}
	sum := total.sum()
	if requests := sum.Admitted + sum.Denied + sum.Left; requests > 0 {
		s.CallsPerRequest = float64(s.Calls) / float64(requests)
	}
	s.Total, s.Series = sum, total
	if query.Limit != "" {
		s.Total, s.Series = limits[query.Limit], series[query.Limit]
		if s.Series == nil {
			s.Series = newSeries(of, now)
		}
	}
	s.listLimits(limits, series)
	s.listRanks(keys, routes, query)
	s.Upstream.fill(upstream)
	s.Store.fill(store)
	s.Fallbacks = mergeFallbacks(s.Fallbacks, seconds(now)-float64(of.length), seconds(now))
	s.Workers = newestWorkers(s.Workers)
	s.Connected = max(s.Connected-duplicates(states), countFilters(s.Workers))
	s.tidy()
	return s
}

// duplicates is how many of the listed workers of filters called several replicas.
func duplicates(states []state) (n int) {
	seen := make(map[string]bool)
	for i := range states {
		for _, w := range states[i].Workers {
			if seen[w.ID] && !w.Own {
				n++
			}
			seen[w.ID] = true
		}
	}
	return n
}

func (s *Snapshot) listLimits(limits map[string]Counts, series map[string]*Series) {
	for i, limit := range byRequests(limits) {
		if s.Limit != "" && s.Limit != limit {
			continue
		}
		one := Limit{Name: limit, Counts: limits[limit]}
		if i < seriesShared || s.Limit != "" {
			one.Series = series[limit]
		}
		s.Limits = append(s.Limits, one)
	}
}

func (s *Snapshot) listRanks(keys, routes *ranked, query Query) {
	all := keys.list(query.Limit, len(keys.names))
	for _, at := range all.Names {
		one := Key{Limit: at.Limit, Key: at.Name, Counts: at.Counts, More: at.More}
		if requests := at.ShadowAdmitted + at.ShadowDenied; requests > 0 {
			one.ShadowShare = float64(at.ShadowDenied) / float64(requests)
		}
		if at.Denied > 0 {
			s.Keys = append(s.Keys, one)
		}
		if requests := at.ShadowAdmitted + at.ShadowDenied; requests > 0 {
			s.Shadow = append(s.Shadow, one)
		}
	}
	slices.SortStableFunc(s.Keys, func(a, b Key) int { return int(min(max(b.Denied-a.Denied, -1), 1)) })
	slices.SortStableFunc(s.Shadow, func(a, b Key) int { return int(min(max(b.ShadowDenied-a.ShadowDenied, -1), 1)) })
	s.KeysMost, s.ShadowMost = all.Floor, all.Floor
	for _, dropped := range s.Keys[min(len(s.Keys), query.Top):] {
		s.KeysMost = max(s.KeysMost, dropped.Denied+dropped.More)
	}
	for _, dropped := range s.Shadow[min(len(s.Shadow), query.Top):] {
		s.ShadowMost = max(s.ShadowMost, dropped.ShadowDenied+dropped.More)
	}
	s.Keys, s.Shadow = s.Keys[:min(len(s.Keys), query.Top)], s.Shadow[:min(len(s.Shadow), query.Top)]
	found := routes.list(query.Limit, query.Top)
	s.RoutesMost = found.Floor
	for _, at := range found.Names {
		if at.denials() > 0 {
			s.Routes = append(s.Routes, Route{Limit: at.Limit, Route: at.Name, Counts: at.Counts, More: at.More})
		}
	}
}

// tidy makes lists of nothing empty ones, for those who read JSON.
func (s *Snapshot) tidy() {
	s.Limits, s.Keys, s.Routes, s.Shadow = some(s.Limits), some(s.Keys), some(s.Routes), some(s.Shadow)
	s.Fallbacks, s.Workers = some(s.Fallbacks), some(s.Workers)
	s.Upstream.Steps, s.Store.Steps = some(s.Upstream.Steps), some(s.Store.Steps)
}

func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// newSeries gives a series without counts.
func newSeries(of span, now instant.Instant) *Series {
	from := of.first(now, of.step)
	return &Series{From: from, Step: of.step, Points: int(int64(now)/microsPerSecond/of.step - from/of.step + 1)}
}

// columns are the lists of a series, beside the counts that belong in them.
func (s *Series) columns(c Counts, calls int64) [8]struct {
	list *[]int64
	n    int64
} {
	return [8]struct {
		list *[]int64
		n    int64
	}{
		{&s.Admitted, c.Admitted},
		{&s.Denied, c.Denied},
		{&s.Left, c.Left},
		{&s.ShadowAdmitted, c.ShadowAdmitted},
		{&s.ShadowDenied, c.ShadowDenied},
		{&s.Near, c.Near},
		{&s.Fallback, c.Fallback},
		{&s.Calls, calls},
	}
}

// add counts what happened in a second; what is not in the series is left out.
func (s *Series) add(second int64, c Counts, calls int64) {
	at := second/s.Step - s.From/s.Step
	if at < 0 || at >= int64(s.Points) {
		return
	}
	for _, column := range s.columns(c, calls) {
		if column.n == 0 {
			continue
		}
		if *column.list == nil {
			*column.list = make([]int64, s.Points)
		}
		(*column.list)[at] += column.n
	}
}

// merge adds another series, wherever it begins.
func (s *Series) merge(o *Series) {
	if o == nil || o.Step != s.Step {
		return
	}
	for i := range min(max(o.Points, 0), 2*s.Points) {
		var c Counts
		var calls int64
		for _, one := range []struct {
			into *int64
			list []int64
		}{
			{&c.Admitted, o.Admitted},
			{&c.Denied, o.Denied},
			{&c.Left, o.Left},
			{&c.ShadowAdmitted, o.ShadowAdmitted},
			{&c.ShadowDenied, o.ShadowDenied},
			{&c.Near, o.Near},
			{&c.Fallback, o.Fallback},
			{&calls, o.Calls},
		} {
			if i < len(one.list) {
				*one.into = one.list[i]
			}
		}
		s.add(o.From+int64(i)*o.Step, c, calls)
	}
}

// sum adds the series up.
func (s *Series) sum() (sum Counts) {
	for _, column := range []struct {
		into *int64
		list []int64
	}{
		{&sum.Admitted, s.Admitted},
		{&sum.Denied, s.Denied},
		{&sum.Left, s.Left},
		{&sum.ShadowAdmitted, s.ShadowAdmitted},
		{&sum.ShadowDenied, s.ShadowDenied},
		{&sum.Near, s.Near},
		{&sum.Fallback, s.Fallback},
	} {
		for _, n := range column.list {
			*column.into += n
		}
	}
	return sum
}

// mergeSparse adds histograms of a range's steps.
func mergeSparse(into, from map[int64]sparse, of span, now instant.Instant) {
	first := of.first(now, of.latencyStep)
	for step, h := range from {
		if step < first || step > int64(now)/microsPerSecond || step%of.latencyStep != 0 {
			continue
		}
		if into[step] == nil {
			into[step] = make(sparse)
		}
		for bucket, n := range h {
			if bucket >= 0 && bucket < histogramBuckets && n > 0 {
				into[step][bucket] += n
			}
		}
	}
}

// fill works the quantiles out.
func (l *Latency) fill(steps map[int64]sparse) {
	all := make(sparse)
	for from, h := range steps {
		count, p50, p95 := h.quantiles()
		l.Steps = append(l.Steps, Steps{From: from, Count: count, P50: p50, P95: p95})
		for bucket, n := range h {
			all[bucket] += n
		}
	}
	slices.SortFunc(l.Steps, func(a, b Steps) int { return int(min(max(a.From-b.From, -1), 1)) })
	l.Count, l.P50, l.P95 = all.quantiles()
}

func (s sparse) quantiles() (count, p50, p95 int64) {
	for _, n := range s {
		count += n
	}
	at := func(rank int64) int64 {
		for bucket := range histogramBuckets {
			if rank -= s[bucket]; rank < 0 && s[bucket] > 0 {
				return bucketMiddle(bucket)
			}
		}
		return 0
	}
	return count, at(count / 2), at(count * 95 / 100)
}
