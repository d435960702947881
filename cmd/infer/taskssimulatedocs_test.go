package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/dispatch"
)

// The tables of docs/scheduling.md are those of the stored samples and of the policies as they are.
func TestSchedulingDocs(t *testing.T) {
	type policy = dispatch.PolicyReport
	simulated := func(args ...string) (all []policy) {
		var report dispatch.Report
		if err := json.Unmarshal([]byte(mustInfer(t, append([]string{"tasks", "simulate", "--json"}, args...)...).stdout), &report); err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Policies {
			if len(p.Busy) != 2 {
				t.Fatalf("%+v", p)
			}
			p.Policy = policyInDocs(p.Policy)
			all = append(all, p)
		}
		return all
	}
	sizes, task := simulated(), simulated("--held-out", "task")
	stream := "| policy | makespan ms | over bound | CPU busy % | GPU busy % |\n|---|---|---|---|---|\n"
	slices.SortStableFunc(sizes, func(a, b policy) int { return cmp.Compare(a.MakespanUs, b.MakespanUs) })
	for _, p := range sizes {
		stream += fmt.Sprintf("| %s | %.0f | %.2f | %.0f | %.0f |\n", p.Policy, p.MakespanUs/1e3, p.OverBound, 100*p.Busy[0], 100*p.Busy[1])
	}
	alone := "| policy | sizes held out: geometric mean | p99 | worst | a task held out: geometric mean | worst |\n|---|---|---|---|---|---|\n"
	slices.SortStableFunc(sizes, func(a, b policy) int { return cmp.Compare(a.GeoMean, b.GeoMean) })
	for _, p := range sizes {
		i := slices.IndexFunc(task, func(q policy) bool { return q.Policy == p.Policy })
		if p.Policy != "oracle" && i >= 0 {
			alone += fmt.Sprintf("| %s | %.3f | %.3g | %.3g | %.3f | %.3g |\n", p.Policy, p.GeoMean, p.P99, p.Worst, task[i].GeoMean, task[i].Worst)
		}
	}
	docsTables(t, "../../docs/scheduling.md", "TestSchedulingDocs", map[string]string{"stream": stream, "alone": alone})
}

