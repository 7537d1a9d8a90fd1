package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	adminv1 "sluice/shared/proto/sluice/admin/v1"
)

func newBlock(p Process) *cobra.Command {
	return newListing(p, adminv1.ListKind_LIST_KIND_BLOCK, "block", "blocks", "Deny a caller's requests, for a while",
		"Block denies every request of a caller, under one limit or whatever it is under, at all replicas and across their restarts,\n"+
			"until it expires. All workers do so within a second or two.")
}

func newAllow(p Process) *cobra.Command {
	return newListing(p, adminv1.ListKind_LIST_KIND_ALLOW, "allow", "allows", "Take a caller out of one limit or of all, for a while",
		"Allow takes a caller's requests out of one limit, or out of all, at all replicas and across their restarts, until it expires.\n"+
			"A caller that is blocked stays blocked.")
}

func newListing(p Process, kind adminv1.ListKind, name, what, short, long string) *cobra.Command {
	c := client{process: p}
	var l lasting
	var remove bool
	var listing adminv1.Listing
	command := &cobra.Command{
		Use:   name + " IDENTITY [VALUE]",
		Short: short,
		Long: long + "\n\nIDENTITY is a name of the policy's identities, and VALUE one of its values as requests have it; where the policy\n" +
			"hashes them, the hash that logs have will do as well. --cidr is a range of addresses instead, of an identity that is an address.\n\n" +
			"  sluice " + name + " tenant acme --for 30m\n  sluice " + name + " client --cidr 203.0.113.0/24 --limit login",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: c.identities(),
		RunE: func(command *cobra.Command, args []string) error {
			expiresIn, err := l.micros()
			if err != nil {
				return err
			}
			listing.Kind, listing.Identity = kind, args[0]
			if len(args) > 1 {
				listing.Value = args[1]
			}
			if (listing.GetValue() == "") == (listing.GetCidr() == "") {
				return errors.New("want either VALUE or --cidr")
			}
			if remove {
				response, err := call(command.Context(), &c, adminv1.AdminClient.RemoveListing, &adminv1.RemoveListingRequest{Listing: &listing})
				if err != nil {
					return err
				}
				removed := response.GetListing() // the value as the policy has it written, hashed where it says so
				fmt.Fprintf(p.Stdout, "no %s any more: %s %s%s\n", name, removed.GetIdentity(), removed.GetValue(), removed.GetCidr())
				return nil
			}
			response, err := call(command.Context(), &c, adminv1.AdminClient.SetListing, &adminv1.SetListingRequest{Listing: &listing, ExpiresIn: expiresIn})
			if err != nil {
				return err
			}
			return failed(printOverlay(p.Stdout, []*adminv1.OverlayEntry{response.GetEntry()}))
		},
	}
	f := command.Flags()
	c.register(f)
	l.register(f)
	f.BoolVar(&remove, "remove", false, "end it before it expires")
	f.StringVar(&listing.Limit, "limit", "", "the limit's `NAME`; without, it holds for the whole policy")
	f.StringVar(&listing.Cidr, "cidr", "", "a `RANGE` of addresses, in the place of VALUE")
	c.completeLimit(command)
	command.AddCommand(newOverlayList(p, what, isKind(kind)))
	return command
}

// identities completes the first argument with the policy's identities.
func (c *client) identities() cobra.CompletionFunc {
	names := c.names((*adminv1.ListNamesResponse).GetIdentities, "")
	return func(command *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(command, args, begun)
	}
}
