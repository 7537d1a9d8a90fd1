package wire

import "math"

// AppendSyncResponse writes the message to the end of dst, and gives dst back.
func AppendSyncResponse(dst []byte, m *SyncResponse) []byte {
	for i := range m.Results {
		var start int
		dst, start = openMessage(dst, 1)
		dst = closeMessage(appendAskResult(dst, &m.Results[i]), start)
	}
	dst = appendIndices(dst, 2, m.Settled)
	dst = appendIndices(dst, 3, m.Abandoned)
	dst = appendIndices(dst, 4, m.Recorded)
	dst = appendText(dst, 5, m.PolicyVersion)
	dst = appendNumber(dst, 6, uint64(m.Workers))
	dst = appendNumber(dst, 7, uint64(m.Rank))
	return appendNumber(dst, 8, m.Reported)
}

func appendAskResult(dst []byte, r *AskResult) []byte {
	dst = appendNumber(dst, 1, uint64(r.Problem))
	dst = appendText(dst, 2, r.Lease)
	dst = appendUnits(dst, 3, r.Units)
	dst = appendDuration(dst, 4, r.StartIn)
	dst = appendDuration(dst, 5, r.EndIn)
	dst = appendUnits(dst, 6, r.Limit)
	dst = appendDuration(dst, 7, r.Window)
	dst = appendUnits(dst, 8, r.Remaining)
	dst = appendDuration(dst, 9, r.Reset)
	if r.Denied {
		var start int
		dst, start = openMessage(dst, 10)
		dst = closeMessage(appendDenial(dst, &r.Denial), start)
	}
	return dst
}

func appendDenial(dst []byte, d *Denial) []byte {
	dst = appendDuration(dst, 1, d.DenyFor)
	dst = appendDuration(dst, 2, d.RetryAfter)
	return appendFlag(dst, 3, d.Never)
}

// ParseSyncResponse reads a message. Nothing of body is kept. Errors are of type *FieldError and wrap ErrMessage.
func ParseSyncResponse(body []byte) (SyncResponse, error) {
	var m SyncResponse
	f := fields{rest: body, err: tooLong(body)}
	for f.next() {
		switch f.number {
		case 1:
			m.Results = element(&f, "results", m.Results, MaxAsks, parseAskResult)
		case 2:
			m.Settled = f.indices("settled", MaxSettles, m.Settled)
		case 3:
			m.Abandoned = f.indices("abandoned", MaxAbandoned, m.Abandoned)
		case 4:
			m.Recorded = f.indices("recorded", MaxRecords, m.Recorded)
		case 5:
			m.PolicyVersion = f.text("policy_version", MaxTextLength)
		case 6:
			m.Workers = f.number32("workers")
		case 7:
			m.Rank = f.number32("rank")
		case 8:
			m.Reported = f.numberUpTo("reported", math.MaxUint64)
		default:
			f.skip()
		}
	}
	if f.err != nil {
		return SyncResponse{}, within("SyncResponse", f.err)
	}
	return m, nil
}

func parseAskResult(b []byte) (r AskResult, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			// Numbers that this version does not know are kept: the caller treats them as it does StoreProblem.
			r.Problem = Problem(f.number8("problem"))
		case 2:
			r.Lease = f.text("lease", MaxTextLength)
		case 3:
			r.Units = f.units("units")
		case 4:
			r.StartIn = f.duration("start_in")
		case 5:
			r.EndIn = f.duration("end_in")
		case 6:
			r.Limit = f.units("limit")
		case 7:
			r.Window = f.duration("window")
		case 8:
			r.Remaining = f.units("remaining")
		case 9:
			r.Reset = f.duration("reset")
		case 10:
			// A message that comes twice is one message, says the encoding.
			r.Denied = true
			f.nested("denial", -1, parseDenial(f.message("denial"), &r.Denial))
		default:
			f.skip()
		}
	}
	return r, f.err
}

func parseDenial(b []byte, d *Denial) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			d.DenyFor = f.duration("deny_for")
		case 2:
			d.RetryAfter = f.duration("retry_after")
		case 3:
			d.Never = f.flag("never")
		default:
			f.skip()
		}
	}
	return f.err
}
