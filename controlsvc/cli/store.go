package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store/memory"
	"sluice/controlsvc/store/redis"
)

const memoryStore = "memory"

// knownStore says whether the text names a store that there is.
func knownStore(text string) bool {
	return text == memoryStore || strings.HasPrefix(text, "redis://") || strings.HasPrefix(text, "rediss://")
}

// storeName is a store's name for people: without what is secret in it, and without parameters.
func storeName(text string) string {
	if text == memoryStore {
		return text
	}
	parsed, err := url.Parse(text)
	if err != nil {
		return "redis"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// opened is a store, and what is to be looked at once it answers.
type opened struct {
	authority.Store

	// warning says what about the store puts limits at risk, though it answers; nil: nothing can.
	warning func(context.Context) (string, error)
}

// openStore opens what --store names. A Redis that does not answer yet is no error: the service is not ready until it does.
func openStore(p Process, o options) (opened, error) {
	if o.store == memoryStore {
		return opened{Store: memory.New(p.Now, o.memoryKeys)}, nil
	}
	config, err := o.redis.config(p, o.store)
	if err != nil {
		return opened{}, err
	}
	store, err := redis.Open(config)
	if err != nil {
		return opened{}, fmt.Errorf("--store %s: %w", storeName(o.store), err)
	}
	return opened{Store: store, warning: store.CheckEviction}, nil
}
