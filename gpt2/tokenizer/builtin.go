package tokenizer

import (
	"fmt"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// byteOrder is the 256 bytes in the order of GPT-2's first 256 tokens: those that are printable in Latin-1, then
// the others. alphabet[b] is the character that files write for byte b.
var byteOrder, alphabet = func() (order [256]byte, chars [256]rune) {
	n := 0
	for b := range 256 {
		if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xFF && b != 0xAD {
			order[n], chars[b] = byte(b), rune(b)
			n++
		}
	}
	for b, printable := 0, n; b < 256; b++ {
		if chars[b] == 0 {
			order[n], chars[b] = byte(b), rune(256+n-printable)
			n++
		}
	}
	return order, chars
}()

// GPT2 returns the tokenizer of the published GPT-2 models: V = 50257, and the last id is <|endoftext|>. It is made
// on the first call, in some tens of milliseconds, and shared.
func GPT2() *Tokenizer { return gpt2() }

var gpt2 = sync.OnceValue(newGPT2)

// newGPT2 derives the tokenizer from the vocabulary that the codec calls r50k_base: for each id its bytes. GPT-2
// trained one merge after another and gave each the next id, so the order of ids is the order of merges, and the merge
// that made a token is the pair that is left when the earlier merges have been applied to its bytes.
func newGPT2() *Tokenizer {
	const endOfText = 50256 // the id after the last merge
	r50k := codec.NewR50kBase()
	t := byteTokenizer(endOfText + 1)
	for id := uint(len(t.pieces)); id < endOfText; id++ {
		piece, err := r50k.Decode([]uint{id})
		if err != nil {
			panic(fmt.Sprintf("tokenizer: the built-in vocabulary lacks token %d: %v", id, err))
		}
		t.pieces = append(t.pieces, piece)
		var buf [128]int32
		parts := t.bpe.appendWord(buf[:0], piece)
		if len(parts) != 2 {
			panic(fmt.Sprintf("tokenizer: token %d of the built-in vocabulary, %q, is not a merge of two earlier ones", id,
				piece))
		}
		t.merges[pairOf(parts[0], parts[1])] = merge{rank: int32(id) - 256, id: int32(id)}
	}
	t.addEndOfText()
	return t
}

// Bytes returns the tokenizer with a token for each byte and no merges: V = 257. The bytes are in the order of
// GPT-2's first 256 tokens (so ! is 0 and A is 32), and the last id is <|endoftext|>.
func Bytes() *Tokenizer { return bytesOnly() }

var bytesOnly = sync.OnceValue(func() *Tokenizer {
	t := byteTokenizer(257)
	t.addEndOfText()
	return t
})

// PlainBytes returns the tokenizer whose ids are the bytes themselves: V = 256, and A is 65.
func PlainBytes() *Tokenizer { return plainBytes() }

var plainBytes = sync.OnceValue(func() *Tokenizer {
	t := &Tokenizer{bpe: bpe{merges: make(mergeTable, 0)}, eot: -1, modelSize: 256}
	for b := range 256 {
		t.pieces = append(t.pieces, string([]byte{byte(b)}))
		t.byteID[b] = int32(b)
	}
	t.finish()
	return t
})

// byteTokenizer returns an unfinished tokenizer with the 256 byte tokens and room for vocabSize.
func byteTokenizer(vocabSize int) *Tokenizer {
	t := &Tokenizer{
		pieces: make([]string, 0, vocabSize),
		bpe:    bpe{merges: make(mergeTable, vocabSize-257)},
		eot:    -1,
	}
	for id, b := range byteOrder {
		t.pieces = append(t.pieces, string([]byte{b}))
		t.byteID[b] = int32(id)
	}
	return t
}

// addEndOfText adds <|endoftext|> as the last token and finishes t.
func (t *Tokenizer) addEndOfText() {
	t.eot = int32(len(t.pieces))
	t.pieces = append(t.pieces, EndOfText)
	t.modelSize = len(t.pieces) // GPT-2's vocab.json has it too
	t.added = append(t.added, addedToken{ID: t.eot, Content: EndOfText, Special: true})
	t.roles = make(map[string]string)
	for _, role := range gpt2Roles {
		t.roles[role] = EndOfText
	}
	t.finish()
}
