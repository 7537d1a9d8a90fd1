package telemetry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"sluice/shared/policy"
)

// maxAuditNames bounds the limits that a line names of each kind.
const maxAuditNames = 50

func workerName(id uint64) string { return fmt.Sprintf("%016x", id) }

// AuditPolicy logs that a policy came into force, and which limits came, went and changed. Before is nil for the first.
func AuditPolicy(logger *slog.Logger, before, after *policy.Policy) {
	if before == nil {
		before = &policy.Policy{}
	}
	was := make(map[string]*policy.Limit, len(before.Limits))
	for i := range before.Limits {
		was[before.Limits[i].Name] = &before.Limits[i]
	}
	var added, removed, changed []string
	for i := range after.Limits {
		l := &after.Limits[i]
		old := was[l.Name]
		delete(was, l.Name)
		switch {
		case old == nil:
			added = append(added, l.Name)
		case said(before, old) != said(after, l):
			changed = append(changed, l.Name)
		}
	}
	for name := range was {
		removed = append(removed, name)
	}
	logger.Info("policy in force", "audit", "policy", "old_version", before.Version, "version", after.Version, "domain", after.Domain,
		"limits", len(after.Limits), "added", some(added), "removed", some(removed), "changed", some(changed))
}

// said is all that a policy says of a limit's requests, as text.
func said(p *policy.Policy, l *policy.Limit) string {
	alone := *l
	alone.Key, alone.PlanBy = nil, 0 // the numbers of identities, which stand for what they are
	all := []any{alone}
	for _, n := range append(slices.Clone(l.Key), l.PlanBy) {
		if int(n) < len(p.Identities) {
			all = append(all, p.Identities[n])
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// some gives the first names in order, and how many more there are.
func some(names []string) []string {
	slices.Sort(names)
	if len(names) > maxAuditNames {
		more := fmt.Sprintf("and %d more", len(names)-maxAuditNames)
		names = append(names[:maxAuditNames:maxAuditNames], more)
	}
	return append([]string{}, names...)
}
