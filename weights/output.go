package weights

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
)

// ErrSamePlace is in the error of writing to a file or directory that is also read, under whatever name.
var ErrSamePlace = errors.New("the output is the input")

// ErrNotEmpty is in the error of writing to a directory that holds files already.
var ErrNotEmpty = errors.New("the directory holds other files")

// CheckOutput returns an error if a path names a file that is read: one of reads, or a file in one of reads that is a
// directory. Names do not matter, so links are found. Paths that do not exist, and "", are never the same.
func CheckOutput(path string, reads ...string) error {
	out, err := os.Stat(path)
	if err != nil || !out.Mode().IsRegular() && !out.IsDir() { // a terminal may be both
		return nil
	}
	for _, read := range reads {
		in, err := os.Stat(read)
		if err != nil {
			continue // reading it will say so
		}
		if os.SameFile(in, out) {
			return samePlace(path, read)
		}
		entries, _ := os.ReadDir(read) // none of a file
		for _, e := range entries {
			file := filepath.Join(read, e.Name())
			if in, err := os.Stat(file); err == nil && os.SameFile(in, out) {
				return samePlace(path, file)
			}
		}
	}
	return nil
}

func samePlace(out, in string) error {
	if out == in {
		return problem(out, "it is read, and cannot be written too; give another name").because(ErrSamePlace)
	}
	return problem(out, "it is %s, which is read; give another name", in).because(ErrSamePlace)
}

// Folder is a directory to write. Its files appear as a whole or not at all.
type Folder struct {
	Path  string
	Reads []string // files and directories that are read meanwhile, which Path must not name
	Own   string   // a file: a directory that has it is as good as empty
	Force bool     // write into a directory that holds files: those of the same names are replaced, others stay
}

// Check returns an error if the directory cannot be written: it is one that is read
// ([ErrSamePlace]), it holds files and Force is false ([ErrNotEmpty]), or it is no directory.
func (f Folder) Check() error {
	info, err := os.Stat(f.Path)
	switch {
	case f.Path == "":
		return problem("", "there is no name of a directory to write")
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(f.Path); err == nil {
			return problem(f.Path, "cannot be written: it is a symbolic link to a directory that does not exist; remove it")
		}
		return nil
	case err != nil:
		return writeProblem(f.Path, err)
	case !info.IsDir():
		return problem(f.Path, "cannot be written: it is a file; give a directory")
	}
	if err := CheckOutput(f.Path, f.Reads...); err != nil || f.Force {
		return err
	}
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return writeProblem(f.Path, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if names != nil && !slices.Contains(names, f.Own) {
		return problem(f.Path, "it holds %s; give a new or empty directory",
			strings.Join(humanize.First(names, 3), ", ")).because(ErrNotEmpty)
	}
	return nil
}

// Write writes the directory: write puts files into a directory beside it, or inside it if it
// exists, from which they are moved into place at the end. On any error, and if ctx is cancelled
// before that, what was there stays as it was. A link in the directory is replaced, not followed.
func (f Folder) Write(ctx context.Context, write func(dir string) error) (err error) {
	if err := f.Check(); err != nil {
		return err
	}
	path := filepath.Clean(f.Path)
	_, missing := os.Stat(path)
	parent, base := filepath.Split(path)
	staging := temporary(path+string(filepath.Separator), base)
	if missing != nil {
		if parent != "" {
			if err := os.MkdirAll(parent, 0o777); err != nil {
				return writeProblem(path, err)
			}
		}
		staging = temporary(parent, base)
	}
	if err := os.Mkdir(staging, 0o777); err != nil {
		return writeProblem(path, err)
	}
	defer os.RemoveAll(staging) // of a directory that has moved, nothing
	if err := write(staging); err != nil {
		return renamed(err, staging, path)
	}
	if ctx.Err() != nil {
		return interrupted(path, context.Cause(ctx))
	}
	if missing != nil {
		if err := os.Rename(staging, path); err != nil {
			return writeProblem(path, err)
		}
		return nil
	}
	files, err := os.ReadDir(staging)
	if err != nil {
		return writeProblem(path, err)
	}
	for _, file := range files { // before any is replaced
		if info, err := os.Lstat(filepath.Join(path, file.Name())); err == nil && info.IsDir() {
			return problem(filepath.Join(path, file.Name()), "cannot be written: it is a directory")
		}
	}
	for _, file := range files {
		to := filepath.Join(path, file.Name())
		if err := os.Rename(filepath.Join(staging, file.Name()), to); err != nil {
			return writeProblem(to, err)
		}
	}
	return nil
}

// renamed names the file's place at last in an error about the file under way.
func renamed(err error, staging, path string) error {
	var e *Error
	if errors.As(err, &e) {
		if rel, relErr := filepath.Rel(staging, e.File); relErr == nil && filepath.IsLocal(rel) {
			e.File = filepath.Join(path, rel)
		}
	}
	return err
}
