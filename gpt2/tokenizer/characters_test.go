package tokenizer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/internal/require"
)

func TestCharacters(t *testing.T) {
	tok := require.Value(tokenizer.Characters([]string{"\n", " ", "é", "R", "O"}))(t)
	if ids := tok.Encode("RO é\n"); !slices.Equal(ids, []int32{3, 4, 1, 2, 0}) || string(tok.Decode(ids)) != "RO é\n" {
		t.Errorf("%v, %q", ids, tok.Decode(ids))
	}
	for _, text := range []string{"M", "\xff", "RO日"} {
		if ids := tok.Encode(text); ids[len(ids)-1] != -1 || tok.Check(ids) == nil || tok.Unknown(text, ids) == nil {
			t.Errorf("%q is %v", text, ids)
		}
	}
	var file struct {
		Model struct {
			Type  string
			Vocab map[string]int
		}
	}
	if err := json.Unmarshal(tok.Files()["tokenizer.json"], &file); err != nil || file.Model.Type != "WordLevel" || file.Model.Vocab["é"] != 2 {
		t.Errorf("%v: %+v", err, file)
	}
	for word, tokens := range map[string][]string{"not one character": {"ab"}, "token 1": {"a", ""}, "both": {"a", "b", "a"}} {
		if _, err := tokenizer.Characters(tokens); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", tokens, err)
		}
	}
}
