package schedule

import (
	"cmp"
	"math"
	"slices"

	"gpt2scope/predict"
)

// Host is the index of the CPU among the devices. All others are GPUs.
const Host = 0

// maxSlots bounds the tasks in flight on a device.
const maxSlots = 2

// Device runs tasks.
type Device struct {
	Name  string // "cpu", "cuda:0"
	Slots int    // tasks in flight at most: 1 on the CPU, 2 on a GPU
}

// DevicesOf returns devices by their names, the CPU first.
func DevicesOf(names []string) []Device {
	all := make([]Device, len(names))
	for i, name := range names {
		all[i] = Device{name, maxSlots}
	}
	all[Host].Slots = 1
	return all
}

// Job is one task of a stream.
type Job struct {
	ID     int
	Task   string         // "vector.add"
	Shape  string         // "n=1048576"
	Kind   int            // task and type, as an index of the stream's kinds
	Work   []predict.Work // by device
	Shares bool           // its kernels leave most of a GPU to others, as those of GPT-2 do
	Memory int64          // bytes that it needs on a GPU; 0: not known
	Arrive float64        // us after the start of the stream

	measured  []Times // by device: the medians of the samples
	predicted []Times // by device: the policy's predictions, not corrected
	device    int     // whose queue it is in, or that runs it
	refused   uint64  // bit d: device d had no memory for it
	start     float64
	begun     phases // its expected times since it began
	expected  Times  // on its device: when it was queued, then when it began
}

// Times are the parts of a task's time on a device, in us: inputs to the device, the work, the result to the host.
type Times struct{ In, Run, Out float64 }

// Total returns the time in us.
func (t Times) Total() float64 { return t.In + t.Run + t.Out }

func (t Times) times(f float64) Times { return Times{t.In * f, t.Run * f, t.Out * f} }

// finite replaces what no time can be, so that a broken prediction cannot break sums.
func (t Times) finite() Times {
	const most = 1e15 // us
	for _, v := range []*float64{&t.In, &t.Run, &t.Out} {
		if !(*v >= 0) { // NaN too
			*v = 0
		}
		*v = min(*v, most)
	}
	t.Run = max(t.Run, 1e-3)
	return t
}

// Predictor returns the time that a task takes, or is expected to take, on an idle device, with all copies.
type Predictor func(j *Job, device int) Times

// phases are when the copies in, the work and the copies out of a task end, in us of the stream.
type phases struct{ in, run, out float64 }

// load is when the parts of a device are free, in us of the stream. Tasks in flight take turns on the engines: one
// copies in, one works, one copies out. Tasks that share the GPU only need a slot.
type load struct {
	slots  [maxSlots]float64
	n      int // slots of the device
	engine phases
}

// add puts a task behind what the device has to do, and returns its phases.
func (l *load) add(j *Job, t Times) phases {
	slot := &l.slots[0]
	if l.n > 1 && l.slots[1] < *slot {
		slot = &l.slots[1]
	}
	p := phases{*slot + t.In, *slot + t.In + t.Run, *slot + t.Total()}
	if e := &l.engine; l.n > 1 && !j.Shares {
		p.in = *slot
		if t.In > 0 {
			e.in = math.Max(*slot, e.in) + t.In
			p.in = e.in
		}
		e.run = math.Max(p.in, e.run) + t.Run
		e.out = math.Max(e.run, e.out) + t.Out
		p.run, p.out = e.run, e.out
	}
	*slot = p.out
	return p
}

// free returns when each resource of the device is free; of the slots the mean.
func (l *load) free() costs {
	slots := 0.0
	for _, free := range l.slots[:l.n] {
		slots += free / float64(l.n)
	}
	return costs{l.engine.in, l.engine.run, l.engine.out, slots}
}

// costs are times on each resource of a device that tasks share: the engines that copy in, work and copy out, and the
// slots.
type costs [4]float64

// costsOf returns how long a task occupies each resource of a device.
func (d *Device) costsOf(j *Job, t Times) costs {
	c := costs{t.In, t.Run, t.Out, t.Total() / float64(d.Slots)}
	if j.Shares || d.Slots == 1 {
		c[0], c[1], c[2] = 0, 0, 0
	}
	return c
}

func (c costs) plus(d costs, factor float64) costs {
	for r := range c {
		c[r] += factor * d[r]
	}
	return c
}

func (c costs) most() float64 { return slices.Max(c[:]) }

// LowerBound returns a time in us that no schedule of the tasks can beat, the greater of
//
//   - the least T in which the CPU and a resource of the GPUs have done the tasks, of which any part may run on either,
//     of the resource of which this takes longest;
//   - the longest task, on the device where it is shortest, after it has arrived.
//
// Of several GPUs the least time counts for all.
func LowerBound(devices []Device, jobs []Job, truth Predictor) (bound float64) {
	type both struct{ host, gpu float64 }
	var all [len(costs{})][]both
	for i := range jobs {
		j, host := &jobs[i], truth(&jobs[i], Host).Total()
		least, onGPU := host, costs{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}
		for d := 1; d < len(devices); d++ {
			t := truth(j, d)
			least = math.Min(least, t.Total())
			for r, us := range devices[d].costsOf(j, t) {
				onGPU[r] = math.Min(onGPU[r], us/float64(len(devices)-1))
			}
		}
		for r := range all {
			all[r] = append(all[r], both{host, onGPU[r]})
		}
		bound = math.Max(bound, j.Arrive+least)
	}
	for _, tasks := range all {
		slices.SortFunc(tasks, func(a, b both) int { return cmp.Compare(a.host*b.gpu, b.host*a.gpu) })
		cpu, gpu := 0.0, 0.0
		for _, t := range tasks {
			gpu += t.gpu
		}
		for _, t := range tasks { // the CPU does those that gain least on a GPU, until both end at once
			if len(devices) > 1 && cpu+t.host >= gpu-t.gpu {
				cpu += t.host * (gpu - cpu) / (t.host + t.gpu)
				break
			}
			cpu, gpu = cpu+t.host, gpu-t.gpu
		}
		bound = math.Max(bound, cpu)
	}
	return bound
}
