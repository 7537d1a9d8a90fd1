// Command bench measures Envoy with Sluice side by side with Envoy without a filter, with its local rate limit filter, and
// with its global one on a service that answers at once: all of them listeners of one Envoy, loaded in turn, round after
// round. It prints medians, and writes them into docs/benchmarks.md. `make bench` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"sluice/testharness/load/document"
)

// target is what runs this program.
const target = "bench"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options is what the command line says.
type options struct {
	sluice, wasm, write, goTable, only  string
	rounds, concurrency, maxKeys        int
	lasts, memoryEvery                  time.Duration
	rate                                float64
	direct, memory, rateLimit, matching bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.sluice, "sluice", "bin/sluice", "the sluice command")
	flags.StringVar(&o.wasm, "wasm", "bin/sluice.wasm", "the filter")
	flags.StringVar(&o.write, "write", "", "the Markdown `file` to write the tables into")
	flags.StringVar(&o.goTable, "go", "", "a `file` of benchstat's to write there too; nothing else is done")
	flags.StringVar(&o.only, "only", "", "measure only contenders with this in their names, and those that are compared with")
	flags.IntVar(&o.rounds, "rounds", 10, "rounds, each of which loads every contender")
	flags.DurationVar(&o.lasts, "for", 2*time.Second, "how long each of a contender's two loads lasts in a round")
	flags.Float64Var(&o.rate, "rate", 1000, "requests a second of the open loop")
	flags.IntVar(&o.concurrency, "concurrency", 1, "Envoy's workers")
	flags.BoolVar(&o.direct, "direct", false, "Envoy answers by itself, instead of asking an upstream")
	flags.BoolVar(&o.memory, "memory", false, "instead, Envoy's memory over a million requests of a hundred thousand keys")
	flags.BoolVar(&o.rateLimit, "ratelimit", false, "instead, the rate limit service that Envoy's own filter asks, beside an empty handler")
	flags.BoolVar(&o.matching, "matching", false, "instead, what it costs in Envoy to find a request's limit among many, and its key")
	flags.IntVar(&o.maxKeys, "max-keys", 10_000, "with -memory: the filter's max_keys")
	flags.DurationVar(&o.memoryEvery, "every", 5*time.Second, "with -memory: how often to look")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.rounds < 1 || o.lasts < time.Second || o.rate <= 0 || o.concurrency < 1 || o.memoryEvery < time.Second {
		return o, errors.New("want at least 1 round, 1 s, a positive rate, 1 worker")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 2 && args[0] == answerCommand {
		return answerOK(ctx, args[1])
	}
	if len(args) == 2 && args[0] == floorCommand {
		return answerFloor(ctx, args[1])
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.goTable != "" {
		return writeGoTable(o)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.rateLimit {
		return runRateLimits(ctx, o, args, stdout, stderr)
	}
	f, err := startFleet(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer f.stop()
	told := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	var name, text string
	if o.memory {
		points, err := f.memoryCurve(ctx, o, told)
		if err != nil {
			return err
		}
		name, text = "Memory", f.setting(ctx, args)+"\n"+memoryTable(points, o)
	} else {
		closed, loader := findClosedLoop(ctx)
		all, samples, err := f.compare(ctx, o, closed, told)
		if err != nil {
			return err
		}
		text = f.setting(ctx, args) + how(o, loader) + "\n"
		switch {
		case o.matching:
			name, text = "Matching", text+matchingTable(all, samples)
		case o.direct:
			name, text = "Direct response", text+table(all, samples)+"\n"+verdict(all, samples)
		default:
			name, text = "Forwarding", text+table(all, samples)+"\n"+verdict(all, samples)
		}
		text += unexpected(all, samples)
	}
	fmt.Fprintln(stdout, text)
	if o.write == "" {
		return nil
	}
	return document.Write(o.write, name, target, text)
}

func runRateLimits(ctx context.Context, o options, args []string, stdout, stderr io.Writer) error {
	tables, err := rateLimits(ctx, o, stderr, func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) })
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s, %d processors (%s), %s/%s. Redis %s; %s. `go run ./testharness/load/bench %s`\n\n"+
		"Medians of %d interleaved rounds, %v for each load; ratios are medians over the rounds' own. The caller is a grpc-go client on the same machine, which costs "+
		"about as much as the empty handler, a grpc-go server that reads the same request and answers with a message of the same size.\n\n%s",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH,
		version(ctx, "redis-server"), runtime.Version(), strings.Join(args, " "), o.rounds, o.lasts, tables)
	fmt.Fprintln(stdout, text)
	if o.write == "" {
		return nil
	}
	return document.Write(o.write, "Rate limit service", target, text)
}

func writeGoTable(o options) error {
	text, err := os.ReadFile(o.goTable)
	if err != nil {
		return err
	}
	return document.Write(o.write, "Go benchmarks", target, "```text\n"+strings.TrimSpace(string(text))+"\n```\n")
}

// how says what was done.
func how(o options, loader string) string {
	upstream := "The upstream is another Envoy, which answers by itself."
	if o.direct {
		upstream = "Envoy answers by itself (direct_response); a filter's share is then larger than it is where requests go on to an upstream."
	}
	return fmt.Sprintf("Medians of %d interleaved rounds, %v for each load, after a warm-up; ratios and differences are medians over the rounds' own. "+
		"Requests/s and CPU: closed loop, %s, Envoy with --concurrency %d. p50 and p99: open loop, %.0f requests/s, from when a request was due. %s\n",
		o.rounds, o.lasts, loader, o.concurrency, o.rate, upstream)
}

// setting says when, on what and with what it was measured.
func (f *fleet) setting(ctx context.Context, args []string) string {
	return fmt.Sprintf("%s, %d processors (%s), %s/%s. Envoy %s; Redis %s; %s. `go run ./testharness/load/bench %s`\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH,
		version(ctx, f.envoyBinary), version(ctx, "redis-server"), runtime.Version(), strings.Join(args, " "))
}

// version gives the first number with two dots in it that a program's --version says, such as 1.40.0.
func version(ctx context.Context, program string) string {
	output, err := exec.CommandContext(ctx, program, "--version").Output()
	number := versionNumber.FindString(strings.ReplaceAll(string(output), program, ""))
	if err != nil || number == "" {
		return "of an unknown version"
	}
	return number
}

var versionNumber = regexp.MustCompile(`\b\d+\.\d+\.\d+\b`)

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
