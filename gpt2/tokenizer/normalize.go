package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer changes a text before it is split.
type normalizer func(string) string

// normalizers has a row for each type of normalizer in tokenizer.json.
var normalizers = map[string]func(*part) normalizer{
	"NFC":       func(*part) normalizer { return func(s string) string { return normalForm(s, norm.NFC) } },
	"NFD":       func(*part) normalizer { return func(s string) string { return normalForm(s, norm.NFD) } },
	"NFKC":      func(*part) normalizer { return func(s string) string { return normalForm(s, norm.NFKC) } },
	"NFKD":      func(*part) normalizer { return func(s string) string { return normalForm(s, norm.NFKD) } },
	"Lowercase": func(*part) normalizer { return lowercase },
	"ByteLevel": func(*part) normalizer { return toAlphabet },
	"Strip": func(p *part) normalizer {
		left, right := take(p, "strip_left", false), take(p, "strip_right", false)
		return func(s string) string {
			if left {
				s = strings.TrimLeftFunc(s, isSpace)
			}
			if right {
				s = strings.TrimRightFunc(s, isSpace)
			}
			return s
		}
	},
	"StripAccents": func(*part) normalizer { return without(classMark) },
	"Prepend": func(p *part) normalizer {
		prefix := take(p, "prepend", "")
		return func(s string) string {
			if s == "" {
				return s
			}
			return prefix + s
		}
	},
	"Replace":        replace,
	"BertNormalizer": bertNormalizer,
	"Precompiled": func(p *part) normalizer {
		data := take(p, "precompiled_charsmap", []byte(nil))
		m, err := newCharsmap(string(data))
		p.fail(err)
		return m.graphemes
	},
}

// bertNormalizer is the normalizer of BERT: control characters go, white space becomes a space, and Chinese characters
// are set apart.
func bertNormalizer(p *part) normalizer {
	clean, chinese := take(p, "clean_text", true), take(p, "handle_chinese_chars", true)
	lower := take(p, "lowercase", true)
	accents := take(p, "strip_accents", lower)
	return func(s string) string {
		s = eachRune(s, func(r rune, out []rune) []rune {
			class := classOf(r)
			switch {
			case clean && (class&classControl != 0 || r > unicode.MaxRune):
				return out
			case clean && isSpace(r):
				return append(out, ' ')
			case chinese && class&classChinese != 0:
				return append(out, ' ', r, ' ')
			}
			return append(out, r)
		})
		if accents {
			s = without(classAccent)(normalForm(s, norm.NFD))
		}
		if lower {
			s = lowercase(s)
		}
		return s
	}
}

// replace puts a string in the place of what is found.
func replace(p *part) normalizer {
	find, content := p.finder(), take(p, "content", "")
	return func(s string) string {
		var b strings.Builder
		done := 0
		find(s, func(from, to int) {
			b.WriteString(s[done:from] + content)
			done = to
		})
		return b.String() + s[done:]
	}
}

// without returns the normalizer that removes the characters of a class.
func without(class uint16) normalizer {
	return func(s string) string {
		return eachRune(s, func(r rune, out []rune) []rune {
			if classOf(r)&class != 0 {
				return out
			}
			return append(out, r)
		})
	}
}

// notUTF8 and more is how a byte that is not part of valid UTF-8 is held among characters.
const notUTF8 = unicode.MaxRune + 1

func toRunes(s string) []rune {
	runes := make([]rune, 0, len(s))
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			r = notUTF8 + rune(s[i])
		}
		runes = append(runes, r)
	}
	return runes
}

