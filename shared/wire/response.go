package wire

import "sluice/shared/policy"

func appendResponse(dst []byte, r *policy.Response) []byte {
	dst = appendNumber(dst, 1, uint64(r.Status))
	dst = appendText(dst, 2, r.Body)
	dst = appendFlag(dst, 3, r.JSON)
	var start int
	for i := range r.Headers {
		dst, start = openMessage(dst, 4)
		dst = closeMessage(appendText(appendText(dst, 1, r.Headers[i].Name), 2, r.Headers[i].Value), start)
	}
	return appendDuration(dst, 5, r.RetryAfterJitter)
}

func parseResponse(b []byte) (r policy.Response, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			r.Status = f.number32("status")
		case 2:
			r.Body = f.text("body", policy.MaxBodyLength)
		case 3:
			r.JSON = f.flag("json")
		case 4:
			r.Headers = element(&f, "headers", r.Headers, policy.MaxResponseHeaders, parseField)
		case 5:
			r.RetryAfterJitter = f.duration("retry_after_jitter")
		default:
			f.skip()
		}
	}
	return r, f.err
}

func parseField(b []byte) (h policy.Field, err *FieldError) {
	f := fields{rest: b}
	for f.next() {
		switch f.number {
		case 1:
			h.Name = f.text("name", policy.MaxNameLength)
		case 2:
			h.Value = f.text("value", policy.MaxHeaderValue)
		default:
			f.skip()
		}
	}
	return h, f.err
}
