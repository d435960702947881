package dispatch

import (
	"math"

	"gpt2scope/predict"
)

// Host is the index of the CPU among the devices; all others are GPUs.
const Host = 0

// Device is what jobs run on.
type Device struct {
	Name     string // "cpu", "cuda:0"
	InFlight int    // jobs that it takes at once: 1, or 2 where copies run beside kernels
	Lanes    int    // jobs that it takes beside these, of those that run in lanes: see Job.Lane
}

// Data is a buffer that jobs share. It knows where it is valid: on a device that has it, a job
// needs no copy of it. A new buffer is valid on the host.
type Data struct {
	Bytes int64

	away   uint64 // devices besides the host that have it
	stale  bool   // the host does not have it
	writer *Job   // not finished
}

// On tells whether a device has the data.
func (d *Data) On(device int) bool {
	if device == Host {
		return !d.stale
	}
	return d.away>>(device-1)&1 != 0
}

// reach notes that a device has the data too.
func (d *Data) reach(device int) {
	if device == Host {
		d.stale = false
	} else {
		d.away |= 1 << (device - 1)
	}
}

// made notes that a device has written the data: no other has them.
func (d *Data) made(device int) {
	d.away, d.stale = 0, device != Host
	d.reach(device)
}

// lose notes that a device and what it held are gone. What nobody else held is restored from
// the host, which keeps the inputs of a stream.
func (d *Data) lose(device int) {
	if device == Host {
		return
	}
	d.away &^= 1 << (device - 1)
	if d.away == 0 {
		d.stale = false
	}
}

// Job is one task of a stream.
type Job struct {
	ID     int
	Task   string         // "vector.add"
	Shape  string         // "n=1048576"
	Class  int            // which of the stream's kinds of task it is, from 0
	Work   []predict.Work // by device: what is known before it runs
	Lane   bool           // on a device that has lanes it takes one, since it has no copies and leaves most of the device to others
	Memory int64          // bytes that it needs on a GPU at once; 0: not known
	Arrive float64        // us after the start of the stream
	Reads  []*Data        // inputs that other jobs may have brought to a device; none: it brings its own, of Work.BytesIn
	Writes *Data          // the result if other jobs read it; it stays where it was made

	estimates []Estimate // by device, of the last decision
	raw       []raw      // by device: what the estimator said, without corrections, so that a plan need not ask again
	device    int        // which was decided, -1 before
	probe     bool       // the decision was for a measurement
	begun     bool
	refused   uint64 // devices that refused it
	noRoom    bool   // a GPU had too little memory when it was last decided
	brought   uint64 // which of Reads it copied to the device
	waits     int    // jobs whose results it reads that have not finished
	readers   []*Job
	plan      Span    // when it began: from then to its expected end
	planned   int     // the last plan that it was drafted for
	lane      int     // which it began in
	moved     float64 // the share of its inputs that was copied to the device when it began
}

// overlap tells whether copies of a job run beside the work of another.
func (d *Device) overlap() bool { return d.InFlight > 1 }

// inLane tells whether a job takes a lane of the device.
func (d *Device) inLane(j *Job) bool { return j.Lane && d.Lanes > 0 }

// Span is a part of a stream's time, in us after its start.
type Span struct{ Start, End float64 }

// Estimate is the expected time of a job on a device that has nothing else to do, in us.
type Estimate struct {
	In, Run, Out float64 // inputs to the device, the work, the result to the host
	Low, High    float64 // the interval of the sum
	Known        bool    // the estimator has seen such work
}

// Total returns the time in us.
func (e Estimate) Total() float64 { return e.In + e.Run + e.Out }

// times scales an estimate.
func (e Estimate) times(f float64) Estimate {
	e.In, e.Run, e.Out, e.Low, e.High = e.In*f, e.Run*f, e.Out*f, e.Low*f, e.High*f
	return e
}

// raw is what an estimator said of a job to which so many bytes must be copied.
type raw struct {
	known  bool
	backup bool // it was that of Policy.Backup
	in     int64
	e      Estimate
}

// Times are what a job took on a device, in us. Total is their sum unless the device did
// something of other jobs in between.
type Times struct{ In, Run, Out float64 }

// Total returns the time in us.
func (t Times) Total() float64 { return t.In + t.Run + t.Out }

// Estimator predicts. The scheduler calls it from one goroutine at a time.
type Estimator interface {
	// Estimate predicts a job on a device to which in bytes of its inputs must be copied.
	Estimate(device int, j *Job, in int64) Estimate
}

// Observer is an Estimator that learns from jobs that have finished.
type Observer interface {
	Observe(device int, j *Job, t Times)
}

// missing returns the bytes that must be copied to a device for a job.
func (j *Job) missing(device int) int64 {
	if len(j.Reads) == 0 {
		return int64(j.Work[device].BytesIn)
	}
	var n int64
	for _, d := range j.Reads {
		if !d.On(device) {
			n += d.Bytes
		}
	}
	return n
}

// missingAt is what missing was when the job began.
func (j *Job) missingAt(device int) int64 {
	if len(j.Reads) == 0 {
		return int64(j.Work[device].BytesIn)
	}
	return int64(j.moved * float64(j.inputs()))
}

// inputs returns the bytes of what a job reads.
func (j *Job) inputs() (n int64) {
	for _, d := range j.Reads {
		n += d.Bytes
	}
	return n
}

// finite replaces what no time can be, so that a broken estimate cannot break the sums.
func (e Estimate) finite() Estimate {
	const most = 1e15 // us: some thirty years
	for _, v := range []*float64{&e.In, &e.Run, &e.Out, &e.Low, &e.High} {
		if !(*v >= 0) { // NaN too
			*v, e.Known = 0, false
		}
		*v = math.Min(*v, most)
	}
	if e.Total() == 0 {
		e.Run = 1e-3
	}
	return e
}
