package tokenizer

import (
	_ "embed"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Character classes. The pattern's \p{L}, \p{N} and \s are disjoint, so each character has exactly one of the
// first four; classWord is \w, which only single_word tokens ask for, and may come with any of them.
const (
	classOther   = 0
	classLetter  = 1
	classNumber  = 2
	classSpace   = 3
	classKind    = 3     // mask: which of the above
	classWord    = 4     // \w
	classPunct   = 0x8   // punctuation
	classControl = 0x10  // what BertNormalizer removes as control characters
	classMark    = 0x20  // what StripAccents removes
	classAccent  = 0x40  // what BertNormalizer removes as accents
	classNumeric = 0x80  // a digit for Digits
	classChinese = 0x100 // a Chinese character for BertNormalizer
	classLater   = 0x200 // was not assigned when the tables of normal forms were made
	classAny     = 0x400 // every character
	classBits    = 12
)

// asciiClass is the kind of each ASCII character.
var asciiClass = func() (kinds [utf8.RuneSelf]uint8) {
	for c := range kinds {
		switch lower := c | 0x20; {
		case c == ' ' || '\t' <= c && c <= '\r':
			kinds[c] = classSpace
		case '0' <= c && c <= '9':
			kinds[c] = classNumber
		case 'a' <= lower && lower <= 'z':
			kinds[c] = classLetter
		}
	}
	return kinds
}()

// classText is the class of every character as Hugging Face's tokenizers have it: a hexadecimal number for each run of
// characters of one class, the first character and then, in the last classBits bits, the class. The first run starts at
// 0. testdata/make_golden.py writes it.
//
//go:embed classes.txt
var classText string

// classRuns are the runs of classText.
var classRuns = sync.OnceValue(func() (runs []uint64) {
	for run := range strings.FieldsSeq(classText) {
		n, err := strconv.ParseUint(run, 16, 64)
		if err != nil {
			panic("tokenizer: classes.txt: " + err.Error())
		}
		runs = append(runs, n)
	}
	return runs
})

// classOf returns the class of r. A byte that is not UTF-8, see [toRunes], has none.
func classOf(r rune) uint16 {
	if r >= notUTF8 {
		return classOther
	}
	runs := classRuns()
	i := sort.Search(len(runs), func(i int) bool { return rune(runs[i]>>classBits) > r })
	return uint16(runs[i-1]) & (1<<classBits - 1)
}

// classAt returns the class of the first character of s, which is not empty, and its length in bytes. A byte that is
// not UTF-8 is one character, of the class of U+FFFD.
func classAt(s string) (class uint16, size int) {
	r, size := utf8.DecodeRuneInString(s)
	return classOf(r), size
}

func isSpace(r rune) bool { return classOf(r)&classKind == classSpace }

// kindAt returns the kind of the first character of s, which is not empty, and its length in bytes.
func kindAt(s string) (kind uint8, size int) {
	if c := s[0]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	class, size := classAt(s)
	return uint8(class & classKind), size
}

// gpt2Pattern is how GPT-2 splits a text into words.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// contractions are those of gpt2Pattern. Only lower case counts, and only the straight apostrophe: so GPT-2 was trained.
var contractions = [...]string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

// nextWord returns the length of the word at the start of s, which is not empty: what gpt2Pattern matches there. The
// alternatives are tried in this order, and each is greedy.
func nextWord(s string) int {
	for _, c := range contractions {
		if s[0] == '\'' && strings.HasPrefix(s, c) {
			return len(c)
		}
	}
	i := 0
	if s[0] == ' ' && len(s) > 1 {
		i = 1
	}
	kind, size := kindAt(s[i:])
	if kind != classSpace { // " ?" and a run of one kind
		for i += size; i < len(s); i += size {
			var k uint8
			if k, size = kindAt(s[i:]); k != kind {
				break
			}
		}
		return i
	}

	// A run of white space. "\s+(?!\S)" gives its last character back when something else follows, as that may be
	// the space of the next word; a run of one has nothing to give back and is left to "\s+".
	end, last := 0, 0
	for end < len(s) {
		k, size := kindAt(s[end:])
		if k != classSpace {
			break
		}
		last = end
		end += size
	}
	if end == len(s) || last == 0 {
		return end
	}
	return last
}
