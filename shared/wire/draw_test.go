package wire

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"sluice/shared/limit"
	"sluice/shared/policy"
)

// Messages drawn at random within the bounds, with the bounds themselves among them.

func drawText(t *rapid.T, label string) string {
	return rapid.OneOf(rapid.Just(""), rapid.StringN(0, 20, 60), rapid.StringMatching(`[a-z/%A-F0-9]{100,200}`)).Draw(t, label)
}

func drawUnits(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Just[int64](0), rapid.Just[int64](MaxUnits), rapid.Int64Range(0, 300), rapid.Int64Range(0, MaxUnits)).Draw(t, label)
}

func drawDuration(t *rapid.T, label string) time.Duration {
	most := MaxDuration.Microseconds()
	n := rapid.OneOf(rapid.Just[int64](0), rapid.Just(most), rapid.Int64Range(0, 5e6), rapid.Int64Range(0, most)).Draw(t, label)
	return time.Duration(n) * time.Microsecond
}

func drawList[T any](t *rapid.T, label string, most int, element func(*rapid.T) T) []T {
	return rapid.SliceOfN(rapid.Custom(element), 0, most).Draw(t, label)
}

func drawKey(t *rapid.T) KeyRef { return KeyRef{Limit: drawText(t, "limit"), Key: drawText(t, "key")} }

func drawUses(t *rapid.T) []Use {
	return drawList(t, "uses", MaxUses, func(t *rapid.T) Use { return Use{Age: drawDuration(t, "age"), Units: drawUnits(t, "units")} })
}

func drawRequest(t *rapid.T) SyncRequest {
	return SyncRequest{
		WorkerID: rapid.Uint64().Draw(t, "worker"), CallID: rapid.Uint64().Draw(t, "call"), PolicyVersion: drawText(t, "version"),
		Abandoned: drawList(t, "abandoned", 3, func(t *rapid.T) Abandoned {
			return Abandoned{CallID: rapid.Uint64().Draw(t, "call"), Keys: drawList(t, "keys", 3, drawKey)}
		}),
		Settles: drawList(t, "settles", 3, func(t *rapid.T) Settle {
			return Settle{KeyRef: drawKey(t), Lease: drawText(t, "lease"), Uses: drawUses(t), Unused: drawUnits(t, "unused")}
		}),
		Asks: drawList(t, "asks", 5, func(t *rapid.T) Ask {
			return Ask{
				KeyRef: drawKey(t), Want: drawUnits(t, "want"), Min: drawUnits(t, "min"),
				Waiting: rapid.Uint32().Draw(t, "waiting"), Group: rapid.Uint32().Draw(t, "group"),
				Plan: rapid.StringMatching(`[a-z]{0,20}`).Draw(t, "plan"), Within: drawDuration(t, "within"),
			}
		}),
		Records: drawList(t, "records", 3, func(t *rapid.T) Record {
			return Record{KeyRef: drawKey(t), Uses: drawUses(t), ID: rapid.Uint64().Draw(t, "id"), Plan: rapid.StringMatching(`[a-z]{0,20}`).Draw(t, "plan")}
		}),
		Active: rapid.Bool().Draw(t, "active"),
		Report: drawReport(t), Round: drawDuration(t, "round"),
	}
}

func drawReport(t *rapid.T) *Report {
	if rapid.Bool().Draw(t, "no report") {
		return nil
	}
	return &Report{
		ID: rapid.Uint64().Draw(t, "report"), Age: drawDuration(t, "age"), Span: drawDuration(t, "span"),
		Tallies: drawList(t, "tallies", 4, func(t *rapid.T) Tally {
			return Tally{
				Limit: drawText(t, "limit"), Route: drawText(t, "route"), Window: drawDuration(t, "window"), Result: Result(rapid.Uint8().Draw(t, "result")),
				Source: rapid.Uint8().Draw(t, "source"), Count: drawUnits(t, "count"), Near: drawUnits(t, "near"),
			}
		}),
		Keys: drawList(t, "keys", 3, func(t *rapid.T) KeyTally {
			return KeyTally{drawKey(t), drawUnits(t, "admitted"), drawUnits(t, "denied"), drawUnits(t, "shadow admitted"), drawUnits(t, "shadow denied")}
		}),
		Denials: drawList(t, "denials", MaxDenialSamples, func(t *rapid.T) DenialSample {
			return DenialSample{
				KeyRef: drawKey(t), Route: drawText(t, "route"), Window: drawDuration(t, "window"), Source: rapid.Uint8().Draw(t, "source"),
				Remaining: drawUnits(t, "remaining"), RetryAfter: drawDuration(t, "retry"), Age: drawDuration(t, "age"),
				TraceID: rapid.StringMatching(`([0-9a-f]{32})?`).Draw(t, "trace"), Shadow: rapid.Bool().Draw(t, "shadow"),
			}
		}),
		UpstreamMicros: rapid.SliceOfN(rapid.Uint32(), 0, MaxUpstream).Draw(t, "upstream"), UpstreamOf: rapid.Uint32().Draw(t, "of"),
		Unlisted: drawUnits(t, "unlisted"), KeysLost: drawUnits(t, "lost"), Away: drawDuration(t, "away"),
		Waits: drawUnits(t, "waits"), Waited: drawDuration(t, "waited"),
	}
}