// docsTables compares tables of a page with what they should be, or with -update writes them there. Each stands between lines
// such as <!-- name --> and <!-- /name -->.
func docsTables(t *testing.T, path, test string, tables map[string]string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for name, table := range tables {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
		before, rest, ok := strings.Cut(text, begin)
		block, after, also := strings.Cut(rest, end)
		switch {
		case !ok || !also:
			t.Fatalf("%s has no lines %s and %s", path, begin, end)
		case *update:
			text = before + begin + table + end + after
		case block != table:
			t.Errorf("table %s of %s is not that of the data: 'go test ./cmd/infer -run %s -update' writes it:\n%s", name, path, test, table)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// streams are what 'infer tasks run --json' printed on a machine, by names of streams.
type streams map[string]dispatch.RunReport

// readStreams reads those of a file of docs/measurements.
func readStreams(t *testing.T, file string) streams {
	t.Helper()
	data, err := os.ReadFile("../../docs/measurements/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var measured struct {
		Machine []string `json:"machine"`
		Streams streams  `json:"streams"`
	}
	if err := json.Unmarshal(data, &measured); err != nil {
		t.Fatal(err)
	}
	return measured.Streams
}

// of returns a policy's runs of a stream on a number of devices, nil if there are none.
func (s streams) of(stream, policy string, devices int) *dispatch.PolicyRun {
	runs := s[stream].Runs
	if i := slices.IndexFunc(runs, func(r dispatch.PolicyRun) bool { return r.Policy == policy }); i >= 0 && len(runs[i].Devices) == devices {
		return &runs[i]
	}
	return nil
}

// The tables of streams that ran on a machine are those of what 'infer tasks run --json' printed there.
func TestStreamsDocs(t *testing.T) {
	const file = "2026-11-26-h100-streams.json"
	measured := readStreams(t, file)
	of := func(stream, policy string) *dispatch.PolicyRun { return measured.of(stream, policy, 2) }
	alone := measured["alone"]
	slices.SortStableFunc(alone.Runs, func(a, b dispatch.PolicyRun) int { return cmp.Compare(a.MakespanUs, b.MakespanUs) })
	run := "| policy | makespan ms | over bound | over serial bound | simulated ms | simulated at work ms | CPU busy % | GPU busy % | over best device: geometric mean | p99 | worst |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
	for _, r := range alone.Runs {
		if len(r.Devices) != 2 || r.Lost != "" {
			t.Fatalf("%+v", r)
		}
		run += fmt.Sprintf("| %s | %.0f | %.2f | %.2f | %.0f | %.0f | %.0f | %.0f | %.2f | %.3g | %.3g |\n", policyInDocs(r.Policy), r.MakespanUs/1e3, r.OverBound, r.OverSerial, r.SimulatedUs/1e3, r.AtWorkUs/1e3,
			100*r.Devices[0].Busy, 100*r.Devices[1].Busy, r.OverBest, r.P99, r.Worst)
	}
	ours, floors := of("alone", "ours"), of("alone", "dmda on floors")
	if ours == nil || floors == nil {
		t.Fatalf("%s lacks the stream alone", file)
	}
	less, than := 100*(1-ours.MakespanUs/floors.MakespanUs), "less"
	if less < 0 {
		less, than = -less, "more"
	}
	run += fmt.Sprintf("\nThe bound is %.1f ms, the serial one %.1f ms, that of tasks at work %.1f ms. Ours takes %.0f %% %s time than dmda on floors: %.2f times the bound, %.2f times the serial one, %.2f times that of tasks at work.\n",
		alone.BoundUs/1e3, alone.SerialUs/1e3, alone.AtWorkUs/1e3, less, than, ours.OverBound, ours.OverSerial, ours.MakespanUs/alone.AtWorkUs)
	load := "| stream | oracle: makespan ms | ours | over serial bound | dmda on history | dmda on floors | ours: recovered after | within 20 in | lost ms | dmda on history: recovered after |\n|---|---|---|---|---|---|---|---|---|---|\n"
	rounds, within5, within20 := 0, 0, 0 // of ours, under load
	for _, s := range []struct {
		name, words string
		device      int // that is loaded; -1: none
	}{
		{"again", "the same again", -1}, {"lanes4", "4 lanes, 10 threads", -1}, {"lanes8", "8 lanes, 6 threads", -1}, {"threads12", "12 threads", -1},
		{"keep", "inputs stay on the GPU", -1}, {"brief", "brief tasks", -1},
		{"cpu25", "load of 25 % on the CPU", 0}, {"cpu50", "50 %", 0}, {"cpu100", "100 %", 0},
		{"gpu25", "load of 25 % on the GPU", 1}, {"gpu50", "50 %", 1}, {"gpu100", "100 %", 1},
	} {
		r := of(s.name, "ours")
		if r == nil {
			t.Fatalf("%s lacks the stream %s", file, s.name)
		}
		makespan := func(policy string) string {
			if r := of(s.name, policy); r != nil {
				return fmt.Sprintf("%.0f", r.MakespanUs/1e3)
			}
			return ""
		}
		recovered := func(r *dispatch.PolicyRun) string {
			switch {
			case s.device < 0 || r == nil:
				return ""
			case r.Devices[s.device].Recovered == nil:
				return "never"
			}
			return strconv.Itoa(*r.Devices[s.device].Recovered)
		}
		within, lost := "", ""
		if s.device >= 0 {
			d := r.Devices[s.device]
			n := 0
			for _, after := range d.Recoveries {
				if after <= 20 {
					n++
				}
				if after <= 5 {
					within5++
				}
			}
			rounds, within20 = rounds+len(r.MakespansUs), within20+n
			within, lost = fmt.Sprintf("%d of %d", n, len(r.MakespansUs)), fmt.Sprintf("%.1f", d.LostUs/1e3)
		}
		load += fmt.Sprintf("| %s | %s | %s | %.2f | %s | %s | %s | %s | %s | %s |\n", s.words, makespan("oracle"), makespan("ours"), r.OverSerial, makespan("dmda on history"), makespan("dmda on floors"),
			recovered(r), within, lost, recovered(of(s.name, "dmda on history")))
	}
	load += fmt.Sprintf("\nOf %d runs under load, ours recovers within 5 tasks in %d and within 20 in %d.\n", rounds, within5, within20)
	apart := "| policy | over best device: geometric mean | p99 | worst | tasks on the GPU |\n|---|---|---|---|---|\n"
	for _, r := range measured["apart"].Runs {
		apart += fmt.Sprintf("| %s | %.2f | %.3g | %.3g | %d |\n", policyInDocs(r.Policy), r.OverBest, r.P99, r.Worst, r.Devices[1].Tasks)
	}
	computers := "| computer, and stream | oracle: makespan ms | ours | dmda on floors | ours takes less | over the bound of tasks at work |\n|---|---|---|---|---|---|\n"
	for _, c := range []struct {
		file, words string
		devices     int
		streams     []string // several: geometric means
	}{
		{file, "the H100 above", 2, []string{"alone"}},
		{file, "the same, two minutes later", 2, []string{"again"}},
		{file, "seven other streams there", 2, []string{"seed2", "seed3", "seed4", "seed5", "seed6", "seed7", "seed8"}},
		{"2026-11-26-h200-x2-streams.json", "[two H200](#two-gpus)", 3, []string{"all"}},
		{"2026-11-26-h200-x2-streams.json", "three other streams there", 3, []string{"seed2", "seed3", "seed4"}},
		{"2026-11-25-h100-streams.json", "another H100, the build before", 2, []string{"alone"}},
		{"2026-11-25-h100-2-streams.json", "a third one, whose CPU other machines slow, an older build", 2, []string{"alone"}},
		{"2026-11-25-h100-x2-streams.json", "two H100, an older build", 3, []string{"all"}},
		{"2026-11-23-h200-streams.json", "an H200, an older build", 2, []string{"alone"}},
	} {
		measured := readStreams(t, c.file)
		mean := func(of func(stream string) float64) float64 {
			sum := 0.0
			for _, s := range c.streams {
				sum += math.Log(of(s))
			}
			return math.Exp(sum / float64(len(c.streams)))
		}
		of := func(policy string) float64 {
			return mean(func(s string) float64 { return measured.of(s, policy, c.devices).MakespanUs / 1e3 })
		}
		bound := mean(func(s string) float64 { return measured[s].AtWorkUs / 1e3 })
		computers += fmt.Sprintf("| %s | %.1f | %.1f | %.1f | %.0f %% | %.2f |\n", c.words, of("oracle"), of("ours"), of("dmda on floors"), 100*(1-of("ours")/of("dmda on floors")), of("ours")/bound)
	}
	docsTables(t, "../../docs/scheduling.md", "TestStreamsDocs", map[string]string{"run": run, "loads": load, "apart": apart, "computers": computers})
}

// The table of streams on two GPUs is that of what was measured there.
func TestTwoGPUsDocs(t *testing.T) {
	const file = "2026-11-26-h200-x2-streams.json"
	measured := readStreams(t, file)
	table := "| stream | oracle: makespan ms | ours | dmda on history | dmda on floors | one GPU, no CPU | ours: tasks on the CPU, the GPUs | busy % | over serial bound |\n|---|---|---|---|---|---|---|---|---|\n"
	for _, s := range []struct {
		name, words string
		devices     int
	}{
		{"all", "300 tasks of 11 kinds, 6 lanes", 3}, {"one", "300 of the same kinds, one GPU", 2}, {"lanes4", "4 lanes", 3}, {"brief", "600 brief tasks", 3}, {"arrays", "300 tasks over arrays", 3},
		{"load0", "300 of 11 kinds, load of 100 % on the first GPU", 3}, {"load1", "on the second GPU", 3},
	} {
		ours := measured.of(s.name, "ours", s.devices)
		if ours == nil {
			t.Fatalf("%s lacks the stream %s", file, s.name)
		}
		line := "| " + s.words
		for _, policy := range []string{"oracle", "ours", "dmda on history", "dmda on floors", "always cuda:0"} {
			makespan := ""
			if r := measured.of(s.name, policy, s.devices); r != nil {
				makespan = fmt.Sprintf("%.1f", r.MakespanUs/1e3)
			}
			line += " | " + makespan
		}
		var tasks, busy []string
		for _, d := range ours.Devices {
			tasks, busy = append(tasks, strconv.Itoa(d.Tasks)), append(busy, fmt.Sprintf("%.0f", 100*d.Busy))
		}
		table += fmt.Sprintf("%s | %s | %s | %.2f |\n", line, strings.Join(tasks, ", "), strings.Join(busy, ", "), ours.OverSerial)
	}
	docsTables(t, "../../docs/scheduling.md", "TestTwoGPUsDocs", map[string]string{"two": table})
}

// policyInDocs is the name of a policy in prose.
func policyInDocs(name string) string {
	return strings.NewReplacer("threshold of", "best threshold in hindsight, of", "cuda:0", "the GPU", "cpu", "the CPU").Replace(name)
}
