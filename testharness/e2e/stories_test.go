package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/testharness/policytest"
)

// stories are the scenarios of testharness/policytest that are told here too: those that need no client's address, no failing
// network, no long time, and no instant to the millisecond.
var stories = []string{
	"cost-header", "cost-never", "identities", "identity-cookie", "identity-query", "identity-request", "identity-route",
	"match-headers", "match-host", "match-not", "match-order", "match-query", "match-regex", "match-template", "match-template-rest",
	"new-policy", "override-changes", "overrides", "plan-changes", "plans", "shadow-enforce",
	"shadow-percent", "two-limits", "unlimited",
}

// storyLasts is how much of a story is told: it takes as long here as it says.
const storyLasts = 5 * time.Second

// TestStories: the policy stories that the filter is told without a proxy come out the same in Envoy, with the real service.
func TestStories(t *testing.T) {
	serve(t, inMemory)
	defer func() {
		reloadPolicy(t, policy)
		awaitPolicy(t, "probe")
	}()
	for _, name := range stories {
		t.Run(name, func(t *testing.T) {
			s, err := policytest.ReadScenario(filepath.Join("..", "policytest", "testdata", name+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			result, err := s.RunOn(&realProxies{t: t, domain: "story-" + name}, storyLasts)
			if err != nil {
				t.Fatal(err)
			}
			if result.Requests == 0 {
				t.Error("no request was sent")
			}
			for _, line := range result.Wrong {
				t.Error(line)
			}
		})
	}
}

// realProxies are the fleet's Envoys: an odd worker of a story is the first of them, an even one the second.
type realProxies struct {
	t      *testing.T
	domain string
	set    int
	began  time.Time
	// anew: a policy has been set since the last step. What a story waits for then is that the workers have it, which they do.
	anew bool
}

// SetPolicy has the service read the policy, with a block list more in it: what that blocks says that a worker has it, and is
// charged to nothing.
func (p *realProxies) SetPolicy(text []byte) error {
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	p.set++
	mark := fmt.Sprintf("%s-%d", p.domain, p.set)
	identities, _ := document["identities"].(map[string]any)
	if identities == nil {
		identities = map[string]any{}
	}
	identities["story"] = map[string]any{"header": "x-story"}
	blocked, _ := document["block"].([]any)
	document["domain"], document["identities"] = p.domain, identities
	document["block"] = append(blocked, map[string]any{"identity": "story", "values": []string{mark}})
	marked, err := yaml.Marshal(document)
	if err != nil {
		return err
	}
	reloadPolicy(p.t, string(marked))
	for proxy := range envoyCount {
		if err := awaitBlock(p.t, proxy, mark); err != nil {
			return err
		}
	}
	if p.anew = !p.began.IsZero(); !p.anew {
		p.began = time.Now()
	}
	return nil
}

// awaitBlock waits until every worker of an Envoy, as far as can be told from outside, blocks what has the mark.
func awaitBlock(t *testing.T, proxy int, mark string) error {
	deadline := time.Now().Add(recoverWithin)
	for inARow := 0; inARow < 12; inARow++ {
		if ask(t, proxy, http.MethodGet, "/", "x-story", mark).status == http.StatusForbidden {
			continue
		}
		if time.Now().After(deadline) {
			return errors.New("the workers do not have the story's policy; the service printed: " + last(current.service.Output(), 2000))
		}
		inARow = -1
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func (p *realProxies) Until(at time.Duration) {
	if p.anew {
		p.anew, p.began = false, time.Now().Add(-at)
	}
	time.Sleep(time.Until(p.began.Add(at)))
}

func (p *realProxies) Do(worker int, r policytest.Request) (policytest.Answer, error) {
	var a policytest.Answer
	connection, err := net.DialTimeout("tcp", listeners()[worker%envoyCount], answerWithin)
	if err != nil {
		return a, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return a, err
	}
	var fields strings.Builder
	host := "e2e"
	for _, h := range r.Headers {
		if h[0] == "host" || h[0] == ":authority" {
			host = h[1]
			continue
		}
		fields.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	head := r.Method + " " + r.Path + " HTTP/1.1\r\nhost: " + host + "\r\nconnection: close\r\n" + fields.String() + "\r\n"
	if _, err := io.WriteString(connection, head); err != nil {
		return a, err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: r.Method})
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	a.Status, a.Body = response.StatusCode, string(body)
	for name, values := range response.Header {
		for _, value := range values {
			a.Headers = append(a.Headers, policytest.Header{strings.ToLower(name), value})
		}
	}
	return a, err
}

// The list above has what can be told here, and tells of it.
func TestStoriesAreThere(t *testing.T) {
	if len(stories) < 15 {
		t.Errorf("%d stories", len(stories))
	}
	for _, name := range stories {
		if _, err := os.Stat(filepath.Join("..", "policytest", "testdata", name+".txtar")); err != nil {
			t.Error(err)
		}
	}
}
