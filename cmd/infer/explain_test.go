package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/glossary"
)

func TestExplain(t *testing.T) {
	for args, want := range map[string]string{
		"fmha_cutlassF_f32_aligned_64x64_rf_sm80": "memory-efficient attention", "splitKreduce": "splitKreduce_kernel (kernel) adds",
		"out of memory": "out of memory (word) is the error", "OpenMP-Tracking": "is no option of nsys", "queue depth, mean": "(indicator) is: kernels",
		"small-grid": "(finding) says: kernels", "pinned": "also: pinned memory, page-locked memory", "": "unified memory",
	} {
		if out := mustInfer(t, append([]string{"explain"}, strings.Fields(args)...)...).stdout; !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("infer explain %s lacks %q:\n%s", args, want, out)
		}
	}
	checkFailure(t, infer(t, "explain", "memcp"), exitFailure, "nothing is known of memcp", "near it: cudaMemcpy, cudaMemcpyAsync")
	checkFailure(t, infer(t, "explain", "zebra"), exitFailure, "'infer explain' lists")
	checkFailure(t, infer(t, "explain", "--set", "full"), exitUsage, "without its dashes: infer explain set\n")
	checkFailure(t, infer(t, "explain", "cuda_of_the_future"), exitFailure, "nothing is known of cuda_of_the_future", "near it: CUDA")
}

// The headings of tables are explained.
func TestExplainsHeadings(t *testing.T) {
	numbers := regexp.MustCompile(`\d\.\d\d`)
	for _, args := range []string{"eager", "persistent", "eager --by kernel", "bad --by op", "bad --by range", "bad --by process"} {
		seen := 0
		for line := range strings.Lines(mustInfer(t, append([]string{"trace", "show", "--columns", "all"}, strings.Fields("sample:"+args)...)...).stdout) {
			for _, heading := range strings.Split(strings.TrimSpace(line), "  ") {
				if heading = strings.TrimSpace(heading); strings.HasPrefix(line, "  ") && !numbers.MatchString(line) && heading != "" && heading != "Name" {
					if seen++; len(glossary.Find(explanations(), heading)) == 0 {
						t.Errorf("%s: %q is not explained", args, heading)
					}
				}
			}
		}
		if seen < 4 {
			t.Errorf("%s: %d headings", args, seen)
		}
	}
}

// docs/glossary.md is what 'infer explain' knows; -update writes it.
func TestDocsGlossary(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Glossary\n\nWhat `infer explain NAME` says of names in recordings, in tables and in lectures. The page of `infer trace report` shows " +
		"the\nsame texts where one points at a kernel or a call. It is made from `glossary/glossary.txt`, and from the indicators and\nfindings of `infer trace`, by " +
		"`go test ./cmd/infer -run TestDocsGlossary -update`.\n")
	escaped := strings.NewReplacer("<", "&lt;", "*", `\*`, "__", `\_\_`, "|", `\|`)
	kind := ""
	for _, e := range explanations() {
		if e.Kind != kind {
			kind = e.Kind
			b.WriteString("\n## " + strings.ToUpper(kind[:1]) + kind[1:] + "\n\n| name | it ... | see |\n|---|---|---|\n")
		}
		b.WriteString("| `" + strings.Join(e.Names, "`, `") + "` | " + escaped.Replace(e.Says) + " | " + escaped.Replace(e.From) + " |\n")
	}
	isStored(t, "../../docs/glossary.md", []byte(b.String()))
	if len(glossary.All()) >= len(explanations()) {
		t.Error("the indicators and findings are not among the explanations")
	}
}

// The manual has a page for each command that the help lists.
func TestMan(t *testing.T) {
	dir := t.TempDir() + "/man1"
	mustInfer(t, "man", dir)
	for _, c := range cli.AllCommands(newRoot(new(cli.ModelFlags))) {
		page, err := os.ReadFile(dir + "/" + strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1")
		if c.IsAvailableCommand() && (err != nil || !strings.Contains(string(page), ".SH DESCRIPTION")) {
			t.Errorf("%s: %v, %d bytes", c.CommandPath(), err, len(page))
		}
	}
	if page, _ := os.ReadFile(dir + "/infer-trace-kpi.1"); bytes.Contains(page, []byte(`\-threads`)) || !bytes.Contains(page, []byte(`\-quiet`)) {
		t.Errorf("the page does not have the flags that the command uses:\n%s", page)
	}
	checkFailure(t, infer(t, "man", "/dev/null/x"), exitFailure, "manual pages", "not a directory")
}

// Without a terminal the screens of the tour follow each other, and each command succeeds.
func TestTour(t *testing.T) {
	t.Chdir(t.TempDir())
	out := mustInfer(t, "tour").stdout
	for i, s := range screens {
		contains(t, out, fmt.Sprintf("%d of %d: %s\n\n$ infer %s\n", i+1, len(screens), s.title, s.command))
	}
	if strings.Contains(strings.NewReplacer("infer: the samples are", "", "infer: of ", "").Replace(out), "infer: ") || strings.Count(out, "... and ") < 3 || len(screens) != 10 {
		t.Errorf("the tour of %d screens:\n%s", len(screens), out)
	}
	if files, _ := os.ReadDir("."); len(files) > 0 {
		t.Errorf("the tour leaves %v", files)
	}
}
