package replica

import (
	"context"
	"log/slog"
	"time"

	"sluice/filter/host"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// port is what the conversation asks of a proxy, in process: a call is a goroutine that has the authority answer, of which
// the conversation bounds how many there are. What is about streams is never asked.
type port struct {
	host.Proxy // nil

	worker *worker
	config *Config
	last   host.CallID
}

func (p *port) Now() instant.Instant { return p.config.Now() }
func (p *port) Random() uint64       { return p.config.Random() }

func (p *port) Log(level host.Level, message string) {
	// That a policy is in force, the service says itself, once.
	to := slog.LevelDebug
	if level >= host.Warn {
		to = slog.LevelWarn
	}
	p.config.Logger.Log(context.Background(), to, message, "worker", "replica")
}

// Call has the authority answer a message. It is called, as all of the conversation is, with the worker's lock held; the
// answer takes it again.
func (p *port) Call(_ string, headers []host.Header, body []byte, timeout time.Duration) (host.CallID, error) {
	p.last++
	id := p.last
	if isGetPolicy(headers) {
		// The policy is handed over by adopt, and stays as it is until then.
		request, err := wire.ParseGetPolicyRequest(body[wire.FrameHeader:])
		if err != nil {
			return 0, err
		}
		version := wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: request.Version})
		p.worker.calls.Go(func() { p.worker.ended(id, reply{body: wire.AppendFrame(nil, version), whole: true}) })
		return id, nil
	}
	request, err := wire.ParseSyncRequest(body[wire.FrameHeader:])
	if err != nil {
		return 0, err
	}
	p.worker.calls.Go(func() {
		// An answer that tells what the store did not do has to be there before the conversation gives the call up.
		ctx, cancel := context.WithTimeout(context.Background(), timeout*4/5)
		defer cancel()
		response, err := p.config.Authority.Sync(ctx, &request)
		if err != nil {
			p.worker.ended(id, reply{failure: err.Error()})
			return
		}
		message := wire.AppendSyncResponse(nil, response)
		p.worker.ended(id, reply{body: wire.AppendFrame(make([]byte, 0, len(message)+wire.FrameHeader), message), whole: true})
	})
	return id, nil
}

func isGetPolicy(headers []host.Header) bool {
	for _, h := range headers {
		if h[0] == ":path" {
			return h[1] == "/sluice.v1.Control/GetPolicy"
		}
	}
	return false
}

// reply is the authority's answer as a proxy would hand it over.
type reply struct {
	body    []byte
	failure string
	whole   bool
}

func (r reply) Header(name string) (string, bool) {
	if name == ":status" {
		return "200", true
	}
	return "", false
}

func (r reply) Trailer(name string) (string, bool) {
	switch {
	case name == "grpc-status" && r.whole:
		return "0", true
	case name == "grpc-status":
		return "13", true
	case name == "grpc-message":
		return r.failure, true
	}
	return "", false
}

func (r reply) Body(limit int) ([]byte, bool) { return r.body, len(r.body) <= limit }
