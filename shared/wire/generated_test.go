package wire

import (
	"net/netip"
	"time"

	"sluice/shared/limit"
	"sluice/shared/policy"
	sluicev1 "sluice/shared/proto/sluice/v1"
)

// What the generated code holds, as this package does. Nothing is checked on the way.

func micros(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }

func fromGeneratedUses(uses []*sluicev1.Use) (out []Use) {
	for _, u := range uses {
		out = append(out, Use{Age: micros(u.GetAge()), Units: int64(u.GetUnits())})
	}
	return out
}

func fromGeneratedRequest(m *sluicev1.SyncRequest) SyncRequest {
	out := SyncRequest{WorkerID: m.GetWorkerId(), CallID: m.GetCallId(), PolicyVersion: m.GetPolicyVersion(), Active: m.GetActive()}
	for _, a := range m.GetAbandoned() {
		call := Abandoned{CallID: a.GetCallId()}
		for _, k := range a.GetKeys() {
			call.Keys = append(call.Keys, KeyRef{k.GetLimit(), k.GetKey()})
		}
		out.Abandoned = append(out.Abandoned, call)
	}
	for _, s := range m.GetSettles() {
		out.Settles = append(out.Settles, Settle{
			KeyRef: KeyRef{s.GetLimit(), s.GetKey()}, Lease: s.GetLease(), Uses: fromGeneratedUses(s.GetUses()), Unused: int64(s.GetUnused()),
		})
	}
	for _, a := range m.GetAsks() {
		out.Asks = append(out.Asks, Ask{
			KeyRef: KeyRef{a.GetLimit(), a.GetKey()}, Want: int64(a.GetWant()), Min: int64(a.GetMin()), Waiting: a.GetWaiting(), Group: a.GetGroup(), Plan: a.GetPlan(),
			Within: micros(a.GetWithin()),
		})
	}
	for _, r := range m.GetRecords() {
		out.Records = append(out.Records, Record{
			KeyRef: KeyRef{r.GetLimit(), r.GetKey()}, Uses: fromGeneratedUses(r.GetUses()), ID: r.GetRecordId(), Plan: r.GetPlan(),
		})
	}
	out.Report, out.Round = fromGeneratedReport(m.GetReport()), micros(m.GetRound())
	return out
}

func fromGeneratedReport(m *sluicev1.Report) *Report {
	if m == nil {
		return nil
	}
	out := &Report{
		ID: m.GetReportId(), Age: micros(m.GetAge()), Span: micros(m.GetSpan()), UpstreamMicros: m.GetUpstreamMicros(), UpstreamOf: m.GetUpstreamOf(),
		Unlisted: int64(m.GetUnlisted()), KeysLost: int64(m.GetKeysLost()), Away: micros(m.GetAway()), Waits: int64(m.GetWaits()), Waited: micros(m.GetWaited()),
	}
	for _, t := range m.GetTallies() {
		out.Tallies = append(out.Tallies, Tally{
			Limit: t.GetLimit(), Route: t.GetRoute(), Window: micros(t.GetWindow()), Result: Result(t.GetResult()), Source: uint8(t.GetSource()),
			Count: int64(t.GetCount()), Near: int64(t.GetNear()),
		})
	}
	for _, k := range m.GetKeys() {
		out.Keys = append(out.Keys, KeyTally{
			KeyRef: KeyRef{k.GetLimit(), k.GetKey()}, Admitted: int64(k.GetAdmitted()), Denied: int64(k.GetDenied()),
			ShadowAdmitted: int64(k.GetShadowAdmitted()), ShadowDenied: int64(k.GetShadowDenied()),
		})
	}
	for _, d := range m.GetDenials() {
		out.Denials = append(out.Denials, DenialSample{
			KeyRef: KeyRef{d.GetLimit(), d.GetKey()}, Route: d.GetRoute(), Window: micros(d.GetWindow()), Source: uint8(d.GetSource()),
			Remaining: int64(d.GetRemaining()), RetryAfter: micros(d.GetRetryAfter()), Age: micros(d.GetAge()), TraceID: d.GetTraceId(), Shadow: d.GetShadow(),
		})
	}
	return out
}

