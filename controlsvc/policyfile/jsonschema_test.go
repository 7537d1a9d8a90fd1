package policyfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"
)

const checkedIn = "../../envoy/policies/policy.schema.json"

func TestTheSchemaIsFresh(t *testing.T) {
	text, err := os.ReadFile(checkedIn)
	if err != nil || !bytes.Equal(text, JSONSchema()) {
		t.Errorf("%s is not what JSONSchema gives (%v): run `make generate`", checkedIn, err)
	}
}

// validator compiles the schema; it is checked against the draft's own first.
func validator(t testing.TB) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("policy.schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// refuses says why the schema refuses a file; nil where it does not.
func refuses(s *jsonschema.Schema, file []byte) error {
	text, err := asJSON(file)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(document)
}

func asJSON(file []byte) ([]byte, error) {
	var document any
	if err := yaml.Unmarshal(file, &document); err != nil {
		return nil, err
	}
	return json.Marshal(document)
}

// looksLikePolicy tells policies from the other YAML files of the checkout.
func looksLikePolicy(text []byte) bool {
	return bytes.Contains(text, []byte("\nlimits:")) && bytes.Contains(text, []byte("domain"))
}

// everyPolicy gives the valid policies of the whole checkout, by where they are: files, and those within scenarios.
func everyPolicy(t testing.TB) map[string][]byte {
	t.Helper()
	t.Setenv("SLUICE_HASH_KEY", secret)
	found := make(map[string][]byte)
	add := func(name string, text []byte) {
		if _, err := Parse(name, text); err == nil {
			found[name] = text
		}
	}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..":
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".txtar":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".yaml" && looksLikePolicy(text) {
			add(path, text)
		}
		for _, file := range txtar.Parse(text).Files {
			if filepath.Ext(file.Name) == ".yaml" {
				add(path+"/"+file.Name, file.Data)
			}
		}
		return nil
	})
	if err != nil || len(found) < 30 {
		t.Fatalf("%d policies, %v", len(found), err)
	}
	return found
}

func TestTheSchemaTakesEveryValidPolicy(t *testing.T) {
	s := validator(t)
	for name, text := range everyPolicy(t) {
		if err := refuses(s, text); err != nil {
			t.Errorf("%s is valid, and the schema refuses it: %v", name, err)
		}
	}
}

// formal are errors that are told of without knowing any other part of the policy.
var formal = regexp.MustCompile(`unknown field|lacks the field|has \d+ elements|want a whole number from|has \d+ (sources|conditions|places|bodies)` +
	`|is (a list|a mapping|empty|the number)\b|want a rate such as|is no name|is no path, want`)

func TestTheSchemaRefusesBadPolicies(t *testing.T) {
	s := validator(t)
	refused := 0
	for _, c := range readBad(t) {
		why := refuses(s, []byte(c.file))
		if why != nil {
			refused++
		}
		merges := strings.Contains(c.errors, `"<<"`) // which is YAML, not the policy's form
		if formal.MatchString(c.errors) && why == nil && !merges {
			t.Errorf("%s: the schema takes it, and the decoder says:\n%s", c.name, c.errors)
		}
	}
	if refused < 30 {
		t.Errorf("the schema refuses %d of them", refused)
	}
}

// Both refuse any valid policy to which a field is added, from which a required one is taken, or of which a value becomes a
// list of lists, which stands nowhere.
func TestBothRefuseWhatIsBrokenAnywhere(t *testing.T) {
	s := validator(t)
	both := func(what string, document any) {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("policy.yaml", text); err == nil {
			t.Errorf("%s: the decoder takes it", what)
		}
		if refuses(s, text) == nil {
			t.Errorf("%s: the schema takes it", what)
		}
	}
	for _, name := range []string{"testdata/everything.yaml", "testdata/rules.yaml", "testdata/spellings.yaml"} {
		t.Setenv("SLUICE_HASH_KEY", secret)
		var document any
		text, err := os.ReadFile(name)
		if err == nil {
			text, err = asJSON(text)
		}
		if err == nil {
			err = json.Unmarshal(text, &document)
		}
		if err != nil {
			t.Fatal(err)
		}
		eachPlace(document, name+" $", func(where string, set func(any)) {
			set([]any{[]any{}})
			both(where+" is a list of lists", document)
			set(map[string]any{"no such field": map[string]any{}})
			both(where+" has an unknown field alone", document)
		}, func(where string, object map[string]any) {
			object["no such field"] = 1
			both(where+" has an unknown field", document)
			delete(object, "no such field")
			for _, field := range []string{"domain", "limits", "name", "key", "claim", "by", "identity", "percent"} {
				if value, there := object[field]; there {
					delete(object, field)
					both(where+" lacks "+field, document)
					object[field] = value
				}
			}
		})
	}
}

