package learn

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"gpt2scope/internal/lazyregexp"
)

var lesson13 = Lesson{
	Number: 13,
	Claim:  "sm_efficiency, achieved_occupancy and ipc are metrics to ask ncu for; cuda_gpu_kern_sum lists grid sizes",
	CPU:    &Experiment{Run: namesHere, Judge: judgeNames},
	Why: `These metrics are of nvprof, which counts them on GPUs up to Volta only. A metric of Nsight Compute has
three parts: the unit that counts and what it counts, such as sm__warps_active; how the counts of all units are
combined, such as .avg; and what they are expressed in, such as .pct_of_peak_sustained_active. The reports of nsys
were renamed too: gpukernsum is cuda_gpu_kern_sum today, and the grid has a report of its own, cuda_gpu_kern_gb_sum.
So a name in a lecture holds for one version. Ask the tool that you have: ncu --query-metrics lists what a chip can
count, nsys stats --help-reports what each report has. And ask what a number means: sm_efficiency was the share of
time in which an SM had at least one warp, not how much work it did.`,
	GoOn: "infer trace kpi sample:steady --counters sample:counters",
}

// renamed are names of nvprof's metrics with those of Nsight Compute: the name that it lists, and how it is summed.
var renamed = []struct{ old, name, sum string }{
	{"sm_efficiency", "smsp__cycles_active", ".avg.pct_of_peak_sustained_elapsed"},
	{"achieved_occupancy", "sm__warps_active", ".avg.pct_of_peak_sustained_active"},
	{"ipc", "sm__inst_executed", ".avg.per_cycle_active"},
	{"dram_read_throughput", "dram__bytes_read", ".sum.per_second"},
	{"dram_utilization", "dram__throughput", ".avg.pct_of_peak_sustained_elapsed"},
	{"l2_tex_hit_rate", "lts__t_sector_hit_rate", ".pct"},
	{"warp_execution_efficiency", "smsp__thread_inst_executed_per_inst_executed", ".ratio"},
}

// claimed is how many of renamed the claim names.
const claimed = 3

// gridReports are reports of nsys, that of the claim first.
var gridReports = []string{"cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_gpu_trace"}

func namesHere(l *lab) {
	var missing []string
	for _, tool := range []struct {
		name, from string
		ask        func() bool
	}{{"ncu", "Nsight Compute: developer.nvidia.com/nsight-compute", l.askNCU},
		{"nsys", "Nsight Systems: developer.nvidia.com/nsight-systems", l.askNsys}} {
		if _, err := exec.LookPath(tool.name); err != nil {
			missing = append(missing, fmt.Sprintf("%s is not installed (%s)", tool.name, tool.from))
		} else if !tool.ask() {
			missing = append(missing, tool.name+" does not tell its names")
		} else {
			said := l.toolSays(tool.name, "--version")
			l.say(tool.name, "version", said[strings.LastIndexByte(said, '\n')+1:])
		}
	}
	if len(l.Data) == 0 {
		check(fmt.Errorf("%w: %s", errNotHere, strings.Join(missing, ", ")))
	}
	for _, m := range missing {
		l.say("missing", "tool", m)
	}
	check(context.Cause(l.ctx))
}

// askNCU adds which metrics ncu lists, if it does.
func (l *lab) askNCU() bool {
	listed := metricsIn(l.toolSays("ncu", "--query-metrics"))
	if len(listed) <= 100 { // without a GPU, ncu must be told a chip
		listed = metricsIn(l.toolSays("ncu", "--query-metrics", "--chips", "gh100"))
	}
	if len(listed) <= 100 {
		return false
	}
	l.add("ncu", "metrics", 0, float64(len(listed)))
	for _, r := range renamed {
		for _, name := range []string{r.old, r.name} {
			l.add(name, "listed", 0, one(listed[name]))
		}
	}
	return true
}

// one is 1 for what is so, and 0 for what is not.
func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// askNsys adds what nsys says of its reports, if it does.
func (l *lab) askNsys() (found bool) {
	for _, report := range gridReports {
		for _, flags := range []string{"--help-reports " + report, "--help-reports=" + report, "--help-reports ALL"} {
			help := helpOf(l.toolSays("nsys", strings.Fields("stats "+flags)...), report)
			if reportColumns().MatchString(help) {
				l.say(report, "help", help)
				found = true
				break
			}
		}
	}
	return found
}

