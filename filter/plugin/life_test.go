package plugin_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/filter/host/fake"
	"sluice/shared/limit"
)

func TestStoriesOfLife(t *testing.T) {
	scenario(t, "a new policy arrives within about a second, and limits that stay keep their keys", func(t *testing.T, w *world) {
		w.with(withReports(shop("v1", limit.Deny, rate(1, time.Hour)), rate(1, time.Hour)))
		w.get("acme")
		w.worker().request(post("beta"), nil)
		w.serve()
		denied := w.get("acme")
		w.serve()
		w.want(denied, "429")
		w.wantMetric("sluice.keys", 3)

		w.service.policy = shop("v2", limit.Deny, rate(2, time.Hour)) // raised; reports is gone
		w.pass(1200 * milli)
		w.wantMetric("sluice.keys", 2)
		r := w.get("acme") // the standing denial is not
		w.serve()
		w.want(r, "passed")
		r = w.worker().request(post("beta"), nil)
		w.serve()
		w.want(r, "passed")
		r = w.get("acme")
		w.serve()
		w.want(r, "429")
	})

	scenario(t, "a policy that changes under a paused request", func(t *testing.T, w *world) {
		w.with(withReports(shop("v1", limit.Deny, rate(9, time.Hour)), rate(9, time.Hour)))
		r := w.worker().request(post("acme"), nil)
		call := w.only()
		w.service.policy = shop("v2", limit.Deny, rate(9, time.Hour))
		w.worker().finish(call, w.execute(call)) // reports is unknown by now, and does not bind
		w.want(r, "passed")
		w.worker().respond(r)
		other := w.worker().request(post("acme"), nil)
		call = w.only()
		w.pass(1200 * milli)
		w.want(other, "503")
		w.worker().finish(call, w.execute(call))
	})

	scenario(t, "replies that name another version each time do not make it fetch more than once a second", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1000, time.Second)))
		fetches := 0
		for i := range 250 {
			w.service.policy = shop("v"+strconv.Itoa(i), limit.Deny, rate(1000, time.Second))
			w.get("acme")
			for _, call := range w.worker().calls() {
				if path, _ := call.Header(":path"); path == "/sluice.v1.Control/GetPolicy" {
					fetches++
				}
				w.worker().finish(call, w.execute(call))
			}
			w.advance(tick)
		}
		if fetches < 3 || fetches > 6 {
			t.Errorf("%d fetches in 5 s", fetches)
		}
	})

	scenario(t, "a policy that does not come is asked for again, more and more rarely", func(t *testing.T, w *world) {
		for name, reply := range map[string]fake.Reply{
			"no answer": {}, "garbage": good([]byte("\xff\xff")), "no policy": good(nil), "never": {},
		} {
			w := newWorld(t, 1, runners["native"])
			asked := 0
			for range 300 {
				w.advance(100 * milli)
				for _, call := range w.worker().calls() {
					asked++
					if name != "never" {
						w.worker().finish(call, reply)
					}
				}
			}
			if asked < 8 || asked > 60 {
				t.Errorf("%s: asked %d times in 30 s", name, asked)
			}
			w.want(w.get("acme"), "passed")
			w.pass(5 * time.Second)
			r := w.get("acme")
			w.serve()
			w.want(r, "passed")
			if w.service.heard[len(w.service.heard)-1].Asks == nil {
				t.Errorf("%s: the policy is not in force in the end", name)
			}
		}
	})

	scenario(t, "the instance on the main thread keeps its policy, and never counts as a worker", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1, time.Second)))
		w.pass(10 * time.Second)
		if n := len(w.service.heard); n < 8 || n > 11 {
			t.Errorf("%d Syncs in 10 s, want one a second", n)
		}
		for _, heard := range w.service.heard {
			if heard.Active || len(heard.Asks) > 0 || heard.PolicyVersion != "v1" || heard.WorkerID == 0 {
				t.Errorf("it says %+v", heard)
			}
		}
		w.get("acme")
		w.serve()
		if last := w.service.heard[len(w.service.heard)-1]; !last.Active {
			t.Error("a worker that asks is not active")
		}
		w.pass(2 * time.Second)
		if last := w.service.heard[len(w.service.heard)-1]; !last.Active || len(last.Asks) != 0 {
			t.Error("a worker that has asked is not active any more")
		}
	})

	scenario(t, "the key used longest ago is forgotten, one that a paused request needs is not", func(t *testing.T, w *world) {
		if !w.worker().start(`{"max_keys":100}`) {
			t.Fatal("refused")
		}
		w.with(shop("v1", limit.Deny, rate(1, time.Hour)))
		use := func(tenant string) int {
			r := w.get(tenant)
			w.serve()
			return r
		}
		use("kept")
		for i := range 99 {
			use("t" + strconv.Itoa(i))
		}
		use("kept")              // denied, and used now
		waits := w.get("paused") // t0 goes
		call := w.only()
		r := w.get("kept")
		w.none()
		w.want(r, "429")
		for i := range 99 {
			r := w.get("u" + strconv.Itoa(i))
			w.serve()
			w.want(r, "passed")
		}
		w.wantMetric("sluice.keys", 100)
		w.worker().finish(call, w.execute(call))
		w.want(waits, "passed")
		r = w.get("paused") // still known: its own unit denies
		w.none()
		w.want(r, "429")
		r = w.get("t0") // forgotten: the store is asked, and knows
		call = w.only()
		w.worker().finish(call, w.execute(call))
		w.want(r, "429")
	})

	scenario(t, "a stream's number that is used again", func(t *testing.T, w *world) {
		w.with(shop("v1", limit.Deny, rate(1000, time.Second)))
		for range 3000 {
			r := w.get("acme")
			w.serve()
			w.want(r, "passed")
			w.worker().respond(r)
			w.worker().end(r)
			w.worker().end(r)
			w.advance(milli)
		}
	})
}

