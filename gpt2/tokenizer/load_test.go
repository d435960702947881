package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gpt2scope/internal/require"
)

var must = require.NoError

// smallFile returns a tokenizer.json with the byte alphabet and two merges, to be spoilt by a test.
func smallFile() object {
	vocab := make(object)
	for id, b := range byteOrder {
		vocab[string(alphabet[b])] = id
	}
	vocab["ab"], vocab["Ġab"] = 256, 257
	return object{
		"version":       "1.0",
		"truncation":    nil,
		"padding":       nil,
		"added_tokens":  []any{},
		"normalizer":    nil,
		"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
		"post_processor": object{
			"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false,
		},
		"decoder": object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": "",
			"fuse_unk": false, "vocab": vocab, "merges": []any{"a b", "Ġ ab"},
		},
	}
}

func added(id int, content string) object {
	return object{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
		"normalized": false, "special": true}
}

func loadObject(t *testing.T, file object, more map[string]string) (*Tokenizer, error) {
	t.Helper()
	files := map[string][]byte{"tokenizer.json": inline(file)}
	for name, text := range more {
		files[name] = []byte(text)
	}
	return Load(filesFS(files))
}

func TestLoadAccepts(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(file, model, vocab object)
		more map[string]string
		text string
		want []int32
		eot  int32 // -1: none
	}{
		"as it is":              {func(f, m, v object) {}, nil, "ab ab", []int32{256, 257}, -1},
		"no type":               {func(f, m, v object) { delete(m, "type") }, nil, "ab ab", []int32{256, 257}, -1},
		"merges as pairs":       {func(f, m, v object) { m["merges"] = [][]string{{"a", "b"}, {"Ġ", "ab"}} }, nil, "ab ab", []int32{256, 257}, -1},
		"merges with a version": {func(f, m, v object) { m["merges"] = []string{"#version: 0.2", "a b"} }, nil, "ab ab", []int32{256, 220, 256}, -1},
		"merge twice":           {func(f, m, v object) { m["merges"] = []string{"a b", "Ġ ab", "a b"} }, nil, "ab ab", []int32{256, 257}, -1},
		"no decoder":            {func(f, m, v object) { f["decoder"] = nil; delete(f, "post_processor") }, nil, "ab", []int32{256}, -1},
		"dropout 0":             {func(f, m, v object) { m["dropout"] = 0.0 }, nil, "ab", []int32{256}, -1},
		"sequence of one": {func(f, m, v object) {
			f["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{f["pre_tokenizer"]}}
		}, nil, "ab", []int32{256}, -1},
		"empty template": {func(f, m, v object) {
			f["post_processor"] = object{"type": "TemplateProcessing", "single": []any{object{"Sequence": object{"id": "A"}}}}
		}, nil, "ab", []int32{256}, -1},
		"truncation":                    {func(f, m, v object) { f["truncation"] = object{"max_length": 1} }, nil, "ab ab", []int32{256, 257}, -1},
		"prefix space":                  {func(f, m, v object) { f["pre_tokenizer"].(object)["add_prefix_space"] = true }, nil, "ab", []int32{257}, -1},
		"prefix space by configuration": {func(f, m, v object) {}, map[string]string{"tokenizer_config.json": `{"add_prefix_space": true}`}, "ab", []int32{257}, -1},
		"no prefix space by configuration": {func(f, m, v object) { f["pre_tokenizer"].(object)["add_prefix_space"] = true },
			map[string]string{"tokenizer_config.json": `{"add_prefix_space": false}`}, "ab", []int32{256}, -1},
		"added": {func(f, m, v object) { f["added_tokens"] = []any{added(258, EndOfText), added(259, "日本")} }, nil,
			"ab日本" + EndOfText, []int32{256, 259, 258}, 258},
		"added, in the vocabulary": {func(f, m, v object) {
			v[EndOfText] = 258
			f["added_tokens"] = []any{added(258, EndOfText), added(256, "ab")}
		}, nil,
			" ab" + EndOfText, []int32{220, 256, 258}, 258},
		"eos by name": {func(f, m, v object) { f["added_tokens"] = []any{added(258, EndOfText), added(259, "</s>")} },
			map[string]string{"tokenizer_config.json": `{"eos_token": {"content": "</s>", "lstrip": false}}`,
				"special_tokens_map.json": `{"eos_token": "ab"}`},
			"a</s>", []int32{64, 259}, 259},
		"eos in the map": {func(f, m, v object) { f["added_tokens"] = []any{added(258, "</s>")} },
			map[string]string{"special_tokens_map.json": `{"eos_token": "</s>", "pad_token": null}`}, "a</s>", []int32{64,
				258}, 258},
		"eos that is not there": {func(f, m, v object) {}, map[string]string{"special_tokens_map.json": `{"eos_token": "</s>"}`}, "ab", []int32{256}, 258},
		"added by the configuration": {func(f, m, v object) { f["added_tokens"] = []any{added(258, EndOfText)} },
			map[string]string{"tokenizer_config.json": `{"added_tokens_decoder": {"258": {"content": "<|endoftext|>", "special": true},
				"260": {"content": "<speaker2>", "special": true}, "259": {"content": "<speaker1>", "special": true}}}`,
				"added_tokens.json": `{"<speaker2>": 260, "<speaker1>": 259}`},
			"<speaker1>ab<speaker2>", []int32{259, 256, 260}, 258},
		"added by added_tokens.json": {func(f, m, v object) {}, map[string]string{"added_tokens.json": `{"<y>": 259, "<x>": 258}`},
			"<x>a<y>", []int32{258, 64, 259}, -1},
		"padding by the configuration": {func(f, m, v object) { f["added_tokens"] = []any{added(258, EndOfText)} },
			map[string]string{"tokenizer_config.json": `{"pad_token": "[PAD]", "eos_token": "<|endoftext|>"}`},
			"a [PAD] b", []int32{64, 220, 259, 220, 65}, 258},
		"flags by the configuration": {func(f, m, v object) { f["added_tokens"] = []any{added(258, "<x>")} },
			map[string]string{"tokenizer_config.json": `{"added_tokens_decoder": {"258": {"content": "<x>", "single_word": true}}}`},
			"a<x>", []int32{64, 27, 87, 29}, -1},
		"piece outside the alphabet": {func(f, m, v object) { v["日本 x"] = 258; v[""] = 259 }, nil, "日本", []int32{162, 245, 98, 162, 250, 105}, -1},
		"merge outside the alphabet": {func(f, m, v object) { v["日"] = 258; v["a日"] = 259; m["merges"] = []string{"a 日", "a b"} }, nil, "ab", []int32{256}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			file := smallFile()
			model := file["model"].(object)
			c.edit(file, model, model["vocab"].(object))
			tok := require.Value(loadObject(t, file, c.more))(t)
			wantIDs(t, tok, c.text, tok.Encode(c.text), c.want)
			if got := string(tok.Decode(c.want)); strings.TrimPrefix(got, " ") != strings.TrimPrefix(c.text, " ") {
				t.Errorf("Decode: %q, want %q", got, c.text)
			}
			if id, ok := tok.EOT(); ok != (c.eot >= 0) || ok && id != c.eot {
				t.Errorf("EOT: %d, %v; want %d", id, ok, c.eot)
			}
			again := loaded(t, filesFS(tok.Files()))
			wantIDs(t, again, c.text, again.Encode(c.text), c.want)
		})
	}
}

