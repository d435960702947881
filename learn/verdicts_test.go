package learn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/load"
)

// repeated adds n values near one, which differ a little in a pattern of their own.
func (d *Data) repeated(of, quantity string, x, value float64) {
	for i := range 10 {
		d.add(of, quantity, x, value*(1+0.001*float64((i*(3+len(*d)%5))%7-3)))
	}
}

// same adds n values that are all the same, and returns the data.
func (d Data) same(n int, of, quantity string, x, value float64) Data {
	for range n {
		d.add(of, quantity, x, value)
	}
	return d
}

// says checks that the text of a finding has parts.
func says(t *testing.T, f Finding, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(f.Text, part) {
			t.Errorf("%s: %s lacks %q", f.Verdict, f.Text, part)
		}
	}
}

type given = map[string]struct {
	data Data
	want Verdict
}

// verdicts judges data that must show, refute, and leave undecided.
func verdicts(t *testing.T, judge func(Data) Finding, cases given) {
	t.Helper()
	found := []Verdict{Unknown} // no data: see TestNoData
	for name, c := range cases {
		f := judge(c.data)
		if f.Verdict != c.want || f.Text == "" {
			t.Errorf("%s: %q, expected %q: %s", name, f.Verdict, c.want, f.Text)
		}
		found = append(found, c.want)
	}
	if !slices.Contains(found, Shown) || !slices.Contains(found, Refuted) && !slices.Contains(found, HalfTrue) {
		t.Errorf("data of this test are only %q", found)
	}
}

func TestThreads(t *testing.T) {
	data := func(all float64) (d Data) { // GB/s of all threads where one has 1
		for threads, rate := range map[float64]float64{1: 1, 32: min(20, all), 1000: all} {
			d = d.same(8, gpuThreads, "time_us", threads, 1200/rate).same(8, gpuThreads, "bytes", threads, 1200e3)
		}
		return d
	}
	verdicts(t, judgeThreads, given{
		"100": {data(100.1), Refuted}, "99": {data(99), Unknown}, "2.1": {data(2.1), Unknown}, "2": {data(1.99), Shown},
	})
	if f := judgeThreads(data(30)); f.Figures[0].String() != "1.00 GB/s" {
		t.Errorf("%v", f.Figures)
	}
}

func TestSteps(t *testing.T) {
	data := func(whole, host, back string) (d Data) {
		d.say(allSteps, "outcome", whole)
		d.say(hostPointers, "outcome", host)
		d.say(noCopyBack, "outcome", back)
		return d
	}
	differ := data(cameRight, cameError+"x", cameWrong)
	differ.say(allSteps, "outcome", "another")
	verdicts(t, judgeSteps, given{
		"each omission costs":      {data(cameRight, cameError+"an illegal memory access", cameWrong), HalfTrue},
		"each omission fails":      {data(cameRight, cameError+"x", cameError+"y"), Shown},
		"host pointers work":       {data(cameRight, cameRight, cameWrong), Refuted},
		"the copy back is no need": {data(cameRight, cameError+"x", cameRight), Refuted},
		"all steps fail":           {data(cameWrong, cameError+"x", cameWrong), Unknown},
		"one was not run":          {data(cameRight, "", cameWrong), Unknown},
		"outcomes that differ":     {differ, Unknown},
	})
}

// linkData are nine rounds of copies that take what time says.
func linkData(time func(n float64) float64) (d Data) {
	for round := range 9 {
		for _, n := range linkSizes(1 << 24) {
			t := time(float64(n)) * (1 + 0.01*float64(round%3-1))
			for _, of := range []string{toDevice, toHost, pageable} {
				d.add(of, "time_us", float64(n), t)
			}
			d.add(taskKernel, "kernel_us", float64(n), 2)
		}
	}
	return d
}

func TestLink(t *testing.T) {
	f := judgeLink(linkData(func(n float64) float64 { return 8 + n/50e3 }))
	if f.Verdict != HalfTrue || math.Abs(f.Figures[0].Value-8) > 0.1 || math.Abs(f.Figures[1].Value-50) > 0.5 {
		t.Errorf("8 us + n / 50 GB/s: %+v", f)
	}
	steps := func(n float64) float64 { return 10 * (1 + 4*math.Round(math.Mod(math.Log2(n), 2))) * (1 + n/1e6) }
	verdicts(t, judgeLink, given{
		"first constant, then of the square": {linkData(func(n float64) float64 { return 10 + n*n/1e9 }), Refuted},
		"steps":                              {linkData(steps), Unknown},
		"a network":                          {linkData(func(n float64) float64 { return 1000 + n/100 }), Shown},
		"small copies 9 % slower, all others 9 % faster than a law": {linkData(func(n float64) float64 {
			if n <= 8<<10 {
				return 1.09 * (8 + n/50e3)
			}
			return 0.91 * (8 + n/50e3)
		}), HalfTrue}, // least squares, which the many others decide, are 18 % off
	})
}

