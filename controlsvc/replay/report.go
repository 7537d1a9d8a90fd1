package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/controlsvc/accesslog"
	"sluice/shared/instant"
	"sluice/shared/policy"
)

// Report is what came of a replay. Times are UTC, durations in seconds.
type Report struct {
	Policy  PolicyName  `json:"policy"`
	Against *PolicyName `json:"against,omitempty"`
	Log     LogReport   `json:"log"`
	Totals  Totals      `json:"totals"`
	// Compared is there with Against only.
	Compared *Compared `json:"compared,omitempty"`
	// Limits are those of the policy that a request was under, in its order; Before those of today's policy.
	Limits []LimitReport `json:"limits"`
	Before []LimitReport `json:"against_limits,omitempty"`
	// Keys are those with most denials; Gone those with most requests that only today's
	// policy denies: what Gone says of a key is of today's policy, which may deny others that the policy denies too.
	Keys []KeyReport `json:"keys"`
	Gone []KeyReport `json:"no_longer_limited_keys,omitempty"`
	// Routes have the requests by the path of their first limit that says one.
	Routes []Route `json:"routes"`
	// Minutes are those with most denials, the worst first.
	Minutes []Moment `json:"worst_minutes"`
	Course  Course   `json:"course"`
	// Missing is what the policy reads of requests and the log never has.
	Missing []Missing `json:"missing"`
	// Notes are what else has to be known to read the figures right.
	Notes []string `json:"notes"`
	// Incomplete is why the log could not be read to its end; the figures are of what could be. Empty where it was.
	Incomplete string `json:"incomplete,omitempty"`

	hashed bool
}

// PolicyName names a policy.
type PolicyName struct {
	File    string `json:"file"`
	Domain  string `json:"domain"`
	Version string `json:"version"`
}

// LogReport is what was read.
type LogReport struct {
	Files []File    `json:"files"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	// Lines are all but empty ones; Moved came after a later one, and were put in order; Late could not be.
	Lines     int64               `json:"lines"`
	Malformed int64               `json:"malformed"`
	Moved     int64               `json:"out_of_order"`
	Late      int64               `json:"late"`
	Problems  []accesslog.Problem `json:"problems"`
	// Refused were answered with 429 when they were logged.
	Refused int64 `json:"status_429"`
}

// File is a file that was read.
type File struct {
	Name   string `json:"name"`
	Format string `json:"format"`
}

// Totals are of all requests.
type Totals struct {
	Requests int64 `json:"requests"`
	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`
	// Blocked of the denied stand on a block list. Of the admitted, Held had to wait for a unit (max_wait), Allowed are out of
	// limits by a list, and Unlimited are under none.
	Blocked   int64 `json:"blocked"`
	Held      int64 `json:"held"`
	Allowed   int64 `json:"allowed"`
	Unlimited int64 `json:"unlimited"`
	// LimitedKeys were denied at least once.
	LimitedKeys int64 `json:"limited_keys"`

	longestHeld time.Duration
	changed     int64
}

// Compared is how the policy differs from today's, in requests.
type Compared struct {
	DeniedToday int64 `json:"denied_today"`
	DeniedBoth  int64 `json:"denied_by_both"`
	Newly       int64 `json:"newly_limited"`
	Gone        int64 `json:"no_longer_limited"`
}

// LimitReport is what one limit did.
type LimitReport struct {
	Limit     string `json:"limit"`
	Rates     string `json:"rates"`
	Algorithm string `json:"algorithm"`
	Mode      string `json:"mode"`
	// Requests were under it. Denied are those that it is told of as the reason for, DeniedToo those that it denied beside
	// another one, Blocked of Denied those on its block list.
	Requests     int64 `json:"requests"`
	Denied       int64 `json:"denied"`
	DeniedToo    int64 `json:"denied_too"`
	Blocked      int64 `json:"blocked"`
	Held         int64 `json:"held"`
	ShadowDenied int64 `json:"shadow_denied"`
	// Changed of the denied are not denied by the other policy.
	Changed int64 `json:"changed"`
	Keys    int64 `json:"limited_keys"`
	// First and Last are the times of its denials.
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
}

// KeyReport is what became of one caller of one limit.
type KeyReport struct {
	Limit string `json:"limit"`
	// Key is as it stands in the store: escaped, and hashed where the policy says so; empty where all share one.
	Key          string    `json:"key"`
	Requests     int64     `json:"requests"`
	Denied       int64     `json:"denied"`
	ShadowDenied int64     `json:"shadow_denied"`
	Changed      int64     `json:"changed"`
	First        time.Time `json:"first"`
	Last         time.Time `json:"last"`
	// Wait is the longest that it would have been told to wait.
	Wait float64 `json:"longest_retry_after_seconds"`
}

