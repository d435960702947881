// Package inject records a command that knows nothing of it: any program that uses CUDA, and the processes that it
// starts. CUDA and NVTX load libgpt2scope_cupti into each of them, which writes what CUPTI tells into a spool; this
// package runs the command, says when to record, and makes one trace of all spools.
//
//	run, err := inject.Record(inject.Options{Command: []string{"python", "task.py"}, Limit: 512 << 20})
//	trace, err := run.Trace()
package inject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpt2scope/cuda/cupti"
	"gpt2scope/internal/stats"
	"gpt2scope/nvtx"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// Options say what is recorded.
type Options struct {
	Command    []string
	Release    string         // of this program
	Limit      int64          // bytes of all spools
	GraphNodes bool           // the nodes of graphs, not graphs as wholes; so it is in windows
	AllCalls   bool           // also those that only ask
	Delay      time.Duration  // before recording begins
	Duration   time.Duration  // of recording; 0: to the end
	Toggle     syscall.Signal // switches recording on and off; 0: none, else it begins off
	Live       func(*Second)  // is called each second with what happened in one
	Forget     bool           // nothing but Live is wanted
}

// Run is a command that was recorded.
type Run struct {
	Took      time.Duration
	Status    int // exit status, as shells have it: 128 and the number of a signal that ended the command
	Processes int // that used CUDA or NVTX

	o         Options
	control   *cupti.Control
	clock     *record.Recorder
	processes []*process
	windows   []window.Interval
	before    map[string][]int64 // durations of ranges before the first window
	live      live
	counters  *counters
}

// process is what one process recorded.
type process struct {
	*cupti.Spool
	convert *cupti.Converter
	devices []traces.Device
	events  []traces.Event
}

// String names it for people.
func (p *process) String() string {
	if len(p.Command) == 0 {
		return fmt.Sprintf("process %d", p.Process)
	}
	return fmt.Sprintf("process %d (%s)", p.Process, filepath.Base(p.Command[0]))
}

// profilers bring a CUPTI subscriber of their own, and set the variables by which a program is recorded.
var profilers = []string{"nsys", "ncu", "nvprof", "compute-sanitizer", "cuda-gdb"}

// tick is how often spools are read; settle, how long a process may take to end its recording when the command has.
const tick, settle = 100 * time.Millisecond, time.Second

