package accel

import (
	"fmt"
	"strings"
)

// longestWord bounds what is compared: nobody misspells a longer name.
const longestWord = 64

// Nearest returns which of words somebody who wrote word has probably meant: the one that differs in case, dashes or a
// few letters only. It is empty if none is near, or if several are as near.
func Nearest(word string, words []string) string {
	if word == "" || len(word) > longestWord {
		return ""
	}
	best, least, several := "", 1+min(len(word), 12)/4, false
	for _, w := range words {
		if w == "" || len(w) > longestWord {
			continue
		}
		d := distance(letters(word), letters(w))
		switch {
		case d >= len(w), d > least, d == least && w == best:
		case d == least && best != "":
			several = true
		default:
			best, least, several = w, d, false
		}
	}
	if several {
		return ""
	}
	return best
}

// letters is a word without what people write in several ways: case, dashes, spaces.
func letters(word string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "", ".", "").Replace(strings.ToLower(word))
}

// distance is how many letters must be changed, added, left out or swapped with their neighbour to get b from a: the
// optimal string alignment.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[i][j] = min(change, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// NotOneOf says that a value is none of the allowed words, and which of them was probably meant; empty if it is one.
func NotOneOf[T ~string](value T, allowed ...T) string {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		if a == value {
			return ""
		}
		words[i] = string(a)
	}
	return fmt.Sprintf("%.80q is not one of %s%s", string(value), strings.Join(words, ", "),
		DidYouMean(string(value), words))
}

// DidYouMean returns `: did you mean "x"?` for the nearest of words, and nothing if none is near.
func DidYouMean(word string, words []string) string {
	if near := Nearest(word, words); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}
