package tokenizer

import (
	"encoding/base64"
	"flag"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

var pipelinesFile = flag.String("pipelines", "testdata/pipelines.json", "FILE that testdata/make_pipelines.py made")

// pipelines is what testdata/make_pipelines.py writes.
type pipelines struct {
	Texts      []string
	Tokenizers []struct {
		Name          string
		Files, Binary map[string]string
		Cases         []struct {
			IDs     []int32
			Decoded *string
		}
	}
}

func readPipelines(t testing.TB) pipelines {
	var g pipelines
	readJSON(t, *pipelinesFile, &g)
	return g
}

// folderOf returns the files of a tokenizer.
func folderOf(t testing.TB, files, binary map[string]string) map[string][]byte {
	all := make(map[string][]byte)
	for name, text := range files {
		all[name] = []byte(text)
	}
	for name, text := range binary {
		data := require.Value(base64.StdEncoding.DecodeString(text))(t)
		all[name] = data
	}
	return all
}

// TestPipelines compares tokenizers of many forms with their own libraries.
func TestPipelines(t *testing.T) {
	g := readPipelines(t)
	if len(g.Tokenizers) < 40 || len(g.Texts) < 20 {
		t.Fatalf("%d tokenizers, %d texts: the file is not whole", len(g.Tokenizers), len(g.Texts))
	}
	for _, c := range g.Tokenizers {
		t.Run(c.Name, func(t *testing.T) {
			tok := loaded(t, filesFS(folderOf(t, c.Files, c.Binary)))
			again := loaded(t, filesFS(tok.Files()))
			wrong := 0
			for i, text := range g.Texts {
				want := c.Cases[i]
				if want.IDs == nil {
					continue
				}
				got := tok.Encode(text)
				wantIDs(t, tok, text, got, want.IDs)
				wantIDs(t, tok, text, again.Encode(text), got)
				decoded := text
				if want.Decoded != nil {
					decoded = *want.Decoded
				}
				if out := string(tok.Decode(want.IDs)); out != decoded && (want.Decoded != nil || !strings.Contains(out, "\uFFFD") && validText(out)) {
					t.Errorf("%q: decoded %q, want %q", text, out, decoded)
				}
				if t.Failed() {
					if wrong++; wrong > 5 {
						t.FailNow()
					}
				}
			}
		})
	}
}

func validText(s string) bool { return strings.ToValidUTF8(s, "") == s }
