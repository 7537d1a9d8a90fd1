package wire

import (
	"sluice/shared/limit"
	"sluice/shared/policy"
)

func appendLimit(dst []byte, l *policy.Limit) []byte {
	dst = appendText(dst, 1, l.Name)
	dst, start := openMessage(dst, 2)
	if dst = appendMatch(dst, &l.Match); len(dst) == start {
		dst = dst[:start-2] // it matches everything: without its tag and length
	} else {
		dst = closeMessage(dst, start)
	}
	dst = appendIndices(dst, 3, l.Key)
	dst = appendRates(dst, 4, l.Rates)
	dst = appendNumber(dst, 5, uint64(l.Algorithm))
	dst = appendNumber(dst, 6, uint64(l.Mode))
	dst = appendNumber(dst, 7, uint64(l.OnUnavailable))
	dst = appendUnits(dst, 8, l.Cost)
	dst = appendDuration(dst, 9, l.MaxWait)
	if l.Measure != (policy.Measure{}) {
		dst, start = openMessage(dst, 10)
		dst = appendText(dst, 1, l.Measure.Header)
		dst = closeMessage(appendUnits(appendUnits(dst, 2, l.Measure.Bytes), 3, l.Measure.Max), start)
	}
	dst = appendFlag(dst, 11, l.Unlimited)
	dst = appendNumber(dst, 12, uint64(l.Shadow))
	dst = appendExceptions(dst, 13, l.Plans)
	dst = appendNumber(dst, 14, uint64(l.PlanBy))
	dst = appendExceptions(dst, 15, l.Overrides)
	dst = appendLists(dst, 16, l.Allow)
	dst = appendLists(dst, 17, l.Block)
	dst = appendNumber(dst, 20, uint64(l.Response))
	for i := range l.Descriptor {
		dst, start = openMessage(dst, 21)
		dst = appendText(appendText(dst, 1, l.Descriptor[i].Key), 2, l.Descriptor[i].Value)
		dst = closeMessage(appendFlag(appendFlag(dst, 3, l.Descriptor[i].Prefix), 4, l.Descriptor[i].Hash), start)
	}
	return appendIndices(dst, 22, l.Replaces)
}

func parseLimit(b []byte) (l policy.Limit, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			l.Name = f.text("name", policy.MaxNameLength)
		case 2:
			f.nested("match", -1, parseMatch(f.message("match"), &l.Match, false))
		case 3:
			l.Key = f.indices("key", policy.MaxKeyParts, l.Key)
		case 4:
			l.Rates = element(&f, "rates", l.Rates, limit.MaxRates, parseRate)
		case 5:
			l.Algorithm = limit.Algorithm(f.number8("algorithm"))
		case 6:
			l.Mode = limit.Mode(f.number8("mode"))
		case 7:
			l.OnUnavailable = limit.Unavailable(f.number8("on_unavailable"))
		case 8:
			l.Cost = f.units("cost")
		case 9:
			l.MaxWait = f.duration("max_wait")
		case 10:
			f.nested("measure", -1, parseMeasure(f.message("measure"), &l.Measure))
		case 20:
			l.Response = f.number32("response")
		case 21:
			l.Descriptor = element(&f, "descriptor", l.Descriptor, policy.MaxDescriptorEntries, parseDescriptorEntry)
		case 22:
			l.Replaces = f.indices("replaces", policy.MaxReplaces, l.Replaces)
		default:
			f.rules(&l)
		}
	}
	return l, f.err
}

func parseRate(b []byte) (r limit.Rate, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			r.Units = f.units("units")
		case 2:
			r.Window = f.duration("window")
		case 3:
			r.Burst = f.units("burst")
		default:
			f.skip()
		}
	}
	return r, f.err
}

func parseDescriptorEntry(b []byte) (e policy.DescriptorEntry, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			e.Key = f.text("key", policy.MaxDescriptorText)
		case 2:
			e.Value = f.text("value", policy.MaxDescriptorText)
		case 3:
			e.Prefix = f.flag("prefix")
		case 4:
			e.Hash = f.flag("hash")
		default:
			f.skip()
		}
	}
	return e, f.err
}
