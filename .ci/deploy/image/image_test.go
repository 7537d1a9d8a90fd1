package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// filter is what `make build` leaves; without it the tests fail.
const filter = "../../../bin/sluice.wasm"

// TestPushAndPull: what is pushed is what a proxy's agent pulls, under the media types that it asks for.
func TestPushAndPull(t *testing.T) {
	for _, test := range []struct {
		variant     string
		config      types.MediaType
		layers      []types.MediaType
		annotations map[string]string
		module      func(t *testing.T, layers []v1.Layer) []byte
	}{
		{
			variant: "compat", config: "application/vnd.oci.image.config.v1+json",
			layers:      []types.MediaType{"application/vnd.oci.image.layer.v1.tar+gzip"},
			annotations: map[string]string{"module.wasm.image/variant": "compat"},
			module: func(t *testing.T, layers []v1.Layer) []byte {
				return onlyFile(t, "plugin.wasm", bytesOf(t, layers[0]))
			},
		},
		{
			variant: "oci", config: "application/vnd.module.wasm.config.v1+json",
			layers: []types.MediaType{
				"application/vnd.module.wasm.config.v1+json", "application/vnd.module.wasm.content.layer.v1+wasm",
			},
			module: func(t *testing.T, layers []v1.Layer) []byte { return bytesOf(t, layers[1]) },
		},
	} {
		t.Run(test.variant, func(t *testing.T) {
			server := httptest.NewServer(registry.New())
			defer server.Close()
			reference := strings.TrimPrefix(server.URL, "http://") + "/sluice/filter:v1"
			said := runImage(t, "-wasm", filter, "-layout", t.TempDir(), "-variant", test.variant, "-push", reference)

			pulled := pull(t, reference)
			if err := validate.Image(pulled); test.variant == "compat" && err != nil {
				t.Error(err)
			}
			manifest, err := pulled.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			var got []types.MediaType
			for _, layer := range manifest.Layers {
				got = append(got, layer.MediaType)
			}
			if manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != test.config {
				t.Errorf("manifest %s with config %s, want %s", manifest.MediaType, manifest.Config.MediaType, test.config)
			}
			if diff := cmp.Diff(test.layers, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.annotations, manifest.Annotations); diff != "" {
				t.Error(diff)
			}
			layers, err := pulled.Layers()
			if err != nil {
				t.Fatal(err)
			}
			if want := read(t, filter); !bytes.Equal(test.module(t, layers), want) {
				t.Error("the module that was pulled is not the one that was pushed")
			}
			digest, err := pulled.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.TrimSuffix(reference, ":v1") + "@" + digest.String() + "\n"; said != want {
				t.Errorf("it said %q, want %q", said, want)
			}
		})
	}
}

// TestReproducible: the same module gives the same digest, in a layout that was there before too, and the layout holds the
// image and nothing else.
func TestReproducible(t *testing.T) {
	directory := t.TempDir()
	other := filepath.Join(t.TempDir(), "other.wasm")
	if err := os.WriteFile(other, append(bytes.Clone(moduleStart), 0), 0o600); err != nil {
		t.Fatal(err)
	}
	for variant := range builders {
		first := runImage(t, "-wasm", filter, "-layout", directory, "-variant", variant)
		if otherwise := runImage(t, "-wasm", other, "-layout", directory, "-variant", variant); otherwise == first {
			t.Errorf("another module has the same digest %s", first)
		}
		if second := runImage(t, "-wasm", filter, "-layout", directory, "-variant", variant); first != second {
			t.Errorf("%s: once %s, once %s", variant, first, second)
		}
		index, err := layout.ImageIndexFromPath(directory)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest.String()+"\n" != first {
			t.Errorf("the layout holds %+v, want %s alone", manifest.Manifests, first)
		}
	}
}

func TestRefuses(t *testing.T) {
	directory := t.TempDir()
	text := filepath.Join(directory, "text.wasm")
	if err := os.WriteFile(text, []byte("#!/bin/sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	free := filepath.Join(t.TempDir(), "layout")
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "want -wasm FILE and -layout DIR"},
		{"no module", []string{"-wasm", text, "-layout", free}, `text.wasm: it begins with "#!/bin/s", want a wasm module`},
		{"no file", []string{"-wasm", text + "x", "-layout", free}, "no such file"},
		{"no variant", []string{"-wasm", filter, "-layout", free, "-variant", "x"}, `variant "x": want compat or oci`},
		{"no layout", []string{"-wasm", filter, "-layout", directory}, "no OCI layout"},
		{"no tag", []string{"-wasm", filter, "-layout", free, "-push", "localhost:1/x"}, "want REGISTRY/NAME:TAG"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := run(t.Context(), test.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
	if _, err := os.Stat(text); err != nil {
		t.Errorf("a directory that is no layout was touched: %v", err)
	}
}

func runImage(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func pull(t *testing.T, reference string) v1.Image {
	t.Helper()
	parsed, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(parsed, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// bytesOf gives a layer's bytes as the registry has them: agents decompress for themselves.
func bytesOf(t *testing.T, layer v1.Layer) []byte {
	t.Helper()
	reader, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// onlyFile unpacks a tar.gz that has to hold that file and no other.
func onlyFile(t *testing.T, want string, archive []byte) []byte {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(unzipped)
	header, err := files.Next()
	if err != nil || header.Name != want {
		t.Fatalf("the layer begins with %+v (%v), want %s", header, err, want)
	}
	content, err := io.ReadAll(files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.Next(); err != io.EOF {
		t.Errorf("something comes after %s: %v", want, err)
	}
	return content
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
