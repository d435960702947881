package rules

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the folder of the module, from this one.
const root = "../.."

// room is a row of the table of packages in docs/architecture.md.
type room struct {
	row     int
	leaf    bool     // all may import it
	imports []string // packages of the module besides leaves
	others  []string // modules of others, by the beginnings of their paths
}

var quoted = regexp.MustCompile("`([^`]+)`")

// codes returns what stands in backticks in a cell.
func codes(cell string) []string {
	var all []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// rooms reads the table.
func rooms(t *testing.T) map[string]room {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| package |")
	if !ok {
		t.Fatal("docs/architecture.md has no table whose first column is 'package'")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	found := map[string]room{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if names := codes(cells[0]); len(cells) == 4 && len(names) == 1 {
			found[names[0]] = room{len(found), strings.Contains(cells[0], "leaf"), codes(cells[2]), codes(cells[3])}
		}
	}
	return found
}

// imports lists what the packages of the module import, tests aside.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	c := exec.Command("go", "list", "-f", `{{if or .GoFiles .CgoFiles}}{{.ImportPath}} {{join .Imports " "}}{{end}}`, module+"/...")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if paths := strings.Fields(line); len(paths) > 0 {
			found[strings.TrimPrefix(paths[0], module+"/")] = paths[1:]
		}
	}
	return found
}

// The table of packages in docs/architecture.md is what the code does: each package has a row, imports what its row allows besides
// leaves, all of that, and nothing that stands above it. A leaf imports only leaves.
func TestImports(t *testing.T) {
	table, code := rooms(t), imports(t)
	if len(code) < 20 {
		t.Fatalf("go list names %d packages, expected 20 at least", len(code))
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if code[name] == nil {
			t.Errorf("docs/architecture.md has a row for %s, which is no package", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(code)) {
		r, ok := table[name]
		if !ok {
			t.Errorf("docs/architecture.md has no row for package %s: add it, with what it may import", name)
			continue
		}
		if r.leaf && len(r.imports) > 0 {
			t.Errorf("docs/architecture.md calls %s a leaf and lets it import %q: a leaf imports only leaves", name, r.imports)
		}
		unused := slices.Concat(r.imports, r.others)
		for _, path := range code[name] {
			to, own := strings.CutPrefix(path, module+"/")
			allowed := slices.IndexFunc(unused, func(a string) bool { return to == a || !own && strings.HasPrefix(path, a+"/") })
			switch {
			case own && slices.Contains(r.imports, to), !own && !ofOthers(path):
			case own && table[to].leaf:
			case !own && slices.ContainsFunc(r.others, func(a string) bool { return path == a || strings.HasPrefix(path, a+"/") }):
			default:
				t.Errorf("%s imports %s, which its row in docs/architecture.md does not allow", name, to)
			}
			if own && table[to].row <= r.row {
				t.Errorf("%s imports %s, which stands above it in docs/architecture.md: imports go down", name, to)
			}
			if allowed >= 0 {
				unused = slices.Delete(unused, allowed, allowed+1)
			}
		}
		for _, a := range unused {
			t.Errorf("docs/architecture.md says that %s imports %s, which it does not: remove it", name, a)
		}
	}
}

// The drawing names packages of the table, or files.
func TestDrawing(t *testing.T) {
	drawing, err := os.ReadFile(filepath.Join(root, "docs/images/architecture.svg"))
	if err != nil {
		t.Fatal(err)
	}
	table := rooms(t)
	names := regexp.MustCompile(`<text class="room"[^>]*>([^<]+)<`).FindAllStringSubmatch(string(drawing), -1)
	if len(names) < 10 {
		t.Errorf("docs/images/architecture.svg names %d rooms, expected 10 at least", len(names))
	}
	for _, m := range names {
		for name := range strings.SplitSeq(m[1], ", ") {
			files, err := filepath.Glob(filepath.Join(root, name))
			if _, ok := table[name]; !ok && (err != nil || len(files) == 0 || !strings.Contains(name, "*")) {
				t.Errorf("docs/images/architecture.svg names %s, which is neither a package of docs/architecture.md nor a file", name)
			}
		}
	}
}