// helpOf returns what a text with the help of one or more reports says of one.
func helpOf(text, report string) string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		if name := reportTitle().FindStringSubmatch(line); name != nil {
			inside = name[1] == report
		}
		if inside {
			out.WriteString(line)
		}
	}
	return strings.TrimSpace(out.String())
}

// toolSays returns what a tool writes within a minute, whatever its exit status is.
func (l *lab) toolSays(tool string, words ...string) string {
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, tool, words...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

// metricsIn returns the first words of lines, without the quotes that a CSV has.
func metricsIn(list string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(list) {
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n,\"", r) })
		if len(words) < 2 {
			continue
		}
		old := slices.ContainsFunc(renamed, func(r struct{ old, name, sum string }) bool { return r.old == words[0] })
		if old || strings.Contains(words[0], "__") {
			names[words[0]] = true
		}
	}
	return names
}

var (
	// the number in what a tool says of its version
	versionNumber = lazyregexp.New(`\d+(?:\.\d+)+`)
	// the first line of a report's help: "cuda_gpu_kern_sum[:nvtx-name][:base|:mangled] -- CUDA GPU Kernel Summary"
	reportTitle = lazyregexp.New(`^\s*(\w+)(?:\[\S*)? (?:--|–) `)
	// what nsys says of a report: its first columns, for a summary and for a trace
	reportColumns = lazyregexp.New(`(?m)^\s*(?:Time|Total Time|Start|Duration)\b[^:\n]*:`)
	// the line of a column with the grid: "GridXYZ : ..." or "GrdX, GrdY, GrdZ : ..."
	gridColumn = lazyregexp.New(`(?m)^\s*(?:GridXYZ|GrdX\b[^:\n]*|Grid\w*)\s*:`)
)

func judgeNames(d Data) Finding {
	var f Finding
	old, there := 0.0, 0.0
	f.Lines = []string{fmt.Sprintf("%-25s %s", "nvprof", "ncu")}
	for i, r := range renamed {
		listed := ""
		if is := d.values(r.name, "listed"); len(is) > 0 {
			if there += is[0]; is[0] == 0 {
				listed = " (not listed)"
			}
		}
		if i < claimed {
			old += total(d.values(r.old, "listed"))
		}
		f.Lines = append(f.Lines, fmt.Sprintf("%-25s %s%s%s", r.old, r.name, r.sum, listed))
	}
	var texts []string
	wrong, right := false, false
	if metrics := d.values("ncu", "metrics"); len(metrics) > 0 {
		texts = append(texts, fmt.Sprintf("ncu %s lists %.0f of the %d metrics of the claim, and %.0f of the %d names of "+
			"today below.", versionNumber().FindString(d.text("ncu", "version")), old, claimed, there, len(renamed)))
		f.Figures = append(f.Figures, exact("metrics that ncu lists", "", metrics[0]),
			exact("of the claim's metrics, ncu lists", "", old), exact("of the names below, ncu lists", "", there))
		wrong, right = old < claimed, old == claimed
	}
	if text := d.text(gridReports[0], "help"); text != "" {
		with := map[bool][]string{}
		for _, report := range gridReports {
			if help := d.text(report, "help"); help != "" {
				grid := gridColumn().MatchString(help)
				with[grid] = append(with[grid], report)
			}
		}
		grid := gridColumn().MatchString(text)
		wrong, right = wrong || !grid, right || grid
		f.Figures = append(f.Figures, exact("columns of "+gridReports[0]+" with the grid", "", one(grid)))
		texts = append(texts, fmt.Sprintf("Reports of nsys %s that list the grid: %s; that do not: %s.",
			versionNumber().FindString(d.text("nsys", "version")), cmp.Or(strings.Join(with[true], ", "), "none"),
			cmp.Or(strings.Join(with[false], ", "), "none")))
	}
	for _, p := range d {
		if p.Case == "missing" {
			texts = append(texts, "Not asked: "+p.Text+".")
		}
	}
	if !wrong && !right {
		return undecided("Neither ncu nor nsys told its names.")
	}
	f.Text = strings.Join(texts, " ")
	return f.decide(rule{Refuted, wrong, ""}, rule{Shown, true, ""})
}
