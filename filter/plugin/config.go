package plugin

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"sluice/filter/control"
	"sluice/shared/jsontext"
)

// config is the plugin's configuration.
type config struct {
	control.Config
	// maxKeys bounds the keys that a worker remembers; the one used longest ago goes first.
	maxKeys int
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
