// Command tables writes the tables of README.md and docs/performance.md that compare infer with other
// engines. Each is made of the whole raw output of one run of 'make bench-peers', so that no row can be
// left out or come from another run. Run it from the root of the repository:
//
//	go run ./bench/tables
//
// A page says which runs it shows in the comment that begins a table:
//
//	<!-- peers: measurements/2026-11-22-zen5-2-cores-bench-peers.txt -->
//	<!-- peers: docs/measurements/A-bench-peers.txt "Machine A" docs/measurements/B-bench-peers.txt "Machine B" -->
//	<!-- end of peers -->
//
// Paths are relative to the page. One run gives the table of all its works with their floors and the
// fastest other engine; several runs give the times and ratios of all, a machine after another.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pages are the pages with tables.
var pages = []string{"README.md", "docs/performance.md"}

func main() {
	for _, page := range pages {
		if err := rewrite(page); err != nil {
			fmt.Fprintf(os.Stderr, "tables: %v\n", err)
			os.Exit(1)
		}
	}
}

// rewrite makes the tables of a page anew.
func rewrite(page string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := render(string(old), filepath.Dir(page))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if text == string(old) {
		return nil
	}
	return os.WriteFile(page, []byte(text), 0o666)
}

const (
	begins = "<!-- peers: "
	ends   = "<!-- end of peers -->"
)

var runOf = regexp.MustCompile(`(\S+\.txt)(?: "([^"]*)")?`)

// render returns a page in the folder dir with its tables made anew.
func render(page, dir string) (string, error) {
	var out strings.Builder
	for found := 0; ; found++ {
		before, rest, ok := strings.Cut(page, begins)
		out.WriteString(before)
		if !ok {
			if found == 0 {
				return "", fmt.Errorf("expected a comment that begins with %q, found none", begins)
			}
			return out.String(), nil
		}
		arguments, rest, ok := strings.Cut(rest, "-->\n")
		_, after, ended := strings.Cut(rest, ends)
		if !ok || !ended {
			return "", fmt.Errorf("the comment %q is not followed by %q", begins+firstLine(arguments), ends)
		}
		var runs []run
		for _, m := range runOf.FindAllStringSubmatch(arguments, -1) {
			r, err := readRun(filepath.Join(dir, m[1]))
			if err != nil {
				return "", err
			}
			r.path, r.title = m[1], m[2]
			runs = append(runs, r)
		}
		var table string
		switch len(runs) {
		case 0:
			return "", fmt.Errorf("the comment %q names no run", begins+firstLine(arguments))
		case 1:
			table = whole(runs[0])
		default:
			var err error
			if table, err = besideEachOther(runs); err != nil {
				return "", err
			}
		}
		fmt.Fprintf(&out, "%s%s-->\n%s%s", begins, arguments, table, ends)
		page = after
	}
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

// A run is the raw output of 'make bench-peers'.
type run struct {
	title    string
	path     string   // from the page
	date     string   // of the line about the run, or else of the file's name
	commit   string   // "commit X", or that it is not known
	machine  string   // its line about the machine
	versions string   // its line about the programs
	dtypes   []string // in the order of the file
	works    []string // such as "A decode"
	results  map[string]result
}

// A result is a row of a raw output, as it is printed there.
type result struct {
	infer, ofFloor string // ms, %
	peer, peerMS   string // the fastest other engine
	ratio          string // infer / peer
}

func (r result) lost() bool {
	ratio, err := strconv.ParseFloat(r.ratio, 64)
	return err != nil || ratio > 1
}

// bold marks a ratio that is a loss.
func (r result) bold() string {
	if r.lost() {
		return "**" + r.ratio + "**"
	}
	return r.ratio
}

var (
	started = regexp.MustCompile(`^run of (\d{4}-\d\d-\d\d)\S*, (commit \S+)$`)
	dated   = regexp.MustCompile(`^\d{4}-\d\d-\d\d`)
	machine = regexp.MustCompile(`^.+, \d+ CPUs, \d+ threads`)
	heading = regexp.MustCompile(`^(\w+), median ms over processes$`)
	row     = regexp.MustCompile(`^([A-Z])  (\S+) +\S+=\d+ +\S+ +(\S+) +(\d+)%  +(.+?)  +(\S+) +(\S+) +\S+$`)
)

// readRun reads a raw output.
func readRun(path string) (run, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return run{}, err
	}
	r := run{date: dated.FindString(filepath.Base(path)), commit: "its output names no commit", results: map[string]result{}}
	dtype := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			dtype = m[1]
			r.dtypes = append(r.dtypes, dtype)
		}
		if m := row.FindStringSubmatch(line); m != nil {
			work := m[1] + " " + m[2]
			if !slices.Contains(r.works, work) {
				r.works = append(r.works, work)
			}
			r.results[dtype+" "+work] = result{m[3], m[4], m[5], m[6], m[7]}
		}
		if m := started.FindStringSubmatch(line); m != nil {
			r.date, r.commit = m[1], m[2]
		}
		if r.machine == "" && machine.MatchString(line) {
			r.machine = line
		}
		if v, ok := strings.CutPrefix(line, "versions: "); ok {
			r.versions = v
		}
	}
	var missing error
	switch {
	case r.date == "":
		missing = errors.New("neither it nor its name has a date")
	case r.machine == "":
		missing = errors.New("it has no line about the machine")
	case r.versions == "":
		missing = errors.New("it has no line about versions")
	case len(r.results) == 0 || len(r.results) != len(r.dtypes)*len(r.works):
		missing = fmt.Errorf("%d works in %d types have %d results", len(r.works), len(r.dtypes), len(r.results))
	}
	if missing != nil {
		return run{}, fmt.Errorf("%s: %w; give the whole output of 'make bench-peers'", path, missing)
	}
	return r, nil
}

