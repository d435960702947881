package learn

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/learn.md")

// docs/learn.md is what the lessons and the recording give.
func TestDocs(t *testing.T) {
	const path = "../docs/learn.md"
	shipped, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	want := Docs(shipped)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("docs/learn.md is not what the lessons give; 'go test ./learn -run TestDocs -update' writes it (%v)", err)
	}
}
