// Command image puts the filter into an OCI image, which Istio and Envoy Gateway load by an oci:// address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run does what the arguments say, and writes the image's digest, after its name where it was pushed.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	wasm := flags.String("wasm", "", "`FILE` with the filter")
	directory := flags.String("layout", "", "`DIR` to write the image to, as an OCI layout; what was there is replaced")
	variant := flags.String("variant", "compat", "of the Wasm Image Specification: compat, which every registry takes, or oci")
	push := flags.String("push", "", "`REGISTRY/NAME:TAG` to push to, with the credentials of docker login; empty: nowhere")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *wasm == "" || *directory == "" || flags.NArg() > 0 {
		return errors.New("want -wasm FILE and -layout DIR, and no argument without a flag")
	}
	module, err := readModule(*wasm)
	if err != nil {
		return err
	}
	image, err := build(module, *variant)
	if err != nil {
		return fmt.Errorf("%s: %w", *wasm, err)
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	if err := writeLayout(*directory, image); err != nil {
		return fmt.Errorf("writing %s: %w", *directory, err)
	}
	if *push == "" {
		fmt.Fprintln(out, digest)
		return nil
	}
	// Strict: nothing is left to defaults, neither the registry nor the tag.
	reference, err := name.ParseReference(*push, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("-push %s: want REGISTRY/NAME:TAG: %w", *push, err)
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing %s: %w", reference, err)
	}
	fmt.Fprintf(out, "%s@%s\n", reference.Context(), digest)
	return nil
}

// writeLayout replaces the layout in the directory by one of this image alone. A directory that holds something else is
// left as it is.
func writeLayout(directory string, image v1.Image) error {
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(directory, "oci-layout")); len(entries) > 0 && err != nil {
		return errors.New("it holds something that is no OCI layout; want none, an empty one, or one that was written before")
	}
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	path, err := layout.Write(directory, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendImage(image)
}
