package control

import (
	"time"

	"sluice/filter/host"
	"sluice/shared/instant"
	"sluice/shared/policy"
	"sluice/shared/wire"
)

const (
	// fetchTimeout is how long the service has to send its policy.
	fetchTimeout = 2 * time.Second
	// fetchPause is between two policies at least, whatever versions the replies name.
	fetchPause = time.Second
)

// fetch is the getting of the policy. The zero value is due.
type fetch struct {
	underWay bool
	host     host.CallID
	deadline instant.Instant
	last     instant.Instant // when a policy was last asked for
	// wanted says that a reply named another version than the one that is held.
	wanted  bool
	backoff backoff
}

// soon asks for the policy again, within about fetchPause.
func (f *fetch) soon(now instant.Instant) {
	if !f.wanted {
		f.wanted = true
		f.backoff = backoff{due: max(now, f.last.Add(fetchPause))}
	}
}

// Policy gives the policy in force; nil until the service has sent the first one.
func (c *Client) Policy() *policy.Policy { return c.policy }

// fetchWhenDue asks for the policy where there is none or another one is in force, and gives up on an answer that does not
// come.
func (c *Client) fetchWhenDue(now instant.Instant) {
	f := &c.fetch
	if f.underWay && now >= f.deadline {
		c.fetchFailed(now, "no answer in time")
	}
	if f.underWay || now < f.backoff.due || c.policy != nil && !f.wanted {
		return
	}
	f.last = now
	request := wire.GetPolicyRequest{}
	if c.policy != nil {
		request.Version = c.policy.Version
	}
	c.message = wire.AppendGetPolicyRequest(c.message[:0], &request)
	id, err := c.dispatch(getPolicyPath, "", fetchTimeout)
	if err != nil {
		c.fetchFailed(now, "the proxy did not take the call: "+err.Error())
		return
	}
	f.underWay, f.host, f.deadline = true, id, now.Add(fetchTimeout)
}

func (c *Client) fetchFailed(now instant.Instant, why string) {
	c.Counts.Failures++
	c.fetch.underWay = false
	c.fetch.backoff.wait(now, c.proxy.Random())
	c.complain(now, host.Warn, "no policy from cluster "+c.config.Cluster+": "+why)
}

func (c *Client) fetched(now instant.Instant, reply host.Reply) {
	bytes, failure := message(reply)
	if failure != "" {
		c.fetchFailed(now, failure)
		return
	}
	response, err := wire.ParseGetPolicyResponse(bytes)
	switch {
	case err != nil:
		c.fetchFailed(now, err.Error())
		return
	case response.Policy == nil && (c.policy == nil || response.Version != c.policy.Version):
		c.fetchFailed(now, "version "+printable(response.Version)+" without a policy")
		return
	}
	c.fetch.underWay, c.fetch.wanted, c.fetch.backoff = false, false, backoff{}
	if response.Policy == nil || c.policy != nil && c.policy.Version == response.Policy.Version {
		return
	}
	c.enforce(now, response.Policy)
}

// Adopt puts a policy in force that the service has sent to somebody else in this worker, and asks whether it still holds.
func (c *Client) Adopt(p *policy.Policy) {
	c.fetch.wanted = true
	c.enforce(c.proxy.Now(), p)
}

func (c *Client) enforce(now instant.Instant, p *policy.Policy) {
	first := c.policy == nil
	c.policy = p
	if first {
		// Workers that start together do not report together.
		c.lastSync = now.Add(-time.Duration(c.proxy.Random() % uint64(heartbeat)))
	}
	c.proxy.Log(host.Info, "sluice: policy "+printable(c.policy.Version)+" of "+printable(c.policy.Domain)+" is in force")
	c.listener.PolicyArrived(c.policy)
	c.held.due = 0 // leases of limits that have changed are gone
}
