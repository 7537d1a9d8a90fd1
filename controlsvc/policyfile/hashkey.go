package policyfile

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"sluice/shared/policy"
)

// hash reads whether a hash is to stand for a value.
func (d *decoder) hash(v value) bool {
	wanted := d.flag(v)
	if wanted && !d.hasHashKey {
		d.fail(v, "needs the policy's hash_key, want hash_key: {env: NAME} or {file: PATH} beside domain")
	}
	return wanted
}

// hashKey reads the key from where the policy says that it is: it never stands in the policy, and no error quotes it.
func (d *decoder) hashKey(v value) policy.Secret {
	const want = "a mapping such as {env: SLUICE_HASH_KEY} or {file: /run/secrets/hash_key}"
	if _, is := v.node.(ast.MapNode); !is {
		d.fail(v, "is not %s: the key itself has no place in the policy", want)
		return ""
	}
	before := len(d.errors)
	if f, ok := d.fields(v, want, "env", "file"); ok {
		if len(f) != 1 && len(d.errors) == before {
			d.fail(v, "has %d places, want one: env or file", len(f))
		}
		if v, ok := f["env"]; ok {
			return d.checkedKey(v, d.keyOfEnvironment(v))
		}
		if v, ok := f["file"]; ok {
			return d.checkedKey(v, d.keyOfFile(v))
		}
	}
	return ""
}

func (d *decoder) keyOfEnvironment(v value) string {
	name, ok := d.text(v, "the name of a variable of the environment")
	if !ok {
		return ""
	}
	key, there := os.LookupEnv(name)
	if !there {
		d.fail(v, "the environment has no variable of this name")
	}
	return key
}

// keyOfFile reads a regular file, beside the policy unless its path is absolute.
func (d *decoder) keyOfFile(v value) string {
	path, ok := d.text(v, "the path of a file")
	if !ok {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.file), path)
	}
	about, err := os.Stat(path)
	if err == nil && !about.Mode().IsRegular() {
		d.fail(v, "%s is no regular file", quote(path))
		return ""
	}
	var key []byte
	if err == nil {
		var file *os.File
		if file, err = os.Open(path); err == nil {
			defer file.Close()
			key, err = io.ReadAll(io.LimitReader(file, policy.MaxHashKey+3))
		}
	}
	if err != nil {
		d.fail(v, "the key cannot be read: %v", err)
		return ""
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(key), "\n"), "\r")
}

func (d *decoder) checkedKey(v value, key string) policy.Secret {
	n := len(key)
	switch {
	case d.stopped || len(d.errors) > 0 && key == "":
	case n < policy.MinHashKey || n > policy.MaxHashKey:
		d.fail(v, "the key there has %d bytes, want %d to %d", n, policy.MinHashKey, policy.MaxHashKey)
	case !utf8.ValidString(key):
		d.fail(v, "the key there is not UTF-8 text; random bytes are best given in base64 or hex")
	}
	return policy.Secret(key)
}
