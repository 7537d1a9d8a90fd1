package rpc

import (
	"sluice/shared/policy"
	sluicev1 "sluice/shared/proto/sluice/v1"
)

// toPolicy gives the policy as it travels to the filter.
func toPolicy(from *policy.Policy) *sluicev1.Policy {
	to := &sluicev1.Policy{
		Domain:     from.Domain,
		Identities: make([]*sluicev1.Identity, 0, len(from.Identities)),
		Limits:     make([]*sluicev1.Limit, 0, len(from.Limits)),
	}
	for i := range from.Identities {
		to.Identities = append(to.Identities, toIdentity(&from.Identities[i]))
	}
	for i := range from.Limits {
		to.Limits = append(to.Limits, toLimit(&from.Limits[i]))
	}
	return to
}

func toIdentity(from *policy.Identity) *sluicev1.Identity {
	to := &sluicev1.Identity{Name: from.Name}
	switch from.Source {
	case policy.FromHeader:
		to.Source = &sluicev1.Identity_Header{Header: from.Header}
	case policy.FromAddress:
		to.Source = &sluicev1.Identity_Address{Address: &sluicev1.ClientAddress{TrustedHops: from.TrustedHops}}
	}
	return to
}

func toLimit(from *policy.Limit) *sluicev1.Limit {
	to := &sluicev1.Limit{
		Name: from.Name,
		Match: &sluicev1.Match{
			PathExact: from.Match.PathExact, PathPrefix: from.Match.PathPrefix, Methods: from.Match.Methods,
		},
		Key:           from.Key,
		Algorithm:     uint32(from.Algorithm),
		Mode:          uint32(from.Mode),
		OnUnavailable: uint32(from.OnUnavailable),
		MaxWait:       toMicros(from.MaxWait),
		Cost:          toUnits(from.Cost),
	}
	for _, rate := range from.Rates {
		to.Rates = append(to.Rates, &sluicev1.Rate{Units: toUnits(rate.Units), Window: toMicros(rate.Window)})
	}
	return to
}
