package weights

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

var must = require.NoError

// names returns the names in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := require.Value(os.ReadDir(dir))(t)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func put[T string | []byte](t testing.TB, path string, data T) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(data), 0o666))
}

func text(t testing.TB, path string) string {
	t.Helper()
	data := require.Value(os.ReadFile(path))(t)
	return string(data)
}

// Every name of a file that is read is refused, and no other.
func TestCheckOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"model", "other"} {
		must(t, os.Mkdir(dir, 0o777))
	}
	put(t, "in.json", "x")
	put(t, "model/config.json", "{}")
	here := require.Value(os.Getwd())(t)
	for link, to := range map[string]string{"link.json": "in.json", "linked": "model", "to-config": "linked/config.json"} {
		must(t, os.Symlink(to, link))
	}
	must(t, os.Link("in.json", "other/hard.json"))
	reads := []string{"in.json", "model", "absent", ""}
	for _, out := range []string{"in.json", "./in.json", "other/../in.json", filepath.Join(here, "in.json"), "link.json",
		"other/hard.json",
		"model", "model/", "./model/", "linked", "linked/", "model/config.json", "linked/config.json", "to-config"} {
		if err := CheckOutput(out, reads...); !errors.Is(err, ErrSamePlace) ||
			!strings.Contains(err.Error(), "give another name") {
			t.Errorf("%s: %v", out, err)
		}
	}
	for _, out := range []string{"", "-", "new.json", "other", "other/config.json", "model/new.json", "absent",
		"/dev/null"} {
		if err := CheckOutput(out, reads...); err != nil {
			t.Errorf("%s: %v", out, err)
		}
	}
}

func TestFolder(t *testing.T) {
	ctx := context.Background()
	t.Chdir(t.TempDir())
	two := func(content string) func(dir string) error {
		return func(dir string) error {
			for _, name := range []string{"a", "b"} {
				if err := WriteFile(ctx, filepath.Join(dir, name), func(w io.Writer) error {
					_,
						err := io.WriteString(w, content)
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		}
	}
	// A new directory, its parents, and an empty one.
	must(t, os.Mkdir("empty", 0o777))
	for _, path := range []string{"new", "deep/er/", "./empty"} {
		must(t, (Folder{Path: path}).Write(ctx, two("1")))
		if got := names(t, path); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s holds %v", path, got)
		}
	}
	if got := names(t, "."); !slices.Equal(got, []string{"deep", "empty", "new"}) {
		t.Errorf("beside them lie %v", got)
	}

	// One that holds files.
	put(t, "new/mine", "keep")
	put(t, "outside", "outside")
	must(t, errors.Join(os.Remove("new/b"), os.Symlink("../outside", "new/b")))
	err := (Folder{Path: "new"}).Write(ctx, two("2"))
	if !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "holds a, b, mine;") {
		t.Errorf("into a directory of files: %v", err)
	}
	broken := errors.New("broken")
	stop, cancel := context.WithCancelCause(ctx)
	for name, fail := range map[string]func() error{
		"an error": func() error {
			return (Folder{Path: "new", Force: true}).Write(ctx, func(dir string) error {
				return errors.Join(two("3")(dir),
					broken)
			})
		},
		"a cancelled context": func() error {
			return (Folder{Path: "new", Force: true}).Write(stop,
				func(dir string) error { defer cancel(broken); return two("3")(dir) })
		},
		"the same place": func() error {
			return (Folder{Path: "./new/", Force: true, Reads: []string{"new"}}).Write(ctx, two("3"))
		},
	} {
		if err := fail(); !errors.Is(err, broken) && !errors.Is(err, ErrSamePlace) {
			t.Errorf("%s: %v", name, err)
		}
		if got := names(t, "new"); !slices.Equal(got, []string{"a", "b", "mine"}) || text(t, "new/a") != "1" ||
			text(t, "outside") != "outside" {
			t.Errorf("after %s: %v", name, got)
		}
	}
	must(t, (Folder{Path: "new", Force: true}).Write(ctx, two("4")))
	if got := names(t, "new"); !slices.Equal(got, []string{"a", "b", "mine"}) ||
		text(t, "new/a")+text(t, "new/b")+text(t, "new/mine") != "44keep" {
		t.Errorf("forced: %v", got)
	}
	if got := text(t, "outside"); got != "outside" {
		t.Errorf("a link was followed, which wrote %q", got)
	}

	// What cannot be a directory.
	must(t, errors.Join(os.Symlink("nowhere", "dangling"), os.Mkdir("empty/d", 0o777), os.Remove("empty/a"),
		os.Rename("empty/d", "empty/a")))
	for path, want := range map[string]string{"": "no name of a directory", "outside": "it is a file",
		"dangling": "symbolic link", "empty": "a: cannot be written: it is a directory"} {
		if err := (Folder{Path: path, Force: true}).Write(ctx, two("5")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", path, err, want)
		}
	}
	if got := text(t, "empty/b"); got != "1" {
		t.Errorf("a half-written directory: b holds %q", got)
	}
}