// An added token that EncodeOrdinary ignores still hides those that overlap it, as in Hugging Face's library.
func TestPassedOverHides(t *testing.T) {
	file := smallFile()
	plain := added(259, "b>c")
	plain["special"] = false
	file["added_tokens"] = []any{added(258, "<ab>"), plain}
	tok := require.Value(loadObject(t, file, nil))(t)
	wantIDs(t, tok, "<ab>c", tok.EncodeOrdinary("<ab>c"), append(append(tok.EncodeOrdinary("<"), 256),
		tok.EncodeOrdinary(">c")...))
	wantIDs(t, tok, "ab>c", tok.EncodeOrdinary("ab>c"), append(tok.EncodeOrdinary("a"), 259))
}

func TestLoadRefuses(t *testing.T) {
	merge := func(s ...any) func(f, m, v object) { return func(f, m, v object) { m["merges"] = s } }
	with := func(name, text string) func(f, m, v object) {
		return func(f, m, v object) { f[name] = json.RawMessage(text) }
	}
	add := func(tokens ...any) func(f, m, v object) {
		return func(f, m, v object) { f["added_tokens"] = tokens }
	}
	for name, c := range map[string]struct {
		edit func(file, model, vocab object)
		want string
	}{
		"version":        {func(f, m, v object) { f["version"] = "2.0" }, "version"},
		"no model":       {func(f, m, v object) { delete(f, "model") }, "no model"},
		"model null":     {func(f, m, v object) { f["model"] = nil }, "no model"},
		"normalizer":     {with("normalizer", `{"type": "Reverse"}`), "normalizer is \"Reverse\""},
		"option":         {with("normalizer", `{"type": "NFC", "fast": true}`), "normalizer NFC: option \"fast\" = true"},
		"inner sequence": {with("normalizer", `{"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [{"type": "X"}]}]}`), `"X"`},
		"charsmap":       {with("normalizer", `{"type": "Precompiled", "precompiled_charsmap": "/wAAAAAA"}`), "cut off"},
		"pattern":        {with("normalizer", `{"type": "Replace", "pattern": {}, "content": ""}`), "neither a String nor a Regex"},
		"pre-tokenizer":  {with("pre_tokenizer", `{"type": "UnicodeScripts"}`), "UnicodeScripts"},
		"behavior":       {with("pre_tokenizer", `{"type": "Punctuation", "behavior": "Lost"}`), "Lost"},
		"scheme":         {with("pre_tokenizer", `{"type": "Metaspace", "prepend_scheme": "last"}`), "last"},
		"expression":     {with("pre_tokenizer", `{"type": "Split", "pattern": {"Regex": "\\bx"}, "behavior": "Isolated"}`), `\b`},
		"class in class": {with("pre_tokenizer", `{"type": "Split", "pattern": {"Regex": "[[:alpha:]]"}, "behavior": "Isolated"}`), "[["},
		"group":          {with("pre_tokenizer", `{"type": "Split", "pattern": {"Regex": "(?m:.)"}, "behavior": "Isolated"}`), "(?m:"},
		"recursion":      {with("pre_tokenizer", `{"type": "Split", "pattern": {"Regex": "x(y"}, "behavior": "Isolated"}`), "x(y"},
		"decoder":        {with("decoder", `{"type": "CTC"}`), "CTC"},
		"after Fuse":     {with("decoder", `{"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]}`), "after Fuse"},
		"template": {with("post_processor", `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}`),
			`"<s>" has no ids`},
		"template of two":        {with("post_processor", `{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]}`), "text A"},
		"far id":                 {func(f, m, v object) { v["ab"] = 1 << 23 }, "only 258 tokens"},
		"empty":                  {func(f, m, v object) { m["vocab"], m["merges"] = object{}, []string{} }, "vocab is empty"},
		"unigram":                {with("model", `{"type": "Unigram", "vocab": [["a", "b"]]}`), "entry 0"},
		"unigram's unk":          {with("model", `{"type": "Unigram", "unk_id": 1, "vocab": [["a", 0]]}`), "unk_id"},
		"model type":             {func(f, m, v object) { m["type"] = "RNN" }, "RNN"},
		"model a list":           {func(f, m, v object) { f["model"] = []int{1} }, "unexpected array"},
		"dropout":                {func(f, m, v object) { m["dropout"] = 0.1 }, "dropout"},
		"no vocab":               {func(f, m, v object) { delete(m, "vocab") }, "vocab"},
		"no merges":              {func(f, m, v object) { delete(m, "merges") }, "merges"},
		"vocab a list":           {func(f, m, v object) { m["vocab"] = []any{} }, "vocab"},
		"normalizer a number":    {func(f, m, v object) { f["normalizer"] = 7 }, "normalizer"},
		"post-processor":         {func(f, m, v object) { f["post_processor"] = object{"type": "RobertaProcessing"} }, "RobertaProcessing"},
		"negative id":            {func(f, m, v object) { v["ab"] = -1 }, "-1"},
		"huge id":                {func(f, m, v object) { v["ab"] = 1e18 }, "1000000000000000000"},
		"fraction":               {func(f, m, v object) { v["ab"] = 1.5 }, "1.5"},
		"id a string":            {func(f, m, v object) { v["ab"] = "256" }, "not a number"},
		"id an object":           {func(f, m, v object) { v["ab"] = object{} }, "not a number"},
		"same id twice":          {func(f, m, v object) { v["ab"] = 257 }, "same id"},
		"merge of unknown left":  {merge("a b", "Ġ ab", "xx b"), `merge 3 of "xx" and "b"`},
		"merge of unknown right": {merge("a xx"), "does not have the second"},
		"merge to unknown":       {merge("b a"), "does not have the piece that they make"},
		"merge of one":           {merge("ab"), "two pieces"},
		"merge of three":         {merge("a b c"), "two pieces"},
		"merge of nothing":       {merge(" "), "two pieces"},
		"merge empty":            {merge(""), "two pieces"},
		"merge list of one":      {merge([]string{"ab"}), "neither"},
		"merge list of three":    {merge([]string{"a", "b", "c"}), "neither"},
		"merge a number":         {merge(7), "neither"},
		"added empty":            {add(added(258, "")), "empty"},
		"added twice":            {add(added(258, "x y"), added(259, "x y")), "twice"},
		"added long":             {add(added(258, strings.Repeat("x", 5000))), "too long"},
		"added id too large":     {add(object{"id": 1 << 40, "content": "x"}), "unexpected number"},
	} {
		t.Run(name, func(t *testing.T) {
			file := smallFile()
			model := file["model"].(object)
			c.edit(file, model, model["vocab"].(object))
			tok, err := loadObject(t, file, nil)
			wantError(t, tok, err, "tokenizer.json", c.want)
		})
	}
}

