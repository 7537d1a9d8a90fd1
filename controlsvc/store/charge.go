package store

import (
	"strconv"
	"strings"

	"sluice/shared/instant"
)

// Kind says what a charge is, and begins its name.
type Kind byte

// The kinds of charges. A lease that is settled becomes charges of kind Settled, so that a second settle does not find it.
const (
	Lease    Kind = 'l' // a worker may spend it, and may give it back
	Strict   Kind = 'c' // spent as it was granted; it may be given back at once
	Settled  Kind = 's' // what was left of a lease or a strict charge
	Recorded Kind = 'r' // admitted without asking
)

// Grant is a lease or a strict charge, as its name tells it.
type Grant struct {
	Kind Kind
	// Call and Part are the reserve's; Part may be empty.
	Call, Part string
	// Minted is the store's time at the grant, or a little later where two of a key fell into one microsecond: no two
	// grants of a key have the same.
	Minted instant.Instant
	Units  int64
}

// Name gives the grant's name, kind:call:part:minted:units. It names the charge in the store and the lease to the worker.
func (g Grant) Name() string {
	name := make([]byte, 0, len(g.Call)+len(g.Part)+40)
	name = append(name, byte(g.Kind), ':')
	name = append(name, g.Call...)
	name = append(name, ':')
	name = append(name, g.Part...)
	name = append(name, ':')
	name = strconv.AppendInt(name, int64(g.Minted), 10)
	name = append(name, ':')
	return string(strconv.AppendInt(name, g.Units, 10))
}

// ParseGrant reads a grant's name; false for what is none, such as the name of a charge that is settled.
func ParseGrant(name string) (Grant, bool) {
	kind, rest, _ := strings.Cut(name, ":")
	call, rest, _ := strings.Cut(rest, ":")
	part, rest, _ := strings.Cut(rest, ":")
	minted, units, _ := strings.Cut(rest, ":")
	if kind != string(Lease) && kind != string(Strict) || CheckCall(call) != nil || checkPart(part) != nil {
		return Grant{}, false
	}
	g := Grant{Kind: Kind(kind[0]), Call: call, Part: part}
	at, errAt := strconv.ParseInt(minted, 10, 64)
	n, errUnits := strconv.ParseInt(units, 10, 64)
	g.Minted, g.Units = instant.Instant(at), n
	// Only what Name gives: "+7" is a number too.
	return g, errAt == nil && errUnits == nil && n > 0 && n <= MaxHeld && g.Name() == name
}
