package learn

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
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
	GoOn: "ncu --query-metrics",
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

func namesHere(ctx context.Context, _ *Env) (d Data, err error) {
	var missing []string
	if ncu, err := exec.LookPath("ncu"); err == nil {
		listed := map[string]bool{}
		// Without a GPU, ncu must be told a chip.
		for _, more := range [][]string{nil, {"--chips", "gh100"}} {
			if listed = metricsIn(toolSays(ctx, append([]string{ncu, "--query-metrics"}, more...))); len(listed) > 100 {
				break
			}
		}
		if len(listed) <= 100 {
			missing = append(missing, "ncu --query-metrics lists no metrics")
		} else {
			d.say("ncu", "version", toolVersion(ctx, ncu))
			d.add("ncu", "metrics", 0, float64(len(listed)))
			for _, r := range renamed {
				for _, name := range []string{r.old, r.name} {
					there := 0.0
					if listed[name] {
						there = 1
					}
					d.add(name, "listed", 0, there)
				}
			}
		}
	} else {
		missing = append(missing, "ncu is not installed")
	}
	if nsys, err := exec.LookPath("nsys"); err == nil {
		found, said := false, ""
		for _, report := range gridReports {
			for _, flags := range [][]string{{"--help-reports", report}, {"--help-reports=" + report}, {"--help-reports", "ALL"}} {
				said = toolSays(ctx, append([]string{nsys, "stats"}, flags...))
				if help := helpOf(said, report); reportColumns.MatchString(help) {
					d.say(report, "help", help)
					found = true
					break
				}
			}
		}
		if found {
			d.say("nsys", "version", toolVersion(ctx, nsys))
		} else {
			line, _, _ := strings.Cut(said, "\n")
			missing = append(missing, fmt.Sprintf("nsys stats --help-reports describes none of %s: %q", strings.Join(gridReports, ", "), line))
		}
	} else {
		missing = append(missing, "nsys is not installed")
	}
	if len(d) == 0 {
		return nil, fmt.Errorf("%w: %s", errNotHere, strings.Join(missing, ", "))
	}
	for _, m := range missing {
		d.say("missing", "tool", m)
	}
	return d, context.Cause(ctx)
}

// helpOf returns what a text with the help of one or more reports says of one.
func helpOf(text, report string) string {
	var out []string
	inside := false
	for line := range strings.Lines(text) {
		if name := reportTitle.FindStringSubmatch(line); name != nil {
			inside = name[1] == report
		}
		if inside {
			out = append(out, line)
		}
	}
	return strings.TrimSpace(strings.Join(out, ""))
}

// reportTitle matches the first line of a report's help: "cuda_gpu_kern_sum[:nvtx-name][:base|:mangled] -- CUDA GPU
// Kernel Summary".
var reportTitle = regexp.MustCompile(`^\s*(\w+)(?:\[\S*)? (?:--|–) `)

// toolSays returns what a tool writes within a minute, whatever its exit status is.
func toolSays(ctx context.Context, words []string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

// toolVersion returns the last line of what a tool says of its version.
func toolVersion(ctx context.Context, tool string) string {
	text := toolSays(ctx, []string{tool, "--version"})
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// metricsIn returns the first words of lines, without the quotes that a CSV has.
func metricsIn(list string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(list) {
		if word := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n,\"", r) }); len(word) > 1 && strings.Contains(word[0], "__") {
			names[word[0]] = true
		} else if len(word) > 1 {
			for _, r := range renamed {
				if word[0] == r.old {
					names[word[0]] = true
				}
			}
		}
	}
	return names
}

// versionNumber matches the number in what a tool says of its version.
var versionNumber = regexp.MustCompile(`\d+(?:\.\d+)+`)

// reportColumns matches what nsys says of a report: its first columns, for a summary and for a trace.
var reportColumns = regexp.MustCompile(`(?m)^\s*(?:Time|Total Time|Start|Duration)\b[^:\n]*:`)

// gridColumn matches the line of a column with the grid: "GridXYZ : ..." or "GrdX, GrdY, GrdZ : ...".
var gridColumn = regexp.MustCompile(`(?m)^\s*(?:GridXYZ|GrdX\b[^:\n]*|Grid\w*)\s*:`)

func judgeNames(d Data) Finding {
	var f Finding
	old, there := 0, 0
	metrics := d.values("ncu", "metrics")
	f.Lines = []string{fmt.Sprintf("%-25s %s", "nvprof", "ncu")}
	for i, r := range renamed {
		was, is := d.values(r.old, "listed"), d.values(r.name, "listed")
		listed := ""
		if len(was) > 0 && len(is) > 0 {
			listed = map[bool]string{true: " (not listed)"}[is[0] == 0]
			there += int(is[0])
			if i < claimed {
				old += int(was[0])
			}
		}
		f.Lines = append(f.Lines, fmt.Sprintf("%-25s %s%s%s", r.old, r.name, r.sum, listed))
	}
	var texts []string
	wrong, right := 0, 0
	if len(metrics) > 0 {
		texts = append(texts, fmt.Sprintf("ncu %s lists %d of the %d metrics of the claim, and %d of the %d names of today below.",
			versionNumber.FindString(d.text("ncu", "version")), old, claimed, there, len(renamed)))
		f.Figures = append(f.Figures, exact("metrics that ncu lists", "", metrics[0]), exact("of the claim's metrics, ncu lists", "", float64(old)), exact("of the names below, ncu lists", "", float64(there)))
		if old == claimed {
			right++
		} else {
			wrong++
		}
	}
	if text := d.text(gridReports[0], "help"); text != "" {
		var with, without []string
		for _, report := range gridReports {
			if help := d.text(report, "help"); gridColumn.MatchString(help) {
				with = append(with, report)
			} else if help != "" {
				without = append(without, report)
			}
		}
		has := 0
		if gridColumn.MatchString(text) {
			has = 1
			right++
		} else {
			wrong++
		}
		f.Figures = append(f.Figures, exact("columns of "+gridReports[0]+" with the grid", "", float64(has)))
		texts = append(texts, fmt.Sprintf("Reports of nsys %s that list the grid: %s; that do not: %s.", versionNumber.FindString(d.text("nsys", "version")), orNone(with), orNone(without)))
	}
	for _, p := range d {
		if p.Case == "missing" {
			texts = append(texts, "Not asked: "+p.Text+".")
		}
	}
	f.Text = strings.Join(texts, " ")
	switch {
	case wrong > 0:
		f.Verdict = Refuted
	case right > 0:
		f.Verdict = Shown
	default:
		return undecided("Neither ncu nor nsys told its names.")
	}
	return f
}

// orNone joins names.
func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
