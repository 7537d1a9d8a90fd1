package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice/controlsvc/authority"
)

// A key that comes to be while its slot is on its way from one master to another is refused by both (TRYAGAIN). The call waits,
// within bounds, until the slot has arrived; nothing is charged twice for it.
func TestSlotOnItsWay(t *testing.T) {
	t.Parallel()
	cluster := startNodes(t, 3)
	s := open(t, cluster.URL())
	sent := countPipelines(s)
	k := testKey("on its way", "10/1h")
	slot, err := s.client.ClusterKeySlot(t.Context(), "sluice:{on its way}").Result()
	if err != nil {
		t.Fatal(err)
	}
	from := masterOf(t, s, k)
	to := cluster.Nodes[0].Address
	if to == from {
		to = cluster.Nodes[1].Address
	}
	var ids []string
	var nodes []*goredis.Client
	for _, address := range []string{from, to} {
		node := goredis.NewClient(&goredis.Options{Addr: address})
		t.Cleanup(func() { node.Close() })
		id, err := node.Do(t.Context(), "cluster", "myid").Text()
		if err != nil {
			t.Fatal(err)
		}
		nodes, ids = append(nodes, node), append(ids, id)
	}
	set := func(node *goredis.Client, state, id string) {
		if err := node.Do(t.Context(), "cluster", "setslot", slot, state, id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(nodes[1], "importing", ids[0])
	set(nodes[0], "migrating", ids[1])
	if out := s.Reserve(t.Context(), []authority.Reserve{{Key: k, Call: "a", Want: 1, Min: 1}})[0]; !goredis.IsTryAgainError(out.Err) {
		t.Fatalf("while the slot is on its way, and for longer than a call waits: %+v", out)
	}
	before := sent.Load()
	answer := make(chan authority.Reserved, 1)
	go func() {
		answer <- s.Reserve(t.Context(), []authority.Reserve{{Key: k, Call: "b", Want: 1, Min: 1}})[0]
	}()
	waitFor(t, "a second try", func() bool { return sent.Load() > before+2 || len(answer) > 0 })
	set(nodes[1], "node", ids[1])
	set(nodes[0], "node", ids[1])
	select {
	case out := <-answer:
		if goredis.IsTryAgainError(out.Err) { // this machine took longer to get here than all the tries do
			out = s.Reserve(t.Context(), []authority.Reserve{{Key: k, Call: "b", Want: 1, Min: 1}})[0]
		}
		if out.Err != nil || out.State.Remaining != 9 {
			t.Errorf("when the slot has arrived: %+v", out)
		}
	case <-time.After(time.Minute):
		t.Error("no answer")
	}
}
