package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"sluice/testharness/load"
	"sluice/testharness/oracle"
	"sluice/testharness/rig"
)

//go:embed ratelimit.yaml
var rateLimitPolicy []byte

// manyKeys is how many callers there are where there are many.
const manyKeys = 20_000

// concurrencies are how many calls are under way at once, on a connection for each 16.
var concurrencies = []int{1, 16, 64}

// asked is a rate limit service under load, and what it is asked.
type asked struct {
	name     string
	address  string
	service  *rig.Process
	store    *rig.Process // nil: none
	requests [][]byte
}

// askedSample is what one service did in one round.
type askedSample struct {
	perSecond   float64
	service, kv time.Duration // CPU time for each call
	denied      int64
	failed      int64
}

// bytesCodec sends messages that are written already, and hands over answers as they are: what is measured is the server.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("want bytes")
	}
	return b, nil
}

func (bytesCodec) Unmarshal(data []byte, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return errors.New("want bytes")
	}
	*into = append((*into)[:0], data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// overLimit says whether an answer's first field, the overall code, is OVER_LIMIT.
func overLimit(answer []byte) bool {
	number, kind, n := protowire.ConsumeTag(answer)
	if n < 0 || number != 1 || kind != protowire.VarintType {
		return false
	}
	code, _ := protowire.ConsumeVarint(answer[n:])
	return code == uint64(ratelimit.RateLimitResponse_OVER_LIMIT)
}

// questions gives so many calls, each with another value of the key.
func questions(key string, values int) [][]byte {
	all := make([][]byte, values)
	for i := range all {
		message, err := proto.Marshal(&ratelimit.RateLimitRequest{Domain: "bench", Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: "caller-" + strconv.Itoa(i)}}},
		}})
		if err != nil {
			panic(err) // only for text that is no UTF-8
		}
		all[i] = message
	}
	return all
}

// dial gives connections for so many calls at once.
func dial(address string, concurrency int) ([]*grpc.ClientConn, func(), error) {
	connections := make([]*grpc.ClientConn, max(1, concurrency/16))
	for i := range connections {
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, nil, err
		}
		connections[i] = c
	}
	return connections, func() {
		for _, c := range connections {
			c.Close()
		}
	}, nil
}

// ask makes one call.
func ask(ctx context.Context, c *grpc.ClientConn, request []byte, answer *[]byte) error {
	return c.Invoke(ctx, ratelimit.RateLimitService_ShouldRateLimit_FullMethodName, request, answer, grpc.ForceCodec(bytesCodec{}))
}

// closedCalls keeps so many calls under way for a while.
func (a *asked) closedCalls(ctx context.Context, concurrency int, lasts time.Duration) (s askedSample, err error) {
	connections, closeAll, err := dial(a.address, concurrency)
	if err != nil {
		return s, err
	}
	defer closeAll()
	var first []byte
	if err := ask(ctx, connections[0], a.requests[0], &first); err != nil {
		return s, fmt.Errorf("%s: %w", a.name, err)
	}
	before, err := a.cpuTimes()
	if err != nil {
		return s, err
	}
	var calls, denied, failed atomic.Int64
	var workers sync.WaitGroup
	start := time.Now()
	for n := range concurrency {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), uint64(start.UnixNano())))
			var answer []byte
			for time.Since(start) < lasts {
				switch err := ask(ctx, connections[n%len(connections)], a.requests[random.IntN(len(a.requests))], &answer); {
				case err != nil:
					failed.Add(1)
				case overLimit(answer):
					denied.Add(1)
				}
				calls.Add(1)
			}
		})
	}
	workers.Wait()
	took := time.Since(start)
	after, err := a.cpuTimes()
	if err != nil {
		return s, err
	}
	n := calls.Load()
	return askedSample{
		perSecond: float64(n) / took.Seconds(), denied: denied.Load(), failed: failed.Load(),
		service: (after[0] - before[0]) / time.Duration(n), kv: (after[1] - before[1]) / time.Duration(n),
	}, nil
}

func (a *asked) cpuTimes() (all [2]time.Duration, err error) {
	for i, p := range []*rig.Process{a.service, a.store} {
		if p == nil {
			continue
		}
		if all[i], err = cpuTime(p.PID()); err != nil {
			return all, err
		}
	}
	return all, nil
}

// The contenders that targets are about.
const (
	floorName  = "an empty handler"
	hotName    = "one hot key, `lease`, Redis"
	uniqueName = "20,000 keys, `strict`, Redis"
)

