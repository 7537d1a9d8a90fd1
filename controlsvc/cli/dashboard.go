package cli

import (
	"net"
	"net/http"

	"sluice/controlsvc/telemetry"
	"sluice/controlsvc/web"
)

// dashboard gives the page with what is known of the traffic. Where others than this machine's users reach it, it asks for the
// admin token; without one there is no page then.
func (s *serving) dashboard(p Process, at net.Addr, token string, closing <-chan struct{}) http.Handler {
	if tcp, ok := at.(*net.TCPAddr); token == "" && (!ok || !tcp.IP.IsLoopback()) {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusNotFound, "the dashboard needs --admin-token-file where it can be reached from elsewhere")
		})
	}
	s.refusals = telemetry.NewRefusals(s.logger, p.After, "dashboard")
	return web.Handler(web.Config{
		Refused:  s.refusals.Note,
		Snapshot: s.traffic.Snapshot, Policy: s.authority.Policy, Token: token, Now: p.Now, After: p.After, Done: closing,
	})
}