func drawResponse(t *rapid.T) SyncResponse {
	indices := func(label string, most int) []uint32 { return rapid.SliceOfN(rapid.Uint32(), 0, most).Draw(t, label) }
	return SyncResponse{
		Results: drawList(t, "results", 5, func(t *rapid.T) AskResult {
			r := AskResult{
				Problem: Problem(rapid.Uint8().Draw(t, "problem")), Lease: drawText(t, "lease"), Units: drawUnits(t, "units"),
				StartIn: drawDuration(t, "start"), EndIn: drawDuration(t, "end"), Limit: drawUnits(t, "limit"),
				Window: drawDuration(t, "window"), Remaining: drawUnits(t, "remaining"), Reset: drawDuration(t, "reset"),
				Denied: rapid.Bool().Draw(t, "denied"),
			}
			if r.Denied {
				r.Denial = Denial{drawDuration(t, "deny"), drawDuration(t, "retry"), rapid.Bool().Draw(t, "never")}
			}
			return r
		}),
		Settled: indices("settled", 200), Abandoned: indices("abandoned", MaxAbandoned), Recorded: indices("recorded", 20),
		PolicyVersion: drawText(t, "version"), Workers: rapid.Uint32().Draw(t, "workers"), Rank: rapid.Uint32().Draw(t, "rank"),
		Reported: rapid.Uint64().Draw(t, "reported"),
	}
}

func drawPolicyResponse(t *rapid.T) GetPolicyResponse {
	m := GetPolicyResponse{Version: rapid.StringMatching(`[0-9a-f]{0,16}`).Draw(t, "version")}
	if rapid.Bool().Draw(t, "unchanged") {
		return m
	}
	identities := drawIdentities(t)
	responses := drawList(t, "responses", 3, drawPolicyFileResponse)
	limits := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) policy.Limit {
		l := policy.Limit{
			Name:          aName.Draw(t, "name"),
			Match:         drawMatch(t, rapid.Bool().Draw(t, "not")),
			Rates:         drawRates(t),
			Algorithm:     limit.Algorithm(rapid.Uint8Range(1, 5).Draw(t, "algorithm")),
			Mode:          limit.Mode(rapid.Uint8Range(1, 3).Draw(t, "mode")),
			OnUnavailable: limit.Unavailable(rapid.Uint8Range(1, 3).Draw(t, "unavailable")),
		}
		if r := &l.Rates[0]; l.Algorithm == limit.TokenBucket {
			if r.Burst = rapid.Int64Range(r.Units, limit.MaxUnits).Draw(t, "burst"); !r.ValidBurst() {
				r.Burst = 0
			}
		}
		if l.Mode == limit.Lease {
			wait := rapid.Int64Range(0, policy.MaxMaxWait.Microseconds()).Draw(t, "max wait")
			l.MaxWait = time.Duration(wait) * time.Microsecond
		}
		most := int64(policy.MaxCost)
		for _, r := range l.Rates {
			most = min(most, r.Units)
		}
		l.Cost = rapid.Int64Range(0, max(1, most)).Draw(t, "cost")
		if n := len(responses); n > 0 {
			l.Response = rapid.Uint32Range(0, uint32(n-1)).Draw(t, "response")
		}
		drawRules(t, &l, len(identities))
		if l.PlanOfOtherWindows() >= 0 {
			l.MaxWait = 0
		}
		if l.Descriptor = drawDescriptor(t); len(l.Descriptor) > 0 {
			l.Match, l.Measure, l.Plans, l.PlanBy, l.Overrides, l.Allow, l.Block = policy.Match{}, policy.Measure{}, nil, 0, nil, nil, nil
		} else if n := len(identities); n > 0 {
			l.Key = rapid.SliceOfN(rapid.Uint32Range(0, uint32(n-1)), 0, policy.MaxKeyParts).Draw(t, "key")
		}
		return l
	}), 0, 5, func(l policy.Limit) string { return l.Name }).Draw(t, "limits")
	for i := range limits {
		if j := rapid.IntRange(0, len(limits)-1).Draw(t, "replaces"); j != i && len(limits[i].Descriptor) > 0 && len(limits[j].Descriptor) > 0 {
			limits[i].Replaces = []uint32{uint32(j)}
		}
	}
	m.Policy = &policy.Policy{
		Version: m.Version, Domain: aName.Draw(t, "domain"), Identities: identities, Limits: limits, Responses: responses,
		Allow: drawLists(t, "allow", len(identities)), Block: drawLists(t, "block", len(identities)),
		ShadowHeader: rapid.Bool().Draw(t, "shadow header"),
		FieldStyles:  policy.FieldStyles(rapid.Uint8Range(0, uint8(policy.NoFields)).Draw(t, "styles")),
	}
	m.Policy.HashKey = policy.Secret(rapid.StringN(policy.MinHashKey, 40, 200).Draw(t, "hash key"))
	return m
}

