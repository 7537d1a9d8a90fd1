package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The names of the Wasm Image Specification v0.0.0, https://github.com/solo-io/wasm/tree/master/spec.
const (
	// spec-compat.md: one ordinary layer with this file in it, and this annotation of the manifest.
	compatFile       = "plugin.wasm"
	compatAnnotation = "module.wasm.image/variant"
	// spec.md: one layer about the runtime, one that is the module itself.
	runtimeMediaType types.MediaType = "application/vnd.module.wasm.config.v1+json"
	moduleMediaType  types.MediaType = "application/vnd.module.wasm.content.layer.v1+wasm"
	titleAnnotation                  = "org.opencontainers.image.title"
)

// runtimeConfig is what spec.md has the first layer say; the root id is the one that the filter answers to.
const runtimeConfig = `{"type":"envoy_proxy","abi_version":"0.2.1","config":{"root_ids":["sluice"]}}`

// builders are the variants by the names that the specification has for them.
var builders = map[string]func(wasm []byte) (v1.Image, error){"compat": compat, "oci": artifact}

// moduleStart is how a wasm module begins: its magic number and version 1.
var moduleStart = []byte("\x00asm\x01\x00\x00\x00")

// build gives the image of a wasm module. It holds no time, so the same module gives the same digest.
func build(wasm []byte, variant string) (v1.Image, error) {
	if !bytes.HasPrefix(wasm, moduleStart) {
		return nil, fmt.Errorf("it begins with %q, want a wasm module, which begins with %q", wasm[:min(len(wasm), len(moduleStart))], moduleStart)
	}
	builder, known := builders[variant]
	if !known {
		return nil, fmt.Errorf("variant %q: want compat or oci", variant)
	}
	return builder(wasm)
}

// compat is the variant that any registry takes and any tool of Docker's pulls.
func compat(wasm []byte) (v1.Image, error) {
	archive, err := tarOf(compatFile, wasm)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image, err := assemble(types.OCIConfigJSON, mutate.Addendum{Layer: layer, MediaType: types.OCILayer})
	if err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, map[string]string{compatAnnotation: "compat"}).(v1.Image)
	if !ok {
		return nil, errors.New("an image with annotations is no image")
	}
	return annotated, nil
}

// artifact is the variant with media types of its own, which not every registry takes.
func artifact(wasm []byte) (v1.Image, error) {
	return assemble(runtimeMediaType,
		mutate.Addendum{
			Layer: static.NewLayer([]byte(runtimeConfig), runtimeMediaType), MediaType: runtimeMediaType,
			Annotations: map[string]string{titleAnnotation: "runtime-config.json"},
		},
		mutate.Addendum{
			Layer: static.NewLayer(wasm, moduleMediaType), MediaType: moduleMediaType,
			Annotations: map[string]string{titleAnnotation: "filter.wasm"},
		})
}

func assemble(config types.MediaType, layers ...mutate.Addendum) (v1.Image, error) {
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), config), layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "wasip1", "wasm"
	// What each layer came from, and when, is not said: it would be another image each time.
	file.History = nil
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, err
	}
	return mutate.ConfigMediaType(image, config), nil
}

// tarOf gives an archive with one file in it that anybody may read.
func tarOf(name string, content []byte) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// readModule reads the file, which has to be a wasm module of at most 64 MiB.
func readModule(path string) ([]byte, error) {
	const most = 64 << 20
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	wasm, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if len(wasm) > most {
		return nil, fmt.Errorf("%s: more than %d bytes are no filter", path, most)
	}
	return wasm, nil
}
