package stub

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// built returns the file that a command line builds, which make is called to make if no earlier test has built it: the
// file's name is the hash of the command line, the compiler's version and the sources.
func built(t testing.TB, extension string, command []string, sources []string, make func(file string) error) string {
	t.Helper()
	hash := sha256.New()
	fmt.Fprintln(hash, version(command[0]), strings.Join(command, "\n"))
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(hash, len(text))
		hash.Write(text)
	}
	folder := filepath.Join(cacheFolder, "gpt2scope-stubs")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, fmt.Sprintf("%x%s", hash.Sum(nil)[:16], extension))
	if now := time.Now(); os.Chtimes(file, now, now) == nil {
		return file
	}
	sweep(folder)
	part, err := os.CreateTemp(folder, "part-*"+extension)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(part.Name())
	part.Close()
	if err := make(part.Name()); err != nil {
		t.Fatalf("building the stub library: %v", err)
	}
	if err := os.Rename(part.Name(), file); err != nil {
		t.Fatal(err)
	}
	return file
}

// run runs a command in a folder. Its error has what the command printed.
func run(folder string, command ...string) error {
	c := exec.Command(command[0], command[1:]...)
	c.Dir = folder
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// copied is a copy of a file for one test: a process opens each path once, so that tests with a file of their own have
// a library with state of its own.
func copied(t testing.TB, file string) string {
	t.Helper()
	from, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(t.TempDir(), "libgpt2scope_cuda.so"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// cacheFolder is the user's as the process began: tests set other ones.
var cacheFolder = func() string {
	if folder, err := os.UserCacheDir(); err == nil {
		return folder
	}
	return os.TempDir()
}()

// sweep removes what no test has used for a week.
func sweep(folder string) {
	files, _ := os.ReadDir(folder)
	for _, f := range files {
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > 7*24*time.Hour {
			os.Remove(filepath.Join(folder, f.Name()))
		}
	}
}

var versions sync.Map

// version returns what a compiler says that it is.
func version(compiler string) string {
	v, ok := versions.Load(compiler)
	if !ok {
		text, _ := exec.Command(compiler, "--version").Output()
		v, _ = versions.LoadOrStore(compiler, string(text))
	}
	return v.(string)
}
