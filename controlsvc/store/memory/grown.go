package memory

// grown gives a list with room for one more. There is one for each of very many keys, and most are short: append would leave
// nearly half of the room in them unused.
func grown[T any](list []T) []T {
	if len(list) < cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)+1+len(list)/8), list...)
}