// Route is what became of the requests of one path.
type Route struct {
	Route    string `json:"route"`
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
	Newly    int64  `json:"newly_limited"`
	Gone     int64  `json:"no_longer_limited"`
}

// Moment is what happened from a time on.
type Moment struct {
	At       time.Time `json:"at"`
	Requests int64     `json:"requests"`
	Denied   int64     `json:"denied"`
	Today    int64     `json:"denied_today"`
	Newly    int64     `json:"newly_limited"`
	Gone     int64     `json:"no_longer_limited"`
}

// Course is what happened over time, in intervals of equal length.
type Course struct {
	Seconds float64  `json:"seconds"`
	Moments []Moment `json:"intervals"`
	// Limits have the denials of each limit that has any, by interval.
	Limits []LimitCourse `json:"limits"`
}

// LimitCourse is a limit's denials by interval.
type LimitCourse struct {
	Limit  string  `json:"limit"`
	Denied []int64 `json:"denied"`
}

// Missing is something that the policy reads and the log never has.
type Missing struct {
	What string `json:"what"`
	// By is what reads it.
	By []string `json:"read_by"`
	// Help says how it could be had.
	Help string `json:"help"`
}

// Report tells what came of it so far. The names are those of the policies' files.
func (p *Player) Report(file, today string, log *accesslog.Log) *Report {
	r := &Report{
		Policy: PolicyName{file, p.config.Policy.Domain, p.config.Policy.Version}, Totals: p.tally.totals,
		Limits: p.tally.reports(), Keys: p.tally.keys(p.config.Top, (*keyStat).compare, func(s *keyStat) bool { return s.denied+s.shadowDenied > 0 }),
		Routes: p.tally.byRoute(), Minutes: []Moment{}, Missing: p.missing(log), Notes: p.notes(), Log: p.logReport(log),
	}
	r.hashed = slices.ContainsFunc(p.config.Policy.Identities, func(id policy.Identity) bool { return id.Hash })
	for i := range p.tally.limits {
		r.Totals.LimitedKeys += p.tally.limits[i].keys
	}
	for _, w := range p.course.worst {
		r.Minutes = append(r.Minutes, p.course.moment(w.at, w.moment))
	}
	r.Course = p.course.report(p.config.Policy)
	if p.before != nil {
		r.Against = &PolicyName{today, p.config.Today.Domain, p.config.Today.Version}
		r.Before = p.before.reports()
		r.Compared = &Compared{
			DeniedToday: p.before.totals.Denied, Newly: p.tally.totals.changed, Gone: p.before.totals.changed,
			DeniedBoth: p.tally.totals.Denied - p.tally.totals.changed,
		}
		r.Gone = p.before.keys(p.config.Top, byChanged, func(s *keyStat) bool { return s.changed > 0 })
	}
	return r
}

func byChanged(a, b *keyStat) int { return cmp.Or(cmp.Compare(b.changed, a.changed), a.compare(b)) }

func (p *Player) logReport(log *accesslog.Log) LogReport {
	counts := log.Counts()
	l := LogReport{
		From: utc(p.from), To: utc(p.to), Lines: counts.Lines, Malformed: counts.Malformed, Moved: counts.Moved, Late: counts.Late,
		Problems: counts.Problems, Refused: p.seen.refused,
	}
	if l.Problems == nil {
		l.Problems = []accesslog.Problem{}
	}
	for _, reader := range log.Readers() {
		l.Files = append(l.Files, File{reader.Name(), reader.Format().String()})
	}
	return l
}

func utc(at instant.Instant) time.Time { return time.UnixMicro(int64(at)).UTC() }

func (t *tally) reports() []LimitReport {
	reports := []LimitReport{}
	for i := range t.limits {
		l, c := &t.policy.Limits[i], &t.limits[i]
		if len(l.Descriptor) > 0 {
			continue
		}
		rates := make([]string, 0, len(l.Rates))
		for _, rate := range l.Rates {
			rates = append(rates, rate.String())
		}
		r := LimitReport{
			Limit: l.Name, Rates: strings.Join(rates, ", "), Algorithm: l.Algorithm.String(), Mode: l.Mode.String(),
			Requests: c.requests, Denied: c.denied, DeniedToo: c.deniedToo, Blocked: c.blocked, Held: c.held, ShadowDenied: c.shadowDenied,
			Changed: c.changed, Keys: c.keys,
		}
		if c.denied > 0 {
			first, last := utc(c.first), utc(c.last)
			r.First, r.Last = &first, &last
		}
		reports = append(reports, r)
	}
	return reports
}

