package policyfile

import "strings"

// Closest gives the word that was probably meant, or an empty one.
func Closest(text string, words []string) string {
	best, distance := "", 3
	for _, w := range words {
		if d := editDistance(text, w, distance); d < distance && d <= len(w)/2 {
			best, distance = w, d
		}
	}
	return best
}

// suggest says which of the words was probably meant, or which ones there are.
func suggest(text string, words []string) string {
	best := Closest(text, words)
	switch {
	case best != "":
		return "did you mean " + quote(best) + "?"
	case len(words) == 0:
		return "there is none to choose from"
	}
	const most = 12
	if len(words) > most {
		return "want one of " + strings.Join(words[:most], ", ") + ", …"
	}
	if len(words) == 1 {
		return "want " + words[0]
	}
	return "want one of " + strings.Join(words, ", ")
}

// editDistance is how many letters must be put in, taken out, replaced or swapped with the next to make b of a; most where
// it is that or more. Capitals count as equal to small letters.
func editDistance(a, b string, most int) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	var previous, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		previous, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], previous[j-2]+1)
			}
		}
	}
	return min(row[len(b)], most)
}
