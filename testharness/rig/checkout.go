package rig

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Checkout gives the root of the checkout of this module that directory lies in.
func Checkout(directory string) (string, error) {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return "", err
	}
	for {
		if isRoot(filepath.Join(directory, "go.mod")) {
			return directory, nil
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			return "", errors.New("not inside a checkout of Sluice")
		}
		directory = parent
	}
}

func isRoot(goMod string) bool {
	file, err := os.Open(goMod)
	if err != nil {
		return false
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if strings.TrimSpace(scanner.Text()) == "module sluice" {
			return true
		}
	}
	return false
}

// EnvoyVenv is where FindEnvoy keeps its Envoy for whoever runs from directory: in the checkout around it, else in the
// user's cache.
func EnvoyVenv(directory string) (string, error) {
	if root, err := Checkout(directory); err == nil {
		return filepath.Join(root, ".envoy"), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "sluice", "envoy"), nil
}
