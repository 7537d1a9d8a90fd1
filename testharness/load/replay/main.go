// Command replay makes access logs, and measures how fast `sluice replay` reads them: parsing alone and the whole of it, in turn
// on the same file, and what memory the command takes.
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice/controlsvc/accesslog"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replay"
	"sluice/shared/policy"
	"sluice/testharness/load/document"
)

//go:embed policy.yaml today.yaml
var policies embed.FS

func main() {
	t := trace{over: time.Hour}
	var write, out, format, binary string
	var rounds int
	flag.IntVar(&t.lines, "lines", 1_000_000, "how many lines a log has")
	flag.Uint64Var(&t.seed, "seed", 1, "what chances are drawn from")
	flag.StringVar(&out, "generate", "", "only write a log into this file")
	flag.StringVar(&format, "format", "envoy", "the format of -generate")
	flag.StringVar(&binary, "sluice", "bin/sluice", "the command, whose memory is measured")
	flag.IntVar(&rounds, "rounds", 5, "how often each is measured; the median counts")
	flag.StringVar(&write, "write", "", "the document that the table goes into")
	flag.Parse()
	if err := run(t, write, out, format, binary, rounds); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func run(t trace, write, out, format, binary string, rounds int) error {
	if out != "" {
		f, ok := accesslog.ParseFormat(format)
		if !ok {
			return fmt.Errorf("format %q: want one of %v", format, accesslog.Formats)
		}
		return t.file(out, f)
	}
	folder, err := os.MkdirTemp("", "replay")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	b := bench{trace: t, folder: folder, rounds: rounds}
	if b.binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	body, err := b.table()
	fmt.Print(body)
	if err != nil || write == "" {
		return err
	}
	return document.Write(write, "speed", "bench-replay", body)
}

func (t trace) file(name string, format accesslog.Format) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(t.generate(file, format), file.Close())
}

// bench measures logs of one trace in several formats.
type bench struct {
	trace  trace
	folder string
	binary string
	rounds int
}

// errSlow says that a bound was not kept.
var errSlow = errors.New("the replay is slower, or takes more memory, than it may")

// The bounds: the whole replay is at least so fast as a share of parsing alone, and takes at most so much memory.
const (
	leastShare   = 0.5
	mostMegabyte = 200
)

func (b *bench) table() (string, error) {
	var rows strings.Builder
	var slow error
	formats := []accesslog.Format{accesslog.Envoy, accesslog.JSON, accesslog.Combined}
	for _, f := range formats {
		log := filepath.Join(b.folder, f.String()+".log")
		if err := b.trace.file(log, f); err != nil {
			return "", err
		}
		about, err := os.Stat(log)
		if err != nil {
			return "", err
		}
		parsing, whole, compared, denied, err := b.speeds(log)
		if err != nil {
			return "", err
		}
		memory, err := b.memory(log)
		if err != nil {
			return "", err
		}
		lines := float64(b.trace.lines)
		fmt.Fprintf(&rows, "| %s, %d MB | %.0f | %.0f | %.2f | %.0f | %.1f %% | %d MB |\n", f, about.Size()>>20, lines/parsing.Seconds()/1000,
			lines/whole.Seconds()/1000, parsing.Seconds()/whole.Seconds(), lines/compared.Seconds()/1000, 100*float64(denied)/lines, memory)
		if parsing.Seconds()/whole.Seconds() < leastShare || memory > mostMegabyte {
			slow = errSlow
		}
	}
	head := fmt.Sprintf("%d lines, Go %s, %d CPUs, medians of %d; thousands of lines a second.\n\n"+
		"| log | parsing alone | replay | share of parsing | with `--against` | denied | memory with `--against`, at most |\n"+
		"| --- | --- | --- | --- | --- | --- | --- |\n", b.trace.lines, strings.TrimPrefix(runtime.Version(), "go"), runtime.NumCPU(), b.rounds)
	return head + rows.String(), slow
}

// speeds measures in turn parsing alone, the replay, and the replay against today's policy.
func (b *bench) speeds(log string) (parsing, whole, compared time.Duration, denied int64, err error) {
	tried, err := load("policy.yaml")
	if err != nil {
		return 0, 0, 0, 0, err
	}
	today, err := load("today.yaml")
	if err != nil {
		return 0, 0, 0, 0, err
	}
	var times [3][]time.Duration
	for range b.rounds {
		for i, c := range []*replay.Config{nil, {Policy: tried}, {Policy: tried, Today: today}} {
			took, n, err := play(log, c, tried)
			if err != nil {
				return 0, 0, 0, 0, err
			}
			times[i] = append(times[i], took)
			denied = n
		}
	}
	return median(times[0]), median(times[1]), median(times[2]), denied, nil
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

func load(name string) (*policy.Policy, error) {
	text, err := policies.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return policyfile.Parse(name, text)
}

// play reads a log, and replays it where there is a configuration for that. What is read of it is the same.
func play(name string, c *replay.Config, tried *policy.Policy) (took time.Duration, denied int64, err error) {
	runtime.GC()
	start := time.Now()
	file, err := os.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	only := c == nil
	if only {
		c = &replay.Config{Policy: tried}
	}
	player, err := replay.New(*c)
	if err != nil {
		return 0, 0, err
	}
	reader, err := accesslog.NewReader(name, file, accesslog.Config{Want: player.Want()})
	if err != nil {
		return 0, 0, err
	}
	log, err := accesslog.NewLog(reader)
	if err != nil {
		return 0, 0, err
	}
	if only {
		for {
			if e, err := log.Next(); e == nil || err != nil {
				return time.Since(start), 0, err
			}
		}
	}
	if err := player.Play(log, nil); err != nil {
		return 0, 0, err
	}
	report := player.Report("policy.yaml", "today.yaml", log)
	return time.Since(start), report.Totals.Denied, nil
}

// memory gives the most memory that the command had at once, in MB.
func (b *bench) memory(log string) (int64, error) {
	var args []string
	for _, name := range []string{"policy.yaml", "today.yaml"} {
		text, err := policies.ReadFile(name)
		if err != nil {
			return 0, err
		}
		file := filepath.Join(b.folder, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return 0, err
		}
		args = append(args, file)
	}
	command := exec.Command(b.binary, "replay", "--policy", args[0], "--against", args[1], "--html", filepath.Join(b.folder, "report.html"), log)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w; `make build-command` makes it", b.binary, err)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, errors.New("this system does not tell what memory a process had")
	}
	return usage.Maxrss >> 10, nil
}
