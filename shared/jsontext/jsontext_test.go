package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// What is read as a configuration is what encoding/json reads, of plain values and without doubled names.
func FuzzReadObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1,"b":"x\u00fc\ud83d\ude00\n","c":null,"d":-0.5e-7}`, `{"a":{}}`, `{"a":1,"a":2}`, `{"a":01}`, `{"":""}`, "{\"a\":\"\u2028\"}",
		`{"a":1e400}`, `{"a":"\ud83d\u0041"}`, ` { } x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]any{}
		err := ReadObject(text, func(key string, v Value) error {
			switch v.Kind {
			case String:
				got[key] = v.Text
			case Number:
				got[key] = v.Number
			default:
				got[key] = map[string]any{"true": true, "false": false, "null": nil}[v.Text]
			}
			return nil
		})
		if err != nil {
			return
		}
		var want map[string]any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("%q was read; encoding/json says %v", text, err)
		}
		a, b := must(json.Marshal(got)), must(json.Marshal(want))
		if !bytes.Equal(a, b) {
			t.Errorf("%q was read as %s, want %s", text, a, b)
		}
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		text string
		path []string
		want string
	}{
		{`{"sub":"acme"}`, []string{"sub"}, "acme"},
		{` {"a":[1,{"sub":2},[]],"sub":"acme","b":{}} `, []string{"sub"}, "acme"},
		{`{"realm_access":{"role":"admin"},"role":"none"}`, []string{"realm_access", "role"}, "admin"},
		{`{"sub":12.50}`, []string{"sub"}, "12.50"},
		{`{"sub":true}`, []string{"sub"}, "true"},
		{`{"sub":{"x":1}}`, []string{"sub"}, "{"},
		{`{"sub":[1]}`, []string{"sub"}, "["},
		{`{"a.b":"x","a":{"b":"y"}}`, []string{"a.b"}, "x"},
		{`{"":"x"}`, []string{""}, "x"},
		{`{"a":{"a":{"a":"x"}}}`, []string{"a", "a", "a"}, "x"},

		{`{"sub":"a","sub":"b"}`, []string{"sub"}, "-"},
		{`{"a":{"b":1},"a":{}}`, []string{"a", "b"}, "-"},
		{`{"a":{},"a":{"b":1}}`, []string{"a", "b"}, "-"},
		{`{"a":[{"b":1}]}`, []string{"a", "b"}, "-"},
		{`{"a":"b"}`, []string{"a", "b"}, "-"},
		{`{"a":1}`, []string{"b"}, "-"},
		{`{"a":1}`, nil, "-"},
		{`{"a":1} x`, []string{"a"}, "-"},
		{`{"a":1`, []string{"a"}, "-"},
		{`{"a":1,}`, []string{"a"}, "-"},
		{`["a"]`, []string{"a"}, "-"},
		{`"a"`, []string{"a"}, "-"},
		{``, []string{"a"}, "-"},
		{"{\"a\":\"\xff\"}", []string{"a"}, "-"},
		{`{"b":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `,"a":1}`, []string{"a"}, "-"},
		{`{"a":1,"b":"` + strings.Repeat("x", MaxLength) + `"}`, []string{"a"}, "-"},
	} {
		got := "-"
		if v, ok := Find(c.text, c.path); ok {
			got = v.Text
		}
		if got != c.want {
			t.Errorf("%.80s, %q: got %s, want %s", c.text, c.path, got, c.want)
		}
	}
}

// What is found is what encoding/json finds.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":"x"}}`, `{"a":{"b":1.5e3},"c":[true,null,{}]}`, `{"b":1,"a":{"b":false}}`, `{"a":[]}`, `{"a":{"b":{}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := Find(text, []string{"a", "b"})
		if !ok {
			return
		}
		var all map[string]any
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%q was read; encoding/json says %v", text, err)
		}
		a, _ := all["a"].(map[string]any)
		want, there := a["b"]
		got := map[Kind]any{String: v.Text, Number: v.Number, Bool: v.Text == "true", Null: nil, Compound: want}[v.Kind]
		if x, y := must(json.Marshal(got)), must(json.Marshal(want)); !there || !bytes.Equal(x, y) {
			t.Errorf("%q: found %s, want %s", text, x, y)
		}
	})
}
