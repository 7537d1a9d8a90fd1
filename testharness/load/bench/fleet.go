package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"sluice/envoy"
	"sluice/testharness/rig"
)

//go:embed policy.yaml
var policy []byte

// fleet is all processes of a measurement. They end with the context that they were started with.
type fleet struct {
	measured        *rig.Envoy
	upstream        *rig.Envoy // nil with direct
	memory, onRedis *rig.Service
	redis           *rig.Redis
	global          *rig.Process
	// matchings are the services of the policies of that name; with them there are no others.
	matchings                     []*rig.Service
	envoyBinary, sluice, wasmFile string
}

// startFleet starts what is measured and what it needs, and waits until the filter limits requests.
func startFleet(ctx context.Context, o options, log io.Writer) (*fleet, error) {
	f := &fleet{sluice: o.sluice, wasmFile: o.wasm}
	venv, err := rig.EnvoyVenv(".")
	if err != nil {
		return nil, err
	}
	if f.envoyBinary, err = rig.FindEnvoy(ctx, venv, log); err != nil {
		return nil, err
	}
	var to addresses
	if o.matching {
		err = f.startMatchings(ctx, &to)
	} else {
		err = f.startServices(ctx, &to, log)
	}
	if err != nil {
		return nil, err
	}
	if !o.direct {
		bootstrap, err := upstreamBootstrap()
		if err != nil {
			return nil, err
		}
		f.upstream, err = rig.StartEnvoy(ctx, rig.EnvoyOptions{Binary: f.envoyBinary, Bootstrap: bootstrap, Concurrency: 1})
		if err != nil {
			return nil, err
		}
		to.upstream = f.upstream.Listener(envoy.Listener)
	}
	code := filterCode{wasm: f.wasmFile, plugin: object{}}
	if o.memory {
		code.plugin["max_keys"] = o.maxKeys
	}
	bootstrap, err := measuredBootstrap(to, code, o.direct)
	if err != nil {
		return nil, err
	}
	f.measured, err = rig.StartEnvoy(ctx, rig.EnvoyOptions{Binary: f.envoyBinary, Bootstrap: bootstrap, Concurrency: o.concurrency})
	if err != nil {
		return nil, err
	}
	for listener := range to.control {
		address := f.measured.Listener(listener)
		if err := rig.AwaitFilter(ctx, address, map[string]string{"x-probe": "probe"}, `"probe"`, 20*time.Second); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) startServices(ctx context.Context, to *addresses, log io.Writer) error {
	directory, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { os.RemoveAll(directory) })
	policyFile := filepath.Join(directory, "policy.yaml")
	if err := os.WriteFile(policyFile, policy, 0o600); err != nil {
		return err
	}
	if f.redis, err = rig.StartRedis(ctx, log); err != nil {
		return err
	}
	for store, service := range map[string]**rig.Service{"memory": &f.memory, f.redis.URL(): &f.onRedis} {
		if *service, err = rig.StartService(ctx, rig.ServiceOptions{Binary: f.sluice, Policy: policyFile, Store: store}); err != nil {
			return err
		}
	}
	if to.global, err = rig.FreeAddress(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.global, err = rig.Start(ctx, rig.Command{
		Name: "the service that answers OK", Path: self, Args: []string{answerCommand, to.global},
		Ready: func(ctx context.Context) error { return reachable(ctx, to.global) },
	})
	to.control = map[string]string{onMemory: f.memory.GRPC, onRedis: f.onRedis.GRPC}
	if err != nil {
		return fmt.Errorf("starting what answers Envoy's global filter: %w", err)
	}
	return nil
}

func reachable(ctx context.Context, address string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		connection.Close()
	}
	return err
}

// stop ends the processes and returns when they have gone.
func (f *fleet) stop() {
	for _, e := range []*rig.Envoy{f.measured, f.upstream} {
		if e != nil {
			e.Stop()
		}
	}
	for _, s := range f.matchings {
		s.Stop()
	}
	if f.matchings == nil {
		for _, p := range []*rig.Process{f.global, f.memory.Process, f.onRedis.Process, f.redis.Process} {
			p.Stop()
		}
	}
}
