package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// A model gives a word its ids. Where it has none for a part of the word and knows no token for that, the id is -1,
// which [Tokenizer.Check] and a session refuse.
type model interface {
	appendWord(dst []int32, w string) []int32
}

// A vocabulary is what models know of their tokens.
type vocabulary struct {
	ids     map[string]int32
	unknown int32 // -1: none
}

// id returns the id of a token, or that of the unknown one.
func (v *vocabulary) id(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return v.unknown
}

// byteToken spells a byte as the token that stands for it.
func byteToken(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

// appendBytes appends the tokens of the bytes of s, if there are tokens for all.
func (v *vocabulary) appendBytes(dst []int32, s string) ([]int32, bool) {
	start := len(dst)
	for i := range len(s) {
		id, ok := v.ids[byteToken(s[i])]
		if !ok {
			return dst[:start], false
		}
		dst = append(dst, id)
	}
	return dst, true
}

// A charBPE is a BPE whose words begin as characters, not as bytes.
type charBPE struct {
	vocabulary
	merges         mergeTable
	prefix, suffix string // of characters that do not begin a word, and of the last one
	fallback       bool   // to bytes
	fuse           bool   // unknown characters that follow each other are one token
	drop           bool   // unknown characters leave nothing
	whole          bool   // a word that is a token becomes it, without merges
}

func (m *charBPE) appendWord(dst []int32, w string) []int32 {
	if id, ok := m.ids[w]; ok && m.whole {
		return append(dst, id)
	}
	start, waiting := len(dst), false // an unknown token that is not yet appended, as more may join it
	for i := 0; i < len(w); {
		_, size := utf8.DecodeRuneInString(w[i:])
		s := w[i : i+size]
		if i > 0 {
			s = m.prefix + s
		}
		if i += size; i == len(w) {
			s += m.suffix
		}
		id, ok := m.ids[s]
		if !ok && m.fallback {
			var whole bool
			if dst, whole = m.appendBytes(dst, s); whole {
				continue
			}
		}
		if waiting && (ok || !m.fuse) {
			dst, waiting = append(dst, m.unknown), false
		}
		if ok {
			dst = append(dst, id)
		} else {
			waiting = !m.drop
		}
	}
	if waiting {
		dst = append(dst, m.unknown)
	}
	b := bpe{merges: m.merges}
	return dst[:start+b.merge(dst[start:])]
}

// A wordLevel knows whole words only.
type wordLevel struct{ vocabulary }

func (m *wordLevel) appendWord(dst []int32, w string) []int32 { return append(dst, m.id(w)) }

// A wordPiece takes the longest token at the beginning of a word, and so on, or none at all (Schuster and Nakajima,
// "Japanese and Korean Voice Search", 2012, as BERT has it).
type wordPiece struct {
	vocabulary
	prefix  string // of tokens that do not begin a word
	longest int    // word in characters that is split
}

func (m *wordPiece) appendWord(dst []int32, w string) []int32 {
	if utf8.RuneCountInString(w) > m.longest {
		return append(dst, m.unknown)
	}
	start := len(dst)
	for from := 0; from < len(w); {
		to := len(w)
		for to > from {
			token := w[from:to]
			if from > 0 {
				token = m.prefix + token
			}
			if id, ok := m.ids[token]; ok {
				dst = append(dst, id)
				break
			}
			_, size := utf8.DecodeLastRuneInString(token)
			to -= size
		}
		if to == from {
			return append(dst[:start], m.unknown)
		}
		from = to
	}
	return dst
}

// A unigram takes of all ways to split a word into tokens the one whose scores have the greatest sum (Kudo, "Subword
// Regularization", 2018).
type unigram struct {
	vocabulary
	scores   []float64    // (V)
	skip     []bool       // (V) tokens that no text is split into
	lengths  map[rune]int // the most bytes of a token, by the character that it begins with
	penalty  float64      // score of an unknown character
	fallback bool         // unknown characters become tokens of their bytes
}

// newUnigram finishes a unigram that has scores and its vocabulary.
func newUnigram(u *unigram, tokens []string) *unigram {
	u.lengths = make(map[rune]int)
	least := math.Inf(1)
	for id, token := range tokens {
		if !u.skips(id) {
			r, _ := utf8.DecodeRuneInString(token)
			u.lengths[r] = max(u.lengths[r], len(token))
			least = min(least, u.scores[id])
		}
	}
	u.penalty = least - 10
	return u
}

func (u *unigram) skips(id int) bool { return u.skip != nil && u.skip[id] }

func (u *unigram) appendWord(dst []int32, w string) []int32 {
	type end struct {
		score float64
		from  int // where the token begins that ends here
		id    int32
	}
	best := make([]end, len(w)+1) // (bytes of w) the best way to get there
	for i := range best {
		best[i].from = -1
	}
	reach := func(from, to int, id int32, score float64) {
		if score += best[from].score; best[to].from < 0 || score > best[to].score {
			best[to] = end{score, from, id}
		}
	}
	for i := 0; i < len(w); {
		r, size := utf8.DecodeRuneInString(w[i:])
		alone := false // the character is a token
		for to := i + size; to <= min(len(w), i+u.lengths[r]); {
			if id, ok := u.ids[w[i:to]]; ok && !u.skips(int(id)) {
				reach(i, to, id, u.scores[id])
				alone = alone || to == i+size
			}
			if to == len(w) {
				break
			}
			_, n := utf8.DecodeRuneInString(w[to:])
			to += n
		}
		if !alone {
			reach(i, i+size, u.unknown, u.penalty)
		}
		i += size
	}
	var ends []int
	for i := len(w); i > 0; i = best[i].from {
		ends = append(ends, i)
	}
	for k := len(ends) - 1; k >= 0; k-- {
		e := best[ends[k]]
		if e.id != u.unknown {
			dst = append(dst, e.id)
			continue
		}
		for k > 0 && best[ends[k-1]].id == u.unknown { // unknown characters that follow each other are one token
			k--
		}
		known := false
		if u.fallback {
			dst, known = u.appendBytes(dst, w[e.from:ends[k]])
		}
		if !known {
			dst = append(dst, u.unknown)
		}
	}
	return dst
}

// A modelFile is what the parts of a tokenizer.json need of its model.
type modelFile struct {
	tokens []string // by id, "" where there is none
	ids    map[string]int32
	model
}

// models has a row for each type of model in tokenizer.json.
var models = map[string]func(*part) *modelFile{
	"BPE": func(p *part) *modelFile {
		vocab, merges := p.vocab(), need(p, "merges", parseMerges)
		drop := p.fields["unk_token"] == nil || string(p.fields["unk_token"]) == "null"
		m := &charBPE{drop: drop, vocabulary: p.vocabulary(vocab), prefix: take(p, "continuing_subword_prefix", ""),
			suffix: take(p, "end_of_word_suffix", ""), fallback: take(p, "byte_fallback", false),
			fuse: take(p, "fuse_unk", false), whole: take(p, "ignore_merges", false)}
		if dropout := take(p, "dropout", 0.0); dropout != 0 {
			p.fail(fmt.Errorf("dropout is %v: it makes the ids random; set it to null", dropout))
		}
		if p.err == nil {
			m.merges, p.err = mergesOf(vocab, merges, m.prefix)
		}
		return p.model(vocab, m)
	},
	"WordLevel": func(p *part) *modelFile {
		vocab := p.vocab()
		return p.model(vocab, &wordLevel{p.vocabulary(vocab)})
	},
	"WordPiece": func(p *part) *modelFile {
		vocab := p.vocab()
		return p.model(vocab, &wordPiece{p.vocabulary(vocab), take(p, "continuing_subword_prefix", "##"),
			take(p, "max_input_chars_per_word", 100)})
	},
	"Unigram": readUnigram,
}

func readUnigram(p *part) *modelFile {
	var tokens []string
	u := &unigram{vocabulary: vocabulary{make(map[string]int32), -1}, fallback: take(p, "byte_fallback", false)}
	for i, pair := range take(p, "vocab", [][2]any(nil)) {
		token, isText := pair[0].(string)
		score, isNumber := pair[1].(float64)
		if !isText || !isNumber {
			p.fail(fmt.Errorf("vocab: entry %d is not a token with its score", i))
			return &modelFile{}
		}
		tokens, u.scores = append(tokens, token), append(u.scores, score)
		u.ids[token] = int32(i)
	}
	if id := take(p, "unk_id", -1); id < -1 || id >= len(tokens) {
		p.fail(fmt.Errorf("unk_id is %d, outside the vocabulary of %d", id, len(tokens)))
	} else {
		u.unknown = int32(id)
	}
	return &modelFile{tokens, u.ids, newUnigram(u, tokens)}
}

// newModelFile makes one of the ids of tokens, which may leave gaps.
func newModelFile(vocab map[string]int32, m model) (*modelFile, error) {
	if len(vocab) == 0 {
		return nil, errors.New("vocab is empty")
	}
	f := &modelFile{ids: vocab, model: m}
	last := int32(-1)
	for token, id := range vocab {
		if int(id) > 4*len(vocab)+1<<16 {
			return nil, fmt.Errorf("vocab: the id of %.40q is %d, but there are only %d tokens", token, id, len(vocab))
		}
		last = max(last, id)
	}
	f.tokens = make([]string, last+1)
	for token, id := range vocab {
		if other := f.tokens[id]; other != "" {
			return nil, fmt.Errorf("vocab: %.40q and %.40q have the same id %d", min(token, other), max(token, other), id)
		}
		f.tokens[id] = token
	}
	return f, nil
}

func (p *part) model(vocab map[string]int32, m model) *modelFile {
	f, err := newModelFile(vocab, m)
	p.fail(err)
	return f
}

// vocabulary reads which token is the unknown one.
func (p *part) vocabulary(vocab map[string]int32) vocabulary {
	id, ok := vocab[take(p, "unk_token", "")]
	if !ok {
		id = -1
	}
	return vocabulary{vocab, id}
}

func (p *part) vocab() map[string]int32 { return need(p, "vocab", parseVocab) }

// mergesOf finds the ids of merges. The second part of one loses the prefix that it has within words.
func mergesOf(vocab map[string]int32, merges []mergeNames, prefix string) (mergeTable, error) {
	table := make(mergeTable, len(merges))
	var both []byte
	for i, m := range merges {
		both = append(append(both[:0], m.left...), strings.TrimPrefix(m.right, prefix)...)
		var ids [3]int32
		for k, name := range []string{m.left, m.right, string(both)} {
			id, ok := vocab[name]
			if !ok {
				return nil, fmt.Errorf("merge %d of %.40q and %.40q: the vocabulary does not have the %s", i+1, m.left, m.right,
					[]string{"first", "second", "piece that they make"}[k])
			}
			ids[k] = id
		}
		table[pairOf(ids[0], ids[1])] = merge{rank: int32(i), id: ids[2]} // of two equal pairs the later rank counts
	}
	return table, nil
}
