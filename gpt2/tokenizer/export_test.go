package tokenizer

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var exportDir = flag.String("export", "", "directory in which TestExport writes the built-in tokenizers as Hugging "+
	"Face files")

// TestExport writes the built-in tokenizers to the directory that testdata/make_golden.py gives.
func TestExport(t *testing.T) {
	if *exportDir == "" {
		t.Skip("no -export")
	}
	for name, tok := range map[string]*Tokenizer{"gpt2": GPT2(), "bytes": Bytes()} {
		dir := filepath.Join(*exportDir, name)
		must(t, os.MkdirAll(dir, 0o777))
		for file, data := range tok.Files() {
			must(t, os.WriteFile(filepath.Join(dir, file), data, 0o666))
		}
	}
}
