// Package checkout finds files of the repository, for tests.
package checkout

import (
	"os"
	"path/filepath"
)

// root is the nearest folder with a go.mod at or above the one that the test began in, its package's. The paths that
// the compiler knows are no help: with -trimpath they are not on any disk.
var root = func() string {
	folder, err := os.Getwd()
	if err != nil {
		return ""
	}
	for at := folder; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			return folder
		}
	}
}()

// Path returns where a file of the repository is, such as "cuda/abi.h".
func Path(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