func (t *tally) keys(n int, compare func(a, b *keyStat) int, counts func(*keyStat) bool) []KeyReport {
	reports := []KeyReport{}
	for _, s := range t.stats.top(n, compare, counts) {
		r := KeyReport{
			Limit: t.policy.Limits[s.id.limit].Name, Key: s.id.key, Requests: s.requests, Denied: s.denied, ShadowDenied: s.shadowDenied,
			Changed: s.changed, Wait: s.wait.Seconds(),
		}
		if s.denied > 0 {
			r.First, r.Last = utc(s.first), utc(s.last)
		}
		reports = append(reports, r)
	}
	return reports
}

func (t *tally) byRoute() []Route {
	routes := []Route{}
	for _, r := range t.routes {
		if r.Requests > 0 {
			routes = append(routes, *r)
		}
	}
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests))
	})
	return routes
}

func (*course) moment(at instant.Instant, m moment) Moment {
	return Moment{At: utc(at), Requests: m.requests, Denied: m.denied, Today: m.today, Newly: m.newly, Gone: m.gone}
}

func (c *course) report(p *policy.Policy) Course {
	r := Course{Seconds: steps[c.step].Seconds(), Moments: []Moment{}, Limits: []LimitCourse{}}
	for i, m := range c.bins {
		r.Moments = append(r.Moments, c.moment(instant.Instant((c.first+int64(i))*c.width()), m))
	}
	for i, bins := range c.limits {
		if bins != nil {
			r.Limits = append(r.Limits, LimitCourse{p.Limits[i].Name, bins[:len(c.bins)]})
		}
	}
	return r
}

// missing says what the policies read and no line has.
func (p *Player) missing(log *accesslog.Log) []Missing {
	all := []Missing{}
	have := []string{}
	for _, reader := range log.Readers() {
		for _, name := range reader.FieldNames() {
			if !slices.Contains(have, name) && len(have) < 64 {
				have = append(have, name)
			}
		}
	}
	fields := ", FIELD one of " + list(have)
	for i, name := range p.request.headers {
		if p.seen.wanted>>i&1 == 1 {
			continue
		}
		m := Missing{What: "header " + name, By: p.needs.headers[name], Help: "map it: --header " + name + "=FIELD" + fields}
		if field := p.config.Headers[name]; field != "" {
			m.Help = "it is mapped to " + field + ", which no line has" + fields
		}
		if identity, mapped := strings.CutPrefix(name, mappedHeader("")); mapped {
			m.What = "identity " + identity
			m.Help = "it is mapped to " + p.config.Identities[identity] + ", which no line has" + fields
		}
		all = append(all, m)
	}
	for what, is := range map[string]bool{ofClient: p.seen.client, ofAuthority: p.seen.authority, ofMethod: p.seen.method} {
		if by := p.needs.others[what]; len(by) > 0 && !is {
			role := map[string]string{ofClient: "client", ofAuthority: "authority", ofMethod: "method"}[what]
			all = append(all, Missing{What: what, By: by, Help: "map it: --field " + role + "=FIELD" + fields})
		}
	}
	for what, by := range p.needs.attributes {
		all = append(all, Missing{What: what, By: by, Help: "map the identity: --identity NAME=FIELD" + fields})
	}
	slices.SortFunc(all, func(a, b Missing) int { return cmp.Compare(a.What, b.What) })
	return all
}

// list gives names for people, not all of many.
func list(names []string) string {
	const most = 24
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// notes say what else has to be known.
func (p *Player) notes() []string {
	notes := []string{}
	for _, s := range []struct {
		of   *side
		t    *tally
		name string
	}{{p.new, p.tally, "the policy to try"}, {p.today, p.before, "today's policy"}} {
		if s.of == nil {
			continue
		}
		if n := s.of.keys.evicted; n > 0 {
			notes = append(notes, fmt.Sprintf("%d keys of %s were forgotten while they still counted, for there are more than "+
				"--max-keys %d, or too many requests within their windows: some requests are admitted that would be denied",
				n, s.name, p.config.MaxKeys))
		}
		if n := s.t.stats.forgotten; n > 0 {
			notes = append(notes, fmt.Sprintf("%d limited keys of %s with few denials are not among those that are told of one by one", n, s.name))
		}
		if n := s.of.keys.full; n > 0 {
			notes = append(notes, fmt.Sprintf("%d requests were not counted under %s: their keys hold too many", n, s.name))
		}
		descriptors := 0
		for i := range s.t.policy.Limits {
			if len(s.t.policy.Limits[i].Descriptor) > 0 {
				descriptors++
			}
		}
		if descriptors > 0 {
			notes = append(notes, fmt.Sprintf(
				"%d limits of %s are for descriptors of Envoy's rate limit filter, which a log does not have: they are left out", descriptors, s.name))
		}
	}
	if n := p.seen.refused; n > 0 {
		notes = append(notes, fmt.Sprintf("%d requests were answered with 429 when they were logged; what clients would have sent instead is not known", n))
	}
	return notes
}
