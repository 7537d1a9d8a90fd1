package replica

import (
	"context"
	"log/slog"
	"time"

	"sluice/controlsvc/authority"
	"sluice/filter/host"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// port is what the conversation asks of a proxy, in process: a call is a goroutine that has the authority answer, of which
// the conversation bounds how many there are. What an answer lets go next, its goroutine takes on: its stack has grown
// already. What is about streams is never asked.
type port struct {
	host.Proxy // nil

	worker *worker
	config *Config
	last   host.CallID
	// answering says that a goroutine which has made a call is taking its answer in, and will make next after that.
	answering bool
	next      func() (host.CallID, reply)
}

// What an answer takes, and each of its results, as a rule: so that it is not moved while it grows.
const answerRoom, roomPerResult = 64, 96

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
		p.begin(func() (host.CallID, reply) { return id, reply{body: wire.AppendFrame(nil, version), whole: true} })
		return id, nil
	}
	request, err := wire.ParseSyncRequest(body[wire.FrameHeader:])
	if err != nil {
		return 0, err
	}
	p.begin(func() (host.CallID, reply) {
		// An answer that tells what the store did not do has to be there before the conversation gives the call up.
		ctx, cancel := context.WithTimeoutCause(authority.Own(context.Background()), timeout*4/5, authority.ErrStoreTime)
		defer cancel()
		response, err := p.config.Authority.Sync(ctx, &request)
		if err != nil {
			return id, reply{failure: err.Error()}
		}
		message := wire.AppendSyncResponse(make([]byte, 0, answerRoom+roomPerResult*len(response.Results)), response)
		return id, reply{body: wire.AppendFrame(make([]byte, 0, len(message)+wire.FrameHeader), message), whole: true}
	})
	return id, nil
}

// begin has a call made.
func (p *port) begin(call func() (host.CallID, reply)) {
	if p.answering && p.next == nil {
		p.next = call
		return
	}
	p.worker.calls.Go(func() {
		for call != nil {
			call = p.worker.ended(call())
		}
	})
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
