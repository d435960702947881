package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"gpt2scope/internal/require"
)

func filesFS(files map[string][]byte) fs.FS {
	m := make(fstest.MapFS)
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data}
	}
	return m
}

// TestGPT2Vocabulary compares the built-in vocabulary with the files that OpenAI published, by the hashes that
// OpenAI's tiktoken library (tiktoken_ext/openai_public.py) checks them with.
func TestGPT2Vocabulary(t *testing.T) {
	files := GPT2().Files()
	hash := func(b []byte) string {
		h := sha256.Sum256(b)
		return hex.EncodeToString(h[:])
	}
	const vocabBPE = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
	if got := hash(files["merges.txt"]); got != vocabBPE {
		t.Errorf("SHA-256 of merges.txt is %s, that of OpenAI's vocab.bpe is %s", got, vocabBPE)
	}

	// OpenAI's encoder.json is the same object on one line, ASCII only.
	var vocab map[string]int
	must(t, json.Unmarshal(files["vocab.json"], &vocab))
	names := slices.SortedFunc(maps.Keys(vocab), func(a, b string) int { return vocab[a] - vocab[b] })
	var line strings.Builder
	for i, name := range names {
		line.WriteString([]string{", ", "{"}[b2i(i == 0)])
		line.WriteByte('"')
		for _, c := range name {
			switch {
			case c == '"' || c == '\\':
				line.WriteString("\\" + string(c))
			case c < utf8.RuneSelf:
				line.WriteRune(c)
			default:
				fmt.Fprintf(&line, "\\u%04x", c)
			}
		}
		fmt.Fprintf(&line, "\": %d", vocab[name])
	}
	line.WriteByte('}')
	const encoderJSON = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
	if got := hash([]byte(line.String())); got != encoderJSON {
		t.Errorf("SHA-256 of vocab.json on one line is %s, that of OpenAI's encoder.json is %s", got, encoderJSON)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestMergeOrder compares both ways of merging with the definition, on random words and random merges.
func TestMergeOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		m := &bpe{merges: make(mergeTable, 40)}
		letters := 2 + rng.IntN(3)
		for b := range m.byteID {
			m.byteID[b] = int32(b % letters)
		}
		pieces := []string{"a", "b", "c", "d"}[:letters]
		for rank := range int32(rng.IntN(40)) {
			p := pairOf(int32(rng.IntN(len(pieces))), int32(rng.IntN(len(pieces))))
			if m.merges.get(p).rank != noRank {
				continue
			}
			piece := pieces[p.left()] + pieces[p.right()]
			id := slices.Index(pieces, piece) // several pairs may make the same piece
			if id < 0 {
				id = len(pieces)
				pieces = append(pieces, piece)
			}
			m.merges[p] = merge{rank: rank, id: int32(id)}
		}
		word := make([]byte, 1+rng.IntN(200))
		for i := range word {
			word[i] = byte(rng.IntN(letters))
		}
		start := make([]int32, len(word))
		for i, b := range word {
			start[i] = m.byteID[b]
		}

		want := slices.Clone(start)
		for {
			best, at := merge{rank: noRank}, -1
			for i := range len(want) - 1 {
				if g := m.merges.get(pairOf(want[i], want[i+1])); g.rank < best.rank {
					best, at = g, i
				}
			}
			if at < 0 {
				break
			}
			want = slices.Replace(want, at, at+2, best.id)
		}

		if got := m.appendWord([]int32{7}, string(word)); !slices.Equal(got, append([]int32{7}, want...)) {
			t.Fatalf("appendWord of %v: %v, want %v", start, got, want)
		}
	}
}

func checkRoundTrip(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	for name, ids := range map[string][]int32{"Encode": tok.Encode(text), "EncodeOrdinary": tok.EncodeOrdinary(text)} {
		if got := string(tok.Decode(ids)); got != text {
			t.Fatalf("%s: %q came back as %q from %v", name, text, got, ids)
		}
		if err := tok.Check(ids); err != nil {
			t.Fatalf("%s: %q: %v", name, text, err)
		}
	}
}

func TestDecodeOutOfRange(t *testing.T) {
	tok := GPT2()
	for _, id := range []int32{-1, 50257, 1 << 30, -1 << 31} {
		if got := tok.Decode([]int32{15496, id, 995}); string(got) != "Hello world" {
			t.Errorf("Decode with %d: %q", id, got)
		}
		if err := tok.Check([]int32{15496, id}); err == nil || !strings.Contains(err.Error(), strconv.Itoa(int(id))) {
			t.Errorf("Check with %d: %v", id, err)
		}
	}
	if err := tok.Check([]int32{0, 50256}); err != nil {
		t.Error(err)
	}
}

func TestBuiltin(t *testing.T) {
	for _, c := range []struct {
		tok  *Tokenizer
		size int
	}{{GPT2(), 50257}, {Bytes(), 257}} {
		eot, ok := c.tok.EOT()
		if c.tok.VocabSize() != c.size || !ok || int(eot) != c.size-1 {
			t.Errorf("V = %d, EOT = %d %v; want %d with EOT last", c.tok.VocabSize(), eot, ok, c.size)
		}
	}
	for name, builtin := range map[string]func() *Tokenizer{"GPT2": GPT2, "Bytes": Bytes} {
		if first := builtin(); builtin() != first {
			t.Errorf("%s is made more than once", name)
		}
	}
}

// TestFiles writes tokenizers as files and reads them back, with tokenizer.json and without.
func TestFiles(t *testing.T) {
	g := readGolden(t)
	for name, tok := range map[string]*Tokenizer{"gpt2": GPT2(), "bytes": Bytes()} {
		all := tok.Files()
		for _, without := range []string{"", "tokenizer.json", "vocab.json", "tokenizer_config.json",
			"special_tokens_map.json"} {
			t.Run(name+" without "+without, func(t *testing.T) {
				files := maps.Clone(all)
				delete(files, without)
				got := require.Value(Load(filesFS(files)))(t)
				if !slices.Equal(got.pieces, tok.pieces) || !maps.Equal(got.merges, tok.merges) ||
					!slices.Equal(got.added, tok.added) || got.eot != tok.eot {
					t.Fatalf("not the same tokenizer: V = %d, %d merges, added %v, EOT %d", len(got.pieces), len(got.merges),
						got.added, got.eot)
				}
				for _, c := range g.Cases {
					wantIDs(t, tok, c.Text, got.Encode(c.Text), tok.Encode(c.Text))
				}
				for file, data := range got.Files() {
					if !bytes.Equal(data, all[file]) {
						t.Errorf("%s comes out differently the second time", file)
					}
				}
			})
		}
	}
}

func TestLoadNone(t *testing.T) {
	for _, files := range []map[string][]byte{{}, {"config.json": []byte("{}"), "model.safetensors": nil},
		{"tokenizer_config.json": []byte("{}")}} {
		if tok, err := Load(filesFS(files)); !errors.Is(err, ErrNone) || tok != nil {
			t.Errorf("%v: %v, %v; want ErrNone", slices.Collect(maps.Keys(files)), tok, err)
		}
	}
}
