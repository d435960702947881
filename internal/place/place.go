// Package place finds shared libraries: the project's own, and NVIDIA's as pip installs them.
package place

import (
	"os"
	"path/filepath"
	"slices"
)

// Program returns the folder of the running program, behind symbolic links; "" where that is not known.
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

// Folders are those of the project's libraries: beside the program, in lib/ there, in ../lib from there, and in ./lib,
// each as an absolute path.
func Folders() []string {
	var folders []string
	if at := Program(); at != "" {
		folders = append(folders, at, filepath.Join(at, "lib"), filepath.Join(filepath.Dir(at), "lib"))
	}
	if here, err := filepath.Abs("lib"); err == nil && !slices.Contains(folders, here) {
		folders = append(folders, here)
	}
	return folders
}

// Library returns the path of one of the project's libraries: what an environment variable names, which is not checked,
// or the first file of that name in Folders. It is "" if there is none.
func Library(variable, name string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	for _, folder := range Folders() {
		if path := filepath.Join(folder, name); IsFile(path) {
			return path
		}
	}
	return ""
}

// SitePackages are the folders in which pip puts packages, as patterns of [filepath.Glob]: of the virtual environment
// that is active, of the user, of the system, and of common images.
func SitePackages() []string {
	var patterns []string
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		patterns = append(patterns, filepath.Join(venv, "lib/python3*/site-packages"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		patterns = append(patterns, filepath.Join(home, ".local/lib/python3*/site-packages"))
	}
	return append(patterns, ".venv/lib/python3*/site-packages", "/usr/lib/python3*/*-packages",
		"/usr/local/lib/python3*/*-packages",
		"/opt/*/.venv/lib/python3*/site-packages", "/opt/*/lib/python3*/site-packages")
}

// IsFile reports whether there is a regular file at a path.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
