package redis

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/store"
)

//go:embed overlay.lua
var overlaySource string

// Overlay implements authority.Store.
func (s *Store) Overlay(ctx context.Context, edit authority.Edit) (authority.Overlay, error) {
	if err := store.CheckEdit(edit); err != nil {
		return authority.Overlay{}, fmt.Errorf("overlay: %w", err)
	}
	key := "sluice:{overlay:" + edit.Domain + "}"
	answer, err := s.tell(ctx, s.overlay.invoke([]string{key, key + ":text"},
		strconv.FormatUint(edit.Known, 10), authority.MaxEntries, edit.Remove, edit.Put.Name, edit.Put.Text, edit.Put.ExpiresIn.Microseconds()))
	if err != nil {
		return authority.Overlay{}, fmt.Errorf("overlay: %w", err)
	}
	out, err := readOverlay(answer)
	if err != nil {
		return authority.Overlay{}, fmt.Errorf("overlay: %w", err)
	}
	return out, nil
}

func readOverlay(fields []any) (authority.Overlay, error) {
	const perEntry = 3
	if len(fields) < 2 || (len(fields)-2)%perEntry != 0 {
		return authority.Overlay{}, fmt.Errorf("%w: %v", errAnswer, fields)
	}
	text, _ := fields[0].(string)
	revision, err := strconv.ParseUint(text, 10, 64)
	removed, isNumber := fields[1].(int64)
	if err != nil || !isNumber {
		return authority.Overlay{}, fmt.Errorf("%w: %v", errAnswer, fields[:2])
	}
	out := authority.Overlay{Revision: revision, Removed: removed == 1}
	for at := 2; at < len(fields); at += perEntry {
		name, isName := fields[at].(string)
		text, isText := fields[at+1].(string)
		left, isTime := fields[at+2].(int64)
		if !isName || !isText || !isTime {
			return authority.Overlay{}, fmt.Errorf("%w: entry %v", errAnswer, fields[at:at+perEntry])
		}
		out.Entries = append(out.Entries, authority.Entry{Name: name, Text: text, ExpiresIn: micros(left)})
	}
	slices.SortFunc(out.Entries, func(a, b authority.Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// noRoom says whether an edit found the overlay full.
func noRoom(err error) bool { return goredis.HasErrorPrefix(err, "NOROOM") }
