package host

// maxCalls is for how many calls a plugin can wait at a time. The filter has a few under way; the bound is for calls that
// the proxy loses.
const maxCalls = 256

// calls is the calls whose ends have not been told to the plugin: it is what makes an end be told exactly once, whatever
// the proxy repeats. Beyond maxCalls the oldest is given up, and its end is not told.
type calls struct {
	ids []CallID
}

func (c *calls) add(id CallID) {
	if len(c.ids) == maxCalls {
		copy(c.ids, c.ids[1:])
		c.ids = c.ids[:maxCalls-1]
	}
	c.ids = append(c.ids, id)
}

// end says whether id was under way, which it no longer is.
func (c *calls) end(id CallID) bool {
	for i, other := range c.ids {
		if other == id {
			c.ids = append(c.ids[:i], c.ids[i+1:]...)
			return true
		}
	}
	return false
}
