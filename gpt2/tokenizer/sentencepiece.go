package tokenizer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"google.golang.org/protobuf/encoding/protowire"
)

// A spm is a model of SentencePiece (sentencepiece_model.proto), as far as it says how a text becomes ids.
type spm struct {
	pieces     []spmPiece
	kind       uint64 // 1 unigram, 2 BPE
	fallback   bool   // unknown characters become bytes
	charsmap   string // how characters are normalized
	prefix     bool   // a text begins with a space
	extra      bool   // spaces that repeat, and those around a text, go
	escape     bool   // spaces are written ▁
	roles      [4]int // ids of unknown, bos, eos and pad; -1 for none
	userPieces []string
}

type spmPiece struct {
	text  string
	score float64
	kind  uint64
}

// The kinds of pieces.
const (
	spmNormal = iota + 1
	spmUnknown
	spmControl
	spmUserDefined
	spmUnused
	spmByte
)

// A message is one of Protocol Buffers: the values of its fields by their number, which are numbers or bytes.
type message map[protowire.Number][]any

func parseMessage(data []byte) (message, error) {
	m := make(message)
	for len(data) > 0 {
		n, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		data = data[size:]
		var value any
		switch kind {
		case protowire.VarintType:
			value, size = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			value, size = protowire.ConsumeFixed32(data)
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(data)
		default:
			size = protowire.ConsumeFieldValue(n, kind, data)
		}
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		data = data[size:]
		m[n] = append(m[n], value)
	}
	return m, nil
}

// last returns the last value of a field, or another if there is none of its type.
func last[T any](m message, n protowire.Number, other T) T {
	for _, value := range m[n] {
		if v, ok := value.(T); ok {
			other = v
		}
	}
	return other
}

// parseSPM reads a model. Values that it does not have are the defaults of the format.
func parseSPM(data []byte) (*spm, error) {
	var err error // the first
	parse := func(data []byte) message {
		m, failed := parseMessage(data)
		err = cmp.Or(err, failed)
		return m
	}
	m := parse(data)
	trainer, rules := parse(last(m, 2, []byte(nil))), parse(last(m, 3, []byte(nil)))
	s := &spm{kind: last(trainer, 3, uint64(1)), fallback: last(trainer, 35, uint64(0)) != 0,
		charsmap: string(last(rules, 2, []byte(nil))), prefix: last(rules, 3, uint64(1)) != 0,
		extra: last(rules, 4, uint64(1)) != 0, escape: last(rules, 5, uint64(1)) != 0}
	for i, none := range []int32{0, 1, 2, -1} {
		s.roles[i] = int(int32(last(trainer, protowire.Number(40+i), uint64(none))))
	}
	for _, value := range m[1] {
		raw, _ := value.([]byte)
		p := parse(raw)
		score := math.Float32frombits(last(p, 2, uint32(0)))
		s.pieces = append(s.pieces, spmPiece{string(last(p, 1, []byte(nil))), float64(score), last(p, 3, uint64(spmNormal))})
	}
	switch {
	case err != nil:
		return nil, err
	case len(s.pieces) == 0 || len(s.pieces) >= maxVocab:
		return nil, fmt.Errorf("it has %d pieces", len(s.pieces))
	case s.kind != 1 && s.kind != 2:
		return nil, errors.New("it splits into words or characters (model_type), which is not supported")
	case last(trainer, 24, uint64(0)) != 0:
		return nil, errors.New("treat_whitespace_as_suffix is not supported")
	case s.roles[0] < 0 || s.roles[0] >= len(s.pieces):
		return nil, errors.New("it has no unknown piece")
	}
	return s, nil
}

