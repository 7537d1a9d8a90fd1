package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/shared/limit"
	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

// lasting says for how long something is to hold.
type lasting struct{ lasts time.Duration }

func (l *lasting) register(f *pflag.FlagSet) {
	f.DurationVar(&l.lasts, "for", time.Hour, "how long it is to hold, 1s to "+limit.MaxWindow.String()+"; what is to stay belongs into the policy's file")
}

func (l *lasting) micros() (uint64, error) {
	if l.lasts < time.Second || l.lasts > limit.MaxWindow {
		return 0, fmt.Errorf("--for (%s): %v: want 1s to %v", variable("for"), l.lasts, limit.MaxWindow)
	}
	return uint64(l.lasts.Microseconds()), nil
}

func newOverride(p Process) *cobra.Command {
	command := &cobra.Command{
		Use:   "override",
		Short: "Have another rate hold for one key, for a while",
		Long: "Overrides hold for one key of a limit, over what the policy's file says of it, at all replicas and across their restarts,\n" +
			"until they expire. All workers go by one within a second or two. What is counted of the key stays.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(newOverrideSet(p), newOverrideRemove(p), newOverlayList(p, "overrides", isOverride))
	return command
}

func newOverrideSet(p Process) *cobra.Command {
	c := client{process: p}
	var k keyFlags
	var l lasting
	var rates []string
	var request adminv1.SetOverrideRequest
	var burst uint64
	command := &cobra.Command{
		Use:   "set KEY",
		Short: "Set an override, in the place of the one that there is for the key",
		Long: "Set has other rates hold for a key, or none, or has it in shadow or enforced. What it does not say stays as the file says.\n\n" +
			keyHelp + "\n\n  sluice override set tenant/acme --rate 200/s --rate 6000/m --for 2h\n  sluice override set tenant/acme --unlimited --for 30m",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.names((*adminv1.ListNamesResponse).GetLimits, "/"),
		RunE: func(command *cobra.Command, args []string) error {
			var err error
			if request.Key, err = k.key(args); err != nil {
				return err
			}
			if request.ExpiresIn, err = l.micros(); err != nil {
				return err
			}
			for _, text := range rates {
				r, err := limit.ParseRate(text)
				if err != nil {
					return fmt.Errorf("--rate (%s): %w", variable("rate"), err)
				}
				request.Rates = append(request.Rates, &adminv1.Rate{Units: uint64(r.Units), Window: uint64(r.Window.Microseconds()), Burst: burst})
			}
			if len(rates) == 0 && !request.GetUnlimited() && !request.GetShadow() && !request.GetEnforce() {
				return errors.New("want --rate, --unlimited, --shadow or --enforce")
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.SetOverride, &request)
			if err != nil {
				return err
			}
			return failed(printOverlay(p.Stdout, []*adminv1.OverlayEntry{response.GetEntry()}))
		},
	}
	f := command.Flags()
	c.register(f)
	k.register(f)
	l.register(f)
	f.StringArrayVar(&rates, "rate", nil, "a `RATE` that holds instead of the limit's, such as 200/s; may be given several times")
	f.Uint64Var(&burst, "burst", 0, "what a token bucket of the rates holds; 0: as much as their units")
	f.BoolVar(&request.Unlimited, "unlimited", false, "the key is under no rate")
	f.BoolVar(&request.Shadow, "shadow", false, "the key is decided and counted, and never denied")
	f.BoolVar(&request.Enforce, "enforce", false, "the key is denied though its limit is in shadow")
	command.MarkFlagsMutuallyExclusive("rate", "unlimited")
	command.MarkFlagsMutuallyExclusive("shadow", "enforce")
	c.completeLimit(command)
	return command
}

func newOverrideRemove(p Process) *cobra.Command {
	c := client{process: p}
	var k keyFlags
	command := &cobra.Command{
		Use:     "rm KEY",
		Aliases: []string{"remove"},
		Short:   "End an override before it expires",
		Long:    "Rm ends an override: the key is under what the file says again.\n\n" + keyHelp,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			key, err := k.key(args)
			if err != nil {
				return err
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.RemoveOverride, &adminv1.RemoveOverrideRequest{Key: key})
			if err != nil {
				return err
			}
			fmt.Fprintf(p.Stdout, "limit %s, key %s: no override any more\n", response.GetLimit(), response.GetKey())
			return nil
		},
	}
	c.register(command.Flags())
	k.register(command.Flags())
	return command
}

