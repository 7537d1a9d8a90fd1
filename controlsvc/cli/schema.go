package cli

import (
	"github.com/spf13/cobra"

	"sluice/controlsvc/policyfile"
)

func newSchema(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policy files, for editors",
		Long: "Schema prints the JSON Schema of policy files (draft 2020-12). An editor with YAML's language server takes it from the\n" +
			"first line of a policy, and then completes fields, shows what they mean, and marks what is wrong:\n\n" +
			"  # yaml-language-server: $schema=policy.schema.json\n\n" +
			"It knows the form of a policy; `sluice validate` knows the rest.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.Stdout.Write(policyfile.JSONSchema())
			return failed(err)
		},
	}
}