// eachPlace calls value with each value of a document, and what replaces it, and object with each mapping; the document is
// afterwards as before.
func eachPlace(v any, where string, value func(where string, set func(any)), object func(where string, o map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		object(where, v)
		for name, inner := range v {
			value(where+"."+name, func(other any) { v[name] = other })
			v[name] = inner
			eachPlace(inner, where+"."+name, value, object)
		}
	case []any:
		for i, inner := range v {
			at := fmt.Sprintf("%s[%d]", where, i)
			value(at, func(other any) { v[i] = other })
			v[i] = inner
			eachPlace(inner, at, value, object)
		}
	}
}

// For each mapping that the decoder reads, the fields that it knows are those of the schema; and the schema has no mapping
// that it does not read.
func TestTheSchemaHasTheDecodersFields(t *testing.T) {
	files := everyPolicy(t)
	for _, c := range readBad(t) {
		files["bad: "+c.name] = []byte(c.file)
	}
	top := schemaOfPolicy()
	read, told := make(map[string]bool), make(map[string]bool)
	for name, text := range files {
		d := &decoder{file: name, anchors: make(map[string]*ast.AnchorNode)}
		d.onFields = func(path string, known []string) {
			var fields, required []string
			for _, field := range known {
				name, is := strings.CutSuffix(field, "!")
				if either := name == "key" && slices.Contains(known, "descriptor"); is && !either {
					required = append(required, name)
				}
				field = name
				fields = append(fields, field)
			}
			said, saidRequired := fieldsAt(top, path, read)
			slices.Sort(fields)
			slices.Sort(required)
			diff := cmp.Diff([][]string{fields, required}, [][]string{said, saidRequired})
			if diff != "" && !told[diff] {
				told[diff] = true
				t.Errorf("%s: %s (-decoder +schema):\n%s", name, path, diff)
			}
		}
		d.compile(text)
	}
	eachObject(top, "$", func(where string) {
		if !read[where] {
			t.Errorf("the decoder has read no mapping where the schema has %s", where)
		}
	})
}

// pathStep is a field or an element on a path of the decoder's.
var pathStep = regexp.MustCompile(`^(?:\.'([^']*)'|\.([^.\[]*)|\[\d+\])`)

// fieldsAt gives what the schema says of the mappings at a place, over all alternatives, and notes where in the schema that
// is.
func fieldsAt(top schema, path string, read map[string]bool) (fields, required []string) {
	type place struct {
		schema schema
		where  string
	}
	at := []place{{top, "$"}}
	alternatives := func() {
		for i := 0; i < len(at); i++ {
			if of, is := at[i].schema["anyOf"].([]any); is && at[i].schema["type"] == nil {
				for n, one := range of {
					at = append(at, place{one.(schema), fmt.Sprintf("%s|%d", at[i].where, n)})
				}
			}
		}
	}
	alternatives()
	for rest := strings.TrimPrefix(path, root); rest != ""; {
		step := pathStep.FindStringSubmatch(rest)
		rest = rest[len(step[0]):]
		var next []place
		for _, p := range at {
			properties, _ := p.schema["properties"].(schema)
			name := step[1] + step[2]
			if one, is := properties[name].(schema); is && step[0][0] == '.' {
				next = append(next, place{one, p.where + "." + name})
			} else if one, is := p.schema["additionalProperties"].(schema); is && step[0][0] == '.' {
				next = append(next, place{one, p.where + ".*"})
			} else if one, is := p.schema["items"].(schema); is && step[0][0] == '[' {
				next = append(next, place{one, p.where + "[]"})
			}
		}
		at = next
		alternatives()
	}
	for _, p := range at {
		if properties, is := p.schema["properties"].(schema); is {
			read[p.where] = true
			for name := range properties {
				fields = append(fields, name)
			}
			more, _ := p.schema["required"].([]string)
			required = append(required, more...)
		}
	}
	slices.Sort(fields)
	slices.Sort(required)
	return fields, required
}

// eachObject calls found with the place of each part of the schema that has properties.
func eachObject(s schema, where string, found func(where string)) {
	if properties, is := s["properties"].(schema); is {
		found(where)
		for name, one := range properties {
			eachObject(one.(schema), where+"."+name, found)
		}
	}
	if one, is := s["additionalProperties"].(schema); is {
		eachObject(one, where+".*", found)
	}
	if one, is := s["items"].(schema); is {
		eachObject(one, where+"[]", found)
	}
	if of, is := s["anyOf"].([]any); is && s["type"] == nil {
		for n, one := range of {
			eachObject(one.(schema), fmt.Sprintf("%s|%d", where, n), found)
		}
	}
}

// Every field is described: it is what an editor shows.
func TestTheSchemaDescribesEverything(t *testing.T) {
	var look func(s schema, where string)
	look = func(s schema, where string) {
		if s["description"] == nil || s["description"] == "" {
			t.Errorf("%s has no description", where)
		}
		properties, _ := s["properties"].(schema)
		for name, one := range properties {
			look(one.(schema), where+"."+name)
		}
		for _, inner := range []string{"additionalProperties", "items"} {
			if one, is := s[inner].(schema); is {
				look(one, where+"/"+inner)
			}
		}
	}
	look(schemaOfPolicy(), "$")
}
