package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// benchText is a megabyte of words of GPT-2's vocabulary, frequent ones more often.
func benchText() string {
	rng := rand.New(rand.NewPCG(7, 8))
	var b strings.Builder
	for b.Len() < 1<<20 {
		id := 256 + int32(float64(50000)*rng.Float64()*rng.Float64()*rng.Float64())
		b.WriteString(GPT2().pieces[id])
		if rng.IntN(12) == 0 {
			b.WriteString(",\n"[rng.IntN(2):])
		}
	}
	return b.String()
}

func BenchmarkEncode(b *testing.B) {
	letters := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range letters {
		letters[i] = byte('a' + rng.IntN(26))
	}
	for _, c := range []struct{ name, text string }{
		{"words", benchText()},
		{"chinese", strings.Repeat("你好，世界。今天天气很好！", 1<<20/39)},
		{"one-word-random", string(letters)},
		{"one-word-repeated", strings.Repeat("a", 1<<20)},
		{"spaces", strings.Repeat(" ", 1<<20)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				GPT2().Encode(c.text)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	text := benchText()
	ids := GPT2().Encode(text)
	var out []byte
	b.Run("AppendPiece", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			out = out[:0]
			for _, id := range ids {
				out = GPT2().AppendPiece(out, id)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for name, tok := range map[string]*Tokenizer{"gpt2": GPT2(), "bytes": Bytes()} {
		files := tok.Files()
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(files["tokenizer.json"])))
			for b.Loop() {
				if _, err := Load(filesFS(files)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("built-in", func(b *testing.B) {
		for b.Loop() {
			newGPT2()
		}
	})
}
