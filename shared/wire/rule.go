package wire

import (
	"net/netip"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

func appendRates(dst []byte, number uint32, rates []limit.Rate) []byte {
	for _, r := range rates {
		var start int
		dst, start = openMessage(dst, number)
		dst = appendDuration(appendUnits(dst, 1, r.Units), 2, r.Window)
		dst = closeMessage(appendUnits(dst, 3, r.Burst), start)
	}
	return dst
}

func appendExceptions(dst []byte, number uint32, list []policy.Exception) []byte {
	for i := range list {
		e := &list[i]
		var start int
		dst, start = openMessage(dst, number)
		dst = appendText(dst, 1, e.Name)
		dst = appendRates(dst, 2, e.Rates)
		dst = appendFlag(dst, 3, e.Unlimited)
		dst = appendNumber(dst, 4, uint64(e.Shadow))
		dst = closeMessage(appendFlag(dst, 5, e.Enforce), start)
	}
	return dst
}

func appendLists(dst []byte, number uint32, lists []policy.List) []byte {
	for i := range lists {
		l := &lists[i]
		var start int
		dst, start = openMessage(dst, number)
		dst = appendNumber(dst, 1, uint64(l.Identity))
		for _, value := range l.Values {
			dst = appendPresentText(dst, 2, value)
		}
		for _, prefix := range l.Prefixes {
			dst = appendPresentText(dst, 3, prefix.String())
		}
		dst = closeMessage(dst, start)
	}
	return dst
}

// rules reads the fields of a limit that say for whom it is another one, or none.
func (f *fields) rules(l *policy.Limit) {
	switch f.number {
	case 11:
		l.Unlimited = f.flag("unlimited")
	case 12:
		l.Shadow = f.number32("shadow")
	case 13:
		l.Plans = element(f, "plans", l.Plans, policy.MaxPlans, parseException)
	case 14:
		l.PlanBy = f.number32("plan_by")
	case 15:
		l.Overrides = element(f, "overrides", l.Overrides, policy.MaxOverrides, parseException)
	case 16:
		l.Allow = element(f, "allow", l.Allow, policy.MaxLists, parseList)
	case 17:
		l.Block = element(f, "block", l.Block, policy.MaxLists, parseList)
	default:
		f.skip()
	}
}

// parseMeasure reads a message into what earlier ones of the same field said.
func parseMeasure(b []byte, m *policy.Measure) *FieldError {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			m.Header = f.text("header", policy.MaxNameLength)
		case 2:
			m.Bytes = int64(f.numberUpTo("bytes", policy.MaxUnitBytes))
		case 3:
			m.Max = int64(f.numberUpTo("max", policy.MaxCost))
		default:
			f.skip()
		}
	}
	return f.err
}

func parseException(b []byte) (e policy.Exception, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			e.Name = f.text("name", policy.MaxKeyLength)
		case 2:
			e.Rates = element(&f, "rates", e.Rates, limit.MaxRates, parseRate)
		case 3:
			e.Unlimited = f.flag("unlimited")
		case 4:
			e.Shadow = f.number32("shadow")
		case 5:
			e.Enforce = f.flag("enforce")
		default:
			f.skip()
		}
	}
	return e, f.err
}

func parseList(b []byte) (l policy.List, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			l.Identity = f.number32("identity")
		case 2:
			if value := f.text("values", policy.MaxKeyLength); f.room("values", len(l.Values), policy.MaxListEntries) {
				l.Values = append(l.Values, value)
			}
		case 3:
			const longest = 64
			text := f.text("prefixes", longest)
			if f.room("prefixes", len(l.Prefixes), policy.MaxListEntries) && f.err == nil {
				prefix, _ := netip.ParsePrefix(text) // what is none, policy.Validate refuses
				l.Prefixes = append(l.Prefixes, prefix)
			}
		default:
			f.skip()
		}
	}
	return l, f.err
}
