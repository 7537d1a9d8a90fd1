package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/controlsvc/policyfile"
)

func newValidate(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Say what is wrong with policy files",
		Long: "Validate reads each policy file as serve would, and says all that is wrong with it: the file, line and column, the\n" +
			"path in the document, and what was expected. It exits with 1 where anything is.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			invalid := 0
			for _, file := range files {
				policy, err := policyfile.Load(file)
				if err != nil {
					invalid++
					fmt.Fprintln(p.Stderr, err)
					continue
				}
				fmt.Fprintf(p.Stdout, "%s: valid: domain %s, %s, %s, version %s\n", file, policy.Domain,
					count(len(policy.Identities), "identity", "identities"), count(len(policy.Limits), "limit", "limits"), policy.Version)
			}
			if invalid > 0 {
				return failed(fmt.Errorf("%d of %s invalid", invalid, count(len(files), "file is", "files are")))
			}
			return nil
		},
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
