package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"sluice/controlsvc/accesslog"
	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/replay"
	"sluice/shared/policy"
)

// replayed is what the command line says of a replay.
type replayed struct {
	policy, against, format, output, html string
	headers, identities, fields           []string
	config                                replay.Config
	log                                   accesslog.Config
}

// newReplay makes `sluice replay`.
func newReplay(p Process) *cobra.Command {
	var r replayed
	command := &cobra.Command{
		Use:   "replay --policy FILE [--against FILE] LOG...",
		Short: "Say who would have been limited, from an access log",
		Long: "Replay decides every request of access logs by a policy, as limits in mode strict would have done when the request came,\n" +
			"and says who would have been limited, when, and by which limit; with --against, compared with the policy of today.\n" +
			"Nothing is sent anywhere.\n\n" +
			"A log is in Envoy's default text format, Istio's, JSON with an object on each line, or the Common or Combined Log Format;\n" +
			"gzipped or not; - is the standard input. Several are merged by time. What the policy reads and the log does not have is\n" +
			"told of, and can be read from other fields: see --header, --identity and --field.",
		Example: "  sluice replay --policy new.yaml --against today.yaml access.log access.log.1.gz\n" +
			"  sluice replay --policy new.yaml --identity tenant=claims.tenant --html report.html access.json\n" +
			"  zcat access.log.gz | sluice replay --policy new.yaml --header x-api-key=extra1 -o json -",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			if err := r.check(files); err != nil {
				return err
			}
			return failed(r.run(p, files))
		},
	}
	f := command.Flags()
	f.StringVar(&r.policy, "policy", "", "`FILE` with the policy to try; needed")
	f.StringVar(&r.against, "against", "", "`FILE` with the policy of today, to compare with")
	f.StringVar(&r.format, "format", "auto", "the logs' format: "+strings.Join(accesslog.Formats, ", "))
	f.StringArrayVar(&r.headers, "header", nil, "`NAME=FIELD`: where the log has a header of requests; may be given several times")
	f.StringArrayVar(&r.identities, "identity", nil, "`NAME=FIELD`: where the log has the value of an identity of the policy; may be given several times")
	f.StringArrayVar(&r.fields, "field", nil,
		"`ROLE=FIELD`: where the log has the "+strings.Join(accesslog.Roles, ", ")+"; may be given several times")
	f.IntVar(&r.config.MaxKeys, "max-keys", replay.DefaultMaxKeys, "how many keys are counted at once; of more the one goes whose use is longest ago")
	f.IntVar(&r.config.Top, "top", replay.DefaultTop, "how many keys are told of, 1 to 1000; the table has 10 at most")
	f.StringVarP(&r.output, "output", "o", "table", "how the report is written: table or json")
	f.StringVar(&r.html, "html", "", "`FILE` to write the report with its plots into, for a browser")
	completeFlag(command, "format", accesslog.Formats...)
	completeFlag(command, "output", "table", "json")
	return command
}

// check says, all at once, which flags make no sense.
func (r *replayed) check(files []string) error {
	var all []error
	complain := func(flag, format string, args ...any) {
		all = append(all, fmt.Errorf("--%s (%s): "+format, append([]any{flag, variable(flag)}, args...)...))
	}
	if r.policy == "" {
		complain("policy", "it is needed: the file with the policy to try")
	}
	var ok bool
	if r.log.Format, ok = accesslog.ParseFormat(r.format); !ok {
		complain("format", "%q: want one of %s", r.format, strings.Join(accesslog.Formats, ", "))
	}
	mapping := func(flag string, pairs []string, valid func(string) bool, want string) map[string]string {
		fields := make(map[string]string, len(pairs))
		for _, pair := range pairs {
			name, field, _ := strings.Cut(pair, "=")
			if name = strings.TrimSpace(name); !valid(name) || field == "" {
				complain(flag, "%q: want %s", pair, want)
			}
			fields[name] = field
		}
		return fields
	}
	for i := range r.headers {
		name, field, _ := strings.Cut(r.headers[i], "=")
		r.headers[i] = strings.ToLower(name) + "=" + field
	}
	r.config.Headers = mapping("header", r.headers, policy.ValidHeader, "NAME=FIELD, such as x-api-key=api_key")
	r.config.Identities = mapping("identity", r.identities, policy.ValidName, "NAME=FIELD, such as tenant=claims.tenant")
	isRole := func(name string) bool { return slices.Contains(accesslog.Roles, name) }
	r.log.Fields = map[accesslog.Role]string{}
	for name, field := range mapping("field", r.fields, isRole, "ROLE=FIELD, the role one of "+strings.Join(accesslog.Roles, ", ")) {
		if role, is := accesslog.ParseRole(name); is {
			r.log.Fields[role] = field
		}
	}
	const mostKeys, mostTop = 10_000_000, 1000
	if r.config.MaxKeys < 1 || r.config.MaxKeys > mostKeys {
		complain("max-keys", "%d: want 1 to %d", r.config.MaxKeys, mostKeys)
	}
	if r.config.Top < 1 || r.config.Top > mostTop {
		complain("top", "%d: want 1 to %d", r.config.Top, mostTop)
	}
	if r.output != "table" && r.output != "json" {
		complain("output", "%q: want table or json", r.output)
	}
	if len(files) > accesslog.MaxFiles {
		all = append(all, errors.New(strconv.Itoa(len(files))+" logs: want at most "+strconv.Itoa(accesslog.MaxFiles)))
	}
	if n := len(files) - len(slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == "-" })); n > 1 {
		all = append(all, errors.New("the standard input, -, stands more than once among the logs"))
	}
	return errors.Join(all...)
}

