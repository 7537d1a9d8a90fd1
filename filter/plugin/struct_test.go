package plugin

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestStruct: the configuration as Envoy 1.40 hands a google.protobuf.Struct over, against protobuf's own encoder.
func TestStruct(t *testing.T) {
	list, _ := structpb.NewList(nil)
	long := strings.Repeat("k", '{') // its length is the byte of an opening brace
	for _, test := range []struct {
		name   string
		fields map[string]*structpb.Value
		want   string // in the error; empty: none
	}{
		{"nothing", nil, ""},
		{"both", map[string]*structpb.Value{
			"control_cluster": structpb.NewStringValue("control"), "timeout_ms": structpb.NewNumberValue(150),
		}, ""},
		{"unknown", map[string]*structpb.Value{"x": structpb.NewBoolValue(true)}, `unknown key "x"`},
		{"unknown and long", map[string]*structpb.Value{long: structpb.NewNullValue()}, "unknown key"},
		{"fraction", map[string]*structpb.Value{"timeout_ms": structpb.NewNumberValue(0.5)}, "timeout_ms is 0.5, want a whole number"},
		{"no number", map[string]*structpb.Value{"timeout_ms": structpb.NewNumberValue(math.NaN())}, "timeout_ms is NaN, want a whole number"},
		{"null", map[string]*structpb.Value{"timeout_ms": structpb.NewNullValue()}, "timeout_ms is null"},
		{"bool", map[string]*structpb.Value{"control_cluster": structpb.NewBoolValue(true)}, "control_cluster is true"},
		{"list", map[string]*structpb.Value{"timeout_ms": structpb.NewListValue(list)}, `"timeout_ms" is an object or a list`},
	} {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(&structpb.Struct{Fields: test.fields})
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseConfig(text)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
		if test.name == "both" && (c.Cluster != "control" || c.Timeout != 150*time.Millisecond) {
			t.Errorf("read as %+v", c)
		}
	}
	for _, text := range []string{"\n", "\n\x05", "\n\x02\n\x00", "\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\n\n\n\n", "\n  x"} {
		if _, err := parseConfig([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if c, err := parseConfig([]byte("\n \n{\"timeout_ms\": 7}")); err != nil || c.Timeout != 7*time.Millisecond {
		t.Error("JSON after empty lines:", err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"control_cluster": "sluice", "timeout_ms": 200}`))
	text, _ := proto.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{"timeout_ms": structpb.NewNumberValue(200)}})
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseConfig(text)
		if err == nil && (c.Timeout < time.Millisecond || c.Cluster == "" || c.MaxPaused < 1 || c.maxKeys < 100) {
			t.Errorf("%q gives %+v", text, c)
		}
	})
}
