// Package glossary explains the names and words that recordings, tools and their tables use: glossary.txt, an entry a
// line.
package glossary

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"gpt2scope/internal/lazyregexp"
)

// Entry explains a name.
type Entry struct {
	Kind  string   `json:"kind"`           // what the name is of: "kernel", "metric", ...
	Names []string `json:"names"`          // of a kernel, parts of its name; a * at the end stands for any letters
	Says  string   `json:"says"`           // goes on after the name: "is ...", "computes ..."
	From  string   `json:"from,omitempty"` // where it comes from, or the command that shows it
}

// The kinds of what recordings name. Others are for people only.
const (
	Kernel   = "kernel"
	Call     = "API call"
	Operator = "operator of PyTorch"
	Stage    = "stage of GPT-2"
	Idle     = "idle time"
)

//go:embed glossary.txt
var text string

var all = sync.OnceValue(func() []Entry { return parse(text) })

func parse(text string) (entries []Entry) {
	kind := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			kind = heading
		} else if parts := append(strings.Split(line, " | "), ""); len(parts) > 2 {
			entries = append(entries, Entry{kind, strings.Split(parts[0], ", "), parts[1], parts[2]})
		}
	}
	return entries
}

// All returns all entries, those of a kind together.
func All() []Entry { return slices.Clone(all()) }

var (
	layer    = lazyregexp.New(`^h\.[^.]+\.`)
	versions = lazyregexp.New(`(_v\d+|_ptsz|_ptds)+$`) // of functions of CUDA: cuMemAlloc_v2
	unit     = lazyregexp.New(` (us|ms|%|MiB)$`)       // at the end of a column's heading
	ways     = lazyregexp.New(`\..*$`)                 // in which a metric is summed: dram__throughput.avg
)

// Matches tells whether an entry explains a name, as a recording has it or as people write it.
func (e Entry) Matches(name string) bool {
	switch {
	case e.Kind == Kernel:
		return slices.ContainsFunc(e.Names, func(part string) bool { return strings.Contains(name, part) })
	case e.Kind == Stage:
		name = layer().ReplaceAllString(name, "")
	case e.Kind == Call:
		name = versions().ReplaceAllString(name, "")
	case e.Kind == "metric" && !slices.Contains(e.Names, name):
		name = ways().ReplaceAllString(name, "")
	case e.Kind == "option of a tool":
		name, _, _ = strings.Cut(strings.TrimLeft(name, "-"), "=")
	}
	return slices.ContainsFunc(e.Names, func(n string) bool {
		begin, open := strings.CutSuffix(n, "*")
		return open && strings.HasPrefix(name, begin) || strings.EqualFold(name, strings.TrimLeft(n, "-"))
	})
}

// Find returns the entries, out of some, that explain a name. Of kernels, whose names say several things, an entry that
// matches by a part of what another one matches by is left out. A heading is found without its unit, too.
func Find(entries []Entry, name string) []Entry {
	name = strings.TrimSpace(name)
	var found []Entry
	for _, e := range entries {
		if e.Matches(name) {
			found = append(found, e)
		}
	}
	if short := unit().ReplaceAllString(name, ""); len(found) == 0 && short != name {
		return Find(entries, short)
	}
	return slices.DeleteFunc(slices.Clone(found), func(e Entry) bool {
		return slices.ContainsFunc(found, func(other Entry) bool { return e.isPartOf(other, name) })
	})
}

// isPartOf tells whether a kernel's entry matches by a part of what another one matches by.
func (e Entry) isPartOf(other Entry, name string) bool {
	return e.Kind == Kernel && other.Kind == Kernel && !slices.ContainsFunc(e.Names, func(n string) bool {
		return strings.Contains(name, n) && !slices.ContainsFunc(other.Names, func(o string) bool {
			return o != n && strings.Contains(name, o) && strings.Contains(o, n)
		})
	})
}

// Near returns names of entries that have a part in common with one that none explains.
func Near(entries []Entry, name string) (near []string) {
	name = strings.ToLower(strings.Trim(name, "_:*-. "))
	for _, e := range entries {
		for _, n := range e.Names {
			if low := strings.ToLower(n); len(name) > 1 && (strings.Contains(low, name) || len(low) > 3 && strings.Contains(name, low)) {
				near = append(near, n)
			}
		}
	}
	return near[:min(len(near), 8)]
}

// Says returns what is said of a name of one of some kinds, "" if there is no entry.
func Says(name string, kinds ...string) string {
	for _, e := range Find(all(), name) {
		if slices.Contains(kinds, e.Kind) {
			return e.Says
		}
	}
	return ""
}