func fromGeneratedResponse(m *sluicev1.SyncResponse) SyncResponse {
	out := SyncResponse{
		Settled: m.GetSettled(), Abandoned: m.GetAbandoned(), Recorded: m.GetRecorded(),
		PolicyVersion: m.GetPolicyVersion(), Workers: m.GetWorkers(), Rank: m.GetRank(), Reported: m.GetReported(),
	}
	for _, r := range m.GetResults() {
		result := AskResult{
			Problem: Problem(r.GetProblem()), Lease: r.GetLease(), Units: int64(r.GetUnits()),
			StartIn: micros(r.GetStartIn()), EndIn: micros(r.GetEndIn()),
			Limit: int64(r.GetLimit()), Window: micros(r.GetWindow()), Remaining: int64(r.GetRemaining()), Reset: micros(r.GetReset_()),
		}
		if d := r.GetDenial(); d != nil {
			result.Denied = true
			result.Denial = Denial{DenyFor: micros(d.GetDenyFor()), RetryAfter: micros(d.GetRetryAfter()), Never: d.GetNever()}
		}
		out.Results = append(out.Results, result)
	}
	return out
}

func fromGeneratedRates(rates []*sluicev1.Rate) (out []limit.Rate) {
	for _, r := range rates {
		out = append(out, limit.Rate{Units: int64(r.GetUnits()), Window: micros(r.GetWindow()), Burst: int64(r.GetBurst())})
	}
	return out
}

func fromGeneratedExceptions(list []*sluicev1.Exception) (out []policy.Exception) {
	for _, e := range list {
		out = append(out, policy.Exception{
			Name: e.GetName(), Rates: fromGeneratedRates(e.GetRates()), Unlimited: e.GetUnlimited(), Shadow: e.GetShadow(), Enforce: e.GetEnforce(),
		})
	}
	return out
}

func fromGeneratedLists(lists []*sluicev1.List) (out []policy.List) {
	for _, l := range lists {
		list := policy.List{Identity: l.GetIdentity(), Values: l.GetValues()}
		for _, text := range l.GetPrefixes() {
			prefix, _ := netip.ParsePrefix(text)
			list.Prefixes = append(list.Prefixes, prefix)
		}
		out = append(out, list)
	}
	return out
}

