//go:build wasip1

package main

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sort"
	"strconv"
	"strings"
	"time"
)

// command does one thing and says what came of it; "" logs nothing.
type command func(s *stream, ctx uint32, a arguments) string

var commands map[string]command

// init, not a literal: the commands refer to each other.
func init() {
	commands = map[string]command{
		"pause": func(s *stream, _ uint32, _ arguments) string { s.paused = true; return "" },
		"trap":  func(*stream, uint32, arguments) string { panic("told to") },
		"say":   func(_ *stream, _ uint32, a arguments) string { logLine(strings.Join(a, " ")); return "" },
		"log": func(_ *stream, _ uint32, a arguments) string {
			p, n := in(a.text(1))
			return status(proxyLog(a.num(0), p, n))
		},
		"log-level": func(*stream, uint32, arguments) string {
			var level uint32
			return value(proxyGetLogLevel(ptr(&level)), num(level))
		},
		"keep": func(_ *stream, _ uint32, a arguments) string {
			kept = append(kept, make([]byte, a.num(0)))
			return ""
		},
		"bad-memory": func(*stream, uint32, arguments) string {
			var a answer
			outP, outN := a.at()
			p, _ := in("x")
			return status(proxyGetProperty(p, 0xfffffff0, outP, outN))
		},
	}
	addCommands(headerCommands, bufferCommands, streamCommands, sharedCommands, callCommands, clockCommands)
}

func addCommands(groups ...map[string]command) {
	for _, g := range groups {
		for name, c := range g {
			commands[name] = c
		}
	}
}

func num(n uint32) string    { return strconv.FormatUint(uint64(n), 10) }
func status(n uint32) string { return num(n) }

// value shows a status, and what came with it if it was 0.
func value(n uint32, v string) string {
	if n != 0 {
		return num(n)
	}
	return "0 " + strconv.Quote(v)
}

var headerCommands = map[string]command{
	"header": func(_ *stream, _ uint32, a arguments) string { return value(getHeader(a.num(0), a.text(1))) },
	"headers": func(_ *stream, _ uint32, a arguments) string {
		var ans answer
		outP, outN := ans.at()
		n := proxyGetHeaderMapPairs(a.num(0), outP, outN)
		return value(n, strings.Join(visible(unmarshal(ans.take())), " "))
	},
	"set-headers": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(marshal(a.pairs(1)))
		return status(proxySetHeaderMapPairs(a.num(0), p, n))
	},
	"headers-size": func(_ *stream, _ uint32, a arguments) string {
		var size uint32
		return value(proxyGetHeaderMapSize(a.num(0), ptr(&size)), num(size))
	},
	"add": func(_ *stream, _ uint32, a arguments) string {
		k, kn := in(a.text(1))
		v, vn := in(a.text(2))
		return status(proxyAddHeaderMapValue(a.num(0), k, kn, v, vn))
	},
	"replace": func(_ *stream, _ uint32, a arguments) string {
		k, kn := in(a.text(1))
		v, vn := in(a.text(2))
		return status(proxyReplaceHeaderMapValue(a.num(0), k, kn, v, vn))
	},
	"remove": func(_ *stream, _ uint32, a arguments) string {
		k, kn := in(a.text(1))
		return status(proxyRemoveHeaderMapValue(a.num(0), k, kn))
	},
	// prop PART…, a path
	"prop": func(_ *stream, _ uint32, a arguments) string {
		var ans answer
		outP, outN := ans.at()
		p, n := in(strings.Join(a, "\x00"))
		return value(proxyGetProperty(p, n, outP, outN), ans.take())
	},
	"set-prop": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(a.text(0))
		v, vn := in(a.text(1))
		return status(proxySetProperty(p, n, v, vn))
	},
}

// visible leaves out what differs from one proxy or run to another.
func visible(pairs [][2]string) []string {
	var out []string
	for _, p := range pairs {
		switch {
		case strings.HasPrefix(p[0], "x-on-"), strings.HasPrefix(p[0], "x-envoy-"), strings.HasPrefix(p[0], "x-forwarded-"),
			p[0] == "x-request-id", p[0] == "date", p[0] == "server", p[0] == "user-agent", p[0] == "accept-encoding":
			continue
		}
		out = append(out, p[0]+"="+p[1])
	}
	return out
}

