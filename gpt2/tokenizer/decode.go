package tokenizer

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An undo is a decoder: it makes text of a token, which is the first of a text or not.
type undo struct {
	each  func(token string, first bool) string
	fuse  bool   // from here on tokens are one text
	strip string // of the beginning of a fused text

	byteLevel bool
}

// each returns the undo that changes tokens one by one, wherever they stand.
func each(f func(string) string) undo {
	return undo{each: func(token string, _ bool) string { return f(token) }}
}

// undos has a row for each type of decoder in tokenizer.json.
var undos = map[string]func(*part) undo{
	"Fuse": func(*part) undo { return undo{fuse: true} },
	"ByteLevel": func(p *part) undo {
		p.ignore("add_prefix_space", "trim_offsets", "use_regex") // of the pre-tokenizer
		return undo{byteLevel: true, each: func(token string, _ bool) string {
			if text, ok := fromAlphabet(token); ok {
				return text
			}
			return token
		}}
	},
	"ByteFallback": func(*part) undo {
		return each(func(token string) string {
			if len(token) == 6 && strings.HasPrefix(token, "<0x") && token[5] == '>' {
				if b, err := strconv.ParseUint(token[3:5], 16, 8); err == nil {
					return string([]byte{byte(b)})
				}
			}
			return token
		})
	},
	"Replace": func(p *part) undo { return each(replace(p)) },
	"Strip": func(p *part) undo {
		content, start, stop := take(p, "content", " "), take(p, "start", 0), take(p, "stop", 0)
		if utf8.RuneCountInString(content) != 1 {
			p.fail(errors.New("content is not one character"))
		}
		if stop != 0 || start != 1 {
			p.fail(errors.New("only start = 1 with stop = 0 is supported"))
		}
		return undo{strip: content}
	},
	"Metaspace": func(p *part) undo {
		space, scheme := p.metaspace()
		p.ignore("split")
		return undo{each: func(token string, first bool) string {
			if first && scheme != "never" {
				return strings.ReplaceAll(token, space, "")
			}
			return strings.ReplaceAll(token, space, " ")
		}}
	},
	"WordPiece": func(p *part) undo {
		prefix, cleanup := take(p, "prefix", "##"), take(p, "cleanup", true)
		return undo{each: func(token string, first bool) string {
			if !first {
				if inner, ok := strings.CutPrefix(token, prefix); ok {
					token = inner
				} else {
					token = " " + token
				}
			}
			if cleanup {
				for _, r := range [...]string{" .", " ?", " !", " ,", " ' ", " n't", " 'm", " do not", " 's", " 've", " 're"} {
					to := strings.ReplaceAll(r, " ", "")
					if r == " do not" {
						to = " don't"
					}
					token = strings.ReplaceAll(token, r, to)
				}
			}
			return token
		}}
	},
}

// decodePieces makes t.pieces of tokens by decoders, and t.first where a token begins a text in another way.
func (t *Tokenizer) decodePieces(tokens []string, decoders []undo) error {
	if len(decoders) == 0 { // then tokens are words
		decoders = []undo{{each: func(token string, first bool) string {
			if first {
				return token
			}
			return " " + token
		}}}
	}
	fused := false
	for i, d := range decoders {
		if fused && d.each != nil {
			return errors.New("decoder: only Strip is supported after Fuse")
		}
		if fused = fused || d.fuse; d.strip != "" && !fused {
			decoders[i] = each(func(token string) string { return strings.TrimPrefix(token, d.strip) })
		}
	}
	decode := func(token string, first bool) string {
		for _, d := range decoders {
			switch {
			case d.each != nil:
				token = d.each(token, first)
			case first:
				token = strings.TrimPrefix(token, d.strip)
			}
		}
		return token
	}
	t.pieces, t.first = make([]string, len(tokens)), make(map[int32]string)
	t.missing = make(map[int32]bool)
	for id, token := range tokens {
		if token == "" {
			t.missing[int32(id)] = true
			continue
		}
		t.pieces[id] = decode(token, false)
		if first := decode(token, true); first != t.pieces[id] {
			t.first[int32(id)] = first
		}
	}
	return nil
}