// loadSentencePiece reads a model of SentencePiece, which gives the ids that SentencePiece gives, but for what its sums
// in float32 cannot tell apart in texts of many thousand tokens. Its control tokens, such as </s>, are special tokens here.
func loadSentencePiece(d *folder, name string, data []byte, cfg *config) (*Tokenizer, error) {
	s, err := parseSPM(data)
	if err != nil {
		return nil, fmt.Errorf("%s: not a model of SentencePiece that is supported: %w", name, err)
	}
	tokens, v := make([]string, len(s.pieces)), vocabulary{make(map[string]int32), int32(s.roles[0])}
	var own []addedToken
	for id, p := range s.pieces {
		if _, ok := v.ids[p.text]; ok || p.text == "" || !utf8.ValidString(p.text) {
			return nil, fmt.Errorf("%s: piece %d, %.40q, is there twice, empty or not UTF-8", name, id, p.text)
		}
		tokens[id], v.ids[p.text] = p.text, int32(id)
		switch p.kind {
		case spmControl:
			own = append(own, addedToken{ID: int32(id), Content: p.text, Special: true})
		case spmUserDefined:
			s.userPieces = append(s.userPieces, p.text)
		}
	}
	slices.SortFunc(s.userPieces, func(a, b string) int { return len(b) - len(a) })
	for i, token := range []*configToken{&cfg.UNK, &cfg.BOS, &cfg.EOS, &cfg.PAD} {
		if id := s.roles[i]; !token.named && id >= 0 && id < len(tokens) {
			token.addedToken = addedToken{Content: tokens[id], Special: true}
		}
	}
	added, err := addedTokens(d, own, cfg)
	if err != nil {
		return nil, err
	}
	m := &modelFile{tokens: tokens, ids: v.ids}
	if s.kind == 1 {
		u := &unigram{vocabulary: v, fallback: s.fallback}
		for _, p := range s.pieces {
			u.scores, u.skip = append(u.scores, p.score), append(u.skip, p.kind != spmNormal)
		}
		m.model = newUnigram(u, tokens)
	} else {
		m.model = s.bpe(v)
	}
	normalize, err := s.normalizer()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &pipeline{normalizers: []normalizer{normalize}}
	if cfg.Lowercase != nil && *cfg.Lowercase {
		p.normalizers = []normalizer{lowercase, normalize}
	}
	if len(s.userPieces) > 0 { // they are taken out of a text first
		p.splitters = []splitter{{find: s.findUserPieces, behavior: "Isolated"}}
		m.model = &userFirst{m.model, s, v.ids}
	}
	t, err := newPipeline(p, m, []undo{{each: func(token string, first bool) string {
		switch id, ok := v.ids[token]; {
		case ok && s.pieces[id].kind == spmControl:
			return ""
		case ok && s.pieces[id].kind == spmUnknown:
			return " ⁇ "
		case ok && s.pieces[id].kind == spmByte:
			return undos["ByteFallback"](nil).each(token, false)
		case first && (s.prefix || s.extra):
			token = strings.TrimPrefix(token, "▁")
		}
		return strings.ReplaceAll(token, "▁", " ")
	}}}, added, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t.trim = s.extra
	return t, nil
}

// userFirst is a model for which the pieces that the user has defined are words of their own.
type userFirst struct {
	model
	s   *spm
	ids map[string]int32
}

func (m *userFirst) appendWord(dst []int32, w string) []int32 {
	if id, ok := m.ids[w]; ok && m.s.pieces[id].kind == spmUserDefined {
		return append(dst, id)
	}
	return m.model.appendWord(dst, w)
}

func (s *spm) findUserPieces(text string, match func(from, to int)) {
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		if user := prefixOf(text[i:], s.userPieces); user != "" {
			size = len(user)
			match(i, i+size)
		}
		i += size
	}
}