func isOverride(e *adminv1.OverlayEntry) bool { return e.GetListing() == nil }

func isKind(kind adminv1.ListKind) func(*adminv1.OverlayEntry) bool {
	return func(e *adminv1.OverlayEntry) bool { return e.GetListing() != nil && e.GetListing().GetKind() == kind }
}

// newOverlayList lists a part of the overlay.
func newOverlayList(p Process, what string, wanted func(*adminv1.OverlayEntry) bool) *cobra.Command {
	c, form := client{process: p}, output("")
	command := &cobra.Command{
		Use:   "list",
		Short: "List the " + what + " that were set",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := form.check(); err != nil {
				return err
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.ListOverlay, &adminv1.ListOverlayRequest{})
			if err != nil {
				return err
			}
			var entries []*adminv1.OverlayEntry
			for _, e := range response.GetEntries() {
				if wanted(e) {
					entries = append(entries, e)
				}
			}
			switch {
			case form == asJSON:
				return failed(printJSON(p.Stdout, entriesOf(entries)))
			case len(entries) == 0:
				fmt.Fprintf(p.Stdout, "no %s are set\n", what)
				return nil
			}
			return failed(printOverlay(p.Stdout, entries))
		},
	}
	c.register(command.Flags())
	form.register(command.Flags())
	return command
}

// printOverlay prints entries as a table.
func printOverlay(to io.Writer, entries []*adminv1.OverlayEntry) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tLIMIT\tFOR\tSAYS\tENDS IN\tIN FORCE")
	for _, e := range entriesOf(entries) {
		of := e.Limit
		if of == "" {
			of = "(all)"
		}
		inForce := "yes"
		if e.WhyNot != "" {
			inForce = "no: " + e.WhyNot
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", e.What, of, e.For, e.Says, brief(uint64(e.ExpiresIn*1e6)), inForce)
	}
	return table.Flush()
}

// overlayEntry is an entry of the overlay as it is printed.
type overlayEntry struct {
	What      string  `json:"what"`
	Limit     string  `json:"limit"`
	For       string  `json:"for"`
	Says      string  `json:"says,omitempty"`
	ExpiresIn float64 `json:"expires_in_seconds"`
	InForce   bool    `json:"in_force"`
	WhyNot    string  `json:"why_not,omitempty"`
}

func entriesOf(entries []*adminv1.OverlayEntry) []overlayEntry {
	out := make([]overlayEntry, 0, len(entries))
	for _, e := range entries {
		shown := overlayEntry{ExpiresIn: seconds(e.GetExpiresIn()), InForce: e.GetWhyNot() == "", WhyNot: e.GetWhyNot()}
		if l := e.GetListing(); l != nil {
			shown.What, shown.Limit, shown.For = "block", l.GetLimit(), l.GetIdentity()+" "+l.GetValue()+l.GetCidr()
			if l.GetKind() == adminv1.ListKind_LIST_KIND_ALLOW {
				shown.What = "allow"
			}
		} else {
			var says []string
			for _, r := range e.GetRates() {
				says = append(says, rateText(r))
			}
			if e.GetUnlimited() {
				says = append(says, "unlimited")
			}
			if e.GetShadow() {
				says = append(says, "shadow")
			}
			if e.GetEnforce() {
				says = append(says, "enforce")
			}
			shown.What, shown.Limit, shown.For, shown.Says = "override", e.GetKey().GetLimit(), e.GetKey().GetKey(), strings.Join(says, ", ")
		}
		out = append(out, shown)
	}
	return out
}
