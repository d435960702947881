package place

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFolders: a folder that is reached in two ways is searched, and named, once.
func TestFolders(t *testing.T) {
	t.Chdir(filepath.Dir(Program()))
	if err := os.MkdirAll("lib", 0o777); err != nil {
		t.Fatal(err)
	}
	folders := Folders()
	unique := slices.Clone(folders)
	slices.Sort(unique)
	if unique = slices.Compact(unique); len(unique) != len(folders) || !slices.Contains(folders, filepath.Join(Program(), "lib")) {
		t.Errorf("the folders are %q", folders)
	}
}
