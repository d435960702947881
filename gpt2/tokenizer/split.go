package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"gpt2scope/internal/lazyregexp"
)

// A finder calls match for each match in s, from left to right.
type finder func(s string, match func(from, to int))

// A splitter is a pre-tokenizer: it cuts a text at what it finds, between a change before and one after.
type splitter struct {
	before   func(s string, start bool) string // start: s begins the whole text
	find     finder                            // nil: the text is not cut
	invert   bool                              // what it does not find counts as found
	behavior string                            // what becomes of matches
	after    func(s string) string

	byteLevel *byteLevel // its options, if it is the one of GPT-2
}

var behaviors = []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

// splitters has a row for each type of pre-tokenizer in tokenizer.json.
var splitters = map[string]func(*part) []splitter{
	"ByteLevel": func(p *part) []splitter {
		p.ignore("trim_offsets") // of offsets, which nothing here has
		options := byteLevel{PrefixSpace: take(p, "add_prefix_space", true), UseRegex: take(p, "use_regex", true)}
		l := splitter{after: toAlphabet, byteLevel: &options}
		if options.PrefixSpace {
			l.before = func(s string, _ bool) string {
				if s[0] != ' ' {
					s = " " + s
				}
				return s
			}
		}
		if options.UseRegex {
			l.find, l.behavior = findWords, "Isolated"
		}
		return []splitter{l}
	},
	"BertPreTokenizer": func(*part) []splitter {
		return []splitter{{find: findClass(0), behavior: "Removed"}, {find: findClass(classPunct), behavior: "Isolated"}}
	},
	"Whitespace": func(*part) []splitter { // \w+|[^\w\s]+
		return []splitter{{find: findClass(0), behavior: "Removed"}, {find: findClass(classWord), behavior: "Contiguous"}}
	},
	"WhitespaceSplit": func(*part) []splitter { return []splitter{{find: findClass(0), behavior: "Removed"}} },
	"Punctuation": func(p *part) []splitter {
		return []splitter{{find: findClass(classPunct), behavior: choose(p, "behavior", "Isolated", behaviors...)}}
	},
	"Digits": func(p *part) []splitter {
		l := splitter{find: findClass(classNumeric), behavior: "Contiguous"}
		if take(p, "individual_digits", false) {
			l.behavior = "Isolated"
		}
		return []splitter{l}
	},
	"Split": func(p *part) []splitter {
		behavior := choose(p, "behavior", "", behaviors...)
		return []splitter{{find: p.finder(), behavior: behavior, invert: take(p, "invert", false)}}
	},
	"Metaspace": func(p *part) []splitter {
		space, scheme := p.metaspace()
		l := splitter{before: func(s string, start bool) string {
			s = strings.ReplaceAll(s, " ", space)
			if (scheme == "always" || scheme == "first" && start) && !strings.HasPrefix(s, space) {
				s = space + s
			}
			return s
		}}
		if take(p, "split", true) {
			l.find, l.behavior = findString(space), "MergedWithNext"
		}
		return []splitter{l}
	},
}

// metaspace reads the options that the pre-tokenizer and the decoder Metaspace share.
func (p *part) metaspace() (space, scheme string) {
	legacy := map[bool]string{true: "always", false: "never"}[take(p, "add_prefix_space", true)]
	take(p, "str_rep", "")
	return take(p, "replacement", "▁"), choose(p, "prepend_scheme", legacy, "always", "first", "never")
}

// A span is a part of a text that is a match, or what lies between matches.
type span struct {
	from, to int
	match    bool
}

// split hands out the pieces of s that are not empty.
func (l *splitter) split(s string, start bool, yield func(s string, start bool)) {
	if s == "" {
		return
	}
	if l.before != nil {
		s = l.before(s, start)
	}
	spans := []span{{0, len(s), false}}
	if l.find != nil {
		spans = l.spans(s)
	}
	for _, p := range spans {
		piece := s[p.from:p.to]
		if l.after != nil {
			piece = l.after(piece)
		}
		yield(piece, start && p.from == 0)
	}
}

// spans cuts s, as what is found asks for.
func (l *splitter) spans(s string) []span {
	var all []span
	done := 0
	add := func(to int, match bool) {
		if to > done && (!match || l.behavior != "Removed") {
			all = append(all, span{done, to, match})
		}
		done = to
	}
	l.find(s, func(from, to int) {
		add(from, l.invert)
		add(to, !l.invert)
	})
	add(len(s), l.invert)
	backwards := l.behavior == "MergedWithNext"
	if l.behavior == "Removed" || l.behavior == "Isolated" {
		return all
	}
	if backwards {
		slices.Reverse(all)
	}
	n, last := 0, false // all[:n] is final; last: of the span before, whether it is a match
	for i, p := range all {
		joins := i > 0 && p.match && !last
		if l.behavior == "Contiguous" {
			joins = i > 0 && p.match == last
		}
		if last = p.match; joins {
			all[n-1].from, all[n-1].to = min(all[n-1].from, p.from), max(all[n-1].to, p.to)
		} else {
			all[n] = p
			n++
		}
	}
	if all = all[:n]; backwards {
		slices.Reverse(all)
	}
	return all
}

