package stub

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Compiled returns a library that the C compiler builds of sources in a folder, which include headers, or has built for an
// earlier test. The test is skipped where there is no compiler or no source, as on a machine that runs prebuilt tests.
func Compiled(t testing.TB, folder string, sources, headers []string, flags ...string) string {
	t.Helper()
	cc := strings.Fields(cmp.Or(os.Getenv("CC"), "cc"))
	if _, err := exec.LookPath(cc[0]); err != nil {
		t.Skipf("%s needs a C compiler: %v", sources[0], err)
	}
	var files []string
	for _, name := range slices.Concat(sources, headers) {
		files = append(files, filepath.Join(folder, name))
	}
	if _, err := os.Stat(files[0]); err != nil {
		t.Skipf("a library for tests needs its source: %v", err)
	}
	command := append(cc, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")
	command = append(append(append(command, flags...), sources...), "-ldl", "-lpthread", "-lm")
	return Built(t, ".so", folder, command, files)
}

// Built returns the file that a command builds in a folder, built by an earlier test or now: the file's name is the
// hash of the command line, the compiler's version and the sources.
func Built(t testing.TB, extension, from string, command, sources []string) string {
	t.Helper()
	version, _ := exec.Command(command[0], "--version").Output()
	hash := sha256.New()
	fmt.Fprintln(hash, string(version), strings.Join(command, "\n"))
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
	c := exec.Command(command[0], append(command[1:], "-o", part.Name())...)
	c.Dir = from
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building a library for tests: %v\n%s", err, text)
	}
	if err := os.Rename(part.Name(), file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Copied is a copy of a file for one test: a process opens each path once, so that tests with a file of their own have
// a library with state of its own.
func Copied(t testing.TB, file string) string {
	t.Helper()
	library, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "libgpt2scope_cuda.so")
	if err := os.WriteFile(to, library, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
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
