package exec

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"gpt2scope/cuda"
	"gpt2scope/cuda/cupti"
	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// The recorders that Options.Recorder can name.
const (
	RecorderNone   = ""       // passes are not recorded
	RecorderAuto   = "auto"   // cupti in mode eager, else stamps
	RecorderStamps = "stamps" // kernels note their times
	RecorderCUPTI  = "cupti"  // CUDA's activity records
)

// openRecorder opens CUPTI if it is to record, which must be done before there is a context. If CUPTI cannot be used, a
// notice says so, and kernels stamp instead.
func (b *Backend) openRecorder() error {
	switch b.options.Recorder {
	case RecorderNone, RecorderStamps:
		return nil
	case RecorderAuto:
		if b.mode.captures() {
			return nil
		}
	case RecorderCUPTI:
	default:
		return fmt.Errorf("there is no recorder %q; there are auto, stamps and cupti", b.options.Recorder)
	}
	var err error
	b.cupti, err = cupti.Open(cupti.Options{})
	if errors.Is(err, cupti.ErrUnavailable) {
		b.notice(fmt.Sprintf("recorder stamps, since cupti cannot be used: %v", err))
		return nil
	}
	return err
}

// Recorder names the recorder that [Runner.StartRecording] uses.
func (b *Backend) Recorder() string {
	if b.cupti != nil {
		return RecorderCUPTI
	}
	return RecorderStamps
}

// recorder notes the passes of a session, of which a trace is made in the end. Its methods are called on the one thread
// that launches.
type recorder interface {
	// variants returns the variant as which the next pass of a plan is launched, and one whose graph is captured whenever
	// that of next is; nil for none.
	variants(c *compiled) (next, other *variant)

	// pass begins to note a pass that is launched as a variant, capture one that is only captured. What it returns is
	// valid until the next call.
	pass(at passAt, v *variant) passRecorder
	capture(at passAt, v *variant) passRecorder

	// wait notes a wait for the device until end is called.
	wait() (end func())

	// forget reads what the device holds of the passes of a plan, and frees its variants. No pass of c is launched after
	// that.
	forget(c *compiled) error

	// stop ends the recording and adds its events to the trace. The device is idle.
	stop() error
}

// passRecorder notes one pass. Either replay is called, or begin, the methods of steps, and end.
type passRecorder interface {
	begin() error
	step(i int)
	launch(i int, l launch) error // launches l, of step i
	endStep()
	end() error

	replay(g *cuda.Graph, s *cuda.Stream) error // launches g on s

	close() // is called last, also where the pass failed
}

// variant is one way to launch a compiled pass. Without stamps there is only one.
type variant struct {
	graph  *cuda.Graph // from the second run on, in graph mode
	stamps *stampSet   // where kernels stamp, nil for nowhere
}

// passAt identifies a pass to a recorder.
type passAt struct {
	c        *compiled
	position int // of its first token
	tokens   int // per sequence, without padding
}

// off is the recorder of a session that is not recorded, and what others that note something are made of.
type off struct{}

func (off) variants(c *compiled) (next, other *variant) { return &c.plain, nil }
func (off) pass(passAt, *variant) passRecorder          { return off{} }
func (off) capture(passAt, *variant) passRecorder       { return off{} }
func (off) wait() (end func())                          { return func() {} }
func (off) forget(*compiled) error                      { return nil }
func (off) stop() error                                 { return nil }
func (off) begin() error                                { return nil }
func (off) step(int)                                    {}
func (off) launch(_ int, l launch) error                { return l.run() }
func (off) endStep()                                    {}
func (off) end() error                                  { return nil }
func (off) replay(g *cuda.Graph, s *cuda.Stream) error  { return g.Launch(s) }
func (off) close()                                      {}

// StartRecording records passes from now on, by Options.Recorder: [gpt2.Recordable].
func (r *Runner) StartRecording(to *record.Recorder) error {
	if r.failed != nil {
		return r.failed
	}
	if r.recorder != (off{}) {
		return errors.New("the session is being recorded already")
	}
	runtime.LockOSThread() // until StopRecording: recorders know one thread
	rec, err := r.startRecorder(to)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	r.recorder, r.loading.to = rec, to
	return nil
}

func (r *Runner) startRecorder(to *record.Recorder) (recorder, error) {
	if err := r.stream.Synchronize(); err != nil {
		return nil, err
	}
	if err := r.forget(); err != nil { // graphs must be captured again, with stamps or so that CUPTI knows their nodes
		return nil, err
	}
	n := notes{to: to, lane: to.Thread(), plans: r.plans, recorded: gpt2.NewRecordedPlans(to, r.backend.Sizes(r.model))}
	var rec recorder
	var err error
	if r.backend.cupti != nil {
		rec, err = startCUPTI(r.backend.cupti, n)
	} else {
		rec, err = startStamps(r.stream, n, r.backend.mode == Eager)
	}
	if err != nil {
		return nil, err
	}
	to.Header(r.backend.describe)
	to.Name(n.lane, "main")
	return rec, nil
}

// StopRecording makes the events: [gpt2.Recordable].
func (r *Runner) StopRecording() (failed error) {
	if r.recorder == (off{}) {
		return nil
	}
	defer runtime.UnlockOSThread()
	defer func() { r.recorder, r.loading.to = off{}, nil }()
	defer func() { failed = cmp.Or(failed, r.freeStamps()) }()
	err := r.stream.Synchronize()
	if err == nil {
		err = r.recorder.stop()
	}
	if forgot := r.forget(); err == nil {
		err = forgot
	}
	return err
}

// describe fills in the header of a trace.
func (b *Backend) describe(h *traces.Header) {
	info := b.dev.Info()
	h.DType = typeName(b.held)
	h.Devices = append(h.Devices, traces.Device{
		ID: info.Index, Name: info.Name, Compute: fmt.Sprintf("%d.%d", info.Major, info.Minor), SMs: info.Processors,
		Memory:     int64(info.MemoryBytes),
		Bandwidth:  2 * 1000 * int64(info.MemoryClockKHz) * int64(info.MemoryBusBits) / 8,
		ClockHz:    1000 * int64(info.ClockKHz),
		WarpsPerSM: info.ThreadsPerProcessor / 32, BlocksPerSM: info.BlocksPerProcessor,
		RegistersPerSM: info.RegistersPerProc, SharedPerSM: info.SharedPerProcessor,
	})
}
