package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/redis"
	"sluice/shared/limit"
	"sluice/testharness/rig"
)

// cost is what an algorithm costs in Redis: the bytes of a key whose window is full, by the sizes of limits, and CPU
// microseconds an operation.
type cost struct {
	bytes                   []int64
	granted, denied, leased float64
}

var sizes = [...]int64{100, 10_000, 1_000_000}

// atOnce is how many operations go into one pipeline: so the time that is spent on receiving and sending is small.
const atOnce = 100

func measureRedis(ctx context.Context, operations int, log io.Writer) ([]cost, error) {
	server, err := rig.StartRedis(ctx, log)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	s, err := redis.Open(redis.Config{URL: server.URL(), ReadTimeout: time.Minute, WriteTimeout: time.Minute, DialTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var costs []cost
	for _, algorithm := range algorithms {
		fmt.Fprintln(log, "measuring", algorithm)
		m := &meter{server: server, store: s, algorithm: algorithm}
		var c cost
		for _, units := range sizes {
			bytes, err := m.fill(ctx, units)
			if err != nil {
				return nil, fmt.Errorf("%v, a window of %d: %w", algorithm, units, err)
			}
			c.bytes = append(c.bytes, bytes)
		}
		for _, kind := range []struct {
			into  *float64
			units int64
			ttl   time.Duration
		}{{&c.granted, limit.MaxUnits, 0}, {&c.denied, 1, 0}, {&c.leased, limit.MaxUnits, 5 * time.Second}} {
			if *kind.into, err = m.operate(ctx, operations, kind.units, kind.ttl); err != nil {
				return nil, fmt.Errorf("%v: %w", algorithm, err)
			}
		}
		costs = append(costs, c)
	}
	return costs, nil
}

type meter struct {
	server    *rig.Redis
	store     *redis.Store
	algorithm limit.Algorithm
	calls     uint64
}

func (m *meter) key(units int64) authority.Key {
	return authority.Key{
		Name: "shop/tenant/acme", Algorithm: m.algorithm, Rates: []limit.Rate{{Units: units, Window: time.Hour}},
	}
}

// call names calls as the service does, and part parts of them.
func (m *meter) call() string {
	m.calls++
	return authority.ReplicaCall(0x9e3779b97f4a7c15, m.calls)
}

const part = "1z141z3.0"

// fill fills a window of an hour: half of it, at most 256 units, by strict charges of one unit, the rest by reports of
// units that were spent over the hour, each at an instant of its own. Gives the bytes of all that is stored.
func (m *meter) fill(ctx context.Context, units int64) (int64, error) {
	if _, err := m.server.Do(ctx, "FLUSHALL"); err != nil {
		return 0, err
	}
	const perRecord = 64 // more would be joined
	strict := min(units/2, 256)
	step := time.Hour / time.Duration(units+1)
	var records []authority.Record
	for left := units - strict; left > 0; left -= perRecord {
		uses := make([]authority.Use, min(left, perRecord))
		for i := range uses {
			uses[i] = authority.Use{Age: step * time.Duration(left-int64(i)), Units: 1}
		}
		records = append(records, authority.Record{Key: m.key(units), Call: m.call(), Uses: uses})
		if len(records) == atOnce/10 || left <= perRecord {
			for _, err := range m.store.Record(ctx, records) {
				if err != nil {
					return 0, err
				}
			}
			records = records[:0]
		}
	}
	for range strict {
		// A token bucket's units have flowed in again since they were reported: it is never full of them.
		r := authority.Reserve{Key: m.key(units), Call: m.call(), Part: part, Want: 1, Min: 1}
		if err := m.store.Reserve(ctx, []authority.Reserve{r})[0].Err; err != nil {
			return 0, err
		}
	}
	names, err := m.server.Do(ctx, "KEYS", "sluice:{shop/tenant/acme}*")
	if err != nil {
		return 0, err
	}
	var sum int64
	for name := range strings.FieldsSeq(names) {
		text, err := m.server.Do(ctx, "MEMORY", "USAGE", name, "SAMPLES", "0")
		if err != nil {
			return 0, err
		}
		bytes, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("MEMORY USAGE: %w", err)
		}
		sum += bytes
	}
	return sum, nil
}

// operate gives the CPU time of Redis for one operation: a reserve of one unit, and where it is a lease its settle as well.
func (m *meter) operate(ctx context.Context, operations int, units int64, ttl time.Duration) (float64, error) {
	if _, err := m.server.Do(ctx, "FLUSHALL"); err != nil {
		return 0, err
	}
	if err := m.batch(ctx, units, ttl); err != nil { // the script is loaded, and a limit of one is full
		return 0, err
	}
	before, err := m.cpu(ctx)
	if err != nil {
		return 0, err
	}
	done := 0
	for ; done < operations; done += atOnce {
		if err := m.batch(ctx, units, ttl); err != nil {
			return 0, err
		}
	}
	after, err := m.cpu(ctx)
	return (after - before) * 1e6 / float64(done), err
}

func (m *meter) batch(ctx context.Context, units int64, ttl time.Duration) error {
	reserves := make([]authority.Reserve, atOnce)
	for i := range reserves {
		reserves[i] = authority.Reserve{Key: m.key(units), Call: m.call(), Part: part, Want: 1, Min: 1, TTL: ttl}
	}
	settles := make([]authority.Settle, atOnce)
	for i, out := range m.store.Reserve(ctx, reserves) {
		if out.Err != nil {
			return out.Err
		}
		settles[i] = authority.Settle{Key: m.key(units), Lease: out.Lease, Uses: []authority.Use{{Units: 1}}}
	}
	if ttl == 0 {
		return nil
	}
	return errors.Join(m.store.Settle(ctx, settles)...)
}

// cpu gives the seconds that Redis' main thread has computed, in itself and in the kernel.
func (m *meter) cpu(ctx context.Context) (float64, error) {
	info, err := m.server.Do(ctx, "INFO", "cpu")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, 0
	for line := range strings.FieldsSeq(info) {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("INFO cpu: %w", err)
			}
			sum, found = sum+seconds, found+1
		}
	}
	if found != 2 {
		return 0, errors.New("INFO cpu does not tell the main thread's time")
	}
	return sum, nil
}
