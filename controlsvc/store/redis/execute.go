package redis

import (
	"cmp"
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// maxTogether is how many strict charges one execution of a script makes. Nobody else is served meanwhile.
	maxTogether = 32
	// declined stands in the place of the answer to a charge that strict.lua does not make.
	declined = -1
)

// sent is a command for some of the invocations, by their indices: for one, or for strict charges that go together.
type sent struct {
	once

	of []int
}

// execute executes invocations in one pipeline (one for each node of a cluster), strict charges together. What its first
// script declines goes out again by itself, and what a server does not know the script of with its source; nothing else does.
// Answers and errors are in the order of the invocations.
func (s *Store) execute(ctx context.Context, invocations []invocation) (answers [][]int64, errs []error) {
	answers, errs = make([][]int64, len(invocations)), make([]error, len(invocations))
	which := make([]int, len(invocations))
	for i := range which {
		which[i] = i
	}
	// By hash and by source, with others, alone in its slot, and by itself: an invocation goes out a few times at most.
	for len(which) > 0 {
		which = s.send(ctx, invocations, which, answers, errs)
	}
	return answers, errs
}

// send sends some of the invocations, and gives those that are to be sent again.
func (s *Store) send(ctx context.Context, invocations []invocation, which []int, answers [][]int64, errs []error) (again []int) {
	commands := s.commands(ctx, invocations, which)
	pipeline := s.client.Pipeline()
	for n := range commands {
		_ = pipeline.Process(ctx, &commands[n].once) // it only queues
	}
	_, failed := pipeline.Exec(ctx)
	for n := range commands {
		c := &commands[n]
		answer, err := c.Result()
		switch {
		case answer == nil && err == nil:
			// A server that refuses the connection with an answer leaves the commands without one; a script always gives one.
			err = cmp.Or(failed, errNoAnswer)
		case err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") && !invocations[c.of[0]].bySource:
			for _, i := range c.of {
				invocations[i].bySource = true
			}
			again = append(again, c.of...)
			continue
		case err != nil && len(c.of) > 1 && goredis.HasErrorPrefix(err, "CROSSSLOT"):
			s.slots.Store(true)
			again = append(again, c.of...)
			continue
		}
		if err == nil && invocations[c.of[0]].together() {
			again = append(again, separate(answer, c.of, invocations, answers, errs)...)
			continue
		}
		for _, i := range c.of {
			answers[i], errs[i] = answer, err
		}
	}
	return again
}

// commands gives the commands for some of the invocations.
func (s *Store) commands(ctx context.Context, invocations []invocation, which []int) []sent {
	_, several := s.client.(*goredis.ClusterClient)
	most := maxTogether
	if several || s.slots.Load() {
		most = 1 // their keys are in different slots
	}
	commands := make([]sent, 0, len(which))
	for n := 0; n < len(which); {
		first := &invocations[which[n]]
		if !first.together() {
			first.script.name(first.args, first.bySource)
			commands = append(commands, sent{first.once(ctx, first.args), which[n : n+1]})
			n++
			continue
		}
		to := n + 1
		for to < len(which) && to-n < most && invocations[which[to]].together() && invocations[which[to]].bySource == first.bySource {
			to++
		}
		args := together(invocations, which[n:to])
		first.script.name(args, first.bySource)
		commands = append(commands, sent{first.once(ctx, args), which[n:to]})
		n = to
	}
	return commands
}

func (i *invocation) once(ctx context.Context, args []any) once {
	return once{IntSliceCmd: goredis.NewIntSliceCmd(ctx, args...), charges: i.charges}
}

// together gives strict.lua's arguments for some strict charges.
func together(invocations []invocation, which []int) []any {
	const keys, perCharge = 2, 4
	args := make([]any, atKeys, atKeys+(keys+perCharge)*len(which))
	args[atCount] = keys * len(which)
	for _, i := range which {
		args = append(args, invocations[i].args[atKeys:atKeys+keys]...)
	}
	for _, i := range which {
		args = append(args, invocations[i].args[atKeys+keys:]...)
	}
	return args
}

// separate gives each of some strict charges the answer that it would have had by itself, and gives those that were declined:
// they are to be made by the other script.
func separate(answer []int64, of []int, invocations []invocation, answers [][]int64, errs []error) (again []int) {
	const ofOneWindow = atStandings + 2
	space := make([]int64, ofOneWindow*len(of))
	from := 1 // behind the instant
	for n, i := range of {
		switch {
		case len(answer) > from && answer[from] == declined:
			invocations[i] = invocations[i].otherwise()
			again = append(again, i)
			from++
		case len(answer) > from+1:
			a := space[ofOneWindow*n : ofOneWindow*(n+1) : ofOneWindow*(n+1)]
			a[atUnits], a[atMinted], a[atWindow] = invocations[i].units, answer[0], 1
			a[atStandings], a[atStandings+1] = answer[from], answer[from+1]
			answers[i] = a
			from += 2
		default:
			errs[i] = fmt.Errorf("%w: %d numbers for %d strict charges", errAnswer, len(answer), len(of))
		}
	}
	return again
}