var bufferCommands = map[string]command{
	"buffer": func(_ *stream, _ uint32, a arguments) string {
		return value(getBuffer(a.num(0), a.num(1), a.num(2)))
	},
	"buffer-status": func(_ *stream, _ uint32, a arguments) string {
		var length, flags uint32
		n := proxyGetBufferStatus(a.num(0), ptr(&length), ptr(&flags))
		return value(n, num(length)+" "+num(flags))
	},
	"set-buffer": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(a.text(3))
		return status(proxySetBufferBytes(a.num(0), a.num(1), a.num(2), p, n))
	},
}

var streamCommands = map[string]command{
	"continue": func(_ *stream, _ uint32, a arguments) string { return status(proxyContinueStream(a.num(0))) },
	"close":    func(_ *stream, _ uint32, a arguments) string { return status(proxyCloseStream(a.num(0))) },
	// reply STATUS BODY GRPC [k=v…]
	"reply": func(_ *stream, _ uint32, a arguments) string {
		d, dn := in("echo details")
		b, bn := in(a.text(1))
		h, hn := in(marshal(a.pairs(3)))
		return status(proxySendLocalResponse(a.num(0), d, dn, b, bn, h, hn, int32(a.num(2))))
	},
	// reply-raw STATUS BYTES, with the bytes for a header map
	"reply-raw": func(_ *stream, _ uint32, a arguments) string {
		h, hn := in(a.text(1))
		return status(proxySendLocalResponse(a.num(0), nil, 0, nil, 0, h, hn, -1))
	},
	"effective": func(_ *stream, _ uint32, a arguments) string { return status(proxySetEffectiveContext(a.num(0))) },
	"remember":  func(_ *stream, ctx uint32, a arguments) string { handles[a.text(0)] = ctx; return "" },
	"done":      func(*stream, uint32, arguments) string { return status(proxyDone()) },
	"status": func(*stream, uint32, arguments) string {
		var code uint32
		var ans answer
		outP, outN := ans.at()
		n := proxyGetStatus(ptr(&code), outP, outN)
		return value(n, num(code)+" "+ans.take())
	},
	"foreign": func(_ *stream, _ uint32, a arguments) string {
		var ans answer
		outP, outN := ans.at()
		f, fn := in(a.text(0))
		v, vn := in(a.text(1))
		return value(proxyCallForeignFunction(f, fn, v, vn, outP, outN), ans.take())
	},
}

var sharedCommands = map[string]command{
	"data-get": func(_ *stream, _ uint32, a arguments) string {
		var ans answer
		outP, outN := ans.at()
		k, kn := in(a.text(0))
		var cas uint32
		n := proxyGetSharedData(k, kn, outP, outN, ptr(&cas))
		handles["cas"] = cas
		return value(n, ans.take())
	},
	"data-set": func(_ *stream, _ uint32, a arguments) string {
		k, kn := in(a.text(0))
		v, vn := in(a.text(1))
		return status(proxySetSharedData(k, kn, v, vn, a.num(2)))
	},
	"queue-register": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(a.text(0))
		var token uint32
		st := proxyRegisterSharedQueue(p, n, ptr(&token))
		handles["queue"] = token
		return status(st)
	},
	"queue-resolve": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(a.text(0))
		var token uint32
		st := proxyResolveSharedQueue(nil, 0, p, n, ptr(&token))
		handles["queue"] = token
		return status(st)
	},
	"enqueue": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(a.text(1))
		return status(proxyEnqueueSharedQueue(a.num(0), p, n))
	},
	"dequeue": func(_ *stream, _ uint32, a arguments) string {
		var ans answer
		outP, outN := ans.at()
		return value(proxyDequeueSharedQueue(a.num(0), outP, outN), ans.take())
	},
	"metric": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(a.text(1))
		var id uint32
		st := proxyDefineMetric(a.num(0), p, n, ptr(&id))
		handles[a.text(1)] = id
		return status(st)
	},
	"increment": func(_ *stream, _ uint32, a arguments) string {
		by, _ := strconv.ParseInt(a.text(1), 10, 64)
		return status(proxyIncrementMetric(a.num(0), by))
	},
	"record": func(_ *stream, _ uint32, a arguments) string {
		return status(proxyRecordMetric(a.num(0), uint64(a.num(1))))
	},
	"metric-get": func(_ *stream, _ uint32, a arguments) string {
		var v uint64
		n := proxyGetMetric(a.num(0), ptr(&v))
		return value(n, strconv.FormatUint(v, 10))
	},
}

