package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// variable gives the environment variable of a flag: SLUICE_CALL_TIMEOUT of call-timeout.
func variable(flag string) string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that the command line did not. An empty variable is none. The error names every variable
// whose value its flag does not take.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var all error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" {
			return
		}
		name := variable(f.Name)
		value, _ := lookup(name)
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			all = errors.Join(all, fmt.Errorf("%s=%q in the environment: want what --%s takes: %s: %w", name, value, f.Name, f.Usage, err))
			return
		}
		f.Changed = true
	})
	return all
}
