package wire

import (
	"math"

	"sluice/shared/policy"
)

// AppendSyncRequest writes the message to the end of dst, and gives dst back.
func AppendSyncRequest(dst []byte, m *SyncRequest) []byte {
	dst = appendFixed64(dst, 1, m.WorkerID)
	dst = appendNumber(dst, 2, m.CallID)
	dst = appendText(dst, 3, m.PolicyVersion)
	var start int
	for i := range m.Abandoned {
		dst, start = openMessage(dst, 4)
		dst = closeMessage(appendAbandoned(dst, &m.Abandoned[i]), start)
	}
	for i := range m.Settles {
		dst, start = openMessage(dst, 5)
		dst = closeMessage(appendSettle(dst, &m.Settles[i]), start)
	}
	for i := range m.Asks {
		dst, start = openMessage(dst, 6)
		dst = closeMessage(appendAsk(dst, &m.Asks[i]), start)
	}
	for i := range m.Records {
		dst, start = openMessage(dst, 7)
		dst = closeMessage(appendRecord(dst, &m.Records[i]), start)
	}
	dst = appendFlag(dst, 8, m.Active)
	if m.Report != nil {
		dst, start = openMessage(dst, 9)
		dst = closeMessage(appendReport(dst, m.Report), start)
	}
	return appendDuration(dst, 10, m.Round)
}

func appendKeyRef(dst []byte, k *KeyRef) []byte {
	return appendText(appendText(dst, 1, k.Limit), 2, k.Key)
}

func appendAbandoned(dst []byte, a *Abandoned) []byte {
	dst = appendNumber(dst, 1, a.CallID)
	for i := range a.Keys {
		var start int
		dst, start = openMessage(dst, 2)
		dst = closeMessage(appendKeyRef(dst, &a.Keys[i]), start)
	}
	return dst
}

func appendUses(dst []byte, number uint32, uses []Use) []byte {
	for _, u := range uses {
		var start int
		dst, start = openMessage(dst, number)
		dst = closeMessage(appendUnits(appendDuration(dst, 1, u.Age), 2, u.Units), start)
	}
	return dst
}

func appendSettle(dst []byte, s *Settle) []byte {
	dst = appendKeyRef(dst, &s.KeyRef)
	dst = appendText(dst, 3, s.Lease)
	dst = appendUses(dst, 4, s.Uses)
	return appendUnits(dst, 5, s.Unused)
}

func appendRecord(dst []byte, r *Record) []byte {
	dst = appendKeyRef(dst, &r.KeyRef)
	dst = appendUses(dst, 3, r.Uses)
	dst = appendNumber(dst, 4, r.ID)
	return appendText(dst, 5, r.Plan)
}

func appendAsk(dst []byte, a *Ask) []byte {
	dst = appendKeyRef(dst, &a.KeyRef)
	dst = appendUnits(dst, 3, a.Want)
	dst = appendUnits(dst, 4, a.Min)
	dst = appendNumber(dst, 5, uint64(a.Waiting))
	dst = appendNumber(dst, 6, uint64(a.Group))
	dst = appendText(dst, 7, a.Plan)
	return appendDuration(dst, 8, a.Within)
}

// ParseSyncRequest reads a message. Nothing of body is kept. Errors are of type *FieldError and wrap ErrMessage.
func ParseSyncRequest(body []byte) (SyncRequest, error) {
	var m SyncRequest
	f := fields{rest: body, err: tooLong(body)}
	for f.next() {
		switch f.number {
		case 1:
			m.WorkerID = f.fixed64("worker_id")
		case 2:
			m.CallID = f.numberUpTo("call_id", math.MaxUint64)
		case 3:
			m.PolicyVersion = f.text("policy_version", MaxTextLength)
		case 4:
			m.Abandoned = element(&f, "abandoned", m.Abandoned, MaxAbandoned, parseAbandoned)
		case 5:
			m.Settles = element(&f, "settles", m.Settles, MaxSettles, parseSettle)
		case 6:
			m.Asks = element(&f, "asks", m.Asks, MaxAsks, parseAsk)
		case 7:
			m.Records = element(&f, "records", m.Records, MaxRecords, parseRecord)
		case 8:
			m.Active = f.flag("active")
		case 9:
			if m.Report == nil { // a message that comes twice is one message, says the encoding
				m.Report = new(Report)
			}
			f.nested("report", -1, parseReport(f.message("report"), m.Report))
		case 10:
			m.Round = f.duration("round")
		default:
			f.skip()
		}
	}
	if f.err != nil {
		return SyncRequest{}, within("SyncRequest", f.err)
	}
	return m, nil
}

func parseKeyRef(b []byte) (k KeyRef, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			k.Limit = f.text("limit", MaxTextLength)
		case 2:
			k.Key = f.text("key", MaxTextLength)
		default:
			f.skip()
		}
	}
	return k, f.err
}

func parseAbandoned(b []byte) (a Abandoned, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			a.CallID = f.numberUpTo("call_id", math.MaxUint64)
		case 2:
			a.Keys = element(&f, "keys", a.Keys, MaxKeysPerCall, parseKeyRef)
		default:
			f.skip()
		}
	}
	return a, f.err
}

func parseUse(b []byte) (u Use, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			u.Age = f.duration("age")
		case 2:
			u.Units = f.units("units")
		default:
			f.skip()
		}
	}
	return u, f.err
}

func parseSettle(b []byte) (s Settle, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			s.Limit = f.text("limit", MaxTextLength)
		case 2:
			s.Key = f.text("key", MaxTextLength)
		case 3:
			s.Lease = f.text("lease", MaxTextLength)
		case 4:
			s.Uses = element(&f, "uses", s.Uses, MaxUses, parseUse)
		case 5:
			s.Unused = f.units("unused")
		default:
			f.skip()
		}
	}
	return s, f.err
}

func parseRecord(b []byte) (r Record, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			r.Limit = f.text("limit", MaxTextLength)
		case 2:
			r.Key = f.text("key", MaxTextLength)
		case 3:
			r.Uses = element(&f, "uses", r.Uses, MaxUses, parseUse)
		case 4:
			r.ID = f.numberUpTo("record_id", math.MaxUint64)
		case 5:
			r.Plan = f.text("plan", policy.MaxNameLength)
		default:
			f.skip()
		}
	}
	return r, f.err
}

func parseAsk(b []byte) (a Ask, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			a.Limit = f.text("limit", MaxTextLength)
		case 2:
			a.Key = f.text("key", MaxTextLength)
		case 3:
			a.Want = f.units("want")
		case 4:
			a.Min = f.units("min")
		case 5:
			a.Waiting = f.number32("waiting")
		case 6:
			a.Group = f.number32("group")
		case 7:
			a.Plan = f.text("plan", policy.MaxNameLength)
		case 8:
			a.Within = f.duration("within")
		default:
			f.skip()
		}
	}
	return a, f.err
}