// The fit is the best for its criterion: no law on a fine grid has a lower 90th percentile of deviations.
func TestFitLaw(t *testing.T) {
	sizes := []float64{1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3}
	times := []float64{7.2, 7.4, 7.5, 8.7, 10.8, 9.6, 10.2, 11.1, 12.8, 18}
	_, off := fitLaw(sizes, times)
	for latency := 6.0; latency < 11; latency += 0.05 {
		for slope := 5e-6; slope < 4e-5; slope += 2.5e-7 {
			if q := percentile90((law{latency, slope}).deviations(sizes, times)); q < off-1e-9 {
				t.Fatalf("%g us + %g n is off by %g %%, the fit by %g %%", latency, slope, q, off)
			}
		}
	}
}

func TestParallelOnCPU(t *testing.T) {
	data := func(all float64) (d Data) {
		for name, factor := range map[string]float64{oneChain: 1, eightChains: all / 2, vectorsOf: all, vectorsAll: all} {
			d = d.same(8, name, "time_us", 1, 1000).same(8, name, "flops", 1, 1e6*factor)
		}
		return d
	}
	verdicts(t, judgeParallelOnCPU, given{
		"4": {data(4), Refuted}, "3.9": {data(3.9), Unknown}, "1.6": {data(1.6), Unknown}, "1": {data(1), Shown},
	})
}

func TestParallelOnGPU(t *testing.T) {
	data := func(warp float64) (d Data) { // how many times as long as a lane a warp takes
		for threads, time := range map[float64]float64{1: 100, 32: 100 * warp, 1024: 110 * warp} {
			d = d.same(8, gpuThreads, "time_us", threads, time).same(8, gpuThreads, "flops", threads, threads)
		}
		return d
	}
	verdicts(t, judgeParallelOnGPU, given{
		"1.19": {data(1.19), Shown}, "1.3": {data(1.3), Unknown}, "16": {data(16), Unknown}, "32": {data(32), Refuted},
	})
}

// timersData are ten rounds of kernels of 10 us and 10 ms.
func timersData(launch, waitedUs, eventsUs float64) (d Data) {
	for round := range 10 {
		wobble := 1 + 0.0005*float64(round%5)
		for _, x := range []float64{10, 10000} {
			d.add(noWait, "time_us", x, launch*wobble)
			d.add(waited, "time_us", x, waitedUs*x/10000*wobble)
			d.add(events, "time_us", x, eventsUs*x/10000)
		}
	}
	return d
}

func TestTimers(t *testing.T) {
	verdicts(t, judgeTimers, given{
		"within 2 %":               {timersData(5, 10050, 10000), HalfTrue},
		"10 % more":                {timersData(5, 11000, 10000), Shown},
		"10 % less":                {timersData(5, 9000, 10000), Shown},
		"the interval holds 2 %":   {timersData(5, 10190, 10000), Unknown},
		"no kernel ran":            {timersData(0.1, 0.2, 0.1), Unknown},
		"only kernels of one size": {timersData(5, 10050, 10000)[:3], Unknown},
	})
}

// squaresData are ten rounds in which each way takes a time that differs a little from round to round.
func squaresData(times ...float64) (d Data) {
	for round := range 10 {
		for i, way := range squares {
			d.add(way, "time_us", 0, times[i]*(1+0.001*float64((round*(i+3))%7-3)))
		}
	}
	return d
}

func TestSquares(t *testing.T) {
	noisy := squaresData(3333, 3333, 3333, 3333)
	for i := range noisy {
		noisy[i].Value *= 1 + 0.3*float64(i*7%5-2)
	}
	// Other work that interrupts one call in six for a long time does not change the verdict.
	busy, random := Data{}, rand.New(rand.NewPCG(1, 2))
	for range 401 {
		for _, way := range squares {
			t := 250 + 5*random.NormFloat64()
			if random.IntN(6) == 0 {
				t += 20_000 * random.Float64()
			}
			busy.add(way, "time_us", 0, t)
		}
	}
	verdicts(t, judgeSquares, given{
		"the times of the claim":                  {squaresData(3333, 3331, 3339, 3330), Refuted},
		"the others are faster":                   {squaresData(3333, 3200, 3150, 3330), Refuted},
		"faster than both":                        {squaresData(3333, 3500, 3600, 3330), Shown},
		"faster than one of two":                  {squaresData(3333, 3500, 3335, 3330), Refuted},
		"they differ by half from round to round": {noisy, Unknown},
		"one call in six is interrupted":          {busy, Refuted},
		"two rounds":                              {squaresData(1, 1, 1, 1)[:8], Unknown},
	})
}

