package document

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSection(t *testing.T) {
	text := "# Figures\n"
	for _, step := range []struct{ name, body string }{{"a", "one"}, {"b", "two"}, {"a", "three"}} {
		var err error
		if text, err = Section(text, step.name, "bench", step.body); err != nil {
			t.Fatal(err)
		}
	}
	const want = "# Figures\n\n<!-- a: written by `make bench` -->\n\nthree\n\n<!-- end of a -->\n\n" +
		"<!-- b: written by `make bench` -->\n\ntwo\n\n<!-- end of b -->\n"
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
	if _, err := Section(strings.Replace(want, "<!-- end of a -->", "", 1), "a", "bench", "x"); err == nil {
		t.Error("a section without an end is replaced")
	}
}
