package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

// FuzzRoundTrip encodes any bytes with the built-in tokenizers and decodes them again, in one go and as a stream.
func FuzzRoundTrip(f *testing.F) {
	for _, c := range readGolden(f).Cases {
		f.Add(c.Text)
	}
	for _, s := range []string{"\xff", "a\x80\x80 b", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", " \xc2", "'\xff's",
		EndOfText[:5] + "\xff" + EndOfText,
		strings.Repeat("\xf0\x9f\x98", 40), strings.Repeat("ab", 100), strings.Repeat("\xff", 1000) +
			strings.Repeat("\x80", 1000),
		"\xf4\x90\x80\x80\xc0\x80 quick\n\n  brown fox's  " + EndOfText[:7] + "\xed\xa0 \x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range []*Tokenizer{GPT2(), Bytes()} {
			checkRoundTrip(t, tok, text)

			// The search for added tokens changes nothing.
			var words []int32
			for s := text; s != ""; {
				n := nextWord(s)
				if n <= 0 || n > len(s) {
					t.Fatalf("nextWord(%q) = %d", s, n)
				}
				words = tok.bpe.appendWord(words, s[:n])
				s = s[n:]
			}
			if got := tok.EncodeOrdinary(text); !slices.Equal(got, words) {
				t.Fatalf("EncodeOrdinary(%q) = %v, word by word %v", text, got, words)
			}
			if !strings.Contains(text, EndOfText) && !slices.Equal(tok.Encode(text), words) {
				t.Fatalf("Encode(%q) = %v, word by word %v", text, tok.Encode(text), words)
			}
		}
	})
}

// FuzzLoad reads a directory of any bytes; an empty file is one that is not there. What Load accepts has to work.
func FuzzLoad(f *testing.F) {
	small := smallFile()
	data := inline(small)
	config := []byte(`{"eos_token": {"content": "ab"}, "add_prefix_space": false, "added_tokens_decoder": {"257": {"content": "<x>", "lstrip": true}}}`)
	f.Add(data, []byte{}, []byte{}, []byte{}, []byte{}, "ab ab")
	f.Add(data, []byte{}, []byte{}, config, []byte{}, "ab ab")
	for _, edit := range []func(f, m, v object){
		func(f, m, v object) { f["added_tokens"] = []any{added(258, "<x>"), added(257, "Ġab")} },
		func(f, m, v object) { f["added_tokens"] = []any{object{"id": 258, "content": "\n", "rstrip": true}} },
		func(f, m, v object) { f["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{}} },
		func(f, m, v object) { m["merges"] = [][]string{{"a", "b"}, {"b", "a"}} },
		func(f, m, v object) { v["b"] = -1 },
		func(f, m, v object) { v["\u65e5"] = 258; m["ignore_merges"] = true },
	} {
		file := smallFile()
		model := file["model"].(object)
		edit(file, model, model["vocab"].(object))
		data := inline(file)
		f.Add(data, []byte{}, []byte{}, []byte{}, []byte{}, " ab\n\n ab")
	}
	paths := require.Value(filepath.Glob("testdata/options/*/tokenizer.json"))(f)
	for _, path := range paths {
		data := require.Value(os.ReadFile(path))(f)
		f.Add(data, []byte{}, []byte{}, []byte{}, []byte{}, "a <strip> b<word> caf\u00e9  <right> \n")
	}
	vocab := inline(small["model"].(object)["vocab"])
	merges := []byte("#version: 0.2\na b\n\u0120 ab\n")
	f.Add([]byte{}, vocab, merges, []byte{}, []byte{}, "ab ab")
	f.Add([]byte{}, vocab, merges, config, []byte(`{"<y>": 258}`), "<x> ab ab<y>")
	f.Add([]byte{}, []byte(`{"a":0,"a":1}`), []byte("a a"), []byte("{}"), []byte("{}"), "")

	f.Fuzz(func(t *testing.T, tokenizer, vocab, merges, config, addedTokens []byte, text string) {
		files := map[string][]byte{"tokenizer.json": tokenizer, "vocab.json": vocab, "merges.txt": merges,
			"tokenizer_config.json": config, "special_tokens_map.json": config, "added_tokens.json": addedTokens}
		for name, data := range files {
			if len(data) == 0 {
				delete(files, name)
			}
		}
		tok, err := Load(filesFS(files))
		if err != nil {
			if tok != nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v beside error %q", tok, err)
			}
			return
		}
		exact := !tok.prefixSpace && tok.pipe == nil
		for _, a := range tok.added {
			exact = exact && !a.LStrip && !a.RStrip
		}
		ids := tok.Encode(text)
		if exact {
			checkRoundTrip(t, tok, text)
		}
		must(t, tok.Check(ids))
		again := loaded(t, filesFS(tok.Files()))
		if got := again.Encode(text); !slices.Equal(got, ids) || again.eot != tok.eot {
			t.Fatalf("%q: ids %v, EOT %d; after writing and reading %v, %d", text, ids, tok.eot, got, again.eot)
		}
	})
}

// FuzzForms reads what else may be in a directory, of any bytes. What Load accepts has to work.
func FuzzForms(f *testing.F) {
	for _, c := range readPipelines(f).Tokenizers {
		for name, data := range folderOf(f, c.Files, c.Binary) {
			if name != "config.json" && name != "merges.txt" && name != "vocab.json" && name != "tokenizer_config.json" {
				f.Add(name, data, "a \xffthe\u0301 \u4eca\u65e5 12")
			}
		}
	}
	f.Fuzz(func(t *testing.T, name string, data []byte, text string) {
		tok, err := Load(filesFS(map[string][]byte{name: data}))
		if err != nil {
			if tok != nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v beside error %q", tok, err)
			}
			return
		}
		ids := tok.Encode(text)
		tok.Decode(append(ids, -1, 1<<30))
		if err := tok.Unknown(text, ids); err == nil && tok.before == nil && tok.after == nil && tok.Check(ids) != nil {
			t.Fatalf("%q: %v of %d", text, ids, tok.VocabSize())
		}
		again := loaded(t, filesFS(tok.Files()))
		if got := again.Encode(text); !slices.Equal(got, ids) {
			t.Fatalf("%q: %v; after writing and reading %v", text, ids, got)
		}
	})
}
