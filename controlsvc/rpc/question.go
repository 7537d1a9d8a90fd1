package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/shared/policy"
)

// question is what a RateLimitRequest asks. It is read by hand for two reasons. Its texts are of any bytes: Envoy sends the
// values of header fields as they came, and a reader that insists on UTF-8, as protobuf wants it of a string, would refuse the
// whole call for one such byte, so that Envoy would let the request pass under none of its limits. And what is read is
// used again by the next call.
type question struct {
	// text is the message, which all texts lie in.
	text   []byte
	domain []byte
	// hits is hits_addend.
	hits        uint32
	descriptors []descriptor
	// entries are those of all descriptors, one after the other.
	entries []entry
}

// descriptor is a RateLimitDescriptor.
type descriptor struct {
	// first and end are the bounds of its entries among the question's. Of more than policy.MaxDescriptorEntries there is one
	// more than that.
	first, end int
	// limited says that it brings a limit, which is rate.
	limited bool
	rate    ownRate
	// counted says that it brings hits_addend, which is hits.
	counted  bool
	hits     uint64
	negative bool
}

// entry is a descriptor's key and value.
type entry struct{ key, value []byte }

// ownRate is a RateLimitOverride.
type ownRate struct {
	units      uint32
	unit       int32
	multiplied bool
	multiplier uint64
}

// mostKept is the longest message whose space is used again, in bytes.
const mostKept = 64 << 10

// field is one of a message: its number with its wire type, and its content, a number or bytes.
type field struct {
	tag    uint64
	number uint64
	bytes  []byte
}

const (
	ofVarint = uint64(protowire.VarintType)
	ofBytes  = uint64(protowire.BytesType)
)

// cut takes the first field off a message.
func cut(message []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return field{}, nil, protowire.ParseError(n)
	}
	if !number.IsValid() {
		return field{}, nil, fmt.Errorf("the field number %d does not exist", number)
	}
	f.tag, rest = protowire.EncodeTag(number, kind), message[n:]
	switch kind {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(rest)
	default:
		n = protowire.ConsumeFieldValue(number, kind, rest)
	}
	if n < 0 {
		return field{}, nil, protowire.ParseError(n)
	}
	return f, rest[n:], nil
}

// each hands the fields of a message over, one after the other, until one of them is an error.
func each(message []byte, take func(f field) error) error {
	for len(message) > 0 {
		f, rest, err := cut(message)
		if err != nil {
			return err
		}
		if err := take(f); err != nil {
			return err
		}
		message = rest
	}
	return nil
}

// parse reads a message, of which it keeps a copy. Fields that it does not know are passed over.
func (q *question) parse(message []byte) error {
	q.text = append(q.text[:0], message...)
	q.domain, q.hits, q.descriptors, q.entries = nil, 0, q.descriptors[:0], q.entries[:0]
	for rest := q.text; len(rest) > 0; {
		var f field
		var err error
		if f, rest, err = cut(rest); err != nil {
			return fmt.Errorf("RateLimitRequest: %w", err)
		}
		switch f.tag {
		case 1<<3 | ofBytes:
			q.domain = f.bytes
		case 2<<3 | ofBytes:
			if len(q.descriptors) == maxDescriptors {
				return fmt.Errorf("RateLimitRequest.descriptors: more than %d", maxDescriptors)
			}
			if err = q.descriptor(f.bytes); err != nil {
				return fmt.Errorf("RateLimitRequest.descriptors[%d]: %w", len(q.descriptors), err)
			}
		case 3<<3 | ofVarint:
			q.hits = uint32(f.number)
		}
	}
	return nil
}

// descriptor reads a RateLimitDescriptor.
func (q *question) descriptor(message []byte) error {
	d := descriptor{first: len(q.entries)}
	err := each(message, func(f field) error {
		switch f.tag {
		case 1<<3 | ofBytes:
			e, err := parseEntry(f.bytes)
			if err == nil && len(q.entries)-d.first <= policy.MaxDescriptorEntries {
				q.entries = append(q.entries, e)
			}
			return err
		case 2<<3 | ofBytes:
			d.limited = true
			return d.rate.parse(f.bytes)
		case 3<<3 | ofBytes:
			d.counted = true
			return parseNumber(f.bytes, &d.hits)
		case 4<<3 | ofVarint:
			d.negative = f.number != 0
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.end = len(q.entries)
	q.descriptors = append(q.descriptors, d)
	return nil
}

// of gives a descriptor's entries.
func (q *question) of(d *descriptor) []entry { return q.entries[d.first:d.end] }

// parseEntry reads an Entry.
func parseEntry(message []byte) (e entry, err error) {
	err = each(message, func(f field) error {
		switch f.tag {
		case 1<<3 | ofBytes:
			e.key = f.bytes
		case 2<<3 | ofBytes:
			e.value = f.bytes
		}
		return nil
	})
	return e, err
}

// parse reads a RateLimitOverride; one that comes twice adds up, as protobuf has it.
func (r *ownRate) parse(message []byte) error {
	return each(message, func(f field) error {
		switch f.tag {
		case 1<<3 | ofVarint:
			r.units = uint32(f.number)
		case 2<<3 | ofVarint:
			r.unit = int32(f.number)
		case 3<<3 | ofBytes:
			r.multiplied = true
			return parseNumber(f.bytes, &r.multiplier)
		}
		return nil
	})
}

// parseNumber reads a UInt64Value, or a UInt32Value, of which the upper half counts for nothing.
func parseNumber(message []byte, into *uint64) error {
	return each(message, func(f field) error {
		if f.tag == 1<<3|ofVarint {
			*into = f.number
		}
		return nil
	})
}
