package envoy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

// TestNothingChanged: what is not asked for stays as the file has it, but for the ports that are free by default.
func TestNothingChanged(t *testing.T) {
	got := read(t, Bootstrap{Admin: "127.0.0.1:9901", Listen: "127.0.0.1:10000"})
	var want any
	if err := yaml.Unmarshal(Example(), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(throughJSON(t, want), got); diff != "" {
		t.Error(diff)
	}
}

func TestChanges(t *testing.T) {
	for _, test := range []struct {
		name      string
		bootstrap Bootstrap
		want      []string
		never     []string
	}{
		{
			name: "free ports", bootstrap: Bootstrap{},
			want:  []string{`"port_value":0`, `"port_value":8080`, `"port_value":9090`, `"filename":"bin/sluice.wasm"`},
			never: []string{`"port_value":9901`, `"port_value":10000`},
		},
		{
			name: "addresses",
			bootstrap: Bootstrap{
				Admin: "127.0.0.1:1", Listen: "127.0.0.2:2", Upstream: "127.0.0.3:3", Control: "127.0.0.4:4",
			},
			want: []string{
				`{"address":"127.0.0.1","port_value":1}`, `{"address":"127.0.0.2","port_value":2}`,
				`{"address":"127.0.0.3","port_value":3}`, `{"address":"127.0.0.4","port_value":4}`,
			},
		},
		{
			name: "a Struct", bootstrap: Bootstrap{Wasm: "/x.wasm", Plugin: map[string]any{"control_cluster": "c"}},
			want:  []string{`"filename":"/x.wasm"`, `google.protobuf.Struct","value":{"control_cluster":"c"}`},
			never: []string{"timeout_ms"},
		},
		{
			name: "a StringValue", bootstrap: Bootstrap{Plugin: `{"a":1}`},
			want: []string{`google.protobuf.StringValue","value":"{\"a\":1}"`},
		},
		{name: "no filter", bootstrap: Bootstrap{NoFilter: true}, want: []string{"http.router"}, never: []string{"wasm"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, err := json.Marshal(read(t, test.bootstrap))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(string(text), want) {
					t.Errorf("no %s in %s", want, text)
				}
			}
			for _, never := range test.never {
				if strings.Contains(string(text), never) {
					t.Errorf("%s in %s", never, text)
				}
			}
		})
	}
}

func TestBadAddress(t *testing.T) {
	for _, address := range []string{"here", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"} {
		if _, err := (Bootstrap{Upstream: address}).JSON(); err == nil || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: error %v does not name it", address, err)
		}
	}
}

// TestEditorSaysWhere: an envoy.yaml that somebody has reshaped gives an error, not a bootstrap that is not what it says.
func TestEditorSaysWhere(t *testing.T) {
	e := &editor{}
	root := node{e, map[string]any{"a": []any{map[string]any{"name": "x"}}}, "file"}
	root.field("a").named("y").field("address").setAddress("127.0.0.1:1")
	if e.err == nil || e.err.Error() != "file.a: want a list with an item named y, found []interface {}" {
		t.Error(e.err)
	}
}

func read(t *testing.T, b Bootstrap) any {
	t.Helper()
	text, err := b.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

func throughJSON(t *testing.T, tree any) any {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var again any
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	return again
}
