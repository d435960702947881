package learn

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

//go:embed emulate.cuh
var emulation string

var kernelHead = lazyregexp.New(
	`(extern\s+"C"\s+)?__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(`)

// ofMine explains the speed of a reader's kernel.
const ofMine = `A kernel that moves more bytes than it computes is as fast as memory: the floor is its bytes over the
bandwidth. Blocks wait for a place on an SM (waves); an SM holds as many warps as registers, shared memory and threads allow
(occupancy), and needs enough of them, or several loads in each thread, to have many bytes on the way. So: neighbouring
threads read neighbouring addresses, no thread without work, then fewer and wider loads. A product reuses what it
reads: there tiles in shared memory and registers decide, and matrix units.`

// Mine is a lesson about a reader's own kernel, for the task that the kernel is named after. With gpu it is timed
// beside the ways of the task; without, the emulator runs it. floors returns what the GPU can do.
func Mine(file, source string, gpu bool, floors func(gpt2.Backend) (ceilings.Set, error)) (*Lesson, error) {
	var names []string
	for _, t := range tasks.All() {
		if t.Arrays == nil {
			continue
		}
		names = append(names, t.KernelName())
		for _, found := range kernelHead().FindAllStringSubmatch(source, -1) {
			if found[2] != t.KernelName() {
				continue
			}
			if found[1] == "" {
				return nil, fmt.Errorf(`%s: write extern "C" before the __global__ of %s: without it C++ gives it another name`,
					file, found[2])
			}
			claim := fmt.Sprintf("%s in %s is right, and as fast as the tuned way", found[2], filepath.Base(file))
			l := &Lesson{Claim: claim, Why: ofMine, GoOn: "infer learn 21"}
			if gpu {
				l.GPU = &Experiment{Run: func(l *lab) { timeMine(l, t, file, source, floors) }, Judge: judgeMine}
			} else {
				l.CPU = &Experiment{Of: "On the emulator of this program, since there is no GPU",
					Run: func(l *lab) { emulateMine(l, t, file, source) }, Judge: judgeMine}
			}
			return l, nil
		}
	}
	return nil, fmt.Errorf("%s has no kernel of a task, a function __global__ void named %s; "+
		"'infer learn %s --new vector.add' writes one", file, strings.Join(names, ", "), file)
}

// timeMine checks and times the kernel beside the task's ways, with the data on the GPU.
func timeMine(l *lab, t *tasks.Task, file, source string, floors func(gpt2.Backend) (ceilings.Set, error)) {
	index := l.Device.Info().Index
	machine := must(tasks.Open(tasks.Options{Name: "here", GPUs: []int{index}}))
	defer machine.Close()
	device := machine.Devices()[0]
	machine.SetCeilings(device, must(floors(machine.Measurer(device))))
	block := cmp.Or(l.Block, launchBlock)
	shape := t.Of(cmp.Or(l.Size, 1<<24))
	if t.Name == "matmul" {
		shape = t.Of(cmp.Or(l.Size, 1<<10))
	}
	launch := t.Launch(shape, block)
	var o cuda.Occupancy
	with := t.With(file, source, block, func(k *cuda.Function) (err error) {
		o, err = k.Occupancy(launch.Block.X*launch.Block.Y, 0)
		return err
	})
	b := tasks.Bench{Machine: machine,
		Suite: tasks.Suite{Tasks: []*tasks.Task{with}, Devices: []string{device}, Seed: 1}}
	samples, err := b.Turn(l.ctx, tasks.Turn{Task: with, Shape: shape, DType: tasks.Float32, From: 1, To: l.pick(15, 7)})
	check(err)
	for _, s := range samples {
		if s.Memory == predict.Resident {
			l.add(s.Variant, "kernel_us", 0, s.KernelUs)
			l.add("floor", "floor_us", 0, s.FloorUs)
		}
	}
	l.addLaunch(shape, launch, float64(l.Device.Info().Processors), float64(max(1, o.BlocksPerProcessor)))
	l.add("yours", "registers", 0, float64(o.Registers))
	l.add("yours", "occupancy", 0, 100*o.Fraction)
	l.add("yours", "spilled", 0, float64(o.LocalBytes))
}

func (l *lab) addLaunch(s tasks.Shape, launch cuda.Launch, sms, perSM float64) {
	l.say("shape", "shape", s.String())
	l.add("yours", "elements", 0, float64(s[0].Value))
	l.add("yours", "blocks", 0, float64(launch.Grid.X*launch.Grid.Y))
	l.add("yours", "threads", 0, float64(launch.Block.X*launch.Block.Y))
	l.add("yours", "sms", 0, sms)
	l.add("yours", "per SM", 0, perSM)
}

