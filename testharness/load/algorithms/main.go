// Command algorithms measures what the algorithms cost in Redis and what they admit, and writes it into docs/algorithms.md,
// with a plot of a burst across a boundary. `make docs-algorithms` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"sluice/shared/limit"
	"sluice/testharness/load/document"
)

// algorithms are in the order of the tables.
var algorithms = [...]limit.Algorithm{
	limit.SlidingLog, limit.SlidingBuckets, limit.SlidingWindowCounter, limit.FixedWindow, limit.TokenBucket,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "algorithms:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("algorithms", flag.ContinueOnError)
	flags.SetOutput(stderr)
	write := flags.String("write", "", "the Markdown `file` to write the table into")
	drawing := flags.String("plot", "", "the SVG `file` to draw the burst into")
	traces := flags.Int("traces", 10_000, "how many random traces to play")
	operations := flags.Int("operations", 20_000, "how many operations of a kind to measure in Redis")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *traces < 1 || *operations < 1000 {
		return fmt.Errorf("want at least 1 trace, 1000 operations and no argument, not %v", flags.Args())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	costs, err := measureRedis(ctx, *operations, stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(stderr, "playing traces")
	played, err := playTraces(ctx, *traces)
	if err != nil {
		return err
	}
	curves, err := playBurst(ctx)
	if err != nil {
		return err
	}
	if *drawing != "" {
		if err := draw(curves, *drawing); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%s UTC, %d processors, %s/%s, Redis and the traces on one machine.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04"), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH) +
		costTable(costs) + "\n" + admissionTable(played, curves, *traces)
	fmt.Fprintln(stdout, text)
	if *write == "" {
		return nil
	}
	return document.Write(*write, "Figures", "docs-algorithms", text)
}

func costTable(costs []cost) string {
	var b strings.Builder
	b.WriteString("| | bytes a key, L = 100 | 10,000 | 1,000,000 | Redis µs: a strict grant | a denial | a lease and its settle |\n")
	b.WriteString("| --- | --: | --: | --: | --: | --: | --: |\n")
	for i, c := range costs {
		fmt.Fprintf(&b, "| `%v` |", algorithms[i])
		for _, bytes := range c.bytes {
			fmt.Fprintf(&b, " %d |", bytes)
		}
		fmt.Fprintf(&b, " %.1f | %.1f | %.1f |\n", c.granted, c.denied, c.leased)
	}
	return b.String()
}

func admissionTable(played []outcome, curves []curve, traces int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | worst window ÷ L, the burst | %d traces: worst | in how many over L | admitted ÷ log |\n", traces)
	b.WriteString("| --- | --: | --: | --: | --: |\n")
	for i, p := range played {
		fmt.Fprintf(&b, "| `%v` | %.2f | %.2f | %d | %.4f |\n", algorithms[i], curves[i].worst, p.worst, p.over,
			float64(p.admitted)/float64(played[0].admitted))
	}
	return b.String()
}
