package host

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"
)

// seenInEnvoy is what Envoy 1.40 gave for the Struct
// {control_cluster: sluice, timeout_ms: 200, nested: {b: true, z: [1, 2.5]}}.
const seenInEnvoy = "\n0\n\x06nested\x12&*$\n\x19\n\x01z\x12\x142\x12\n\t\x11\x00\x00\x00\x00\x00\x00\xf0?\n\x05\x1a\x032.5" +
	"\n\a\n\x01b\x12\x02 \x01\n\x17\n\ntimeout_ms\x12\t\x11\x00\x00\x00\x00\x00\x00i@\n\x1b\n\x0fcontrol_cluster\x12\b\x1a\x06sluice"

func TestConfigurationJSON(t *testing.T) {
	deep, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"a": nested(maxConfigurationDepth)}})
	if err != nil {
		t.Fatal(err)
	}
	infinite, err := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(math.Inf(1))}})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ name, in, want string }{
		{"a Struct of Envoy's", seenInEnvoy, `{"nested":{"z":[1,"2.5"],"b":true},"timeout_ms":200,"control_cluster":"sluice"}`},
		{"none", "", ""},
		{"JSON", ` {"a" : 1}`, ` {"a" : 1}`},
		{"JSON after a line feed", "\n{\"a\":1}\n", "\n{\"a\":1}\n"},
		{"a Struct cut short", seenInEnvoy[:len(seenInEnvoy)-1], seenInEnvoy[:len(seenInEnvoy)-1]},
		{"too deep", string(deep), string(deep)},
		{"no number of JSON's", string(infinite), string(infinite)},
		{"garbage", "\xff\x00", "\xff\x00"},
	} {
		if got := string(configurationJSON([]byte(step.in))); got != step.want {
			t.Errorf("%s:\ngot  %.300q\nwant %.300q", step.name, got, step.want)
		}
	}
}

func nested(depth int) *structpb.Value {
	v := structpb.NewNullValue()
	for range depth {
		v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	return v
}

// Any Struct becomes the JSON that means the same, and any JSON stays what it is.
func TestStructBecomesItsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawObject(t, 3)
		message, err := structpb.NewStruct(want)
		if err != nil {
			t.Fatal(err)
		}
		binary, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		text := configurationJSON(binary)
		if len(want) == 0 {
			return // no bytes, no text
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("want -, got +:\n%s", diff)
		}
		pretty, err := json.MarshalIndent(want, strings.Repeat("\n", rapid.IntRange(0, 40).Draw(t, "feeds")), "\n")
		if err != nil {
			t.Fatal(err)
		}
		pretty = append([]byte("\n"), pretty...)
		if again := configurationJSON(pretty); !bytes.Equal(again, pretty) {
			t.Fatalf("JSON was taken for a Struct: %q became %q", pretty, again)
		}
	})
}

func drawObject(t *rapid.T, depth int) map[string]any {
	object := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		object[drawText(t)] = drawValue(t, depth)
	}
	return object
}

func drawText(t *rapid.T) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune{'a', '"', '\\', '\n', 0, 0x1f, 'é', '💧', ' ', '{'}), 0, 130, -1).Draw(t, "text")
}

func drawValue(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.Bool().Draw(t, "bool")
	case kind == 2:
		return rapid.Float64().Draw(t, "number")
	case kind == 3:
		return float64(rapid.Int64Range(-1<<55, 1<<55).Draw(t, "whole"))
	case kind == 4 && depth > 0:
		return drawObject(t, depth-1)
	case kind == 5 && depth > 0:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "values") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	default:
		return drawText(t)
	}
}

// Whatever the bytes are, they are given back, or become JSON.
func FuzzConfigurationJSON(f *testing.F) {
	for _, seed := range []string{seenInEnvoy, "", "{}", "\n{}", "\n\x05\n\x01a\x12\x00", "\n\x07\n\x01a\x12\x02\b\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := configurationJSON(b)
		if bytes.Equal(got, b) {
			return
		}
		if json.Valid(b) {
			t.Errorf("JSON was taken for a Struct: %q became %q", b, got)
		}
		if !json.Valid(got) && !bytes.ContainsFunc(got, func(r rune) bool { return r == '\uFFFD' }) {
			t.Errorf("%q became %q, which is no JSON", b, got)
		}
	})
}
