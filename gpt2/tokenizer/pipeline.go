package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// A pipeline is a tokenizer that is not GPT-2's: a text is normalized, split into words, and each word is given to a
// model.
type pipeline struct {
	normalizers []normalizer
	splitters   []splitter
	model
}

func (p *pipeline) normalize(s string) string {
	for _, n := range p.normalizers {
		s = n(s)
	}
	return s
}

// words hands out the words of s from the splitter i on. start: s begins the whole text.
func (p *pipeline) words(i int, s string, start bool, yield func(w string)) {
	if i == len(p.splitters) {
		yield(s)
		return
	}
	p.splitters[i].split(s, start, func(s string, start bool) { p.words(i+1, s, start, yield) })
}

// A frame is a post-processor: the ids before and after a text.
type frame struct{ before, after []int32 }

// frames has a row for each type of post-processor in tokenizer.json.
var frames = map[string]func(*part) frame{
	"ByteLevel": func(p *part) frame {
		p.ignore("add_prefix_space", "trim_offsets", "use_regex") // of offsets
		return frame{}
	},
	"BertProcessing":    pairFrame,
	"RobertaProcessing": pairFrame,
	"TemplateProcessing": func(p *part) frame {
		var f frame
		type special struct {
			IDs []int32 `json:"ids"`
		}
		tokens := take(p, "special_tokens", map[string]special(nil))
		take(p, "pair", json.RawMessage(nil)) // of two texts
		at, texts := &f.before, 0
		for _, item := range take(p, "single", []map[string]struct {
			ID string `json:"id"`
		}(nil)) {
			if token, ok := item["SpecialToken"]; ok {
				if tokens[token.ID].IDs == nil {
					p.fail(fmt.Errorf("special token %.40q has no ids", token.ID))
				}
				*at = append(*at, tokens[token.ID].IDs...)
			} else if text := item["Sequence"]; text.ID == "A" {
				at = &f.after
				texts++
			} else {
				texts = math.MinInt32
			}
		}
		if texts != 1 {
			p.fail(errors.New("single does not have the text A once"))
		}
		return f
	},
}

func pairFrame(p *part) frame {
	p.ignore("trim_offsets", "add_prefix_space")
	var ids [2]int32
	for i, name := range []string{"cls", "sep"} {
		pair := take(p, name, [2]any{})
		id, ok := pair[1].(float64)
		if !ok {
			p.fail(fmt.Errorf("%s is not a token with its id", name))
		}
		ids[i] = int32(id)
	}
	return frame{ids[:1], ids[1:]}
}

// frame sets what goes before and after a text: the later post-processor goes around the earlier.
func (t *Tokenizer) frame(raw json.RawMessage) error {
	list, err := read("post_processor", raw, "processors", frames, nil)
	for _, f := range list {
		t.before, t.after = append(f.before, t.before...), append(t.after, f.after...)
	}
	return err
}

// newPipeline makes a tokenizer of its parts and of added tokens.
func newPipeline(p *pipeline, m *modelFile, decoders []undo, added []addedToken, cfg *config) (*Tokenizer, error) {
	t := &Tokenizer{modelSize: len(m.tokens), eot: -1}
	if err := t.add(added, m.ids); err != nil {
		return nil, err
	}
	tokens := m.tokens
	for _, tok := range t.added {
		if int(tok.ID) >= len(tokens) {
			tokens = append(tokens, make([]string, int(tok.ID)+1-len(tokens))...)
		}
		if tokens[tok.ID] = tok.Content; tok.Normalized { // and so it is decoded
			tokens[tok.ID] = p.normalize(tok.Content)
		}
	}
	if !t.isGPT2(p, m, decoders, tokens) {
		t.pipe, p.model = p, m.model
		if err := t.decodePieces(tokens, decoders); err != nil {
			return nil, err
		}
	}
	t.setRoles(m.ids, cfg)
	t.finish()
	return t, nil
}

// isGPT2 sets t up without a pipeline, which is faster, if it is a byte-level BPE as GPT-2 has it.
func (t *Tokenizer) isGPT2(p *pipeline, m *modelFile, decoders []undo, tokens []string) bool {
	bytes, ok := m.model.(*charBPE)
	if !ok || len(p.normalizers) > 0 || len(p.splitters) != 1 || p.splitters[0].byteLevel == nil || len(decoders) != 1 ||
		!decoders[0].byteLevel || !p.splitters[0].byteLevel.UseRegex || bytes.prefix+bytes.suffix != "" || bytes.fallback ||
		bytes.whole || len(m.ids) != t.modelSize {
		return false
	}
	t.bpe.merges = bytes.merges
	for b, c := range alphabet {
		if t.byteID[b], ok = m.ids[string(c)]; !ok {
			return false
		}
	}
	t.prefixSpace = p.splitters[0].byteLevel.PrefixSpace
	t.literal, t.pieces = make(map[int32]bool), make([]string, len(tokens))
	for id, token := range tokens {
		t.pieces[id], ok = fromAlphabet(token)
		if !ok || id >= t.modelSize {
			t.pieces[id], t.literal[int32(id)] = token, true
		}
	}
	return true
}
