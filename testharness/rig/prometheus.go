package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Prometheus is a running Prometheus that asks some targets for their metrics every second.
type Prometheus struct {
	*Process
	// Address is where it listens, HOST:PORT.
	Address string
}

// StartPrometheus starts a Prometheus of its own on a free port of the loopback, with its data in a folder. It has the job
// named sluice, with targets HOST:PORT. Where there is no prometheus it is installed as StartRedis installs Redis.
func StartPrometheus(ctx context.Context, log io.Writer, folder string, targets ...string) (*Prometheus, error) {
	path, err := FindPromtool(ctx, log)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(folder, "prometheus.yml")
	text := "global: {scrape_interval: 1s, scrape_timeout: 900ms}\nscrape_configs:\n- job_name: sluice\n  static_configs:\n  - targets: ['" +
		strings.Join(targets, "', '") + "']\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return retryBind(ctx, func() (*Prometheus, error) {
		listen, err := FreeAddress()
		if err != nil {
			return nil, err
		}
		p := &Prometheus{Address: listen}
		p.Process, err = Start(ctx, Command{
			Path: filepath.Join(filepath.Dir(path), "prometheus"),
			Args: []string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(folder, "data"), "--web.listen-address=" + listen},
			Ready: func(ctx context.Context) error {
				_, err := adminGet(ctx, listen, "/-/ready")
				return err
			},
		})
		return p, err
	})
}

// FindPromtool finds promtool, which comes with Prometheus.
func FindPromtool(ctx context.Context, log io.Writer) (string, error) {
	return findProgram(ctx, log, "promtool", "prometheus", "Prometheus 2.40 or newer")
}

// Query gives the values of an expression as of now. An expression that Prometheus does not take is an error.
func (p *Prometheus) Query(ctx context.Context, expression string) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	address := "http://" + p.Address + "/api/v1/query?query=" + url.QueryEscape(expression)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("Prometheus' answer to %s: %w", expression, err)
	}
	if answer.Error != "" {
		return nil, errors.New("Prometheus: " + expression + ": " + answer.Error)
	}
	var values []float64
	for _, one := range answer.Data.Result {
		text, _ := one.Value[1].(string)
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("Prometheus' answer to %s: %w", expression, err)
		}
		values = append(values, n)
	}
	return values, nil
}
