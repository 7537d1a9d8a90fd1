package cli

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
)

const memoryStore = "memory"

// knownStore says whether the text names a store that there is.
func knownStore(text string) bool {
	return text == memoryStore || strings.HasPrefix(text, "redis://") || strings.HasPrefix(text, "rediss://")
}

// storeName is a store's name without the password that may be in it.
func storeName(text string) string {
	if text == memoryStore {
		return text
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return "redis"
	}
	return parsed.Redacted()
}

// openStore opens what --store names. A Redis that does not answer yet is no error: the service is not ready until it does.
func openStore(p Process, o options, _ *slog.Logger) (authority.Store, error) {
	if o.store == memoryStore {
		return memory.New(p.Now, o.memoryKeys), nil
	}
	return nil, fmt.Errorf("--store %s: this build has only the memory store", storeName(o.store))
}