// finder returns what finds the pattern of p.
func (p *part) finder() finder {
	pattern := take(p, "pattern", pattern{})
	switch {
	case pattern.String != nil && *pattern.String != "":
		return findString(*pattern.String)
	case pattern.Regex != nil && *pattern.Regex == gpt2Pattern:
		return findWords
	case pattern.Regex != nil && *pattern.Regex == `[\s\S]`:
		return findClass(classAny)
	case pattern.Regex != nil:
		find, err := findRegexp(*pattern.Regex)
		p.fail(err)
		return find
	}
	p.fail(errors.New("pattern is neither a String nor a Regex"))
	return nil
}

func findString(what string) finder {
	return func(s string, match func(from, to int)) {
		for i := 0; what != ""; {
			n := strings.Index(s[i:], what)
			if n < 0 {
				break
			}
			match(i+n, i+n+len(what))
			i += n + len(what)
		}
	}
}

// findWords finds what GPT-2's pattern matches, which is all there is.
func findWords(s string, match func(from, to int)) {
	for i := 0; i < len(s); {
		n := nextWord(s[i:])
		match(i, i+n)
		i += n
	}
}

// findClass finds the characters of a class, one by one; those of white space for 0.
func findClass(class uint16) finder {
	return func(s string, match func(from, to int)) {
		for i := 0; i < len(s); {
			c, size := classAt(s[i:])
			if (c|classAny)&class != 0 || class == 0 && c&classKind == classSpace {
				match(i, i+size)
			}
			i += size
		}
	}
}

// findRegexp finds a regular expression of Oniguruma, which Hugging Face's tokenizers use.
func findRegexp(source string) (finder, error) {
	translated, err := translate(source)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(translated, regexp2.Multiline, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, fmt.Errorf("the regular expression %.80q is not supported: %.200w", source, err)
	}
	return func(s string, match func(from, to int)) {
		found, err := re.FindAllRunesIndex(older(s), -1)
		if err != nil {
			panic(err) // there is neither a limit of time nor of the stack
		}
		at, place := 0, 0 // a character and its place in s
		byteOf := func(n int) int {
			for ; at < n; at++ {
				_, size := utf8.DecodeRuneInString(s[place:])
				place += size
			}
			return place
		}
		for _, f := range found {
			from := byteOf(f[0])
			match(from, byteOf(f[1]))
		}
	}, nil
}

// older returns the characters of s with older ones of the same class in the place of those that Go's tables do not know.
func older(s string) []rune {
	runes := toRunes(s)
	for i, r := range runes {
		if r >= notUTF8 {
			runes[i] = utf8.RuneError
		} else if like, ok := newer()[r]; ok {
			runes[i] = like
		}
	}
	return runes
}

// newer gives for each character that is newer than Go's tables an older one of the same class.
var newer = sync.OnceValue(func() map[rune]rune {
	like := make(map[rune]rune)
	runs := classRuns()
	for i, run := range runs {
		end := uint64(unicode.MaxRune + 1)
		if i+1 < len(runs) {
			end = runs[i+1] >> classBits
		}
		for r := rune(run >> classBits); r < rune(end); r++ {
			switch class := uint16(run); {
			case class&classKind == classLetter && !unicode.IsLetter(r):
				like[r] = 'ƻ'
			case class&(classKind|classWord) == classNumber && !unicode.IsNumber(r):
				like[r] = '①'
			case class&classKind == classNumber && !unicode.IsNumber(r):
				like[r] = '٠'
			case class&(classKind|classWord) == classWord && !unicode.IsMark(r) && unicode.In(r, unicode.Cn):
				like[r] = '\u0591'
			}
		}
	}
	return like
})

// wordClass is what Oniguruma takes for \w.
const wordClass = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}²³¹¼-¾Ⓐ-ⓩ🄰-🅉🅐-🅩🅰-🆉`

// otherwise matches what regexp2 does not know, or takes for something else than Oniguruma: other escapes, classes in
// classes, possessive quantifiers, options.
var otherwise = lazyregexp.New(`\\[^dDsSpPwnrtfvaexu[:punct:]]|\\$|\\[pP]\{\^|\[\^?\]|` +
	`\[[^\]\\]*(\\.[^\]\\]*)*(\[|&&)|[*+?]\+|\{[0-9,]+\}[*+?]|` +
	`\(\?([^:=!>i<]|i[^:)]|<[^=!])`)

// greedy is an expression of OpenAI's tiktoken as it is without possessive quantifiers, which change nothing in it: what
// follows them matches no character that they could give back.
var greedy = map[string]string{
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`: "" +
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`: "" +
		`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
}

// translate writes an expression of Oniguruma for regexp2, and refuses what differs.
func translate(source string) (string, error) {
	source = cmp.Or(greedy[source], source)
	if what := otherwise().FindString(source); what != "" {
		return "", fmt.Errorf("the regular expression %.80q has %.40q, which is not supported", source, what)
	}
	var b strings.Builder
	class := false
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case c == '\\':
			if i++; source[i] != 'w' {
				b.WriteString(source[i-1 : i+1])
			} else if class {
				b.WriteString(wordClass)
			} else {
				b.WriteString("[" + wordClass + "]")
			}
		default:
			class = c == '[' || class && c != ']'
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}