// emulateMine compiles the kernel for the CPU, runs it on a small input and checks all of the result.
func emulateMine(l *lab, t *tasks.Task, file, source string) {
	compiler := cmp.Or(os.Getenv("CXX"), "c++")
	if _, err := exec.LookPath(compiler); err != nil {
		check(fmt.Errorf("%w: there is no GPU, and the emulator needs a C++ compiler (g++), which is not installed",
			errNotHere))
	}
	small := 1000
	if t.Name == "matmul" {
		small = 24
	}
	shape, block := t.Of(min(cmp.Or(l.Size, small), 20*small)), cmp.Or(l.Block, launchBlock)
	launch := t.Launch(shape, block)
	in, out := t.Arrays.Layout(shape, tasks.Float32)
	if t.Name == "reduce.sum" {
		out.Len = launch.Grid.X
	}
	lengths, call := strconv.Itoa(out.Len), "p[0].get()"
	var views []tasks.View
	var stdin bytes.Buffer
	for i, a := range in {
		memory := must(cpu.NewMemory(a.Bytes()))
		defer memory.Free()
		v := tasks.View{Array: a, Memory: memory}
		v.Fill(uint64(i + 1))
		stdin.Write(memory.Bytes()[:a.Bytes()])
		views, lengths, call = append(views, v), fmt.Sprint(lengths, ", ", a.Len), fmt.Sprintf("%s, p[%d].get()", call, i+1)
	}
	for _, d := range shape {
		call = fmt.Sprint(call, ", ", d.Value)
	}
	base, dir := filepath.Base(file), must(os.MkdirTemp("", "learn"))
	defer os.RemoveAll(dir)
	text := fmt.Sprintf("%s\n#line 1 %q\n%s\n"+
		"int main() { return emulated::run({%d, %d}, {%d, %d}, {%s}, [](auto &p) { %s(%s); }); }\n",
		emulation, base, source, launch.Grid.X, launch.Grid.Y, launch.Block.X, launch.Block.Y, lengths, t.KernelName(), call)
	program := filepath.Join(dir, "kernel")
	check(os.WriteFile(program+".cc", []byte(text), 0o600))
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	compile := exec.CommandContext(ctx, compiler, "-std=c++20", "-g1", "-w", "-fsanitize=address", "-pthread",
		"-o", program, program+".cc")
	if words, err := compile.CombinedOutput(); err != nil {
		check(fmt.Errorf("%s does not compile for the emulator, which knows a part of CUDA:\n%s",
			file, bytes.TrimSpace(words)))
	}
	l.addLaunch(shape, launch, 0, 0)
	run := exec.CommandContext(ctx, program)
	var stderr bytes.Buffer
	run.Stdin, run.Stderr = &stdin, &stderr
	result, err := run.Output()
	err = errors.Join(err, context.Cause(ctx))
	l.say("yours", "outcome", outcomeOf(t, shape, views, result, err, stderr.String(), base))
}

var outside = lazyregexp.New(`(READ|WRITE) of size`)

// outcomeOf says in words what became of an emulated kernel: cameRight, or what is wrong.
func outcomeOf(t *tasks.Task, s tasks.Shape, in []tasks.View, result []byte, err error, stderr, file string) string {
	if kind := outside().FindStringSubmatch(stderr); kind != nil {
		where := regexp.MustCompile(regexp.QuoteMeta(file) + `:\d+`).FindString(stderr)
		return fmt.Sprintf("it %ss outside its arrays, at %s", strings.ToLower(strings.TrimSuffix(kind[1], "E")),
			cmp.Or(where, file))
	}
	if err != nil {
		return "it does not end as it should: " + err.Error()
	}
	got := make([]float32, len(result)/4)
	if err := binary.Read(bytes.NewReader(result), binary.NativeEndian, got); err != nil {
		return err.Error()
	}
	if t.Name == "reduce.sum" {
		sum := 0.0
		for _, v := range got {
			sum += float64(v)
		}
		got = []float32{float32(sum)}
	}
	for i, v := range got {
		if want, size := t.Arrays.Reference(s, in, i); !(math.Abs(float64(v)-want) <= size*t.Arrays.Error(s, tasks.Float32)) {
			return fmt.Sprintf("element %d is %g, expected %.7g", i, v, want)
		}
	}
	return cameRight
}

// A kernel that takes at most mineFast times as long as the tuned way is as fast.
const mineFast = 1.1

func judgeMine(d Data) Finding {
	v := func(name string) float64 { return median(d.values("yours", name)) }
	blocks, threads, n := v("blocks"), v("threads"), v("elements")
	f := Finding{Figures: []Figure{exact("blocks", "", blocks), exact("threads of a block", "", threads)}}
	f.Text = "Of " + d.text("shape", "shape") + ": "
	if outcome := d.text("yours", "outcome"); outcome != "" {
		f.Text += outcome + "."
		return f.decide(
			rule{Unknown, outcome == cameRight, "All of the result agrees with float64. On a GPU this command also times it; " +
				"'infer learn 21 --size N --block M' draws a launch."},
			rule{Refuted, true, "Look at the index of each thread, and at what the last threads do."})
	}
	yours := figureOf("yours", "us", d.values(tasks.Yours, "kernel_us"))
	floor := exact("floor: its bytes and operations at the rates of this GPU", "us", median(d.values("floor", "floor_us")))
	f.Figures = append(f.Figures, floor)
	best := math.NaN()
	for _, of := range slices.Sorted(slices.Values(d.cases("kernel_us"))) {
		x := figureOf(of, "us", d.values(of, "kernel_us"))
		if f.Figures = append(f.Figures, x); of == tasks.Tuned {
			best = x.Value
		}
	}
	at := v("sms") * v("per SM")
	f.Figures = append(f.Figures, exact("yours over tuned", "x", yours.Value/best),
		exact("registers of a thread", "", v("registers")), exact("blocks that an SM holds", "", v("per SM")),
		exact("occupancy", "%", v("occupancy")), exact("waves", "", blocks/at))
	f.Text += fmt.Sprintf("right, and %s times its floor; the tuned way takes %s times. An SM holds %s of your blocks, "+
		"the GPU %s, so that your grid of %s has %s waves.", number(yours.Value/floor.Value), number(best/floor.Value),
		count(v("per SM")), count(at), count(blocks), number(blocks/at))
	if v("spilled") > 0 {
		f.Text += " Registers do not suffice: each thread keeps " + count(v("spilled")) + " bytes in local memory."
	}
	if math.Ceil(n/threads) == blocks { // a thread for each element
		f.Lines = drawLaunch(n, threads, blocks, at, v("sms"))
	}
	return f.decide(
		rule{Shown, yours.Value <= mineFast*best, ""},
		rule{HalfTrue, true, "Half true: it is right, and there is time to win."})
}
