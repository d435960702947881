package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpt2scope/internal/require"
)

// The golden files hold what Hugging Face's tokenizers makes of the same texts; testdata/make_golden.py says how.

type golden struct {
	Cases []struct {
		Name, Text string
		GPT2       []int32
		Ordinary   []int32
		Bytes      string // digest
	}
	Snippets       []string
	Random         []string // digests
	RandomOrdinary string   `json:"random_ordinary"`
	RandomBytes    string   `json:"random_bytes"`
	Characters     []string // digests
	Long           []struct {
		Name, Unit, Alphabet string
		Count                int
		Hash                 string
	}
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data := require.Value(os.ReadFile(path))(t)
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// loaded is [Load] of what it must read.
func loaded(t testing.TB, fsys fs.FS) *Tokenizer {
	t.Helper()
	tok := require.Value(Load(fsys))(t)
	return tok
}

func readGolden(t testing.TB) *golden {
	var g golden
	readJSON(t, "testdata/golden.json", &g)
	return &g
}

// digest is make_golden.py's.
func digest(ids []int32) string {
	h := sha256.New()
	var b [4]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// splitMix is make_golden.py's Random.
type splitMix uint64

func (s *splitMix) below(n int) int {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int((z ^ z>>31) % uint64(n))
}

// pieces writes ids as what they stand for, for messages.
func pieces(tok *Tokenizer, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%d%q ", id, tok.AppendPiece(nil, id))
	}
	return b.String()
}

func wantIDs(t *testing.T, tok *Tokenizer, text string, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%.200q\n got %s\nwant %s", text, pieces(tok, got), pieces(tok, want))
	}
}

func TestGoldenCorpus(t *testing.T) {
	g := readGolden(t)
	if len(g.Cases) < 50 {
		t.Fatalf("%d cases: the golden file is not whole", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			wantIDs(t, GPT2(), c.Text, GPT2().Encode(c.Text), c.GPT2)
			ordinary := c.GPT2
			if c.Ordinary != nil {
				ordinary = c.Ordinary
			}
			wantIDs(t, GPT2(), c.Text, GPT2().EncodeOrdinary(c.Text), ordinary)
			if got := digest(Bytes().Encode(c.Text)); got != c.Bytes {
				t.Errorf("%q: byte alphabet: digest of ids is %s, want %s", c.Text, got, c.Bytes)
			}
		})
	}
}

func TestGoldenRandom(t *testing.T) {
	g := readGolden(t)
	var r splitMix = 2019
	var ordinary, bytes []int32
	for i, want := range g.Random {
		var b strings.Builder
		for n := 1 + r.below(40); n > 0; n-- {
			b.WriteString(g.Snippets[r.below(len(g.Snippets))])
		}
		text := b.String()
		if ids := GPT2().Encode(text); digest(ids) != want {
			t.Errorf("text %d, %q: digest of %s is not %s", i, text, pieces(GPT2(), ids), want)
		}
		ordinary = append(ordinary, GPT2().EncodeOrdinary(text)...)
		bytes = append(bytes, Bytes().Encode(text)...)
	}
	if len(g.Random) < 1000 || digest(ordinary) != g.RandomOrdinary || digest(bytes) != g.RandomBytes {
		t.Errorf("%d texts: special tokens as text: %s, want %s; byte alphabet: %s, want %s",
			len(g.Random), digest(ordinary), g.RandomOrdinary, digest(bytes), g.RandomBytes)
	}
}

// TestGoldenCharacters encodes every Unicode character beside a letter, a number, a space, a symbol and itself.
func TestGoldenCharacters(t *testing.T) {
	const block = 4096
	g := readGolden(t)
	if len(g.Characters)*block != utf8.MaxRune+1 {
		t.Fatalf("%d blocks of %d characters", len(g.Characters), block)
	}
	for i, want := range g.Characters {
		var b strings.Builder
		for c := rune(i * block); c < rune(i+1)*block; c++ {
			if utf8.ValidRune(c) {
				fmt.Fprintf(&b, "a%ca 1%c1 %c %c%cx!%c! \n%c\n", c, c, c, c, c, c, c)
			}
		}
		if got := digest(GPT2().Encode(b.String())); got != want {
			t.Errorf("characters from U+%04X: digest %s, want %s", i*block, got, want)
		}
	}
}

func TestGoldenMegabyte(t *testing.T) {
	const size = 1 << 20
	for _, c := range readGolden(t).Long {
		t.Run(c.Name, func(t *testing.T) {
			var text string
			if c.Unit != "" {
				text = strings.Repeat(c.Unit, size/len(c.Unit))
			} else {
				var b strings.Builder
				alphabet := []rune(c.Alphabet)
				var r splitMix = size
				for b.Len() < size {
					b.WriteRune(alphabet[r.below(len(alphabet))])
				}
				text = b.String()
			}
			ids := GPT2().Encode(text)
			if len(ids) != c.Count || digest(ids) != c.Hash {
				t.Errorf("%d ids with digest %s, want %d with %s", len(ids), digest(ids), c.Count, c.Hash)
			}
			if got := string(GPT2().Decode(ids)); got != text {
				t.Error("decoding the ids does not give the text back")
			}
		})
	}
}

// TestGoldenOptions loads small tokenizers that use what GPT-2 does not.
func TestGoldenOptions(t *testing.T) {
	dirs, err := filepath.Glob("testdata/options/*")
	if err != nil || len(dirs) < 6 {
		t.Fatalf("options: %q, %v", dirs, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok := loaded(t, os.DirFS(dir))
			again := loaded(t, filesFS(tok.Files()))
			var g struct {
				Cases []struct {
					Text          string
					IDs, Ordinary []int32
				}
			}
			readJSON(t, filepath.Join(dir, "golden.json"), &g)
			for _, c := range g.Cases {
				for _, tok := range []*Tokenizer{tok, again} {
					wantIDs(t, tok, c.Text, tok.Encode(c.Text), c.IDs)
					wantIDs(t, tok, c.Text, tok.EncodeOrdinary(c.Text), c.Ordinary)
				}
			}
		})
	}
}
