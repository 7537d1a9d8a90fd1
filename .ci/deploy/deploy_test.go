// Package deploy holds what users deploy Sluice with against the types of those who read it: Kubernetes, Istio, Compose. It
// is a module of its own, so that their dependencies are not those of Sluice.
package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// root is the checkout's.
const root = "../.."

// object is a document of a manifest, in exactly one of the two.
type object struct {
	meta.TypeMeta
	meta.ObjectMeta
	kubernetes any
	istio      proto.Message
}

// kinds gives an empty object of each kind that the manifests may use.
var kinds = map[meta.TypeMeta]func() any{
	{APIVersion: "v1", Kind: "Namespace"}:                            func() any { return &core.Namespace{} },
	{APIVersion: "v1", Kind: "Secret"}:                               func() any { return &core.Secret{} },
	{APIVersion: "v1", Kind: "ConfigMap"}:                            func() any { return &core.ConfigMap{} },
	{APIVersion: "v1", Kind: "Service"}:                              func() any { return &core.Service{} },
	{APIVersion: "apps/v1", Kind: "Deployment"}:                      func() any { return &apps.Deployment{} },
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:           func() any { return &policy.PodDisruptionBudget{} },
	{APIVersion: "extensions.istio.io/v1alpha1", Kind: "WasmPlugin"}: func() any { return &extensions.WasmPlugin{} },
	{APIVersion: "networking.istio.io/v1", Kind: "DestinationRule"}:  func() any { return &networking.DestinationRule{} },
	{APIVersion: "networking.istio.io/v1", Kind: "ServiceEntry"}:     func() any { return &networking.ServiceEntry{} },
}

// decode reads the documents of a manifest; a field that its kind has not, also one that differs in case, is an error.
func decode(text []byte) ([]object, error) {
	var objects []object
	for number, document := range bytes.Split(text, []byte("\n---\n")) {
		decoded, err := decodeOne(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number+1, err)
		}
		objects = append(objects, decoded)
	}
	return objects, nil
}

func decodeOne(document []byte) (object, error) {
	var o object
	content, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(content, &o.TypeMeta); err != nil {
		return o, err
	}
	fresh, known := kinds[o.TypeMeta]
	if !known {
		return o, fmt.Errorf("no kind %s of %s is known here", o.Kind, o.APIVersion)
	}
	message, isIstio := fresh().(proto.Message)
	if !isIstio {
		o.kubernetes = fresh()
		if err := strict(content, o.kubernetes); err != nil {
			return o, err
		}
		o.ObjectMeta = *metaOf(o.kubernetes)
		return o, nil
	}
	// Istio's types are the specs alone.
	var envelope struct {
		meta.TypeMeta   `json:",inline"`
		meta.ObjectMeta `json:"metadata"`
		Spec            json.RawMessage `json:"spec"`
	}
	if err := strict(content, &envelope); err != nil {
		return o, err
	}
	o.ObjectMeta, o.istio = envelope.ObjectMeta, message
	return o, protojson.Unmarshal(envelope.Spec, message)
}

func strict(content []byte, into any) error {
	unknown, err := strictjson.UnmarshalStrict(content, into)
	return errors.Join(append(unknown, err)...)
}

func metaOf(kubernetes any) *meta.ObjectMeta {
	switch k := kubernetes.(type) {
	case *core.Namespace:
		return &k.ObjectMeta
	case *core.Secret:
		return &k.ObjectMeta
	case *core.ConfigMap:
		return &k.ObjectMeta
	case *core.Service:
		return &k.ObjectMeta
	case *apps.Deployment:
		return &k.ObjectMeta
	case *policy.PodDisruptionBudget:
		return &k.ObjectMeta
	}
	return &meta.ObjectMeta{}
}

// manifests reads every manifest in a folder and beneath it.
func manifests(t *testing.T, folder string) []object {
	t.Helper()
	var all []object
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		objects, err := decode(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, objects...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no manifest in %s", folder)
	}
	return all
}