// wantError checks that an error is one line and names the file and what is wrong.
func wantError(t *testing.T, tok *Tokenizer, err error, want ...string) {
	t.Helper()
	if err == nil || tok != nil {
		t.Fatalf("no error, want one about %q", want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
		t.Errorf("error is not one sentence: %q", err)
	}
}

// TestLoadRefusesText spoils files as text.
func TestLoadRefusesText(t *testing.T) {
	good := Bytes().Files()
	for _, c := range []struct{ file, text, want string }{
		{"tokenizer.json", "", "unexpected end"},
		{"tokenizer.json", "{", "unexpected end"},
		{"tokenizer.json", "[]", "unexpected array at the top"},
		{"tokenizer.json", "null", "no model"},
		{"tokenizer.json", string(good["tokenizer.json"][:2000]), "unexpected end"},
		{"tokenizer.json", string(good["tokenizer.json"]) + "x", "invalid character"},
		{"tokenizer.json", "\xff\xfe{\x00", "not UTF-8"},
		{"tokenizer.json", strings.Repeat("[", 100000), "exceeded max depth"},
		{"tokenizer.json", `{"model": {"vocab": ` + strings.Repeat(`{"a":`, 100000), "exceeded max depth"},
		{"tokenizer.json", strings.Replace(string(good["tokenizer.json"]), `"!":0`, `"!":0, "!": 0`, 1), "duplicate object member name"},
		{"tokenizer_config.json", "{", "unexpected end"},
		{"tokenizer_config.json", `{"eos_token": 7}`, "neither a string nor an object"},
		{"tokenizer_config.json", `{"added_tokens_decoder": {"255": {"content": "<|endoftext|>"}}}`, "255"},
		{"added_tokens.json", `{"<|endoftext|>": 258}`, "258"},
		{"special_tokens_map.json", "[1]", "unexpected array at the top"},
	} {
		files := Bytes().Files()
		files[c.file] = []byte(c.text)
		tok, err := Load(filesFS(files))
		wantError(t, tok, err, c.file, c.want)
	}
	for _, c := range []struct{ file, text, want string }{
		{"vocab.json", "", "vocab.json: unexpected end"},
		{"vocab.json", "[]", "not a JSON object"},
		{"vocab.json", `{"a": `, "unexpected end"},
		{"vocab.json", `{"a": [0]}`, "not a number"},
		{"vocab.json", `{"a": 0, "a": 1}`, "duplicate"},
		{"vocab.json", string(good["vocab.json"]) + "{}", "invalid character"},
		{"vocab.json", `{}`, "vocab is empty"},
		{"merges.txt", "#version: 0.2\na b c\n", "merges.txt: line 2"},
		{"merges.txt", "ab\n", "line 1"},
		{"merges.txt", "a\tb\n", "line 1"},
		{"merges.txt", "a b\n", "does not have the piece that they make"},
		{"merges.txt", "\x00\xff", "not UTF-8"},
		{"added_tokens.json", "[]", "added_tokens.json: unexpected array at the top"},
		{"tokenizer_config.json", `{"added_tokens_decoder": {"x": {"content": "y"}}}`, "tokenizer_config.json: added_tokens_decoder: \"x\" is not an id"},
	} {
		files := Bytes().Files()
		delete(files, "tokenizer.json")
		files[c.file] = []byte(c.text)
		tok, err := Load(filesFS(files))
		wantError(t, tok, err, c.want)
	}
}

func TestLoadVocabMerges(t *testing.T) {
	vocab := `{"ab": 256, "Ġab": 257`
	for id, b := range byteOrder {
		name, _ := json.Marshal(string(alphabet[b]))
		vocab += fmt.Sprintf(", %s: %d", name, id)
	}
	files := func(more ...string) fs.FS {
		m := fstest.MapFS{
			"vocab.json": {Data: []byte(vocab + "}")},
			"merges.txt": {Data: []byte("#version: 0.2\r\na b\r\nĠ ab\r\n")},
		}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = &fstest.MapFile{Data: []byte(more[i+1])}
		}
		return m
	}
	for _, c := range []struct {
		fsys fs.FS
		text string
		want []int32
		eot  int32 // -1: none
	}{
		{files(), "ab ab", []int32{256, 257}, -1},
		{files("tokenizer_config.json", `{"add_prefix_space": true}`), "ab ab", []int32{257, 257}, -1},
		{files("special_tokens_map.json", `{"bos_token": "<s>", "eos_token": {"content": "</s>"}, "additional_special_tokens": ["<x>", "ab"]}`),
			"<s>ab ab<x></s>", []int32{258, 256, 220, 256, 260, 259}, 259},
		{files("added_tokens.json", `{"<y>": 259, "<x>": 258}`, "special_tokens_map.json", `{"eos_token": "<y>", "pad_token": "<pad>"}`),
			"<x><y><pad>", []int32{258, 259, 260}, 259},
		{files("tokenizer_config.json", `{"eos_token": "<y>", "added_tokens_decoder": {"259": {"content": "<y>", "special": true}, "258": {"content": " <x>", "rstrip": true}}}`),
			"a <x> <y>", []int32{64, 258, 259}, 259},
		{files("vocab.json", vocab+`, "<|endoftext|>": 258}`), "a" + EndOfText, []int32{64, 258}, 258},
	} {
		tok := loaded(t, c.fsys)
		wantIDs(t, tok, c.text, tok.Encode(c.text), c.want)
		if id, ok := tok.EOT(); ok != (c.eot >= 0) || ok && id != c.eot {
			t.Errorf("%q: EOT %d, %v; want %d", c.text, id, ok, c.eot)
		}
	}

	for _, name := range []string{"vocab.json", "merges.txt"} {
		m := files().(fstest.MapFS)
		delete(m, name)
		tok, err := Load(m)
		wantError(t, tok, err, name+" is missing")
		if errors.Is(err, ErrNone) {
			t.Errorf("%v is ErrNone: the caller would use another vocabulary", err)
		}
	}
	for name, kind := range map[string]string{"tokenizer.model": "SentencePiece", "spiece.model": "SentencePiece",
		"sentencepiece.bpe.model": "tokenizer.json", "vocab.txt": "BertJapaneseTokenizer"} {
		fsys := fstest.MapFS{name: {Data: []byte("[PAD]\n")}, "config.json": {Data: []byte(`{"tokenizer_class": "BertJapaneseTokenizer"}`)}}
		tok, err := Load(fsys)
		wantError(t, tok, err, name, kind)
		if errors.Is(err, ErrNone) {
			t.Errorf("%v is ErrNone", err)
		}
	}
	tok, err := Load(fstest.MapFS{"encoder.json": {Data: []byte("{}")}, "vocab.bpe": {Data: []byte("#version: 0.2\n")}})
	wantError(t, tok, err, "encoder.json", "vocab is empty")
	m := files().(fstest.MapFS)
	openAI := fstest.MapFS{"encoder.json": m["vocab.json"], "vocab.bpe": m["merges.txt"]}
	if tok, err := Load(openAI); err != nil {
		t.Error(err)
	} else {
		wantIDs(t, tok, "ab ab", tok.Encode("ab ab"), []int32{256, 257})
	}
	if _, err := Load(fstest.MapFS{"README.md": {}}); !errors.Is(err, ErrNone) {
		t.Errorf("a directory without a tokenizer gives %v", err)
	}
}

