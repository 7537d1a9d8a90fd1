package wire

import (
	"math"
	"time"
)

// Bounds on a report, as the reader has them.
const (
	MaxTallies       = 512
	MaxKeyTallies    = 256
	MaxDenialSamples = 8
	MaxUpstream      = 64
	// TraceIDLength is how many hexadecimal digits a W3C trace id has.
	TraceIDLength = 32
)

// Report is sluice.v1.Report: what a worker has decided since its report before.
type Report struct {
	ID             uint64
	Age, Span      time.Duration
	Tallies        []Tally
	Keys           []KeyTally
	Denials        []DenialSample
	UpstreamMicros []uint32
	UpstreamOf     uint32
	Unlisted       int64
	KeysLost       int64
	Away           time.Duration
	Waits          int64
	Waited         time.Duration
}

// Tally is requests that have all of this in common.
type Tally struct {
	Limit, Route string
	Window       time.Duration
	Result       Result
	// Source is an admission.Source.
	Source      uint8
	Count, Near int64
}

// Result is what became of a request, or what a limit in shadow would have made of it.
type Result uint8

// The results, by their numbers on the wire.
const (
	Admitted       Result = 1
	Denied         Result = 2
	ShadowAdmitted Result = 3
	ShadowDenied   Result = 4
	// Left: the client left before the request was decided.
	Left Result = 5
)

// String gives the result's name in metrics and logs.
func (r Result) String() string {
	switch r {
	case Admitted:
		return "admitted"
	case Denied:
		return "denied"
	case ShadowAdmitted:
		return "shadow_admitted"
	case ShadowDenied:
		return "shadow_denied"
	case Left:
		return "left"
	}
	return "unknown"
}

// KeyTally is requests that one key decided.
type KeyTally struct {
	KeyRef
	Admitted, Denied             int64
	ShadowAdmitted, ShadowDenied int64
}

// DenialSample is one denial.
type DenialSample struct {
	KeyRef
	Route  string
	Window time.Duration
	// Source is an admission.Source.
	Source     uint8
	Remaining  int64
	RetryAfter time.Duration
	Age        time.Duration
	TraceID    string
	Shadow     bool
}

func appendReport(dst []byte, r *Report) []byte {
	dst = appendNumber(dst, 1, r.ID)
	dst = appendDuration(dst, 2, r.Age)
	dst = appendDuration(dst, 3, r.Span)
	var start int
	for i := range r.Tallies {
		dst, start = openMessage(dst, 4)
		dst = closeMessage(appendTally(dst, &r.Tallies[i]), start)
	}
	for i := range r.Keys {
		dst, start = openMessage(dst, 5)
		dst = closeMessage(appendKeyTally(dst, &r.Keys[i]), start)
	}
	for i := range r.Denials {
		dst, start = openMessage(dst, 6)
		dst = closeMessage(appendDenialSample(dst, &r.Denials[i]), start)
	}
	dst = appendIndices(dst, 7, r.UpstreamMicros)
	dst = appendNumber(dst, 8, uint64(r.UpstreamOf))
	dst = appendUnits(dst, 9, r.Unlisted)
	dst = appendUnits(dst, 10, r.KeysLost)
	dst = appendDuration(dst, 11, r.Away)
	dst = appendUnits(dst, 12, r.Waits)
	return appendDuration(dst, 13, r.Waited)
}

func appendTally(dst []byte, t *Tally) []byte {
	dst = appendText(dst, 1, t.Limit)
	dst = appendText(dst, 2, t.Route)
	dst = appendDuration(dst, 3, t.Window)
	dst = appendNumber(dst, 4, uint64(t.Result))
	dst = appendNumber(dst, 5, uint64(t.Source))
	dst = appendUnits(dst, 6, t.Count)
	return appendUnits(dst, 7, t.Near)
}

