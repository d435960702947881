package tokenizer_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing/fstest"

	"gpt2scope/gpt2/tokenizer"
)

func Example() {
	tok := tokenizer.GPT2()
	ids := tok.Encode("But, soft! what light<|endoftext|>")
	for _, id := range ids {
		piece, _ := tok.Piece(id)
		fmt.Printf("%d %q\n", id, piece)
	}
	fmt.Printf("%s\n", tok.Decode(ids))
	// Output:
	// 1537 "But"
	// 11 ","
	// 2705 " soft"
	// 0 "!"
	// 644 " what"
	// 1657 " light"
	// 50256 "<|endoftext|>"
	// But, soft! what light<|endoftext|>
}

// Text from strangers must not steer the model: in EncodeOrdinary special tokens are just characters.
func ExampleTokenizer_EncodeOrdinary() {
	tok := tokenizer.GPT2()
	eot, _ := tok.EOT()
	prompt := append([]int32{eot}, tok.EncodeOrdinary("<|endoftext|>")...)
	fmt.Println(prompt)
	// Output: [50256 27 91 437 1659 5239 91 29]
}

// A token may be a part of a character. A Decoder waits for the rest.
func ExampleDecoder() {
	tok := tokenizer.Bytes()
	d := tok.NewDecoder()
	for _, id := range tok.Encode("né€") {
		fmt.Printf("%q ", d.Append(nil, id))
	}
	fmt.Printf("%q\n", d.Flush(nil))
	// Output: "n" "" "é" "" "" "€" ""
}

// A directory without tokenizer files has GPT-2's vocabulary, if its model has the size for it.
func ExampleLoad() {
	dir := fstest.MapFS{"config.json": {Data: []byte(`{"vocab_size": 50257}`)}} // or os.DirFS(path)
	tok, err := tokenizer.Load(dir)
	if errors.Is(err, tokenizer.ErrNone) {
		tok, err = tokenizer.GPT2(), nil
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tok.VocabSize())
	// Output: 50257
}

func ExampleTokenizer_Files() {
	dir, err := os.MkdirTemp("", "tokenizer")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, data := range tokenizer.Bytes().Files() {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			log.Fatal(err)
		}
	}
	tok, err := tokenizer.Load(os.DirFS(dir))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tok.VocabSize(), tok.Encode("ROMEO:"))
	// Output: 257 [49 46 44 36 46 25]
}