// TestRoles: each token with a role keeps it in what is written.
func TestRoles(t *testing.T) {
	for config, want := range map[string]string{
		`{"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}`: "map[bos_token:<s> eos_token:</s> " +
			"pad_token:<pad> unk_token:<unk>]",
		`{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}`: "map[eos_token:<|endoftext|>]",
		`{"pad_token": "<|endoftext|>"}`: "map[bos_token:<|endoftext|> eos_token:<|endoftext|> " +
			"pad_token:<|endoftext|> unk_token:<|endoftext|>]",
	} {
		file := smallFile()
		file["added_tokens"] = []any{added(258, EndOfText)}
		tok := require.Value(loadObject(t, file, map[string]string{"tokenizer_config.json": config}))(t)
		for range 2 { // as read, and as written
			var roles map[string]string
			if err := json.Unmarshal(tok.Files()["special_tokens_map.json"], &roles); err != nil || fmt.Sprint(roles) != want {
				t.Errorf("%s: %v, %v; want %s", config, roles, err, want)
			}
			tok = loaded(t, filesFS(tok.Files()))
		}
	}
}

// TestOpen: a directory, one of its files, or one file of another name.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for name, data := range Bytes().Files() {
		if name == "tokenizer.json" {
			name = "other.json"
		}
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
	}
	for _, path := range []string{"", "vocab.json", "merges.txt", "other.json"} {
		tok := require.Value(Open(filepath.Join(dir, path)))(t)
		wantIDs(t, tok, "A", tok.Encode("A"), []int32{32})
	}
	for path, want := range map[string]error{"none": fs.ErrNotExist, "": ErrNone} {
		if _, err := Open(filepath.Join(t.TempDir(), path)); !errors.Is(err, want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestPlainBytes(t *testing.T) {
	wantIDs(t, PlainBytes(), "A\x00\xff", PlainBytes().Encode("A\x00\xff"), []int32{65, 0, 255})
	again := loaded(t, filesFS(PlainBytes().Files()))
	wantIDs(t, again, "A é", again.Encode("A é"), []int32{65, 32, 0xC3, 0xA9})
	if _, ok := PlainBytes().EOT(); ok {
		t.Error("it has an end of text")
	}
}

// zeros is a file of a given size that costs nothing.
type zeros struct {
	fs.File
	left int64
}

func (z *zeros) Read(p []byte) (int, error) {
	n := min(int64(len(p)), z.left)
	z.left -= n
	clear(p[:n])
	return int(n), nil
}

func (z *zeros) Close() error { return nil }

type zerosFS struct{}

func (zerosFS) Open(name string) (fs.File, error) {
	if name == "tokenizer.json" {
		return &zeros{left: 1 << 50}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func TestLoadBoundsFiles(t *testing.T) {
	tok, err := Load(zerosFS{})
	wantError(t, tok, err, "tokenizer.json", "MiB")
}