var callCommands = map[string]command{
	// call CLUSTER PATH TIMEOUT [BODY]
	"call": func(_ *stream, ctx uint32, a arguments) string {
		return dispatch(ctx, a.text(0), marshal([][2]string{{":method", "POST"}, {":path", a.text(1)}, {":authority", "svc"}}), a.text(3), a.num(2))
	},
	// call-headers CLUSTER TIMEOUT k=v…
	"call-headers": func(_ *stream, ctx uint32, a arguments) string {
		return dispatch(ctx, a.text(0), marshal(a.pairs(2)), "", a.num(1))
	},
	// grpc-call CLUSTER SERVICE METHOD TIMEOUT MESSAGE
	"grpc-call": func(_ *stream, ctx uint32, a arguments) string {
		c, cn := in(a.text(0))
		s, sn := in(a.text(1))
		m, mn := in(a.text(2))
		md, mdn := in(marshal([][2]string{{"x-meta", "data"}}))
		msg, msgn := in(a.text(4))
		var token uint32
		st := proxyGRPCCall(c, cn, s, sn, m, mn, md, mdn, msg, msgn, a.num(3), ptr(&token))
		calls[token], handles["grpc"] = ctx, token
		return status(st)
	},
	"grpc-stream": func(_ *stream, ctx uint32, a arguments) string {
		c, cn := in(a.text(0))
		s, sn := in(a.text(1))
		m, mn := in(a.text(2))
		var token uint32
		md, mdn := in(marshal(nil))
		st := proxyGRPCStream(c, cn, s, sn, m, mn, md, mdn, ptr(&token))
		calls[token], handles["grpc"] = ctx, token
		return status(st)
	},
	"grpc-send": func(_ *stream, _ uint32, a arguments) string {
		p, n := in(a.text(1))
		return status(proxyGRPCSend(a.num(0), p, n, a.num(2)))
	},
	"grpc-cancel": func(_ *stream, _ uint32, a arguments) string { return status(proxyGRPCCancel(a.num(0))) },
	"grpc-close":  func(_ *stream, _ uint32, a arguments) string { return status(proxyGRPCClose(a.num(0))) },
}

func dispatch(ctx uint32, cluster, headers, body string, timeout uint32) string {
	c, cn := in(cluster)
	h, hn := in(headers)
	b, bn := in(body)
	t, tn := in(marshal(nil))
	var token uint32
	st := proxyHTTPCall(c, cn, h, hn, b, bn, t, tn, timeout, ptr(&token))
	if st == 0 {
		calls[token], handles["call"] = ctx, token
	}
	return status(st)
}

var clockCommands = map[string]command{
	"tick": func(_ *stream, _ uint32, a arguments) string { return status(proxySetTickPeriod(a.num(0))) },
	"time": func(*stream, uint32, arguments) string {
		var now uint64
		n := proxyGetCurrentTime(ptr(&now))
		return value(n, strconv.FormatUint(now, 10))
	},
	"clocks": func(*stream, uint32, arguments) string {
		return "monotonic " + time.Since(booted).String() + " wall " + strconv.FormatInt(time.Now().UnixNano(), 10)
	},
	"random": func(*stream, uint32, arguments) string {
		var b [8]byte
		_, _ = rand.Read(b[:])
		return hex.EncodeToString(b[:])
	},
}

// marshal writes pairs as the ABI has them: count, sizes, then texts, each
// followed by a zero byte.
func marshal(pairs [][2]string) string {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(pairs)))
	for _, p := range pairs {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[0])))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p[1])))
	}
	for _, p := range pairs {
		b = append(append(b, p[0]...), 0)
		b = append(append(b, p[1]...), 0)
	}
	return string(b)
}

func unmarshal(s string) [][2]string {
	if len(s) < 4 {
		return nil
	}
	n := int(binary.LittleEndian.Uint32([]byte(s)))
	sizes, texts := s[4:4+8*n], s[4+8*n:]
	out := make([][2]string, 0, n)
	for i := 0; i < 2*n; i++ {
		size := int(binary.LittleEndian.Uint32([]byte(sizes[4*i:])))
		if i%2 == 0 {
			out = append(out, [2]string{texts[:size]})
		} else {
			out[i/2][1] = texts[:size]
		}
		texts = texts[size+1:]
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i][0] < out[j][0] })
	return out
}
