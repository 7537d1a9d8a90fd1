// Command replay makes access logs, and measures how fast `sluice replay` reads them: parsing alone and the whole of it, in turn
// on the same file, and what memory the command takes.
package main

import (
	"cmp"
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
	body, slow := b.table()
	fmt.Print(body)
	if write != "" && body != "" {
		if err := document.Write(write, "speed", "bench-replay", body); err != nil {
			return err
		}
	}
	return slow
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
	// plays are what is measured in turn, the first of them for parsing alone.
	plays []replay.Config
}

// errSlow says that a bound was not kept.
var errSlow = errors.New("the replay is slower, or takes more memory, than it may")

// The bounds: the whole replay is at least so fast as a share of parsing alone, and takes at most so much memory.
const (
	leastShare   = 0.5
	mostMegabyte = 200
)

// table gives the figures, and errSlow where they are not as they have to be; empty with another error.
func (b *bench) table() (string, error) {
	tried, err := load("policy.yaml")
	if err != nil {
		return "", err
	}
	today, err := load("today.yaml")
	if err != nil {
		return "", err
	}
	b.plays = []replay.Config{{Policy: tried}, {Policy: tried}, {Policy: tried, Today: today}}
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
		parsing, whole, compared, err := b.speeds(log)
		if err != nil {
			return "", err
		}
		memory, err := b.memory(log)
		if err != nil {
			return "", err
		}
		speed := func(of figures) float64 { return float64(b.trace.lines) / of.took.Seconds() / 1000 }
		micros := func(of figures) float64 { return float64(of.cpu.Microseconds()) / float64(b.trace.lines) }
		share := parsing.took.Seconds() / whole.took.Seconds()
		fmt.Fprintf(&rows, "| %s, %d MB | %.0f | %.0f | %.2f | %.0f | %.1f, %.1f, %.1f | %.1f %% | %d MB |\n", f, about.Size()>>20,
			speed(parsing), speed(whole), share, speed(compared), micros(parsing), micros(whole), micros(compared),
			100*float64(whole.denied)/float64(b.trace.lines), memory)
		if share < leastShare || memory > mostMegabyte {
			slow = errSlow
		}
		if err := os.Remove(log); err != nil {
			return "", err
		}
	}
	head := fmt.Sprintf("%d lines, Go %s, %d CPUs, medians of %d. Speeds are thousands of lines a second; CPU time is in microseconds "+
		"for a line.\n\n"+
		"| log | parsing alone | replay | share of parsing | with `--against` | CPU time of the three | denied | most memory, with `--against` |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n", b.trace.lines, strings.TrimPrefix(runtime.Version(), "go"), runtime.NumCPU(), b.rounds)
	return head + rows.String(), slow
}

// figures are what one way to read a log came to.
type figures struct {
	took, cpu time.Duration
	denied    int64
}

// speeds measures in turn parsing alone, the replay, and the replay against today's policy.
func (b *bench) speeds(log string) (parsing, whole, compared figures, err error) {
	var all [3][]figures
	for range b.rounds {
		for i, c := range b.plays {
			f, err := play(log, c, i == 0)
			if err != nil {
				return figures{}, figures{}, figures{}, err
			}
			all[i] = append(all[i], f)
		}
	}
	return median(all[0]), median(all[1]), median(all[2]), nil
}

func median(all []figures) figures {
	slices.SortFunc(all, func(a, b figures) int { return cmp.Compare(a.took, b.took) })
	return all[len(all)/2]
}

func load(name string) (*policy.Policy, error) {
	text, err := policies.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return policyfile.Parse(name, text)
}

// play reads a log, and replays it unless it is to be parsed alone. What is read of it is the same.
func play(name string, c replay.Config, only bool) (figures, error) {
	runtime.GC()
	start, used := time.Now(), cpu()
	file, err := os.Open(name)
	if err != nil {
		return figures{}, err
	}
	defer file.Close()
	player, err := replay.New(c)
	if err != nil {
		return figures{}, err
	}
	reader, err := accesslog.NewReader(name, file, accesslog.Config{Want: player.Want()})
	if err != nil {
		return figures{}, err
	}
	log, err := accesslog.NewLog(reader)
	if err != nil {
		return figures{}, err
	}
	if only {
		for {
			if e, err := log.Next(); e == nil || err != nil {
				return figures{took: time.Since(start), cpu: cpu() - used}, err
			}
		}
	}
	if err := player.Play(log, nil); err != nil {
		return figures{}, err
	}
	report := player.Report("policy.yaml", "today.yaml", log)
	return figures{took: time.Since(start), cpu: cpu() - used, denied: report.Totals.Denied}, nil
}

// cpu is what this process has used so far.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
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
