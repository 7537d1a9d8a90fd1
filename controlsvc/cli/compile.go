package cli

import (
	"encoding/base64"
	"fmt"

	"github.com/spf13/cobra"

	"sluice/controlsvc/policyfile"
	"sluice/shared/jsontext"
	"sluice/shared/wire"
)

// maxFirstPolicy leaves room for the rest of the plugin's configuration.
const maxFirstPolicy = jsontext.MaxLength - 4096

func newCompile(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "compile FILE",
		Short: "Print a policy as the filter reads it",
		Long: "Compile prints a policy in the form that first_policy in the plugin's configuration takes: the filter then limits from\n" +
			"its first request on, also where the service cannot be reached when Envoy starts. As soon as the service answers, its\n" +
			"policy is in force.\n\n" +
			"The text is not encrypted: where the policy hashes identities, the key is in it.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			loaded, err := policyfile.Load(files[0])
			if err != nil {
				return failed(err)
			}
			text := base64.StdEncoding.EncodeToString(wire.AppendGetPolicyResponse(nil, &wire.GetPolicyResponse{Version: loaded.Version, Policy: loaded}))
			if len(text) > maxFirstPolicy {
				return failed(fmt.Errorf("%s: compiled it has %d bytes; a plugin's configuration has room for %d", files[0], len(text), maxFirstPolicy))
			}
			fmt.Fprintln(p.Stdout, text)
			return nil
		},
	}
}