func (r *replayed) run(p Process, files []string) (err error) {
	if r.config.Policy, err = policyfile.Load(r.policy); err != nil {
		return err
	}
	if r.against != "" {
		if r.config.Today, err = policyfile.Load(r.against); err != nil {
			return err
		}
	}
	player, err := replay.New(r.config)
	if err != nil {
		return err
	}
	var page *os.File
	if r.html != "" {
		// Before the run, which may be long, and beside what is there, which stays until there is a whole report.
		if page, err = os.CreateTemp(filepath.Dir(r.html), filepath.Base(r.html)+".*"); err != nil {
			return fmt.Errorf("the report: %w", err)
		}
		defer func() {
			page.Close()
			_ = os.Remove(page.Name()) // it has another name by then, or is of no use
		}()
	}
	r.log.Want = player.Want()
	log, read, err := r.open(p, files)
	if err != nil {
		return err
	}
	defer read.close()
	advance, finish := read.progress(p)
	broken := player.Play(log, advance)
	finish()
	report := player.Report(r.policy, r.against, log)
	if broken != nil {
		if report.Totals.Requests == 0 {
			return broken
		}
		report.Incomplete = broken.Error()
		broken = fmt.Errorf("the log could not be read to its end, and the report is of what could be: %w", broken)
	}
	if page != nil {
		if err := finishPage(report, page, r.html); err != nil {
			return fmt.Errorf("the report: %w", err)
		}
	}
	if r.output == "json" {
		return errors.Join(report.WriteJSON(p.Stdout), broken)
	}
	return errors.Join(report.WriteTable(p.Stdout), broken)
}

// finishPage writes a report and puts it in its place.
func finishPage(report *replay.Report, page *os.File, name string) error {
	const readable = 0o644
	if about, err := os.Stat(name); err == nil && !about.Mode().IsRegular() { // such as /dev/stdout
		to, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(report.WriteHTML(to), to.Close())
	}
	return errors.Join(report.WriteHTML(page), page.Chmod(readable), page.Close(), os.Rename(page.Name(), name))
}

// logFiles are the files that a log is read from, and how much of them was.
type logFiles struct {
	files []*os.File
	// size is what there is to read, unless it is endless as far as is known; done is what was.
	size    int64
	endless bool
	done    atomic.Int64
}

// countedReader counts what is read.
type countedReader struct {
	io.Reader

	of *logFiles
}

func (c countedReader) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	c.of.done.Add(int64(n))
	return n, err
}

func (l *logFiles) close() {
	for _, file := range l.files {
		_ = file.Close() // it was only read
	}
}

// open opens the logs; read has to be closed.
func (r *replayed) open(p Process, names []string) (*accesslog.Log, *logFiles, error) {
	// Many files share the room to look ahead.
	const least = 512
	r.log.Ahead = max(least, accesslog.DefaultAhead/len(names))
	read := &logFiles{}
	readers := make([]*accesslog.Reader, 0, len(names))
	for _, name := range names {
		reader, err := read.reader(p, name, r.log)
		if err != nil {
			read.close()
			return nil, nil, fmt.Errorf("the log: %w", err)
		}
		readers = append(readers, reader)
	}
	log, err := accesslog.NewLog(readers...)
	if err != nil {
		read.close()
		return nil, nil, fmt.Errorf("the log: %w", err)
	}
	return log, read, nil
}

func (l *logFiles) reader(p Process, name string, c accesslog.Config) (*accesslog.Reader, error) {
	if name == "-" {
		if p.Stdin == nil {
			return nil, errors.New("there is no standard input")
		}
		l.endless = true
		return accesslog.NewReader("standard input", countedReader{p.Stdin, l}, c)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	l.files = append(l.files, file)
	about, err := file.Stat()
	if err != nil {
		return nil, err
	}
	l.size += about.Size()
	l.endless = l.endless || !about.Mode().IsRegular()
	return accesslog.NewReader(name, countedReader{file, l}, c)
}

// progress draws a bar where there is a terminal, of bytes where it is known how many there are, until finish is called.
func (l *logFiles) progress(p Process) (advance func(), finish func()) {
	to := terminal(p.Stderr)
	if to == nil {
		return nil, func() {}
	}
	bar := l.bar(to)
	// There is nobody to tell that a bar cannot be drawn.
	return func() { _ = bar.Set64(l.done.Load()) }, func() { _ = bar.Finish() }
}

// bar draws itself before anything is done: it has no rate then, which it takes from when it is first drawn.
func (l *logFiles) bar(to io.Writer) *progressbar.ProgressBar {
	most := l.size
	if l.endless {
		most = -1
	}
	return progressbar.NewOptions64(most,
		progressbar.OptionSetWriter(to), progressbar.OptionSetDescription("replaying"), progressbar.OptionSetWidth(30),
		progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true))
}
