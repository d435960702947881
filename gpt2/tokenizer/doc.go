// Package tokenizer maps text to GPT-2's token ids and back.
//
// GPT-2 reads bytes, not characters: its vocabulary starts with one token for each of the 256 bytes, so any
// input, text or not, has ids, and decoding them gives the same bytes again. Longer tokens are made by byte-pair
// encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016; the byte-level
// form is Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
//
// # The four steps of Encode
//
//  1. Added tokens are cut out of the text. They are strings outside byte-pair encoding that have an id of their
//     own, such as <|endoftext|>; the special ones steer the model and are not meant to be read.
//     [Tokenizer.EncodeOrdinary] leaves special tokens alone, for text that a stranger wrote.
//  2. What remains is split into words by GPT-2's pattern
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//     so that no token crosses from a word into the next. The space before a word belongs to the word.
//  3. In each word, which starts as one token per byte, the adjacent pair that comes first in the list of merges
//     becomes one token, the leftmost first among equals, until no pair is in the list. A priority queue over a
//     linked list does it in O(n log n), so that a megabyte without a space is no trap.
//  4. The ids are appended.
//
// The ids equal those of Hugging Face's tokenizers library, token for token; golden files under testdata hold
// them. To that end the classes \p{L}, \p{N} and \s are a table in this package, made from that library, and not
// those of Go's package unicode, whose Unicode version is another and changes with the Go release.
//
// A byte that is not part of valid UTF-8 counts as a character of its own that is neither letter, number nor
// white space. So it is kept, and decode(encode(b)) == b holds for any bytes b, unless an added token asks for white
// space to be stripped (lstrip, rstrip) or the file for a space to be prepended (add_prefix_space).
//
// # Tokenizers that are not GPT-2's
//
// Other models that are built like GPT-2 have other tokenizers. Those are a pipeline, whose parts files name: a text is
// normalized, pre-tokenizers split it into words, a model (BPE, WordPiece, WordLevel or Unigram) gives each word its ids,
// a post-processor puts ids before and after them, and decoders make text of ids. Each type of part is a row of a table.
// Parts and options that are not in one are an error that names them; nothing is guessed.
//
// # Byte alphabet
//
// Vocabulary files are JSON, which cannot hold arbitrary bytes, so GPT-2's files write each byte as one printable
// character: a printable Latin-1 byte as itself, the other 68 as U+0100 and on, in order (a space is Ġ, U+0120).
// This stays inside the files: every piece in this package's interface is raw bytes.
package tokenizer
