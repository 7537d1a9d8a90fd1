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
	if found := t.tree.best(path); found != nil {
		return t.texts[found.limits[0]], true
	}
	return "", false
}

// best looks at every node at most once, for one path leads to each.
func (n *node) best(path string) *bucket {
	if path == "" {
		if n.here != nil {
			return n.here
		}
	} else {
		if next, rest := n.toward(path); next != nil {
			if found := next.best(rest); found != nil {
				return found
			}
		}
		if n.variable != nil && path[0] != '/' {
			if found := n.variable.best(behindSegment(path)); found != nil {
				return found
			}
		}
	}
	if path == "" || path[0] == '/' {
		return n.below
	}
	return nil
}