func TestWidth(t *testing.T) {
	data := func(few, many float64) (d Data) { // blocks
		for _, of := range []string{"width 1", "width 4", fourBlocks} {
			for n, blocks := range map[float64]float64{4096: few, 1 << 20: many} {
				d = d.same(8, of, "time_us", n, 10).same(8, of, "bytes", n, 8*n).same(8, of, "blocks", n, blocks)
			}
		}
		return d
	}
	verdicts(t, judgeWidth, given{
		"more for more numbers": {data(8, 2048), Refuted}, "always 4": {data(4, 4), Shown},
		"none": {data(0, 0), Unknown}, "always 8": {data(8, 8), Unknown},
	})
}

func TestFirst(t *testing.T) {
	data := func(processes int, first func(process int) float64) (d Data) {
		for process := range processes {
			d.add("make a context", "spent_us", 0, 200e3)
			d.add("call", "time_us", 1, first(process))
			for call := 2; call <= firstCalls; call++ {
				d.add("call", "time_us", float64(call), 100*float64(1+process)) // a process may be slow as a whole
			}
		}
		return d
	}
	times := func(factor float64) Data {
		return data(7, func(process int) float64 { return factor * 100 * float64(1+process) })
	}
	verdicts(t, judgeFirst, given{
		"50 times": {times(50), Shown}, "1.51 times": {times(1.51), Shown},
		"1.49 times": {times(1.49), Refuted}, "faster": {times(0.9), Refuted},
		"now 1, now 3 times": {data(7, func(process int) float64 {
			return (1 + 2*float64(process%2)) * 100 * float64(1+process)
		}), Unknown},
	})
	f := judgeFirst(times(3))
	if before := f.Figures[4]; f.Figures[2].String() != "3.00x" ||
		before.Name != "before the first call: make a context" || before.Short() != "200 ms" {
		t.Errorf("%v", f.Figures)
	}
}

// The recordings of the samples: eager mode asks whether the stream is being captured, and has no graph.
func TestCaptures(t *testing.T) {
	var d Data
	for mode, file := range map[string]string{"eager": "gpt2-L1-eager-cupti", "graph": "gpt2-L1-graph-cupti"} {
		countCalls(&d, mode, sample(t, file))
	}
	f := judgeCaptures(d)
	for i, want := range map[int]float64{0: 1, 2: 0, 4: 0, 7: 38} {
		if f.Verdict != Refuted || f.Figures[i].Value != want || !(f.Figures[9].Value > 300) {
			t.Errorf("the samples: figure %d is not %g: %+v", i, want, f)
		}
	}
	eager := func(asks, launches, nodes, kernels float64) (d Data) {
		d.add("eager", "kernels", 0, kernels)
		d.add("eager", "kernels_of_graphs", 0, nodes)
		d.add("eager", "calls of cudaStreamIsCapturing_v10000", 0, asks)
		d.add("eager", "calls of cudaGraphLaunch", 0, launches)
		return d
	}
	verdicts(t, judgeCaptures, given{
		"a graph was launched":     {eager(1, 3, 0, 10), Shown},
		"kernels are nodes":        {eager(1, 0, 5, 10), Shown},
		"the call is not there":    {eager(0, 0, 0, 10), Unknown},
		"the call, and no graph":   {eager(2, 0, 0, 10), Refuted},
		"a recording of no kernel": {eager(2, 0, 0, 0), Unknown},
	})
}

// queueData are rounds of 2000 launches of a kernel, of which those after the depth wait.
func queueData(kernel, launch float64, depths ...int) (d Data) {
	for _, depth := range depths {
		d.add("kernel", "time_us", 0, kernel)
		d.add("round", "launches", 0, 2000)
		for i := 1; i <= 2000; i++ {
			switch {
			case i > depth:
				d.add("launch", "time_us", float64(i), kernel)
			case i == 500: // one that the operating system held up
				d.add("launch", "time_us", float64(i), 3*kernel)
			case i%50 == 1:
				d.add("launch", "time_us", float64(i), launch)
			}
		}
	}
	return d
}