func drawDescriptor(t *rapid.T) []policy.DescriptorEntry {
	if rapid.Bool().Draw(t, "no descriptor") {
		return nil
	}
	return drawList(t, "descriptor", policy.MaxKeyParts, func(t *rapid.T) policy.DescriptorEntry {
		e := policy.DescriptorEntry{Key: rapid.StringN(1, 20, 60).Draw(t, "key"), Value: rapid.StringN(0, 20, policy.MaxDescriptorText).Draw(t, "value")}
		e.Prefix = e.Value != "" && rapid.Bool().Draw(t, "prefix")
		e.Hash = e.Counted() && rapid.Bool().Draw(t, "hash")
		return e
	})
}

func drawPolicyFileResponse(t *rapid.T) policy.Response {
	jitter := rapid.Int64Range(0, policy.MaxRetryAfterJitter.Microseconds()).Draw(t, "jitter")
	return policy.Response{
		Status: rapid.OneOf(rapid.Just[uint32](0), rapid.Uint32Range(400, 599)).Draw(t, "status"),
		Body:   rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[ -z]{0,400}({{limit}}|{{ retry_after }}|{x}){0,3}`)).Draw(t, "body"),
		JSON:   rapid.Bool().Draw(t, "json"),
		Headers: drawList(t, "headers", policy.MaxResponseHeaders, func(t *rapid.T) policy.Field {
			return policy.Field{
				Name: rapid.StringMatching(`y-[a-z0-9-]{1,126}`).Draw(t, "header"), Value: rapid.StringMatching(`([!-~]([ -~]{0,400}[!-~])?)?`).Draw(t, "value"),
			}
		}),
		RetryAfterJitter: time.Duration(jitter) * time.Microsecond,
	}
}

// drawRates draws from eight windows, all that a limit with its plans and overrides may have.
func drawRates(t *rapid.T) []limit.Rate {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) limit.Rate {
		window := rapid.SampledFrom([]time.Duration{
			limit.MinWindow, 1001 * time.Microsecond, time.Second, time.Minute, 61 * time.Second, time.Hour, 24 * time.Hour, limit.MaxWindow,
		}).Draw(t, "window")
		return limit.Rate{Units: drawUnits(t, "units"), Window: window}
	}), 1, limit.MaxRates, func(r limit.Rate) time.Duration { return r.Window }).Draw(t, "rates")
}

// drawRules draws for whom a limit is another one.
func drawRules(t *rapid.T, l *policy.Limit, identities int) {
	switch rapid.IntRange(0, 2).Draw(t, "measure") {
	case 0:
		l.Measure = policy.Measure{Header: "x-cost", Max: rapid.Int64Range(1, policy.MaxCost).Draw(t, "max")}
	case 1:
		l.Measure = policy.Measure{Bytes: rapid.Int64Range(1, policy.MaxUnitBytes).Draw(t, "bytes"), Max: policy.MaxCost}
	}
	l.Shadow = rapid.Uint32Range(0, 100).Draw(t, "shadow")
	if l.Unlimited = rapid.Bool().Draw(t, "unlimited"); l.Unlimited {
		l.Rates = nil
	}
	l.Overrides = drawExceptions(t, l.Cost)
	if identities > 0 {
		if l.Plans = drawExceptions(t, l.Cost); len(l.Plans) > 0 {
			l.PlanBy = rapid.Uint32Range(0, uint32(identities-1)).Draw(t, "plan by")
		}
	}
	l.Allow, l.Block = drawLists(t, "allow", identities), drawLists(t, "block", identities)
}

func drawExceptions(t *rapid.T, cost int64) []policy.Exception {
	list := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) policy.Exception {
		e := policy.Exception{Name: rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "name")}
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			e.Unlimited = true
		case 1:
			e.Rates = drawRates(t)
			for i := range e.Rates {
				e.Rates[i].Units = max(e.Rates[i].Units, cost)
			}
		}
		if e.Enforce = rapid.Bool().Draw(t, "enforce"); !e.Enforce {
			e.Shadow = rapid.Uint32Range(0, 100).Draw(t, "shadow")
		}
		return e
	}), 0, 4, func(e policy.Exception) string { return e.Name }).Draw(t, "exceptions")
	slices.SortFunc(list, func(a, b policy.Exception) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func drawLists(t *rapid.T, label string, identities int) []policy.List {
	if identities == 0 {
		return nil
	}
	return drawList(t, label, 3, func(t *rapid.T) policy.List {
		l := policy.List{Identity: rapid.Uint32Range(0, uint32(identities-1)).Draw(t, "identity")}
		l.Values = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.:]{1,40}`), 0, 4, rapid.ID[string]).Draw(t, "values")
		slices.Sort(l.Values)
		for i := range rapid.IntRange(0, 3).Draw(t, "prefixes") {
			l.Prefixes = append(l.Prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16))
		}
		if rapid.Bool().Draw(t, "v6") {
			l.Prefixes = append(l.Prefixes, netip.MustParsePrefix("2001:db8::/32"))
		}
		return l
	})
}
