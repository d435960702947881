package schedule

import (
	"math"

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

// Data is the input of tasks that may stay on a GPU once a task has brought it there. The host always has it.
type Data struct {
	Bytes int64
	on    uint64 // bit d: device d holds a copy
}

// On tells whether a device holds the data.
func (d *Data) On(device int) bool { return device == Host || d.on>>device&1 != 0 }

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
	Input  *Data          // nil: its input is copied each time

	predicted []Times // by device: the policy's predictions, not corrected
	device    int     // whose queue it is in, or that runs it
	queued    bool
	draft     int    // the last plan that was drafted with it
	refused   uint64 // bit d: device d had no memory for it
	begun     phases // its expected times since it began
	start     float64
	expected  Times // on the device that runs it, when it began
	copied    bool  // its input was not on the device when it began
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

// Truth returns the time that a task takes on a device.
type Truth func(j *Job, device int) Times

// Predictor returns the time that a task is expected to take on an idle device, with all copies.
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
	at := 0
	for k, free := range l.slots[:l.n] {
		if free < l.slots[at] {
			at = k
		}
	}
	start := l.slots[at]
	var p phases
	if j.Shares || l.n == 1 {
		p = phases{start + t.In, start + t.In + t.Run, start + t.Total()}
	} else {
		e := &l.engine
		p.in = start
		if t.In > 0 {
			e.in = math.Max(start, e.in) + t.In
			p.in = e.in
		}
		e.run = math.Max(p.in, e.run) + t.Run
		p.run = e.run
		e.out = math.Max(p.run, e.out) + t.Out
		p.out = e.out
	}
	l.slots[at] = p.out
	return p
}
