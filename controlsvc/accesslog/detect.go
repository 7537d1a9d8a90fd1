package accesslog

import (
	"errors"
	"strings"
)

func newParser(f Format, c *Config) parser {
	if f == JSON {
		return newJSON(c)
	}
	return newText(f, c)
}

// detect finds out by the first lines which format most of them are in.
func detect(lines []string, c *Config) (Format, error) {
	best, most := Auto, 0
	// Of two that read as many lines the first counts: those that want more stand before those that take it for extra fields.
	for _, f := range []Format{JSON, Istio, Envoy, Combined, Common} {
		p, read := newParser(f, c), 0
		for _, line := range lines {
			e := Entry{}
			e.reset(len(c.Want))
			if p.parse(line, &e) == nil {
				read++
			}
		}
		if read > most {
			best, most = f, read
		}
	}
	if best == Auto {
		text := ""
		if len(lines) > 0 {
			text = ": " + clip(lines[0])
		}
		return Auto, errors.New("its first lines are in none of the formats " + strings.Join(Formats[1:], ", ") + text)
	}
	return best, nil
}