// bpe is the model of a BPE: any two tokens that make a third are merged, that with the best score first.
func (s *spm) bpe(v vocabulary) *charBPE {
	type found struct {
		score float64
		pair
		id int32
	}
	var all []found
	for id, p := range s.pieces {
		for k := range p.text {
			left, ok := v.ids[p.text[:k]]
			right, ok2 := v.ids[p.text[k:]]
			if ok && ok2 && p.kind == spmNormal && s.pieces[left].kind == spmNormal && s.pieces[right].kind == spmNormal {
				all = append(all, found{p.score, pairOf(left, right), int32(id)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.score, a.score) })
	m := &charBPE{vocabulary: v, merges: make(mergeTable, len(all)), fallback: s.fallback, fuse: true}
	rank := int32(0) // the same for equal scores, of which the leftmost pair goes first
	for i, f := range all {
		if i > 0 && f.score != all[i-1].score {
			rank++
		}
		m.merges[f.pair] = merge{rank, f.id}
	}
	return m
}

// prefixOf returns the first of list that s begins with, or "".
func prefixOf(s string, list []string) string {
	for _, prefix := range list {
		if strings.HasPrefix(s, prefix) {
			return prefix
		}
	}
	return ""
}

// normalizer is how SentencePiece changes a text. Pieces that the user has defined stay as they are.
func (s *spm) normalizer() (normalizer, error) {
	m := &charsmap{}
	if s.charsmap != "" {
		var err error
		if m, err = newCharsmap(s.charsmap); err != nil {
			return nil, err
		}
	}
	space := " "
	if s.escape {
		space = "▁"
	}
	return func(text string) string {
		var b strings.Builder
		spaces, begun := s.extra, false // spaces that come next go; something has come
		for len(text) > 0 {
			size := len(prefixOf(text, s.userPieces))
			to := text[:size]
			if size == 0 {
				if size, to = m.longest(text); size == 0 {
					var r rune
					r, size = utf8.DecodeRuneInString(text)
					to = string(r)
				}
			}
			text = text[size:]
			if spaces {
				to = strings.TrimLeft(to, " ")
			}
			if to == "" && (begun || s.extra) {
				continue
			}
			if !begun && s.prefix {
				b.WriteString(space)
			}
			begun = true
			b.WriteString(strings.ReplaceAll(to, " ", space))
			spaces = s.extra && strings.HasSuffix(to, " ")
		}
		out := b.String()
		for s.extra && strings.HasSuffix(out, space) {
			out = strings.TrimSuffix(out, space)
		}
		return out
	}, nil
}

// A charsmap says what becomes of some strings: a double array (Aoe, "An Efficient Digital Search Algorithm by Using a
// Double-Array Structure", 1989) in the layout of Darts-clone, from strings to places in texts.
type charsmap struct {
	units []uint32
	texts string // each ends with a zero byte
}

func newCharsmap(data string) (*charsmap, error) {
	if len(data) < 4 {
		return nil, errors.New("precompiled_charsmap is cut off")
	}
	size := binary.LittleEndian.Uint32([]byte(data[:4]))
	if data = data[4:]; size%4 != 0 || uint64(size) > uint64(len(data)) {
		return nil, fmt.Errorf("precompiled_charsmap is cut off: it has %d bytes of %d", len(data), size)
	}
	m := &charsmap{units: make([]uint32, size/4), texts: data[size:]}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32([]byte(data[4*i : 4*i+4]))
	}
	return m, nil
}

// search calls found for each string of the map that s begins with, from short to long, until it returns false.
func (m *charsmap) search(s string, found func(n int, text string) bool) {
	at := uint32(0)
	unit := func() (u uint32) {
		if int(at) < len(m.units) {
			u = m.units[at]
		}
		return u
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	if len(m.units) == 0 {
		return
	}
	at = offset(unit())
	for i := range len(s) {
		at ^= uint32(s[i])
		u := unit()
		if u&(1<<31|0xFF) != uint32(s[i]) {
			return
		}
		at ^= offset(u)
		if u>>8&1 == 0 {
			continue
		}
		if place := unit() &^ (1 << 31); int(place) <= len(m.texts) {
			text, _, _ := strings.Cut(m.texts[place:], "\x00")
			if !found(i+1, text) {
				return
			}
		}
	}
}

// longest returns the longest string of the map that s begins with, as SentencePiece looks for it.
func (m *charsmap) longest(s string) (n int, text string) {
	m.search(s, func(length int, t string) bool {
		n, text = length, t
		return true
	})
	return n, text
}

// graphemes changes s as Hugging Face's tokenizers do: graphemes of up to 5 bytes as a whole, others by character, by the
// shortest string that they begin with.
func (m *charsmap) graphemes(s string) string {
	change := func(b *strings.Builder, s string) bool {
		done := false
		m.search(s, func(_ int, text string) bool {
			b.WriteString(text)
			done = true
			return false
		})
		return done
	}
	var b strings.Builder
	state, all, like := -1, toRunes(s), string(older(s))
	for like != "" {
		var g string
		g, like, _, state = uniseg.FirstGraphemeClusterInString(like, state)
		n := utf8.RuneCountInString(g)
		g, all = fromRunes(all[:n]), all[n:]
		if len(g) < 6 && change(&b, g) {
			continue
		}
		for i := 0; i < len(g); {
			_, n := utf8.DecodeRuneInString(g[i:])
			if !change(&b, g[i:i+n]) {
				b.WriteString(g[i : i+n])
			}
			i += n
		}
	}
	return b.String()
}
