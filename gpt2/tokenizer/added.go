package tokenizer

import (
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

// An addedSet finds added tokens in text: a trie over their bytes.
type addedSet struct {
	tokens []addedToken
	next   map[trieEdge]int32 // node and byte to node; the root is 0
	accept []int32            // (nodes) index in tokens of the token that ends at the node, -1: none
	first  string             // the bytes that tokens start with
}

type trieEdge struct {
	node int32
	b    byte
}

// newAddedSet returns the set of those tokens that have the given Normalized, nil when there are none. They are looked
// for as normalize changes them.
func newAddedSet(tokens []addedToken, normalized bool, normalize func(string) string) *addedSet {
	a := &addedSet{next: make(map[trieEdge]int32), accept: []int32{-1}}
	var first []byte
	for _, tok := range tokens {
		if tok.Normalized != normalized {
			continue
		}
		node, content := int32(0), normalize(tok.Content)
		for i := range len(content) {
			e := trieEdge{node, content[i]}
			n, ok := a.next[e]
			if !ok {
				n = int32(len(a.accept))
				a.next[e] = n
				a.accept = append(a.accept, -1)
				if i == 0 {
					first = append(first, e.b)
				}
			}
			node = n
		}
		if node == 0 {
			continue // nothing is left of it
		}
		a.accept[node] = int32(len(a.tokens))
		a.tokens = append(a.tokens, tok)
	}
	if len(a.tokens) == 0 {
		return nil
	}
	a.first = string(first)
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
		node, ok := int32(0), false
		for i := start; i < len(s); i++ {
			if node, ok = a.next[trieEdge{node, s[i]}]; !ok {
				break
			}
			if t := a.accept[node]; t >= 0 {
				tok, end = &a.tokens[t], i+1
			}
		}
		if tok != nil {
			return start, end, tok
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
		if tok.SingleWord && (wordBefore(s[:start]) || wordAfter(s[end:])) {
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

// wordBefore reports whether the last character of s is a word character, wordAfter whether the first is.
func wordBefore(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s) // U+FFFD, no such character, if there is none
	return classOf(r)&classWord != 0
}

func wordAfter(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return classOf(r)&classWord != 0
}
