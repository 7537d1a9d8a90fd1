package policyfile_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"sluice/controlsvc/policyfile"
)

// watched is a policy file under watch.
type watched struct {
	t       *testing.T
	path    string
	changed chan string // what the file said when a change was told
}

func watch(t *testing.T, path string) *watched {
	t.Helper()
	return watchAfter(t, path, time.After)
}

// watchAfter watches with timers of the test's own.
func watchAfter(t *testing.T, path string, after func(time.Duration) <-chan time.Time) *watched {
	t.Helper()
	w := &watched{t: t, path: path, changed: make(chan string, 10_000)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	watching := make(chan struct{})
	go func() {
		close(watching)
		ended <- policyfile.Watch(ctx, path, after, func() {
			text, _ := os.ReadFile(path)
			w.changed <- string(text)
		})
	}()
	<-watching
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the watch ended: %v", err)
		}
	})
	return w
}

// until repeats what changes the file, for a watch that has only just begun may miss the first time, until the watch has
// told of the content.
func (w *watched) until(want string, change func()) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for {
		change()
		again := time.After(500 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case got := <-w.changed:
				if got == want {
					return
				}
			case <-again:
				waiting = false
			case <-deadline:
				w.t.Fatalf("no change to %q was told", want)
			}
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// link makes a link, in the place of one that may be there, in one step, as Kubernetes does it.
func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestWatchTellsOfAFileThatIs(t *testing.T) {
	t.Run("written in place", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		put(t, path, "one")
		w := watch(t, path)
		w.until("two", func() { put(t, path, "two") })
		w.until("three", func() { put(t, path, "three") })
	})
	t.Run("replaced by another", func(t *testing.T) {
		folder := t.TempDir()
		path := filepath.Join(folder, "policy.yaml")
		put(t, path, "one")
		w := watch(t, path)
		for _, text := range []string{"two", "three"} {
			w.until(text, func() {
				put(t, filepath.Join(folder, "next"), text)
				if err := os.Rename(filepath.Join(folder, "next"), path); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
	t.Run("removed, and there again", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		put(t, path, "one")
		w := watch(t, path)
		w.until("", func() { put(t, path, "one"); os.Remove(path) })
		w.until("two", func() { put(t, path, "two") })
	})
	t.Run("mounted by Kubernetes", func(t *testing.T) {
		// policy.yaml → ..data/policy.yaml, ..data → a folder for each version, the old one of which is removed.
		folder := t.TempDir()
		version := func(name, text string) {
			if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(folder, name, "policy.yaml"), text)
			link(t, name, filepath.Join(folder, "..data"))
		}
		version("..1", "one")
		path := filepath.Join(folder, "policy.yaml")
		link(t, filepath.Join("..data", "policy.yaml"), path)
		w := watch(t, path)
		w.until("two", func() { version("..2", "two") })
		w.until("three", func() { version("..3", "three"); os.RemoveAll(filepath.Join(folder, "..2")) })
	})
	t.Run("a link to a file elsewhere", func(t *testing.T) {
		elsewhere := filepath.Join(t.TempDir(), "real.yaml")
		put(t, elsewhere, "one")
		path := filepath.Join(t.TempDir(), "policy.yaml")
		link(t, elsewhere, path)
		w := watch(t, path)
		w.until("two", func() { put(t, elsewhere, "two") })
		other := filepath.Join(t.TempDir(), "other.yaml")
		put(t, other, "three")
		w.until("three", func() { link(t, other, path) })
		w.until("four", func() { put(t, other, "four") })
	})
}

// Changes of a file's neighbours are none of its own. Each change is told at once here, so that many would be.
func TestWatchPassesOverOtherFiles(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "policy.yaml")
	put(t, path, "one")
	settled := make(chan time.Time)
	close(settled)
	w := watchAfter(t, path, func(time.Duration) <-chan time.Time { return settled })
	w.until("two", func() { put(t, path, "two") })
	const neighbours = 1000
	for i := range neighbours {
		put(t, filepath.Join(folder, "policy.yaml.swp"), strconv.Itoa(i))
	}
	told := 0
	put(t, path, "three")
	for got := ""; got != "three"; told++ {
		select {
		case got = <-w.changed:
		case <-time.After(time.Minute):
			t.Fatal("the file's own change was not told")
		}
	}
	// What was done to the file itself, which may have been done a few times over, comes in some steps each.
	if told > neighbours/2 {
		t.Errorf("%d changes were told, of one to the file and %d to its neighbour", told, neighbours)
	}
}

func TestWatchOfAFolderThatIsNotThere(t *testing.T) {
	err := policyfile.Watch(t.Context(), filepath.Join(t.TempDir(), "no", "policy.yaml"), time.After, func() {})
	if err == nil {
		t.Fatal("a folder that is not there is watched")
	}
}