// fromRunes is the inverse of toRunes.
func fromRunes(runes []rune) string {
	b := make([]byte, 0, len(runes)*2)
	for _, r := range runes {
		if r >= notUTF8 {
			b = append(b, byte(r-notUTF8))
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}

// eachRune returns s with what f appends for each of its characters.
func eachRune(s string, f func(r rune, out []rune) []rune) string {
	out := make([]rune, 0, len(s))
	for _, r := range toRunes(s) {
		out = f(r, out)
	}
	return fromRunes(out)
}

func lowercase(s string) string {
	return eachRune(s, func(r rune, out []rune) []rune {
		if r == 'İ' { // the only one that becomes two
			return append(out, 'i', '\u0307')
		}
		return append(out, newerCase.ToLower(r))
	})
}

// newerCase are capitals newer than Go's tables, which Hugging Face's tokenizers know.
var newerCase = unicode.SpecialCase{
	{Lo: 0x1C89, Hi: 0x1C89, Delta: toLower(1)}, {Lo: 0xA7CB, Hi: 0xA7CB, Delta: toLower(0x264 - 0xA7CB)},
	{Lo: 0xA7CC, Hi: 0xA7CC, Delta: toLower(1)}, {Lo: 0xA7CE, Hi: 0xA7CE, Delta: toLower(1)},
	{Lo: 0xA7D2, Hi: 0xA7D2, Delta: toLower(1)}, {Lo: 0xA7D4, Hi: 0xA7D4, Delta: toLower(1)},
	{Lo: 0xA7DA, Hi: 0xA7DA, Delta: toLower(1)}, {Lo: 0xA7DC, Hi: 0xA7DC, Delta: toLower(0x19B - 0xA7DC)},
	{Lo: 0x10D50, Hi: 0x10D65, Delta: toLower(0x20)}, {Lo: 0x16EA0, Hi: 0x16EB8, Delta: toLower(0x1B)},
}

func toLower(delta rune) (d [unicode.MaxCase]rune) {
	d[unicode.LowerCase] = delta
	return d
}

// normalForm returns a normal form of s as Hugging Face's tokenizers have it (Unicode Standard Annex 15). Other than
// [norm.Form.String] it puts no U+034F between many combining marks, and leaves characters as they are that were not
// assigned when the tables of those were made.
func normalForm(s string, form norm.Form) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return s
	}
	decompose, compose := norm.NFD, form == norm.NFC || form == norm.NFKC
	if form == norm.NFKC || form == norm.NFKD {
		decompose = norm.NFKD
	}
	type character struct {
		r     rune
		order uint8 // canonical combining class
	}
	out := make([]character, 0, len(s))
	var buf, one [64]byte
	for _, r := range toRunes(s) {
		if r < utf8.RuneSelf || r >= notUTF8 || classOf(r)&classLater != 0 {
			out = append(out, character{r, 0})
			continue
		}
		for _, d := range string(decompose.Append(buf[:0], utf8.AppendRune(one[:0], r)...)) {
			out = append(out, character{d, norm.NFD.Properties(utf8.AppendRune(one[:0], d)).CCC()})
		}
	}
	for i := 0; i < len(out); i++ { // canonical order
		j := i
		for j < len(out) && out[j].order != 0 {
			j++
		}
		slices.SortStableFunc(out[i:j], func(a, b character) int { return int(a.order) - int(b.order) })
		i = j
	}
	if compose {
		n, starter := 0, -1 // the characters that are final, and the last of order 0 among them
		for _, c := range out {
			free := starter >= 0 && (n == starter+1 || out[n-1].order < c.order && out[n-1].order != 0)
			if free && c.r >= 0x80 && c.r < notUTF8 && classOf(c.r)&classLater == 0 && classOf(out[starter].r)&classLater == 0 {
				both := norm.NFC.Append(buf[:0], append(utf8.AppendRune(one[:0], out[starter].r), string(c.r)...)...)
				if r, size := utf8.DecodeRune(both); size == len(both) {
					out[starter].r = r
					continue
				}
			}
			out[n] = c
			if n++; c.order == 0 {
				starter = n - 1
			}
		}
		out = out[:n]
	}
	runes := make([]rune, len(out))
	for i, c := range out {
		runes[i] = c.r
	}
	return fromRunes(runes)
}

// toAlphabet spells the bytes of s in the byte alphabet.
func toAlphabet(s string) string {
	b := make([]byte, 0, len(s)*2)
	for i := range len(s) {
		b = utf8.AppendRune(b, alphabet[s[i]])
	}
	return string(b)
}
