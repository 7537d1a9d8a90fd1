package control

import (
	"strconv"
	"strings"
	"time"

	"sluice/filter/host"
	"sluice/shared/wire"
)

const (
	syncPath      = "/sluice.v1.Control/Sync"
	getPolicyPath = "/sluice.v1.Control/GetPolicy"
)

// callHeaders gives the headers of a unary gRPC call over HTTP/2 (the gRPC protocol's "Requests"), in space that is used
// again: the proxy copies them.
func (c *Client) callHeaders(path string, timeout time.Duration) []host.Header {
	c.headers = append(c.headers[:0],
		host.Header{":method", "POST"},
		host.Header{":scheme", "http"},
		host.Header{":path", path},
		host.Header{":authority", authority(c.config.Cluster)},
		host.Header{"te", "trailers"},
		host.Header{"content-type", "application/grpc"},
		host.Header{"grpc-timeout", strconv.FormatInt(int64(timeout/time.Millisecond), 10) + "m"},
	)
	return c.headers
}

// authority is the host that calls to a cluster name: the cluster itself, but of a name such as Istio gives,
// outbound|9090||sluice.example, what follows the last bar. A proxy in front of the service refuses a host with a bar in it.
func authority(cluster string) string {
	if name := cluster[strings.LastIndexByte(cluster, '|')+1:]; name != "" {
		return name
	}
	return cluster
}

// wholeMillis rounds a timeout up to what the proxy can count in: at least 1 ms.
func wholeMillis(d time.Duration) time.Duration {
	return max(time.Millisecond, (d + time.Millisecond - 1).Truncate(time.Millisecond))
}

// message gives the message of a unary gRPC answer, or why there is none. It is valid as long as the reply.
func message(reply host.Reply) (message []byte, failure string) {
	status, there := reply.Header(":status")
	if !there {
		return nil, "no answer"
	}
	if status != "200" {
		return nil, "HTTP status " + printable(status)
	}
	// A trailers-only answer has it among its headers.
	code, there := reply.Trailer("grpc-status")
	if !there {
		code, there = reply.Header("grpc-status")
	}
	switch {
	case !there:
		return nil, "an answer without a grpc-status"
	case code != "0":
		text, there := reply.Trailer("grpc-message")
		if !there {
			text, _ = reply.Header("grpc-message")
		}
		return nil, "grpc-status " + printable(code) + ": " + printable(text)
	}
	body, fits := reply.Body(wire.MaxMessageSize + wire.FrameHeader)
	if !fits {
		return nil, "an answer of more than " + strconv.Itoa(wire.MaxMessageSize) + " bytes"
	}
	message, err := wire.Unframe(body, wire.MaxMessageSize)
	if err != nil {
		return nil, err.Error()
	}
	return message, ""
}

// printable makes what came over the wire fit for a log line.
func printable(text string) string {
	const most = 160
	if len(text) > most {
		text = text[:most]
	}
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}
