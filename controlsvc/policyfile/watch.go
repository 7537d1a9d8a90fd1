package policyfile

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long after its first change a file is read: who writes it may write in several steps.
const settle = 50 * time.Millisecond

// kubernetesData is the link that Kubernetes replaces when a mounted ConfigMap or Secret changes; the files beside it are
// links through it, and are not touched.
const kubernetesData = "..data"

// Watch calls changed, from its own goroutine, each time that the file of that path may have another content: it was
// written, replaced by another, or a link on its way was. It comes back when the context ends, or with an error where the
// operating system does not tell of changes (too many watches, a file system that cannot). after is a timer's channel, as
// time.After is.
func Watch(ctx context.Context, path string, after func(time.Duration) <-chan time.Time, changed func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", path, err)
	}
	defer watcher.Close()
	// The folders, not the file: a watch on a file is gone with the file, and most editors replace it.
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return fmt.Errorf("watching %s: %w", path, err)
	}
	// Where the path is a link, the file itself may be written in another folder. Adding a folder twice does nothing, and one
	// that is gone takes its watch along.
	followLink := func() (target string) {
		target, err := filepath.EvalSymlinks(path)
		if err != nil || filepath.Dir(target) == filepath.Dir(path) || watcher.Add(filepath.Dir(target)) != nil {
			return path // it is gone, for now: the folder's watch will see another one
		}
		return target
	}
	target := followLink()
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-watcher.Events:
			if !open {
				return fmt.Errorf("watching %s: %w", path, fsnotify.ErrClosed)
			}
			name := filepath.Clean(event.Name)
			ours := name == filepath.Clean(path) || name == target || filepath.Base(name) == kubernetesData
			if settled == nil && ours && event.Op != fsnotify.Chmod {
				settled = after(settle)
			}
		case _, open := <-watcher.Errors: // what happened meanwhile is lost: the file may have changed
			if open && settled == nil {
				settled = after(settle)
			}
		case <-settled:
			settled, target = nil, followLink()
			changed()
		}
	}
}
