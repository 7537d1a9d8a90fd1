package plugin

import (
	"bytes"
	"encoding/json"
	"testing"
)

// What is read as a configuration is what encoding/json reads, of plain values and without doubled names.
func FuzzReadJSONObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1,"b":"x\u00fc\ud83d\ude00\n","c":null,"d":-0.5e-7}`, `{"a":{}}`, `{"a":1,"a":2}`, `{"a":01}`, `{"":""}`, "{\"a\":\"\u2028\"}",
		`{"a":1e400}`, `{"a":"\ud83d\u0041"}`, ` { } x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]any{}
		err := readJSONObject(text, func(key string, v jsonValue) error {
			switch v.kind {
			case jsonString:
				got[key] = v.text
			case jsonNumber:
				got[key] = v.number
			default:
				got[key] = map[string]any{"true": true, "false": false, "null": nil}[v.text]
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
