package policy

// templates are those of one identity.
type templates struct {
	tree  node
	texts []string
}

func newTemplates(texts []string) *templates {
	t := &templates{texts: texts}
	for i, text := range texts {
		u := t.tree.template(text)
		u.limits = append(u.limits, uint32(i))
	}
	return t
}

// match gives the template that a path is: of several the one that has a segment as it stands, where the others have a
// variable, at the first segment in which they differ; one for all that follows comes last.
func (t *templates) match(path string) (string, bool) {
	if path == "" || path[0] != '/' {
		return "", false
	}
	if found := t.tree.first(path); found != nil {
		return t.texts[found.limits[0]], true
	}
	return "", false
}

// first looks at every node at most once, for one path leads to each.
func (n *node) first(path string) *bucket {
	if path == "" {
		if len(n.here.limits) > 0 {
			return &n.here
		}
	} else {
		segment, rest := cutSegment(path)
		if next := n.literal[segment]; next != nil {
			if found := next.first(rest); found != nil {
				return found
			}
		}
		if n.variable != nil && segment != "" {
			if found := n.variable.first(rest); found != nil {
				return found
			}
		}
	}
	if len(n.below.limits) > 0 {
		return &n.below
	}
	return nil
}
