// Package gpt2scope_test checks what concerns the repository as a whole: its papers.
package gpt2scope_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"gpt2scope/internal/require"
)

// sources returns the paths of the files that belong to the repository and end in one of suffixes.
func sources(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch path {
			case ".git", ".venv", "bin", "build", "lib": // .gitignore
				return filepath.SkipDir
			}
			return nil
		}
		for _, suffix := range suffixes {
			if strings.HasSuffix(path, suffix) {
				paths = append(paths, path)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	b := require.Value(os.ReadFile(path))(t)
	return string(b)
}

var (
	fenced     = regexp.MustCompile("(?ms)^```.*?^```$")
	indented   = regexp.MustCompile(`(?m)^    .*$`)
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	heading    = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	link       = regexp.MustCompile(`\]\(([^()\s]+)\)|(?:src|href)="([^"]+)"`)
)

// anchors returns the anchors that GitHub gives the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])] = true
	}
	return found
}

// brokenLinks returns the links of a page, at a path, that lead to no file or to no heading.
func brokenLinks(path, page string) (broken []string, links int) {
	prose := inlineCode.ReplaceAllString(indented.ReplaceAllString(fenced.ReplaceAllString(page, ""), ""), "")
	for _, m := range link.FindAllStringSubmatch(prose, -1) {
		target := m[1] + m[2]
		if strings.Contains(target, "://") {
			continue
		}
		links++
		file, anchor, _ := strings.Cut(target, "#")
		to := page
		if file != "" {
			file = filepath.Join(filepath.Dir(path), file)
			if _, err := os.Stat(file); err != nil {
				broken = append(broken, target+": there is no "+file)
				continue
			}
			if anchor == "" {
				continue
			}
			b, err := os.ReadFile(file)
			if err != nil {
				broken = append(broken, target+": "+err.Error())
				continue
			}
			to = string(b)
		}
		if !anchors(to)[anchor] {
			broken = append(broken, target+": no heading has this anchor")
		}
	}
	return broken, links
}

// Every relative link of every page leads to a file and to a heading in it.
func TestDocsLinks(t *testing.T) {
	total := 0
	for _, path := range sources(t, ".md") {
		broken, links := brokenLinks(path, read(t, path))
		for _, b := range broken {
			t.Errorf("%s: %s", path, b)
		}
		total += links
	}
	if total < 20 {
		t.Errorf("found %d relative links in all pages, expected 20 at least", total)
	}
}

func TestDocsBrokenLinks(t *testing.T) {
	page := "# A `b`, c\n[a](#a-b-c) [b](#a) [c](README.md) [d](none.md) <img src=\"none.png\"> [e](https://none.example)\n```\n[f](no)\n```\n    [g](no)\n`[h](no)`\n"
	broken, links := brokenLinks("page.md", page)
	if links != 5 || len(broken) != 3 {
		t.Errorf("found %d links, of which broken: %q; expected 5, of which #a, none.md and none.png", links, broken)
	}
}

var (
	codePath = regexp.MustCompile("`([a-z0-9_]+/|[a-z0-9_]+/[A-Za-z0-9_./-]+)`")
	docPath  = regexp.MustCompile(`(?m)(?:^|[^/\w])(docs/[a-z-]+\.md)\b`) // not of a URL
	testRun  = regexp.MustCompile("go test ((?:\\./\\S+ ?)+)[^`\n]*")
	testName = regexp.MustCompile(`-(?:run|bench) '?\^?(\w+)`)
)

// What pages and comments name in this repository exists: files, folders, and the tests of 'go test' commands.
func TestDocsNames(t *testing.T) {
	for _, path := range sources(t, ".md") {
		page := read(t, path)
		for _, m := range codePath.FindAllStringSubmatch(page, -1) {
			root, _, _ := strings.Cut(m[1], "/")
			if _, err := os.Stat(root); err != nil || root == "build" || root == "lib" || root == "bin" {
				continue // not of this repository, or made by its Makefile
			}
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
		for _, m := range testRun.FindAllStringSubmatch(page, -1) {
			for _, name := range testName.FindAllStringSubmatch(m[0], -1) {
				if name[1] != "xxx" && !declared(t, strings.Fields(m[1]), name[1]) {
					t.Errorf("%s names %q, but no test there begins with %s", path, m[0], name[1])
				}
			}
		}
	}
	for _, path := range sources(t, ".go", ".py", ".sh", ".c", ".h", ".cu", ".cuh", "Makefile") {
		for _, m := range docPath.FindAllStringSubmatch(read(t, path), -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", path, m[1])
			}
		}
	}
}

// declared says whether a test file of the packages declares a test or benchmark whose name begins with name.
func declared(t *testing.T, packages []string, name string) bool {
	pattern := regexp.MustCompile(`(?m)^func (Test|Benchmark|Fuzz)?` + name)
	for _, p := range packages {
		files := require.Value(filepath.Glob(filepath.Join(p, "*_test.go")))(t)
		for _, file := range files {
			if pattern.MatchString(read(t, file)) {
				return true
			}
		}
	}
	return false
}

// The program of docs/library.md builds in a module of its own, outside the repository, from what go.mod names here, and writes text.
func TestDocsLibraryExample(t *testing.T) {
	_, code, _ := strings.Cut(read(t, "docs/library.md"), "```go\n")
	code, _, ok := strings.Cut(code, "```\n")
	if !ok {
		t.Fatal("docs/library.md has no program")
	}
	checkout := require.Value(filepath.Abs("."))(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"main.go": code, "go.mod": read(t, "go.mod"), "go.sum": read(t, "go.sum")} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "PWD="+dir)
		var stderr strings.Builder
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", c, err, out, &stderr)
		}
		return string(out)
	}
	run("go", "mod", "edit", "-module", "mine", "-require", "gpt2scope@v0.0.0", "-replace", "gpt2scope="+checkout)
	run("go", "build", "-o", "mine", ".")
	if text := run("./mine"); len(text) < 100 || !strings.Contains(text, "\n") {
		t.Errorf("it writes %q, expected 100 tokens of some lines", text)
	}
}

// The drawing of docs/architecture.md names folders of packages, or files.
func TestDocsDrawing(t *testing.T) {
	names := regexp.MustCompile(`<text class="room"[^>]*>([^<]+)<`).FindAllStringSubmatch(read(t, "docs/images/architecture.svg"), -1)
	if len(names) < 10 {
		t.Errorf("docs/images/architecture.svg names %d rooms, expected 10 at least", len(names))
	}
	for _, m := range names {
		for name := range strings.SplitSeq(m[1], ", ") {
			if files, err := filepath.Glob(name); err != nil || len(files) == 0 {
				t.Errorf("docs/images/architecture.svg names %s, which does not exist", name)
			}
		}
	}
}