func TestQueue(t *testing.T) {
	waits := queueData(100, 4, 1023, 1023, 1024, 1023, 1025, 1024)
	if f := judgeQueue(waits); f.Figures[2].Value < 1023 || f.Figures[2].Value > 1024 || f.Figures[3].Value != 100 {
		t.Errorf("a queue of 1,024: %+v", f)
	}
	verdicts(t, judgeQueue, given{
		"all rounds wait":          {waits, Refuted},
		"no launch waits":          {queueData(100, 4, 2000, 2000, 2000), Shown},
		"some rounds wait":         {queueData(100, 4, 2000, 1023, 2000), Unknown},
		"the kernel takes no time": {queueData(0, 4, 2000), Unknown},
		"the launch is as slow":    {queueData(100, 90, 2000), Unknown},
	})
}

// sample is a recording of traces/samples.
func sample(t *testing.T, name string) *traces.Trace {
	t.Helper()
	trace := require.Value(load.Source{Path: "../traces/samples/" + name + ".json.gz"}.Load())(t)
	return trace
}

func TestLayersOfSample(t *testing.T) {
	trace := sample(t, "gpt2-L12-eager-cupti")
	d := layersOf(trace)
	if n := d.values("decode step", "layers"); len(n) != 11 || median(n) != 12 {
		t.Errorf("layers of the decode steps: %v, want 12 in each of 11", n)
	}
	if n := total(d.values("decode step", "kernels")); n != 11*63 {
		t.Errorf("%g kernels, want %d", n, 11*63)
	}
	says(t, judgeLayers(d), "While 144 layers of GPT-2 ran, the host waited for the GPU 0 times.",
		"792 of 792 kernels have the id of a launch")

	// Kernels whose id no call has are not paired.
	for i := range trace.Events {
		if e := &trace.Events[i]; e.Kind == traces.KindKernel && e.Time%3 == 0 {
			e.Correlation += 1 << 40
		}
	}
	if f := judgeLayers(layersOf(trace)); f.Figures[1].Value > 70 {
		t.Errorf("a third of the kernels have an id of no call: %s", f.Text)
	}
}

func TestLayers(t *testing.T) {
	data := func(layers, syncs, kernels, paired float64) (d Data) {
		d.add("decode step", "layers", 0, layers)
		d.add("decode step", "synchronisations", 0, syncs)
		d.add("decode step", "kernels", 0, kernels)
		d.add("decode step", "paired", 0, paired)
		return d
	}
	verdicts(t, judgeLayers, given{
		"no wait":            {data(12, 0, 90, 90), HalfTrue},
		"a wait for a layer": {data(12, 12, 90, 90), Shown},
		"ids do not pair":    {data(12, 12, 90, 40), Refuted},
		"some layers wait":   {data(12, 8, 90, 90), Unknown},
	})
}

