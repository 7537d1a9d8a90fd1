package rig

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// ServiceOptions is how to start a Sluice service.
type ServiceOptions struct {
	// Binary is the sluice command.
	Binary string
	// Policy is the path of the policy file.
	Policy string
	// Store is what --store takes: memory, or redis://HOST:PORT/DB.
	Store string
	// GRPC, HTTP and Admin are the addresses to listen on; empty: free ports.
	GRPC, HTTP, Admin string
	// Args are added to the command line.
	Args []string
	// Log is written what it prints, beside what Output keeps; nil: nothing.
	Log io.Writer
	// ReadyWithin bounds the time until it is ready; 0: DefaultReadyWithin.
	ReadyWithin time.Duration
}

// Service is a running Sluice service.
type Service struct {
	*Process
	// GRPC, HTTP and Admin are where it listens, HOST:PORT.
	GRPC, HTTP, Admin string
}

// StartService starts `sluice serve` and waits until it says that it is ready.
func StartService(ctx context.Context, options ServiceOptions) (*Service, error) {
	return retryBind(ctx, func() (*Service, error) {
		s := &Service{GRPC: options.GRPC, HTTP: options.HTTP, Admin: options.Admin}
		for _, address := range []*string{&s.GRPC, &s.HTTP, &s.Admin} {
			if *address != "" {
				continue
			}
			var err error
			if *address, err = FreeAddress(); err != nil {
				return nil, err
			}
		}
		var err error
		s.Process, err = Start(ctx, Command{
			Name: "sluice serve", Path: options.Binary,
			Args: append([]string{
				"serve", "--policy", options.Policy, "--grpc", s.GRPC, "--http", s.HTTP, "--admin", s.Admin,
			}, options.Args...),
			// A URL may hold a password, and anybody may see a command line.
			Env:         []string{"SLUICE_STORE=" + options.Store},
			ReadyWithin: options.ReadyWithin,
			Log:         options.Log,
			Ready: func(ctx context.Context) error {
				_, err := adminGet(ctx, s.HTTP, "/readyz")
				return err
			},
		})
		return s, err
	})
}

// Metric sums the samples of a metric of the service's over its labels; only samples whose text has all the substrings
// count, such as `result="admitted"`.
func (s *Service) Metric(ctx context.Context, name string, substrings ...string) (float64, error) {
	answer, err := adminGet(ctx, s.HTTP, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the service's metrics: %w", err)
	}
	return sumMetric(string(answer), name, substrings...)
}

func sumMetric(text, name string, substrings ...string) (float64, error) {
	sum, found := 0.0, false
lines:
	for line := range strings.Lines(text) {
		rest, hasName := strings.CutPrefix(strings.TrimSpace(line), name)
		if !hasName || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, substring := range substrings {
			if !strings.Contains(rest, substring) {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += value
		found = true
	}
	if !found && len(substrings) == 0 {
		return 0, fmt.Errorf("the service has no metric %s", name)
	}
	return sum, nil
}