func TestConfiguration(t *testing.T) {
	for _, step := range []struct {
		text, complaint string // no complaint: accepted
	}{
		{text: ``},
		{text: `{}`},
		{text: ` { "control_cluster" : "sluice" , "timeout_ms" : 200 } `},
		{text: `{"timeout_ms":200.0}`},
		{text: `{"timeout_ms":2e2}`},
		{text: `{"timeout_ms":2E+2,"control_cluster":"outbound|9090||sluice.example","max_keys":100000,"max_paused":10}`},
		{text: `{"control_cluster":"sl\u00fc\ud83d\ude00i\"ce\/\n"}`},
		{text: `{"timeout":200}`, complaint: `unknown key "timeout"; known are control_cluster, timeout_ms, max_keys, max_paused, without_policy, tracing, first_policy`},
		{text: `{"control_cluster":""}`, complaint: `control_cluster is "", want the name`},
		{text: `{"control_cluster":5}`, complaint: `control_cluster is 5, want the name`},
		{text: `{"control_cluster":null}`, complaint: `control_cluster is null, want the name`},
		{text: `{"control_cluster":{"name":"x"}}`, complaint: `"control_cluster" is an object or a list`},
		{text: `{"control_cluster":"` + strings.Repeat("x", 257) + `"}`, complaint: "control_cluster is"},
		{text: `{"without_policy":"allow"}`},
		{text: `{"without_policy":"pass"}`, complaint: `without_policy is "pass", want "allow" or "deny"`},
		{text: `{"without_policy":true}`, complaint: "without_policy is true"},
		{text: `{"tracing":true}`},
		{text: `{"tracing":"yes"}`, complaint: `tracing is "yes", want true or false`},
		{text: `{"first_policy":""}`, complaint: "first_policy is \"\", want what `sluice compile` prints"},
		{text: `{"first_policy":"%"}`, complaint: `first_policy is "%"`},
		{text: `{"first_policy":"/w=="}`, complaint: "first_policy GetPolicyResponse: the message ends within a number"},
		{text: `{"first_policy":"EgA="}`, complaint: `first_policy domain: "" is no name`},
		{text: `{"timeout_ms":0}`, complaint: "timeout_ms is 0, want a whole number from 1 to 60000"},
		{text: `{"timeout_ms":60001}`, complaint: "timeout_ms is 60001"},
		{text: `{"timeout_ms":1.5}`, complaint: "timeout_ms is 1.5"},
		{text: `{"timeout_ms":1e400}`, complaint: "not JSON at byte 14"},
		{text: `{"timeout_ms":-200}`, complaint: "timeout_ms is -200"},
		{text: `{"timeout_ms":"200"}`, complaint: `timeout_ms is "200"`},
		{text: `{"timeout_ms":0200}`, complaint: "not JSON at byte 14"},
		{text: `{"timeout_ms":0x10}`, complaint: "not JSON at byte 14"},
		{text: `{"timeout_ms":Inf}`, complaint: "not JSON at byte 14"},
		{text: `{"timeout_ms":1.}`, complaint: "not JSON at byte 14"},
		{text: `{"timeout_ms":.5}`, complaint: "not JSON at byte 14"},
		{text: `{"timeout_ms":1,"timeout_ms":2}`, complaint: `"timeout_ms" stands twice`},
		{text: `{"timeout_ms":1,}`, complaint: "not JSON at byte 16: want a name in quotes"},
		{text: `{"timeout_ms":1`, complaint: `not JSON at byte 15: want "," or "}"`},
		{text: `{"timeout_ms":1} x`, complaint: "want nothing after the object"},
		{text: `{"timeout_ms"`, complaint: `want ":"`},
		{text: `{"timeout_ms":`, complaint: "want a value"},
		{text: `[1]`, complaint: `want "{"`},
		{text: `"{}"`, complaint: `want "{"`},
		{text: `{"control_cluster":"a\x"}`, complaint: "an escape that JSON knows"},
		{text: `{"control_cluster":"\ud83d"}`, complaint: "an escape that JSON knows"},
		{text: "{\"control_cluster\":\"a\nb\"}", complaint: "no control character"},
		{text: `{"control_cluster":"a`, complaint: "closing quote"},
		{text: "{\"control_cluster\":\"\xff\"}", complaint: "is not UTF-8"},
		{text: `{"` + strings.Repeat("k", 1<<16) + `":1}`, complaint: "bytes, want at most 65536"},
	} {
		for by, make := range runners {
			r := make(1)
			accepted := r.start(step.text)
			log := strings.Join(r.log(), "\n")
			if accepted != (step.complaint == "") || !strings.Contains(log, step.complaint) {
				t.Errorf("%s: %.80s: accepted %v, the log says %q; want %q", by, step.text, accepted, log, step.complaint)
			}
			if !accepted && !strings.HasPrefix(log, "error: sluice: the plugin's configuration ") {
				t.Errorf("%s: %.80s: the log says %q", by, step.text, log)
			}
			r.Close()
		}
	}
}
