package plugin

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"sluice/filter/control"
	"sluice/shared/jsontext"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

// config is the plugin's configuration.
type config struct {
	control.Config
	// maxKeys bounds the keys that a worker remembers; the one used longest ago goes first.
	maxKeys int
	// denyWithoutPolicy has requests denied until there is a policy; without, they pass.
	denyWithoutPolicy bool
	// tracing has calls of the service be parts of the traces of the requests that they are for.
	tracing bool
	// firstPolicy is in force until the service has sent one; nil: none is.
	firstPolicy *policy.Policy
}

func defaultConfig() config {
	return config{
		Config:  control.Config{Cluster: "sluice", Timeout: 200 * time.Millisecond, MaxPaused: 10_000},
		maxKeys: 100_000,
	}
}

const maxClusterLength = 256

// settings are the keys of the configuration, and how each is taken.
var settings = []struct {
	name string
	set  func(c *config, v jsontext.Value) error
}{
	{"control_cluster", func(c *config, v jsontext.Value) error {
		if v.Kind != jsontext.String || v.Text == "" || len(v.Text) > maxClusterLength {
			return errors.New("is " + v.Describe() + ", want the name of the service's cluster, 1 to " +
				strconv.Itoa(maxClusterLength) + " bytes")
		}
		c.Cluster = v.Text
		return nil
	}},
	{"timeout_ms", func(c *config, v jsontext.Value) error {
		n, err := v.Whole(1, 60_000)
		c.Timeout = time.Duration(n) * time.Millisecond
		return err
	}},
	{"max_keys", func(c *config, v jsontext.Value) error {
		n, err := v.Whole(100, 10_000_000)
		c.maxKeys = n
		return err
	}},
	{"max_paused", func(c *config, v jsontext.Value) error {
		n, err := v.Whole(1, 1_000_000)
		c.MaxPaused = n
		return err
	}},
	{"without_policy", func(c *config, v jsontext.Value) error {
		if v.Kind != jsontext.String || v.Text != "allow" && v.Text != "deny" {
			return errors.New("is " + v.Describe() + `, want "allow" or "deny"`)
		}
		c.denyWithoutPolicy = v.Text == "deny"
		return nil
	}},
	{"tracing", func(c *config, v jsontext.Value) error {
		if v.Kind != jsontext.Bool {
			return errors.New("is " + v.Describe() + ", want true or false")
		}
		c.tracing = v.Text == "true"
		return nil
	}},
	{"first_policy", func(c *config, v jsontext.Value) error {
		compiled, err := base64.StdEncoding.DecodeString(v.Text)
		if v.Kind != jsontext.String || err != nil || len(compiled) == 0 {
			return errors.New("is " + v.Describe() + ", want what `sluice compile` prints")
		}
		response, err := wire.ParseGetPolicyResponse(compiled)
		if err != nil {
			return err
		}
		c.firstPolicy = response.Policy
		return nil
	}},
}

// parseConfig reads the plugin's configuration, an object; without any it is the default. Errors name the key.
func parseConfig(text []byte) (config, error) {
	c := defaultConfig()
	if len(text) == 0 {
		return c, nil
	}
	err := jsontext.ReadObject(text, func(key string, v jsontext.Value) error {
		names := make([]string, len(settings))
		for i, s := range settings {
			if s.name != key {
				names[i] = s.name
				continue
			}
			if err := s.set(&c, v); err != nil {
				return errors.New(key + " " + err.Error())
			}
			return nil
		}
		return errors.New("unknown key " + strconv.QuoteToASCII(clip(key)) + "; known are " + strings.Join(names, ", "))
	})
	return c, err
}

func clip(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
