package place

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestFolders: what lies in the folder in which one stands is not loaded.
func TestFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, folder := range append(Folders(), SitePackages()...) {
		if !filepath.IsAbs(folder) {
			t.Errorf("%s is looked at, from whatever folder one stands in", folder)
		}
	}
	if at := Program(); len(Folders()) != 3 || !strings.HasPrefix(Folders()[1], at) {
		t.Errorf("the folders are %q", Folders())
	}
}
