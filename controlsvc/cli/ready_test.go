package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/controlsvc/authority"
	"sluice/controlsvc/policyfile"
	"sluice/shared/instant"
	"sluice/shared/wire"
)

// failing is a store that fails every reserve, each with an error of its own, and every cancel.
type failing struct{ authority.Store }

func (failing) Reserve(_ context.Context, operations []authority.Reserve) []authority.Reserved {
	all := make([]authority.Reserved, len(operations))
	for i := range all {
		all[i].Err = errors.New("lost")
	}
	return all
}

func (failing) Cancel(_ context.Context, operations []authority.Cancel) []error {
	all := make([]error, len(operations))
	for i := range all {
		all[i] = errors.New("connection " + strconv.Itoa(i) + " refused")
	}
	return all
}

// However many charges cannot be taken back, however often, the log has one short line of it in ten seconds.
func TestHeldChargesAreToldOfOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		process := Process{Now: func() instant.Instant { return 1 }, After: time.After, LookupEnv: func(string) (string, bool) { return "", false }}
		logger := slog.New(slog.NewJSONHandler(&text, nil))
		s, err := newServing(t.Context(), process, options{store: memoryStore, callTimeout: time.Second}, logger, opened{Store: failing{}})
		if err != nil {
			t.Fatal(err)
		}
		s.authority = s.newAuthority(process)
		p, err := policyfile.Parse("policy.yaml", []byte(goodPolicy))
		if err != nil {
			t.Fatal(err)
		}
		s.authority.SetPolicy(p)
		const charges = 300
		request := &wire.SyncRequest{WorkerID: 1, CallID: 1}
		for i := range charges {
			request.Asks = append(request.Asks, wire.Ask{KeyRef: wire.KeyRef{Limit: "slow", Key: strconv.Itoa(i)}, Want: 1, Min: 1, Waiting: 1})
		}
		if _, err := s.authority.Sync(t.Context(), request); err != nil || s.authority.Owed() != charges {
			t.Fatalf("%d charges are owed: %v; want %d", s.authority.Owed(), err, charges)
		}
		r := newReadiness(s, process, nil)
		for range 30 {
			r.repay(t.Context())
		}
		<-time.After(time.Minute)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		const why = `,"charges":300,"why":"256 of 256 charges could not be taken back, the first: connection 0 refused"}`
		if len(lines) != 2 || !strings.HasSuffix(lines[0], `"count":1`+why) || !strings.HasSuffix(lines[1], `"count":29`+why) {
			t.Errorf("the log has %d lines:\n%s", len(lines), &text)
		}
	})
}