func appendKeyTally(dst []byte, k *KeyTally) []byte {
	dst = appendKeyRef(dst, &k.KeyRef)
	dst = appendUnits(dst, 3, k.Admitted)
	dst = appendUnits(dst, 4, k.Denied)
	dst = appendUnits(dst, 5, k.ShadowAdmitted)
	return appendUnits(dst, 6, k.ShadowDenied)
}

func appendDenialSample(dst []byte, d *DenialSample) []byte {
	dst = appendKeyRef(dst, &d.KeyRef)
	dst = appendText(dst, 3, d.Route)
	dst = appendDuration(dst, 4, d.Window)
	dst = appendNumber(dst, 5, uint64(d.Source))
	dst = appendUnits(dst, 6, d.Remaining)
	dst = appendDuration(dst, 7, d.RetryAfter)
	dst = appendDuration(dst, 8, d.Age)
	dst = appendText(dst, 9, d.TraceID)
	return appendFlag(dst, 10, d.Shadow)
}

// parseReport reads a message into what earlier ones of the same field said.
func parseReport(b []byte, r *Report) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			r.ID = f.numberUpTo("report_id", math.MaxUint64)
		case 2:
			r.Age = f.duration("age")
		case 3:
			r.Span = f.duration("span")
		case 4:
			r.Tallies = element(&f, "tallies", r.Tallies, MaxTallies, parseTally)
		case 5:
			r.Keys = element(&f, "keys", r.Keys, MaxKeyTallies, parseKeyTally)
		case 6:
			r.Denials = element(&f, "denials", r.Denials, MaxDenialSamples, parseDenialSample)
		case 7:
			r.UpstreamMicros = f.indices("upstream_micros", MaxUpstream, r.UpstreamMicros)
		default:
			f.sums(r)
		}
	}
	return f.err
}

// sums reads the fields of a report that are one number each.
func (f *fields) sums(r *Report) {
	switch f.number {
	case 8:
		r.UpstreamOf = f.number32("upstream_of")
	case 9:
		r.Unlisted = f.units("unlisted")
	case 10:
		r.KeysLost = f.units("keys_lost")
	case 11:
		r.Away = f.duration("away")
	case 12:
		r.Waits = f.units("waits")
	case 13:
		r.Waited = f.duration("waited")
	default:
		f.skip()
	}
}

func parseTally(b []byte) (t Tally, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			t.Limit = f.text("limit", MaxTextLength)
		case 2:
			t.Route = f.text("route", MaxTextLength)
		case 3:
			t.Window = f.duration("window")
		case 4:
			t.Result = Result(f.number8("result"))
		case 5:
			t.Source = f.number8("source")
		case 6:
			t.Count = f.units("count")
		case 7:
			t.Near = f.units("near")
		default:
			f.skip()
		}
	}
	return t, f.err
}

func parseKeyTally(b []byte) (k KeyTally, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			k.Limit = f.text("limit", MaxTextLength)
		case 2:
			k.Key = f.text("key", MaxTextLength)
		case 3:
			k.Admitted = f.units("admitted")
		case 4:
			k.Denied = f.units("denied")
		case 5:
			k.ShadowAdmitted = f.units("shadow_admitted")
		case 6:
			k.ShadowDenied = f.units("shadow_denied")
		default:
			f.skip()
		}
	}
	return k, f.err
}

func parseDenialSample(b []byte) (d DenialSample, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			d.Limit = f.text("limit", MaxTextLength)
		case 2:
			d.Key = f.text("key", MaxTextLength)
		case 3:
			d.Route = f.text("route", MaxTextLength)
		case 4:
			d.Window = f.duration("window")
		case 5:
			d.Source = f.number8("source")
		case 6:
			d.Remaining = f.units("remaining")
		case 7:
			d.RetryAfter = f.duration("retry_after")
		case 8:
			d.Age = f.duration("age")
		case 9:
			d.TraceID = f.text("trace_id", TraceIDLength)
		case 10:
			d.Shadow = f.flag("shadow")
		default:
			f.skip()
		}
	}
	return d, f.err
}
