package ratelimitfile

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sluice/shared/policy"
)

// yaml writes the policy file.
func (d *domain) yaml(algorithm string) []byte {
	var b bytes.Buffer
	b.WriteString("# Made by sluice import ratelimit of:\n")
	for _, file := range d.files {
		fmt.Fprintf(&b, "#   %s\n", scalar(file))
	}
	fmt.Fprintf(&b, "domain: %s\nlimits:", scalar(d.name))
	if len(d.limits) == 0 {
		b.WriteString(" []")
	}
	b.WriteByte('\n')
	for _, l := range d.limits {
		l.yaml(&b, algorithm)
	}
	return b.Bytes()
}

func (l *limited) yaml(b *bytes.Buffer, algorithm string) {
	fmt.Fprintf(b, "  - name: %s # %s:%d\n    descriptor: [", scalar(l.name), scalar(l.file), l.at.Line)
	for i := range l.entries {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(entryText(&l.entries[i]))
	}
	b.WriteString("]\n")
	if l.limit == nil || l.limit.unlimited {
		b.WriteString("    rates: unlimited\n")
	} else {
		fmt.Fprintf(b, "    rates: [%s]\n", l.limit.rate)
		if algorithm != "" {
			fmt.Fprintf(b, "    algorithm: %s\n", algorithm)
		}
		if l.shadow {
			b.WriteString("    shadow: true\n")
		}
	}
	if len(l.replaces) > 0 {
		names := make([]string, len(l.replaces))
		for i, name := range l.replaces {
			names[i] = scalar(name)
		}
		fmt.Fprintf(b, "    replaces: [%s]\n", strings.Join(names, ", "))
	}
}

func entryText(e *policy.DescriptorEntry) string {
	switch {
	case e.Prefix:
		return "{key: " + scalar(e.Key) + ", prefix: " + scalar(e.Value) + "}"
	case e.Value != "":
		return "{key: " + scalar(e.Key) + ", value: " + scalar(e.Value) + "}"
	default:
		return "{key: " + scalar(e.Key) + "}"
	}
}

var (
	plain = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./-]*$`)
	// words are what YAML takes for something else than text.
	words = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|y|n|null|nan|inf)$`)
)

// scalar writes text as YAML, in quotes where it would be something else without.
func scalar(text string) string {
	if plain.MatchString(text) && !words.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}
