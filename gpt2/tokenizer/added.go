package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// An addedToken is a string with an id of its own, found in text before byte-pair encoding. The fields are those
// of tokenizer.json.
type addedToken struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`
	// SingleWord: counts only if no word character (\w) touches it.
	SingleWord bool `json:"single_word"`
	// LStrip, RStrip: takes in the white space on its left, on its right.
	LStrip bool `json:"lstrip"`
	RStrip bool `json:"rstrip"`
	// Normalized: looked for in the normalized text, after the tokens without it.
	Normalized bool `json:"normalized"`
	Special    bool `json:"special"`
}

// An addedSet finds added tokens in text.
type addedSet struct {
	tokens map[byte][]addedToken // by the first byte, the longest first; their contents are normalized
	first  string                // the bytes that tokens start with
}

// newAddedSet returns the set of those tokens that have the given Normalized, nil when there are none. They are looked
// for as normalize changes them.
func newAddedSet(tokens []addedToken, normalized bool, normalize func(string) string) *addedSet {
	a := &addedSet{tokens: make(map[byte][]addedToken)}
	for _, tok := range slices.Backward(tokens) { // of equal ones the last counts
		if tok.Content = normalize(tok.Content); tok.Normalized == normalized && tok.Content != "" {
			a.tokens[tok.Content[0]] = append(a.tokens[tok.Content[0]], tok)
		}
	}
	for b, list := range a.tokens {
		slices.SortStableFunc(list, func(x, y addedToken) int { return len(y.Content) - len(x.Content) })
		a.first += string([]byte{b})
	}
	if len(a.tokens) == 0 {
		return nil
	}
	return a
}

// find returns the leftmost token in s at or after from, the longest of those that start there.
func (a *addedSet) find(s string, from int) (start, end int, tok *addedToken) {
	for start = from; start < len(s); start++ {
		if len(a.first) == 1 {
			n := strings.IndexByte(s[start:], a.first[0])
			if n < 0 {
				break
			}
			start += n
		}
		for i, tok := range a.tokens[s[start]] {
			if strings.HasPrefix(s[start:], tok.Content) {
				return start, start + len(tok.Content), &a.tokens[s[start]][i]
			}
		}
	}
	return len(s), len(s), nil
}

// split hands out s in order: plain text with id -1, which is never empty, and added tokens as "" and their id. Special
// tokens count as plain text when ordinary is set. A nil set has no tokens.
//
// The order of these steps is that of Hugging Face's AddedVocabulary, oddities included: a token that is ignored
// (ordinary, single_word) still hides others that overlap it, and white space that was stripped may contain another
// token, which then moves the position back.
func (a *addedSet) split(s string, ordinary bool, yield func(s string, id int32)) {
	if s == "" {
		return
	}
	if a == nil {
		yield(s, -1)
		return
	}
	done := 0
	for from := 0; ; {
		start, end, tok := a.find(s, from)
		if tok == nil {
			break
		}
		from = end
		if ordinary && tok.Special {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(s[:start]) // U+FFFD, no word character, if there is none
		after, _ := utf8.DecodeRuneInString(s[end:])
		if tok.SingleWord && (classOf(before)|classOf(after))&classWord != 0 {
			continue
		}
		if tok.LStrip {
			start = len(strings.TrimRightFunc(s[:start], isSpace)) // less than done if the token before it has taken that space
		}
		if tok.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], isSpace))
		}
		if done < start {
			yield(s[done:start], -1)
		}
		yield("", tok.ID)
		done = end
	}
	if done < len(s) {
		yield(s[done:], -1)
	}
}