// whole is the table of one run.
func whole(r run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[Run of %s](%s), %s. %s.\n\n| work |", r.date, r.path, r.commit, r.machine)
	for _, d := range r.dtypes {
		fmt.Fprintf(&b, " %s, ms | fastest peer | ratio |", d)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|---|---|", len(r.dtypes)) + "\n")
	for _, work := range r.works {
		fmt.Fprintf(&b, "| %s |", work)
		for _, d := range r.dtypes {
			x := r.results[d+" "+work]
			fmt.Fprintf(&b, " %s (%s %%) | %s %s | %s |", x.infer, x.ofFloor, x.peerMS, x.peer, x.bold())
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%s. Versions: %s.\n", r.losses(), r.versions)
	return b.String()
}

// besideEachOther is the table of several runs of the same works.
func besideEachOther(runs []run) (string, error) {
	first := runs[0]
	var b, below strings.Builder
	b.WriteString("| work |")
	columns := 0
	for _, r := range runs {
		if !slices.Equal(r.works, first.works) {
			return "", fmt.Errorf("the runs of %s and %s are of different works", first.date, r.date)
		}
		for _, d := range r.dtypes {
			fmt.Fprintf(&b, " %s, %s |", r.title, d)
			columns++
		}
		fmt.Fprintf(&below, "* %s: [run of %s](%s), %s; %s. %s.\n", r.title, r.date, r.path, r.commit, r.machine, r.losses())
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", columns) + "\n")
	for _, work := range first.works {
		fmt.Fprintf(&b, "| %s |", work)
		for _, r := range runs {
			for _, d := range r.dtypes {
				x := r.results[d+" "+work]
				fmt.Fprintf(&b, " %s (%s) |", x.infer, x.bold())
			}
		}
		b.WriteString("\n")
	}
	return b.String() + "\n" + below.String(), nil
}

// losses says in how many works infer is slower, and in which, the worst first.
func (r run) losses() string {
	type loss struct {
		work  string
		ratio string
		times float64
	}
	var lost []loss
	for key, x := range r.results {
		if x.lost() {
			dtype, work, _ := strings.Cut(key, " ")
			times, _ := strconv.ParseFloat(x.ratio, 64)
			lost = append(lost, loss{work + " " + dtype, x.ratio, times})
		}
	}
	if len(lost) == 0 {
		return fmt.Sprintf("infer is faster in all %d", len(r.results))
	}
	slices.SortFunc(lost, func(a, b loss) int { return cmp.Or(cmp.Compare(b.times, a.times), cmp.Compare(a.work, b.work)) })
	var words []string
	for _, l := range lost {
		words = append(words, l.work+" "+l.ratio)
	}
	return fmt.Sprintf("infer is slower in %d of %d: %s", len(lost), len(r.results), strings.Join(words, ", "))
}
