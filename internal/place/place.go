// Package place knows where the project's own libraries lie.
package place

import (
	"os"
	"path/filepath"
)

// Program returns the folder of the running program, behind symbolic links; "" where
// that is not known.
func Program() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(program); err == nil {
		program = resolved
	}
	return filepath.Dir(program)
}

// Folders are those of the project's libraries: beside the program, in lib/ there, in
// ../lib from there, and in ./lib, each as an absolute path.
func Folders() []string {
	var folders []string
	if at := Program(); at != "" {
		folders = append(folders, at, filepath.Join(at, "lib"), filepath.Join(filepath.Dir(at), "lib"))
	}
	if here, err := filepath.Abs("lib"); err == nil {
		folders = append(folders, here)
	}
	return folders
}

// IsFile tells whether there is a regular file at a path.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
