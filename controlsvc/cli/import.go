package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sluice/controlsvc/policyfile"
	"sluice/controlsvc/ratelimitfile"
	"sluice/shared/limit"
)

func newImport(p Process) *cobra.Command {
	command := &cobra.Command{
		Use:   "import",
		Short: "Make policies of other rate limiters' configuration",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(newImportRatelimit(p))
	return command
}

// imported is where a policy goes and how it counts.
type imported struct{ output, directory, algorithm string }

func newImportRatelimit(p Process) *cobra.Command {
	var to imported
	command := &cobra.Command{
		Use:   "ratelimit FILE...",
		Short: "Make a policy of configuration files of envoyproxy/ratelimit",
		Long: "Import ratelimit reads configuration files of envoyproxy/ratelimit and writes a policy file with a limit for the same\n" +
			"descriptors. serve answers the same calls of Envoy's rate limit filter with it. What is not carried over is told on\n" +
			"stderr, with file, line and path; where a file is wrong nothing is written, and it exits with 1.\n\n" +
			"Windows slide: at most so many in any minute, where envoyproxy/ratelimit starts anew with each minute of the clock\n" +
			"and admits up to twice as many around its end. --algorithm fixed_window counts as it does.\n\n" +
			"A policy is for one domain. Files of one domain become one policy; those of several need --output-dir.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error { return failed(to.run(p, files)) },
	}
	f := command.Flags()
	f.StringVarP(&to.output, "output", "o", "", "the policy file to write, which must not be there yet; without it, stdout")
	f.StringVar(&to.directory, "output-dir", "", "the folder to write a policy DOMAIN.yaml into for each domain, made where there is none")
	f.StringVar(&to.algorithm, "algorithm", "", "what each limit says that it counts by, such as fixed_window; without it, the exact default")
	command.MarkFlagsMutuallyExclusive("output", "output-dir")
	return command
}

func (to imported) run(p Process, files []string) error {
	if _, known := limit.ParseAlgorithm(to.algorithm); !known && to.algorithm != "" && to.algorithm != "auto" {
		return fmt.Errorf("--algorithm %q is none, want auto, sliding_log, sliding_buckets, sliding_window_counter, fixed_window or token_bucket",
			to.algorithm)
	}
	sources := make([]ratelimitfile.Source, 0, len(files))
	for _, file := range files {
		data, err := readBounded(file)
		if err != nil {
			return err
		}
		sources = append(sources, ratelimitfile.Source{Name: file, Data: data})
	}
	policies, notes, err := ratelimitfile.Import(sources, to.algorithm)
	for _, note := range notes {
		fmt.Fprintf(p.Stderr, "note: %v\n", note)
	}
	if err != nil {
		if wrong := policyfile.Errors(nil); errors.As(err, &wrong) {
			fmt.Fprintln(p.Stderr, wrong)
			return fmt.Errorf("%s in %s, nothing is written", count(len(wrong), "error", "errors"), count(len(files), "file", "files"))
		}
		return err
	}
	return to.write(p, policies)
}

func (to imported) write(p Process, policies []ratelimitfile.Policy) error {
	if len(policies) > 1 && to.directory == "" {
		domains := make([]string, len(policies))
		for i := range policies {
			domains[i] = policies[i].Domain
		}
		return fmt.Errorf("the files are of %d domains, %s, and a policy is for one: give --output-dir", len(policies), strings.Join(domains, ", "))
	}
	if to.directory != "" {
		if err := os.MkdirAll(to.directory, 0o755); err != nil { //nolint:gosec // A policy is no secret.
			return fmt.Errorf("writing the policies: %w", err)
		}
	}
	for _, policy := range policies {
		where := to.output
		if to.directory != "" {
			where = filepath.Join(to.directory, policy.Domain+".yaml")
		}
		var err error
		if where == "" {
			where = "stdout"
			_, err = p.Stdout.Write(policy.YAML)
		} else {
			err = writeNew(where, policy.YAML)
		}
		if err != nil {
			return fmt.Errorf("writing the policy: %w", err)
		}
		fmt.Fprintf(p.Stderr, "%s: domain %s, %s\n", where, policy.Domain, count(policy.Limits, "limit", "limits"))
	}
	if to.algorithm != limit.FixedWindow.String() {
		fmt.Fprintln(p.Stderr, "note: windows slide now, and are never exceeded; envoyproxy/ratelimit admits up to twice as many around "+
			"a window's end (--algorithm fixed_window counts as it does)")
	}
	return nil
}

// writeNew writes a file that is not there yet: what is there may be what was imported, or a policy that has been worked on.
func writeNew(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // A policy is no secret.
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// readBounded reads a file of at most one byte more than a policy file may have: the reader refuses that.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, policyfile.MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return data, nil
}
