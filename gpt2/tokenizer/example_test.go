package tokenizer_test

import (
	"fmt"

	"gpt2scope/gpt2/tokenizer"
)

func Example() {
	tok := tokenizer.GPT2()
	ids := tok.Encode("But, soft! what light<|endoftext|>")
	for _, id := range ids {
		fmt.Printf("%d %q\n", id, tok.AppendPiece(nil, id))
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