// rateLimitFleet starts what is measured.
func rateLimitFleet(ctx context.Context, o options, log io.Writer) (all []*asked, stop func(), err error) {
	directory, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return nil, nil, err
	}
	var processes []*rig.Process
	stop = func() {
		for _, p := range processes {
			p.Stop()
		}
		os.RemoveAll(directory)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	policyFile := filepath.Join(directory, "policy.yaml")
	if err := os.WriteFile(policyFile, rateLimitPolicy, 0o600); err != nil {
		return nil, nil, err
	}
	redis, err := rig.StartRedis(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	processes = append(processes, redis.Process)
	services := make([]*rig.Service, 2)
	for i, store := range []string{"memory", redis.URL()} {
		if services[i], err = rig.StartService(ctx, rig.ServiceOptions{
			Binary: o.sluice, Policy: policyFile, Store: store, Args: []string{"--call-timeout", "1s"}, // what is measured is no fallback
		}); err != nil {
			return nil, nil, err
		}
		processes = append(processes, services[i].Process)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	address, err := rig.FreeAddress()
	if err != nil {
		return nil, nil, err
	}
	empty, err := rig.Start(ctx, rig.Command{
		Name: "the empty handler", Path: self, Args: []string{floorCommand, address},
		Ready: func(ctx context.Context) error { return reachable(ctx, address) },
	})
	if err != nil {
		return nil, nil, err
	}
	processes = append(processes, empty)
	onMemory, onRedis := services[0], services[1]
	return []*asked{
		{name: floorName, address: address, service: empty, requests: questions("hot", 1)},
		{name: hotName, address: onRedis.GRPC, service: onRedis.Process, store: redis.Process, requests: questions("hot", 1)},
		{name: "one hot key, `lease`, memory", address: onMemory.GRPC, service: onMemory.Process, requests: questions("hot", 1)},
		{name: "20,000 keys, `lease`, Redis", address: onRedis.GRPC, service: onRedis.Process, store: redis.Process, requests: questions("many", manyKeys)},
		{name: uniqueName, address: onRedis.GRPC, service: onRedis.Process, store: redis.Process, requests: questions("strict", manyKeys)},
		{name: "20,000 keys, `strict`, memory", address: onMemory.GRPC, service: onMemory.Process, requests: questions("strict", manyKeys)},
	}, stop, nil
}

// only gives those to be measured: all, or the floor and those with a text in their names.
func only(all []*asked, text string) []*asked {
	return slices.DeleteFunc(slices.Clone(all), func(a *asked) bool { return a.name != floorName && !strings.Contains(a.name, text) })
}

// rateLimits measures the rate limit service: every contender at every concurrency, round after round; then what a limit
// that is used up admits, and how fair it is.
func rateLimits(ctx context.Context, o options, log io.Writer, told func(string, ...any)) (string, error) {
	all, stop, err := rateLimitFleet(ctx, o, log)
	if err != nil {
		return "", err
	}
	defer stop()
	onRedis := all[1]
	all = only(all, o.only)
	tight, err := onRedis.judged(ctx, 2*o.lasts)
	if err != nil {
		return "", err
	}
	told("%s", tight)
	samples := map[int][][]askedSample{}
	for _, concurrency := range concurrencies {
		samples[concurrency] = make([][]askedSample, len(all))
	}
	for round := range o.rounds {
		for _, concurrency := range concurrencies {
			for i, a := range all {
				s, err := a.closedCalls(ctx, concurrency, o.lasts)
				if err != nil {
					return "", err
				}
				samples[concurrency][i] = append(samples[concurrency][i], s)
				told("round %d, %d at once, %s: %.0f/s, %v + %v CPU, %d denied, %d failed", round+1, concurrency, a.name, s.perSecond, s.service, s.kv, s.denied, s.failed)
			}
		}
	}
	fair, err := onRedis.tenants(ctx, 3*o.lasts)
	if err != nil {
		return "", err
	}
	return askedTables(all, samples) + tight + "\n" + fair, nil
}

// judged asks for one key under 1000/s from cold, 64 at once, and says what the worst window held.
func (a *asked) judged(ctx context.Context, lasts time.Duration) (string, error) {
	const concurrency, units = 64, 1000
	connections, closeAll, err := dial(a.address, concurrency)
	if err != nil {
		return "", err
	}
	defer closeAll()
	request := questions("tight", 1)[0]
	judge := load.NewJudge(oracle.Rate{Units: units, Window: time.Second})
	var mu sync.Mutex
	var workers sync.WaitGroup
	admitted, denied, failed := 0, 0, 0
	start := time.Now()
	for n := range concurrency {
		workers.Go(func() {
			var answer []byte
			for time.Since(start) < lasts {
				left := time.Since(start)
				err := ask(ctx, connections[n%len(connections)], request, &answer)
				answered := time.Since(start)
				mu.Lock()
				switch {
				case err != nil:
					failed++
				case overLimit(answer):
					denied++
				default:
					admitted++
					judge.Admitted(left, answered)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	took := time.Since(start).Seconds()
	return fmt.Sprintf("One key under %d/s in `lease`, Redis, 64 at once from cold: %.0f/s admitted, %.0f/s denied, %d failed; the worst window held %d (%s).\n",
		units, float64(admitted)/took, float64(denied)/took, failed, judge.Worst()[0], met(judge.Held(0))), nil
}

func met(is bool) string {
	if is {
		return "target ≤ L: met"
	}
	return "target ≤ L: missed"
}

// tenants has 100 tenants of different weight ask in bursts, with pauses to think, each under 50/s, and says how even what
// they were given is, each against what it may have: the smaller of its limit and what it asked for.
func (a *asked) tenants(ctx context.Context, lasts time.Duration) (string, error) {
	const count, units = 100, 50
	connections, closeAll, err := dial(a.address, 64)
	if err != nil {
		return "", err
	}
	defer closeAll()
	requests := questions("tenant", count)
	shares := make([]float64, count)
	worst := make([]int64, count)
	var calls, failures atomic.Int64
	var tenants sync.WaitGroup
	start := time.Now()
	for n := range count {
		tenants.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			judge := load.NewJudge(oracle.Rate{Units: units, Window: time.Second})
			wanted, admitted := 0, 0
			weight := 1 + n/10 // bursts of 1 to 10 times 4 calls
			var answer []byte
			for time.Since(start) < lasts {
				for range 4 * weight {
					left := time.Since(start)
					wanted++
					switch err := ask(ctx, connections[n%len(connections)], requests[n], &answer); {
					case err != nil:
						failures.Add(1)
					case !overLimit(answer):
						admitted++
						judge.Admitted(left, time.Since(start))
					}
				}
				pause := time.NewTimer(time.Duration(random.ExpFloat64() * float64(300*time.Millisecond)))
				select {
				case <-ctx.Done():
				case <-pause.C:
				}
			}
			took := time.Since(start).Seconds()
			calls.Add(int64(wanted))
			shares[n] = float64(admitted) / min(float64(wanted), units*took)
			worst[n] = judge.Worst()[0]
		})
	}
	tenants.Wait()
	var sum, squares, lowest float64
	lowest = 2
	var most int64
	for n, s := range shares {
		sum, squares = sum+s, squares+s*s
		lowest = min(lowest, s)
		most = max(most, worst[n])
	}
	return fmt.Sprintf("100 tenants of weights 1 to 10 under %d/s each in `lease`, Redis, in bursts with pauses: %.0f calls/s, %d failed. Of what each may "+
		"have (the smaller of its limit and its demand) a tenant was given %.2f on average and %.2f at least; Jain's index %.3f. The worst window of any held %d (%s).\n",
		units, float64(calls.Load())/time.Since(start).Seconds(), failures.Load(), sum/count, lowest, sum*sum/(count*squares), most, met(most <= units)), nil
}

// askedTables gives the medians as Markdown, and what has come of the targets.
func askedTables(all []*asked, samples map[int][][]askedSample) string {
	var b strings.Builder
	median2 := func(list []askedSample, of func(askedSample) float64) float64 {
		values := make([]float64, len(list))
		for i, s := range list {
			values[i] = of(s)
		}
		return median(values)
	}
	ratio := func(list, base []askedSample, of func(askedSample) float64) float64 {
		values := make([]float64, len(list))
		for i := range list {
			values[i] = of(list[i]) / of(base[i])
		}
		return median(values)
	}
	speed := func(s askedSample) float64 { return s.perSecond }
	service := func(s askedSample) float64 { return float64(s.service) / float64(time.Microsecond) }
	kv := func(s askedSample) float64 { return float64(s.kv) / float64(time.Microsecond) }
	b.WriteString("| | at once | decisions/s | ÷ the empty handler | CPU µs a call: service | ÷ the empty handler | Redis | denied or failed |\n" +
		"| --- | --: | --: | --: | --: | --: | --: | --: |\n")
	var targets strings.Builder
	for _, concurrency := range concurrencies {
		base := samples[concurrency][0]
		for i, a := range all {
			list := samples[concurrency][i]
			store := ""
			if a.store != nil {
				store = fmt.Sprintf("%.1f", median2(list, kv))
			}
			wrong := median2(list, func(s askedSample) float64 { return float64(s.denied + s.failed) })
			fast, cpu := ratio(list, base, speed), ratio(list, base, service)
			fmt.Fprintf(&b, "| %s | %d | %.0f | %.2f | %.1f | %.2f | %s | %.0f |\n", a.name, concurrency, median2(list, speed), fast, median2(list, service), cpu, store, wrong)
			if concurrency != 64 {
				continue
			}
			switch a.name {
			case hotName:
				fmt.Fprintf(&targets, "%s, 64 at once: %.2f of the empty handler (target ≥ 0.85: %s), at %.2f of its CPU (target ≤ 1.4: %s).\n",
					a.name, fast, reached(fast >= 0.85), cpu, reached(cpu <= 1.4))
			case uniqueName:
				fmt.Fprintf(&targets, "%s, 64 at once: %.2f of the empty handler (target ≥ 0.5: %s).\n", a.name, fast, reached(fast >= 0.5))
			}
		}
	}
	return b.String() + "\n" + targets.String() + "\n"
}

func reached(is bool) string {
	if is {
		return "met"
	}
	return "missed"
}