func TestRangesOfSample(t *testing.T) {
	d := rangesOf(sample(t, "gpt2-L12-eager-cupti"))
	if n := len(d.cases("host_us")); n != 12 {
		t.Errorf("stages %q, want 12", d.cases("host_us"))
	}
	f := judgeRanges(d)
	if f.Verdict != Refuted || f.Figures[2].Value < 10 || f.Figures[6].Value > 1 {
		t.Errorf("%s: %s", f.Verdict, f.Text)
	}
	for i, want := range map[int]string{0: "wte+wpe: ranges on the host (nvtx_sum) 393 us",
		4: "ln_f+lm_head: ranges on the host (nvtx_sum) 83.5 us"} {
		if got := f.Figures[i].Name + " " + f.Figures[i].Short(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	data := func(first, later float64) (d Data) {
		for _, stage := range []string{"h.N.ln_1", "sample"} {
			d.add(stage, "host_us", 0, first)
			d.add(stage, "device_us", 0, 10)
			for pass := range 9 {
				d.add(stage, "host_us", float64(pass+1), later)
				d.add(stage, "device_us", float64(pass+1), 10)
			}
		}
		return d
	}
	verdicts(t, judgeRanges, given{
		"a first call that loads":         {data(5000, 10), Refuted},
		"ranges shorter than kernels":     {data(3, 3), Refuted},
		"ranges as long as their kernels": {data(10, 10), Shown},
		"ranges a little longer":          {data(13, 13), Unknown},
	})
}

// tools puts programs named ncu and nsys on the path, which print what the real ones would.
func tools(t *testing.T, metrics, kernSum string) {
	t.Helper()
	dir := t.TempDir()
	ncu := `#!/bin/sh
[ "$1" = --version ] && { echo 'NVIDIA Nsight Compute'; echo 'Version 2025.3'; exit; }
i=0; while [ $i -lt 120 ]; do echo "sm__filler_$i Counter"; i=$((i+1)); done
cat <<END
` + metrics + "\nEND\n"
	nsys := `#!/bin/sh
[ "$1" = --version ] && { echo 'NVIDIA Nsight Systems version 2025.3'; exit; }
case $3 in
cuda_gpu_kern_sum) cat <<END
` + kernSum + `
END
;;
cuda_gpu_kern_gb_sum) printf 'cuda_gpu_kern_gb_sum[:base] -- Summary\n    Total Time : x\n    GridXYZ : Dimensions\n';;
*) printf 'cuda_gpu_trace -- Trace\n    Duration : x\n    GrdX, GrdY, GrdZ : Grid values\n';;
esac
`
	for name, text := range map[string]string{"ncu": ncu, "nsys": nsys} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

const (
	newMetrics  = "sm__warps_active Counter warp\nsm__inst_executed Counter inst\nsmsp__cycles_active Counter cycle"
	oldMetrics  = "sm_efficiency x\nachieved_occupancy x\nipc x"
	withoutGrid = "cuda_gpu_kern_sum -- CUDA GPU Kernel Summary\n Total Time : x\n Name : without grid : or block"
)

func TestNames(t *testing.T) {
	asked := func(metrics, kernSum string) Data {
		tools(t, metrics, kernSum)
		d := require.Value(measure(t.Context(), quick(t), namesHere))(t)
		return d
	}
	today := asked(newMetrics, withoutGrid)
	verdicts(t, judgeNames, given{
		"today":                    {today, Refuted},
		"as claimed":               {asked(oldMetrics, withoutGrid+"\n    GridXYZ : Grid dimensions"), Shown},
		"old names without grid":   {asked(oldMetrics, withoutGrid), Refuted},
		"a grid without old names": {asked(newMetrics, withoutGrid+"\n    GridXYZ : Grid dimensions"), Refuted},
		"no tool tells":            {Data{{Case: "missing", Quantity: "tool", Text: "ncu is not installed"}}, Unknown},
	})
	f := judgeNames(today)
	says(t, f, "ncu 2025.3 lists 0 of the 3 metrics of the claim, and 3 of the 7 names of today below.",
		"that list the grid: cuda_gpu_kern_gb_sum, cuda_gpu_trace; that do not: cuda_gpu_kern_sum.")
	if len(f.Lines) != 1+len(renamed) {
		t.Errorf("%q", f.Lines)
	}
}

// Help of all reports in one text is cut into reports.
func TestHelpOf(t *testing.T) {
	text := "Reports:\n  a[:base] -- A\n\n    Time : x\n  b -- B\n    Time : y\n    GridXYZ : z\n"
	a, b, c := helpOf(text, "a"), helpOf(text, "b"), helpOf(text, "c")
	if !strings.HasSuffix(a, "Time : x") || !gridColumn().MatchString(b) || gridColumn().MatchString(a) || c != "" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}

// One tool is enough for a verdict; the other is named. Without both the lesson cannot run here.
func TestNamesWithoutTools(t *testing.T) {
	tools(t, newMetrics, "no such report")
	path, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	require.NoError(t, os.Remove(filepath.Join(path, "nsys")))
	t.Setenv("PATH", path+":/bin:/usr/bin")
	d, err := measure(t.Context(), quick(t), namesHere)
	f := judgeNames(d)
	says(t, f, "Not asked: nsys is not installed (Nsight Systems: developer.nvidia.com/nsight-systems).")
	if err != nil || f.Verdict != Refuted {
		t.Errorf("%v, %s: %s", err, f.Verdict, f.Text)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = measure(t.Context(), quick(t), namesHere)
	if !errors.Is(err, errNotHere) || !strings.Contains(err.Error(), "ncu is not installed (Nsight Compute: ") {
		t.Error(err)
	}
}

// reuseData are times for a transfer of 1000 us, readings on the device of compute and readings in place of place each.
func reuseData(compute, place float64) (d Data) {
	for _, r := range []float64{1, 2, 10, 100} {
		d.repeated(oneCopy, "time_us", r, 1000)
		d.repeated(resident, "time_us", r, compute*r)
		d.repeated(copyRead, "time_us", r, 1000+compute*r)
		d.repeated(inPlace, "time_us", r, place*r)
	}
	return d
}

func TestReuse(t *testing.T) {
	verdicts(t, judgeReuse, given{
		"a link":                        {reuseData(15, 1000), Refuted},
		"a link as fast as memory":      {reuseData(15, 15), Shown},
		"a transfer that is never long": {reuseData(2000, 2000), Unknown},
		"in place as fast as a copy":    {reuseData(600, 1600), Unknown},
		"one number of readings":        {reuseData(15, 1000)[:40], Unknown},
	})
	managed := reuseData(15, 1000)
	for of, us := range map[string]float64{copiedByTimer: 100, unified: 400, prefetched: 110} {
		managed.repeated(of, "time_us", 1, us)
	}
	says(t, judgeReuse(managed), "With 1 reading, unified memory takes 4.00x the time of a copy before, prefetched 1.10x.")
	says(t, judgeReuse(reuseData(15, 1000)), "Up to 10 readings the transfer takes longer than the computation. "+
		"Yet from 2 readings on, copying first is faster")
}

// thresholdData are times of straight lines, a + b n, of the CPU and of the GPU in each place.
func thresholdData(cpu, gpu [4][2]float64) (d Data) {
	for p, place := range thresholdCases {
		for n := 1024.0; n < 1<<22; n *= 2 {
			d.repeated(place, "cpu_us", n, cpu[p][0]+cpu[p][1]*n)
			d.repeated(place, "gpu_us", n, gpu[p][0]+gpu[p][1]*n)
		}
	}
	return d
}

func TestThreshold(t *testing.T) {
	host, device, queued, late := [2]float64{0, 5e-4}, [2]float64{20, 8e-4}, [2]float64{30, 2e-4}, [2]float64{530, 2e-4}
	resident, residentLate := [2]float64{8, 4e-6}, [2]float64{508, 4e-6}
	mixed := thresholdData([4][2]float64{host, device, host, {520, 8e-4}},
		[4][2]float64{queued, resident, late, residentLate})
	alike := thresholdData([4][2]float64{host, host, host, host}, [4][2]float64{queued, queued, queued, queued})
	between := thresholdData([4][2]float64{host, host, host, host},
		[4][2]float64{queued, queued, {400, 2e-4}, {400, 2e-4}})
	few := Data{}
	for _, p := range mixed {
		if p.X < 8000 {
			few = append(few, p)
		}
	}
	verdicts(t, judgeThreshold, given{
		"mixed places and queues": {mixed, HalfTrue}, "one line in all places": {alike, Shown},
		"three sizes": {few, Unknown}, "a threshold loses 8 %": {between, Unknown}, "stored": {computed(t, lesson15.CPU, Env{}), HalfTrue},
	})
}

func utilisationData(idle, one, used float64) (d Data) {
	d.add("all", "sms", 0, 132)
	for of, percent := range map[string]float64{idleGPU: idle, oneBlock: one, blockPerSM: 100} {
		for range 10 {
			d.add(of, "utilisation_percent", 0, percent)
			d.add(of, "power_w", 0, 100)
		}
	}
	d.add(oneBlock, "sms_used", 0, used)
	d.add(blockPerSM, "sms_used", 0, 132)
	return d
}

func TestUtilisation(t *testing.T) {
	verdicts(t, judgeUtilisation, given{
		"one block, all of the time":    {utilisationData(0, 100, 1), Refuted},
		"a share of SMs":                {utilisationData(0, 1, 1), Shown},
		"another program":               {utilisationData(90, 100, 1), Unknown},
		"neither":                       {utilisationData(0, 30, 1), Unknown},
		"one block on each SM, a share": {utilisationData(0, 100, 132), Shown},
	})
}

func occupancyData(copying, chasing func(percent float64) float64) (d Data) {
	for _, percent := range []float64{12.5, 25, 37.5, 50, 62.5, 75, 87.5, 100} {
		d.repeated(occupancyCases[0], "time_us", percent, copying(percent))
		d.repeated(occupancyCases[1], "time_us", percent, chasing(percent))
	}
	return d
}

func TestOccupancy(t *testing.T) {
	inverse := func(percent float64) float64 { return 1e5 / percent }
	saturated := func(percent float64) float64 { return max(1e5/percent, 3000) }
	little := func(percent float64) float64 { return map[bool]float64{true: 1050, false: 1000}[percent <= 50] }
	verdicts(t, judgeOccupancy, given{
		"5 % or not":    {occupancyData(inverse, little), Unknown},
		"one saturates": {occupancyData(saturated, inverse), Refuted},
		"none does":     {occupancyData(inverse, inverse), Shown},
		"two points":    {occupancyData(inverse, inverse)[:40], Unknown},
	})
	says(t, judgeOccupancy(occupancyData(saturated, inverse)),
		"The copy, limited by bandwidth, is within 5 % of its best time from an occupancy of 38 % on",
		"The chase, limited by latency, is within 5 % of its best time from an occupancy of 100 % on")
}

// divergenceData take a time for each case: that of the base times a factor.
func divergenceData(factor func(of string) float64) (d Data) {
	for _, of := range []string{onePath, byWarp, byLane(2), byLane(32), agreeing, differing} {
		d.repeated(of, "time_us", 0, 100*factor(of))
	}
	return d
}

func TestDivergence(t *testing.T) {
	real := map[string]float64{byLane(2): 2, byLane(4): 4, byLane(32): 31}
	verdicts(t, judgeDivergence, given{
		"as GPUs do": {divergenceData(func(of string) float64 { return max(1, real[of]) }), HalfTrue},
		"ten times":  {divergenceData(func(of string) float64 { return max(1, 10*real[of]) }), Refuted},
		"always half the speed": {divergenceData(func(of string) float64 {
			if of == onePath || of == agreeing {
				return 1
			}
			return 2
		}), Shown},
		"a little less than half": {divergenceData(func(of string) float64 {
			if of == onePath || of == agreeing {
				return 1
			}
			return 1.8
		}), Unknown},
	})
}

// blocksData start units in an order, and add numbers up with results.
func blocksData(outcome string, turn func(launch, k int) int, fixed, loose func(i int) float64) (d Data) {
	d.say(returns, "outcome", outcome)
	for launch := range blockLaunches {
		for k := range 100 {
			d.add(launchCase(launch), "turn", float64(k), float64(turn(launch, k)))
		}
	}
	for i := range 20 {
		for of, bits := range map[string]func(int) float64{inParts: fixed, asItCame: loose} {
			d.add(of, "sum_error", 0, 0.01)
			d.add(of, "sum_bits", 0, bits(i))
			d.add(of, "time_us", 0, 10+0.01*float64(i%5))
		}
	}
	return d
}

func TestBlocks(t *testing.T) {
	ordered := func(_, k int) int { return k }
	any := func(launch, k int) int { return (k*7 + launch) % 100 }
	once := func(launch, k int) int { // out of order in one launch only
		if launch == 1 {
			return any(launch, k)
		}
		return k
	}
	same, differ := func(int) float64 { return 42 }, func(i int) float64 { return float64(i % 4) }
	const log = "blocks.cu(11): error: must have void return type\n  int order()\n"
	says(t, judgeBlocks(blocksData(log, any, same, differ)),
		"refuses a kernel that returns a value: must have void return type.")
	verdicts(t, judgeBlocks, given{
		"as GPUs do":                         {blocksData(log, any, same, differ), Shown},
		"out of order in one launch":         {blocksData(log, once, same, differ), Shown},
		"always in order":                    {blocksData(log, ordered, same, differ), Refuted},
		"kernels that return":                {blocksData("it compiles", any, same, differ), Refuted},
		"no order was measured":              {nil, Unknown},
		"shared memory that gives no result": {blocksData(log, any, differ, differ), Refuted},
	})
}

// addOverlap adds rounds in which the work of chunks takes a ms each. If apart, chunks follow one another; otherwise a
// chunk begins a ms after the one before.
func (d *Data) addOverlap(of string, apart bool) {
	for round := range 11 {
		end := 0.0
		for chunk := range overlapChunks {
			start := 1000 * float64(chunk)
			if apart {
				start *= 3
			}
			for i := range 4 {
				end = start + 1000*float64(i) + float64(round%3)
				d.add(of, fmt.Sprintf("mark_%d_us", i), float64(chunk), end)
			}
		}
		if round > 0 {
			d.add(of, "time_us", 0, end)
		}
	}
}

func TestOverlap(t *testing.T) {
	data := func(apart ...bool) (d Data) {
		for i, of := range overlapCases {
			d.addOverlap(of, apart[i])
		}
		return d
	}
	verdicts(t, judgeOverlap, given{
		"two streams overlap": {data(true, false, true), HalfTrue},
		"all overlap":         {data(true, false, false), Shown},
		"none does":           {data(true, true, true), Refuted},
		"no gain":             {data(false, false, true), Unknown},
	})
	says(t, judgeOverlap(data(true, false, true)), "not otherwise")
}

// A mark before work says when its stream came to it. Work that waits for an engine has not started.
func TestSpans(t *testing.T) {
	var d Data
	for chunk, marks := range [][]float64{{0, 10, 20, 30}, {0, 20, 30, 40}} {
		for i, at := range marks {
			d.add(inTwoStreams, fmt.Sprintf("mark_%d_us", i), float64(chunk), at)
		}
	}
	spans := spansOf(d, inTwoStreams, 0)
	if len(spans) != 6 || spans[3] != (span{"copy in", 1, 10, 20}) || spans[4] != (span{"kernel", 1, 20, 30}) {
		t.Fatalf("%+v", spans)
	}
	if p, ok := hidden(spans); !ok || p != 100 {
		t.Errorf("copies run during %g %% of the kernels, want 100: the second copy in, the first copy back", p)
	}
	if _, ok := hidden(nil); ok {
		t.Error("no work is no overlap")
	}
}

// computed are the data of an experiment that measures nothing.
func computed(t *testing.T, x *Experiment, e Env) Data {
	t.Helper()
	d := require.Value(measure(t.Context(), &e, x.Run))(t)
	return d
}

func TestLaunch(t *testing.T) {
	launch := func(size, block int) Data { return computed(t, lesson21.CPU, Env{Size: size, Block: block}) }
	verdicts(t, judgeLaunch, given{
		"ten million": {launch(0, 0), Refuted}, "a wave": {launch(132*2048, 1024), Shown}, "one more block": {launch(132*2048+1, 1024), Refuted},
		"one thread": {launch(1, 1), Shown}, "nothing": {Data{{Case: ofLaunch, Quantity: "size", Value: 1}}, Unknown},
	})
	f := judgeLaunch(launch(1000, 256))
	says(t, f, "1,024 threads are launched, and 1,024 run at once: 4 blocks on 4 SMs; an SM holds at most 8, limited by warps.")
	says(t, judgeLaunch(launch(1, 1)), "1 thread is launched, and 1 runs at once: 1 block on 1 SM; an SM holds at most 32, limited by blocks")
	if want := []string{"block 0: elements 0 to 255; its warps have 0 to 31, 32 to 63, ...", "block 1: elements 256 to 511", "block 3: elements 768 to 999, and 24 threads without one", "",
		"wave 1 [#.......................................] 4 blocks, on 4 SMs"}; !slices.Equal(f.Lines[2:], want) {
		t.Errorf("%q", f.Lines)
	}
	if f := judgeLaunch(launch(0, 0)); len(f.Lines) != 9 || !strings.HasPrefix(f.Lines[8], "wave 37 [") {
		t.Errorf("%q", f.Lines)
	}
	if _, err := measure(t.Context(), &Env{Size: 5, Block: 2000}, lesson21.CPU.Run); !errors.Is(err, errNotHere) {
		t.Errorf("a block of 2000 threads: %v", err)
	}
}

func TestPinned(t *testing.T) {
	data := func(small, large float64) (d Data) { // how many times as long pageable memory takes
		for _, n := range linkSizes(1 << 24) {
			factor := small
			if n > 1<<16 {
				factor = large
			}
			for of, us := range map[string]float64{toDevice: 10, pageable: 10 * factor} {
				d = d.same(7, of, "time_us", float64(n), us)
			}
		}
		return d
	}
	verdicts(t, judgePinned, given{
		"large ones": {data(1, 4), HalfTrue}, "all": {data(1.8, 4), Refuted}, "none": {data(1, 1), Shown}, "a little": {data(1, 1.4), Unknown},
	})
}

// Of the recordings in the program, by what 'infer trace show' says of them.
func TestOfSamples(t *testing.T) {
	nested := Data{}
	for of, self := range map[string]float64{"aten::linear": 95, "aten::addmm": 99} {
		nested.add(of, "self_us", 0, self)
		nested.add(of, "total_us", 0, 100)
	}
	verdicts(t, judgeTotals, given{"kineto": {computed(t, lesson23.CPU, Env{}), Refuted}, "operators that call none": {nested, Shown}})
	verdicts(t, judgeSplit, given{"lesson24.cu": {computed(t, lesson24.CPU, Env{}), HalfTrue}, "host alone": {Data{{Case: byHost, Quantity: "line"}}, Refuted},
		"a kernel alone": {Data{{Case: byGPU, Quantity: "line"}}, Shown}})
	if f := judgeSplit(computed(t, lesson24.CPU, Env{})); f.Figures[0].Value != 4 || f.Figures[1].Value != 4 || f.Figures[2].Value != 1 {
		t.Errorf("%q", f.Lines)
	}
	sums := func(eager, graph float64) (d Data) {
		for mode, factor := range map[string]float64{"eager": eager, "graph": graph} {
			d.add(mode, "steps", 0, 10)
			d.add(mode, "kernels_us", 0, 100*factor)
			d.add(mode, "wall_us", 0, 100)
		}
		return d
	}
	verdicts(t, judgeKernelSums, given{"samples": {computed(t, lesson25.CPU, Env{}), Refuted}, "1.0": {sums(1.01, 0.97), Shown}, "near": {sums(0.92, 1), Unknown}})
	if f := judgeKernelSums(computed(t, lesson25.CPU, Env{})); f.Figures[2].Short() != "0.754x" || f.Figures[5].Short() != "2.54x" {
		t.Errorf("%v", f.Figures)
	}
	host := func(factor float64) (d Data) {
		d.add("forward", "host_us", 0, factor)
		d.add("forward", "projected_us", 0, 1)
		return d
	}
	verdicts(t, judgeWaiting, given{"bad": {computed(t, lesson12.CPU, Env{}), Shown}, "2": {host(2), Refuted}})
}