// Record runs a command to its end. Signals of the terminal and those that end a process go to the command, which
// decides what becomes of them.
func Record(o Options) (*Run, error) {
	if name := filepath.Base(o.Command[0]); slices.Contains(profilers, name) {
		return nil, fmt.Errorf("%s observes its program itself, and CUDA has one such tool at a time: record the program "+
			"without it", name)
	}
	if tool := nvtx.Tool(); tool != "" {
		return nil, fmt.Errorf("a profiler is attached (%s is set), and CUDA has one at a time: run without it", tool)
	}
	// CUPTI crashes a program when it begins or ends to record graphs as wholes and the program has made some.
	o.GraphNodes = o.GraphNodes || o.Delay > 0 || o.Duration > 0 || o.Toggle != 0
	control, err := cupti.NewControl(o.Limit, o.GraphNodes, o.AllCalls)
	if err != nil {
		return nil, err
	}
	r := &Run{o: o, control: control, clock: record.New("gpt2scope", o.Release), before: map[string][]int64{}}
	if err := r.run(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Run) run() error {
	var delay, duration <-chan time.Time
	set := func(on bool) {
		if r.record(on); on && r.o.Duration > 0 {
			duration = time.After(r.o.Duration)
		}
	}
	if r.o.Delay > 0 {
		delay = time.After(r.o.Delay)
	} else if r.o.Toggle == 0 {
		set(true)
	}
	signals := make(chan os.Signal, 8)
	for _, s := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP, r.o.Toggle} {
		if s != 0 && !signal.Ignored(s) { // as SIGHUP is under nohup
			signal.Reset(s)
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	c := Command(r.o.Command)
	c.Env = append(os.Environ(), r.control.Environment()...)
	begun := time.Now()
	if err := c.Start(); err != nil {
		return fmt.Errorf("the command cannot be started: %w", err)
	}
	r.counters = startCounters(r.o.Forget)
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var failed error
	for {
		select {
		case s := <-signals:
			if s == r.o.Toggle {
				duration = nil
				set(!r.control.Recording())
			} else if s == unix.SIGTERM || s == unix.SIGHUP || !inForeground() { // else the terminal told it
				c.Process.Signal(s)
			}
		case <-delay:
			set(true)
		case <-duration:
			set(false)
		case <-ticker.C:
			failed = cmp.Or(failed, r.poll())
			if r.o.Live != nil {
				r.live.tick(r)
			}
		case err := <-ended:
			r.Took = time.Since(begun)
			if !errors.As(err, new(*exec.ExitError)) {
				failed = cmp.Or(failed, err)
			}
			status := c.ProcessState.Sys().(syscall.WaitStatus)
			if r.Status = status.ExitStatus(); status.Signaled() {
				r.Status = 128 + int(status.Signal())
			}
			return cmp.Or(failed, r.finish())
		}
	}
}

// Command makes a command with this process's input and output.
func Command(words []string) *exec.Cmd {
	c := exec.Command(words[0], words[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c
}

// inForeground reports whether keys of the terminal send signals to this process and the command.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (r *Run) record(on bool) {
	r.control.Record(on)
	if now := r.clock.Now(); on {
		r.windows = append(r.windows, window.Interval{From: now, To: traces.MaxTime})
	} else if n := len(r.windows); n > 0 {
		const seen = 30e6 // ns until all processes have seen it
		r.windows[n-1].To = min(r.windows[n-1].To, now+seen)
	}
}

// finish ends recording in the processes that the command left behind.
func (r *Run) finish() error {
	r.record(false)
	r.control.Finish()
	r.counters.stop()
	runs := func(p *process) bool { return p.State == cupti.Runs && unix.Kill(p.Process, 0) == nil }
	err := r.poll()
	for until := time.Now().Add(settle); err == nil && time.Now().Before(until) && slices.ContainsFunc(r.processes, runs); {
		time.Sleep(tick / 10)
		err = r.poll()
	}
	r.Processes = len(r.processes)
	return err
}

// poll reads what the spools have.
func (r *Run) poll() error {
	for _, s := range r.control.NewSpools() {
		r.processes = append(r.processes, &process{Spool: s,
			convert: cupti.NewConverter(0, -r.clock.OfMonotonic(0), int64(s.Process))})
	}
	for _, p := range r.processes {
		for {
			records, err := p.Read(r.o.Forget || len(r.windows) == 0)
			if err != nil {
				return err
			}
			if len(records) == 0 {
				break
			}
			r.add(p, records)
		}
	}
	return nil
}

func (r *Run) add(p *process, records []cupti.Record) {
	p.convert.Base = p.First.CUPTI - r.clock.OfMonotonic(p.First.Monotonic)
	for i := range records {
		if records[i].Kind == cupti.KindDevice {
			p.devices = append(p.devices, records[i].GPU())
		}
	}
	events := p.convert.Add(records)
	if r.o.Forget {
		p.convert.Forget()
	}
	if r.o.Live != nil {
		r.live.add(p, events)
	}
	switch {
	case r.o.Forget:
	case len(r.windows) == 0:
		for i := range events {
			r.early(&events[i])
		}
	default:
		p.events = append(p.events, events...)
	}
}

// early notes a range that ended before the first window.
func (r *Run) early(e *traces.Event) {
	const most = 1000 // names, and ranges of a name
	if list := r.before[e.Name]; e.Kind.IsRange() && !e.Open && len(list) < most && (list != nil || len(r.before) < most) {
		r.before[e.Name] = append(list, e.Duration)
	}
}

// outside reports whether no part of a range or mark lies in a window.
func (r *Run) outside(e traces.Event) bool {
	if !e.Kind.IsRange() && e.Kind != traces.KindMark || slices.ContainsFunc(r.windows, func(w window.Interval) bool {
		return e.Time < w.To && (e.Open || e.End() >= w.From)
	}) {
		return false
	}
	if e.End() < r.windows[0].From {
		r.early(&e)
	}
	return true
}

// StartedCUDA reports whether any process did.
func (r *Run) StartedCUDA() bool {
	return slices.ContainsFunc(r.processes, func(p *process) bool { return p.CUDA })
}

// Says has a sentence for each process that was not recorded, or not whole.
func (r *Run) Says() (list []string) {
	for _, p := range r.processes {
		switch {
		case p.Failure != nil:
			list = append(list, fmt.Sprintf("%s: %v", p, p.Failure))
		case p.State == cupti.Runs:
			list = append(list, fmt.Sprintf("%s ended without its exit handlers, killed or by _exit: what happened in its last "+
				"0.4 s may be missing", p))
		case p.State == cupti.Stopped:
			list = append(list, fmt.Sprintf("%s still ran when the command ended: its recording ends there", p))
		}
	}
	return list
}

// Trace makes one trace of all processes. It is nil if nothing was recorded.
func (r *Run) Trace() (*traces.Trace, error) {
	var list []*traces.Trace
	var names []string
	for _, p := range r.processes {
		if len(r.windows) == 0 || r.o.Forget {
			break
		}
		events := slices.DeleteFunc(append(p.events, p.convert.End()...), r.outside)
		if p.events = nil; len(events) == 0 {
			continue
		}
		var h traces.Header
		r.clock.Header(func(all *traces.Header) { h = *all })
		h.Command, h.Events = p.Command, int64(len(events))
		h.Devices = slices.DeleteFunc(p.devices, func(d traces.Device) bool { // which CUDA_VISIBLE_DEVICES hides
			return d.ClockHz == 0 && !slices.ContainsFunc(events, func(e traces.Event) bool { return int(e.Lane.Device) == d.ID })
		})
		p.Describe(&h, events)
		if h.Overhead = r.overhead(events); !r.o.GraphNodes {
			h.NotRecorded = append(h.NotRecorded, "the nodes of graphs (--graph-nodes records them)")
		}
		if !r.o.AllCalls {
			h.NotRecorded = append(h.NotRecorded, "calls that only ask, such as cudaGetDevice (--all-calls records them)")
		}
		traces.FindSteps(&h, events)
		list, names = append(list, traces.NewTrace(&h, events)), append(names, p.String())
	}
	if len(list) == 0 {
		return nil, nil
	}
	t, err := traces.Merge(list, names)
	if err != nil {
		return nil, err
	}
	if len(list) > 1 {
		t.Header.Clock.Aligned, t.Header.Command = "", r.o.Command // one machine has one clock
	}
	t.Header.Notes = append(t.Header.Notes, r.Says()...)
	t.Events = append(t.Events, r.counters.events(t.Header)...)
	traces.Sort(t.Events)
	return t, nil
}

// overhead compares ranges of one name before the first window and in windows.
func (r *Run) overhead(events []traces.Event) (list []traces.Overhead) {
	during := map[string][]int64{}
	for i := range events {
		if e := &events[i]; e.Kind.IsRange() && !e.Open && len(r.before[e.Name]) > 0 {
			during[e.Name] = append(during[e.Name], e.Duration)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(during)) {
		list = append(list, traces.Overhead{Phase: name, Baseline: float64(stats.MedianOf(r.before[name])),
			Recorded: float64(stats.MedianOf(during[name])), Passes: min(len(r.before[name]), len(during[name]))})
	}
	return list
}

// Close deletes the spools.
func (r *Run) Close() error {
	for _, p := range r.processes {
		p.Close()
	}
	return r.control.Remove()
}
