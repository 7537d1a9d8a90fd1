// Package load sends HTTP/1.1 requests over keep-alive connections and notes when each left and when it was answered; and
// it judges, from these notes alone, whether a limit held.
//
// The generator is open: requests go out when they are due, whether or not earlier ones have been answered, so that a slow
// answer does not hide the requests that would have come meanwhile.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// queueLength bounds the requests of a flow that are due and wait for a connection, for each target.
const queueLength = 256

// The defaults of Options.
const (
	DefaultConnections = 8
	DefaultTimeout     = 5 * time.Second
)

// Flow is a stream of equal requests.
type Flow struct {
	Name    string
	Request Request
	// Arrivals says when requests are due. Nil: each connection sends the next request as soon as it has an answer.
	Arrivals Arrivals
	// Connections is how many connections the flow keeps to each target; 0: DefaultConnections.
	Connections int
}

// Options is what to send where.
type Options struct {
	// Targets are addresses, HOST:PORT; each flow goes to them in turn.
	Targets []string
	Flows   []Flow
	// Timeout bounds a request, from when it leaves to the end of its answer; 0: DefaultTimeout.
	Timeout time.Duration
	// For is how long to send; 0: until the context ends.
	For time.Duration
	// Observe is told of each request, by one goroutine at a time.
	Observe func(Record)
	// Progress, where it is set, is called about every Every, by one goroutine at a time with Observe.
	Progress func(at time.Duration)
	Every    time.Duration
}

// Record is what became of a request. Its instants are on the monotonic clock, counted from the start of the run.
type Record struct {
	// Flow and Target are indices into Options.
	Flow, Target int
	// Due is when the request should have left; Left is just before it was written, Answered just after the head of its
	// answer was read.
	Due, Left, Answered time.Duration
	// Status is the answer's; 0 where there was none, and Err says why.
	Status int
	Err    error
}

// Admitted says that the request came through.
func (r Record) Admitted() bool { return r.Status >= 200 && r.Status < 300 }

// Denied says that the request was refused for its limit.
func (r Record) Denied() bool { return r.Status == 429 }

// Latency is from when the request was due to its answer: waiting for a free connection is part of it.
func (r Record) Latency() time.Duration { return r.Answered - r.Due }

// ErrBehind is the Err of a request that never left, because too many before it were waiting for a connection.
var ErrBehind = errors.New("too many requests wait for a connection")

// Run sends what the options say until its time is over or the context ends, and returns when the last answer is in. An
// error is one of the options'; what happens to requests is in the records.
func Run(ctx context.Context, options Options) error {
	if err := options.check(); err != nil {
		return err
	}
	if options.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, options.For)
		defer cancel()
	}
	g := &generator{options: options, began: time.Now()}
	var running sync.WaitGroup
	for number, flow := range options.Flows {
		queues := make([]chan time.Duration, len(options.Targets))
		for target := range options.Targets {
			queues[target] = make(chan time.Duration, queueLength)
			for range flow.Connections {
				running.Go(func() { g.send(ctx, number, target, queues[target]) })
			}
		}
		if flow.Arrivals != nil {
			running.Go(func() { g.schedule(ctx, number, queues) })
		}
	}
	if options.Progress != nil {
		running.Go(func() { g.progress(ctx) })
	}
	running.Wait()
	return nil
}

func (o *Options) check() error {
	if len(o.Targets) == 0 || len(o.Flows) == 0 {
		return errors.New("load: no target, or nothing to send")
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Observe == nil {
		o.Observe = func(Record) {}
	}
	if o.Progress != nil && o.Every <= 0 {
		return errors.New("load: Progress without Every")
	}
	flows := make([]Flow, len(o.Flows))
	for i, flow := range o.Flows {
		if len(flow.Request.raw) == 0 {
			return fmt.Errorf("load: flow %q has no request", flow.Name)
		}
		if flow.Connections == 0 {
			flow.Connections = DefaultConnections
		}
		flows[i] = flow
	}
	o.Flows = flows
	return nil
}

type generator struct {
	options Options
	began   time.Time

	mu sync.Mutex // Observe and Progress
}

func (g *generator) now() time.Duration { return time.Since(g.began) }

func (g *generator) observe(r Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.options.Observe(r)
}

// schedule puts the flow's requests into the targets' queues when they are due.
func (g *generator) schedule(ctx context.Context, flow int, queues []chan time.Duration) {
	defer func() {
		for _, queue := range queues {
			close(queue)
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Duration(0)
	for turn := 0; ; turn++ {
		due += g.options.Flows[flow].Arrivals()
		if g.options.For > 0 && due > g.options.For {
			return // whenever that context ends: a busy machine's timers are late
		}
		timer.Reset(due - g.now())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		target := turn % len(queues)
		// The lateness of our own timer is not the proxy's: what is measured starts here.
		at := g.now()
		select {
		case queues[target] <- at:
		default:
			g.observe(Record{Flow: flow, Target: target, Due: at, Left: at, Answered: at, Err: ErrBehind})
		}
	}
}

// send is one connection: it sends what is due, one request after the other.
func (g *generator) send(ctx context.Context, flow, target int, queue <-chan time.Duration) {
	client := Client{Address: g.options.Targets[target], Timeout: g.options.Timeout}
	defer client.Close()
	closed := g.options.Flows[flow].Arrivals == nil
	for {
		due := g.now()
		if closed {
			if ctx.Err() != nil {
				return
			}
		} else {
			var more bool
			if due, more = <-queue; !more {
				return
			}
		}
		r := Record{Flow: flow, Target: target, Due: due}
		r.Err = client.Connect()
		r.Left = g.now()
		if r.Err == nil {
			r.Status, r.Err = client.Send(g.options.Flows[flow].Request, func() { r.Answered = g.now() })
		}
		if r.Err != nil {
			r.Status, r.Answered = 0, g.now()
		}
		g.observe(r)
		if r.Err != nil && closed {
			pause(ctx) // nothing is there: not as fast as a closed loop can
		}
	}
}

func pause(ctx context.Context) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (g *generator) progress(ctx context.Context) {
	ticker := time.NewTicker(g.options.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		g.mu.Lock()
		g.options.Progress(g.now())
		g.mu.Unlock()
	}
}

// dialWithin bounds a connection attempt on the loopback.
const dialWithin = time.Second

func dial(address string) (net.Conn, error) { return net.DialTimeout("tcp", address, dialWithin) }