func fromGeneratedPolicyResponse(m *sluicev1.GetPolicyResponse) GetPolicyResponse {
	out := GetPolicyResponse{Version: m.GetVersion()}
	if m.GetPolicy() == nil {
		return out
	}
	p := &policy.Policy{Version: m.GetVersion(), Domain: m.GetPolicy().GetDomain(), HashKey: policy.Secret(m.GetPolicy().GetHashKey())}
	for _, id := range m.GetPolicy().GetIdentities() {
		identity := policy.Identity{Name: id.GetName()}
		switch source := id.GetSource().(type) {
		case *sluicev1.Identity_Header:
			identity.Source, identity.Header = policy.FromHeader, source.Header
		case *sluicev1.Identity_Address:
			a := source.Address
			identity.Source, identity.TrustedHops = policy.FromAddress, a.GetTrustedHops()
			identity.IPv4Prefix, identity.IPv6Prefix = a.GetIpv4Prefix(), a.GetIpv6Prefix()
			for _, n := range a.GetNetworks() {
				identity.Networks = append(identity.Networks, policy.Network{Name: n.GetName(), CIDR: n.GetCidr()})
			}
		case *sluicev1.Identity_Cookie:
			identity.Source, identity.Text = policy.FromCookie, source.Cookie
		case *sluicev1.Identity_Query:
			identity.Source, identity.Text = policy.FromQuery, source.Query
		case *sluicev1.Identity_Constant:
			identity.Source, identity.Text = policy.FromConstant, source.Constant
		case *sluicev1.Identity_Method:
			identity.Source = policy.FromMethod
		case *sluicev1.Identity_Host:
			identity.Source = policy.FromHost
		case *sluicev1.Identity_Path:
			identity.Source = policy.FromPath
		case *sluicev1.Identity_Claim:
			identity.Source, identity.Path = policy.FromClaim, source.Claim.GetPath()
			identity.Header, identity.Metadata = source.Claim.GetHeader(), source.Claim.GetMetadata()
		case *sluicev1.Identity_PathTemplate:
			identity.Source, identity.Path = policy.FromPathTemplate, source.PathTemplate.GetTexts()
		case *sluicev1.Identity_Attribute:
			identity.Source, identity.Path = policy.FromAttribute, source.Attribute.GetTexts()
		case *sluicev1.Identity_FirstOf:
			identity.Source, identity.FirstOf = policy.FirstOf, source.FirstOf.GetIdentities()
		}
		identity.Hash, identity.Lowercase = id.GetHash(), id.GetLowercase()
		identity.MaxLength, identity.Default = id.GetMaxLength(), id.GetDefault()
		p.Identities = append(p.Identities, identity)
	}
	for _, l := range m.GetPolicy().GetLimits() {
		rule := policy.Limit{
			Name:      l.GetName(),
			Match:     fromGeneratedMatch(l.GetMatch()),
			Key:       l.GetKey(),
			Algorithm: limit.Algorithm(l.GetAlgorithm()), Mode: limit.Mode(l.GetMode()), OnUnavailable: limit.Unavailable(l.GetOnUnavailable()),
			MaxWait: micros(l.GetMaxWait()), Response: l.GetResponse(), Cost: int64(l.GetCost()),
		}
		rule.Rates = fromGeneratedRates(l.GetRates())
		rule.Measure = policy.Measure{
			Header: l.GetMeasure().GetHeader(), Bytes: int64(l.GetMeasure().GetBytes()), Max: int64(l.GetMeasure().GetMax()),
		}
		rule.Unlimited, rule.Shadow, rule.PlanBy = l.GetUnlimited(), l.GetShadow(), l.GetPlanBy()
		rule.Plans, rule.Overrides = fromGeneratedExceptions(l.GetPlans()), fromGeneratedExceptions(l.GetOverrides())
		rule.Allow, rule.Block = fromGeneratedLists(l.GetAllow()), fromGeneratedLists(l.GetBlock())
		for _, e := range l.GetDescriptor_() {
			rule.Descriptor = append(rule.Descriptor, policy.DescriptorEntry{Key: e.GetKey(), Value: e.GetValue(), Prefix: e.GetPrefix(), Hash: e.GetHash()})
		}
		rule.Replaces = l.GetReplaces()
		p.Limits = append(p.Limits, rule)
	}
	for _, r := range m.GetPolicy().GetResponses() {
		response := policy.Response{
			Status: r.GetStatus(), Body: r.GetBody(), JSON: r.GetJson(), RetryAfterJitter: micros(r.GetRetryAfterJitter()),
		}
		for _, h := range r.GetHeaders() {
			response.Headers = append(response.Headers, policy.Field{Name: h.GetName(), Value: h.GetValue()})
		}
		p.Responses = append(p.Responses, response)
	}
	p.FieldStyles = policy.FieldStyles(m.GetPolicy().GetFieldStyles())
	p.Allow, p.Block = fromGeneratedLists(m.GetPolicy().GetAllow()), fromGeneratedLists(m.GetPolicy().GetBlock())
	p.ShadowHeader = m.GetPolicy().GetShadowHeader()
	out.Policy = p
	return out
}

func fromGeneratedMatch(m *sluicev1.Match) policy.Match {
	out := policy.Match{
		PathExact: m.GetPathExact(), PathPrefix: m.GetPathPrefix(), PathTemplate: m.GetPathTemplate(), PathRegex: m.GetPathRegex(),
		Host: m.GetHost(), Methods: m.GetMethods(), Headers: fromGeneratedFields(m.GetHeaders()), Query: fromGeneratedFields(m.GetQuery()),
	}
	if m.GetNot() != nil {
		not := fromGeneratedMatch(m.GetNot())
		out.Not = &not
	}
	return out
}

func fromGeneratedFields(list []*sluicev1.FieldMatch) (out []policy.FieldMatch) {
	for _, f := range list {
		out = append(out, policy.FieldMatch{Name: f.GetName(), Kind: policy.FieldKind(f.GetKind()), Value: f.GetValue()})
	}
	return out
}
