package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHub: a model is found by its name in a cache as the Hugging Face tools leave it, with links to the
// files; a model that is not there is an error that says how to get it.
func TestHub(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	made := filepath.Join(t.TempDir(), "made")
	mustInfer(t, "export", "-m", tiny, "-o", made, "--quiet")
	const name, hash = "someone/tiny-gpt2", "0123456789abcdef0123456789abcdef01234567"
	repo := filepath.Join(cache, "models--someone--tiny-gpt2")
	for _, dir := range []string{"refs", "blobs", "snapshots/" + hash} {
		if err := os.MkdirAll(filepath.Join(repo, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(repo, "refs/main"), []byte(hash), 0o666); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(made, f.Name()), filepath.Join(repo, "blobs", f.Name())); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../blobs/"+f.Name(), filepath.Join(repo, "snapshots", hash, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-p", "To be", "-n", "20", "-s", "1"}
	want := mustInfer(t, append(args, "-m", tiny)...).stdout
	if got := mustInfer(t, append(args, "-m", name)...).stdout; got != want {
		t.Errorf("from the cache the text is %q, want %q", got, want)
	}
	if p := generateJSON(t, append(args, "-m", name)...); p.Setting.Model != name {
		t.Errorf("the model is called %q, want %q", p.Setting.Model, name)
	}
	if err := os.Remove(filepath.Join(repo, "blobs/model.safetensors")); err != nil {
		t.Fatal(err)
	}
	checkFailure(t, infer(t, append(args, "-m", name)...), exitFailure, "not whole", "model.safetensors", "hf download "+name)
	checkFailure(t, infer(t, append(args, "-m", "openai-community/gpt2")...), exitFailure, "hf download openai-community/gpt2", "huggingface-cli download", cache)
}
