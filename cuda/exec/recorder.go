package exec

import (
	"errors"
	"fmt"

	"gpt2scope/cuda/cupti"
	"gpt2scope/traces"
)

// The recorders that Options.Recorder can name.
const (
	RecorderNone   = ""       // passes are not recorded
	RecorderAuto   = "auto"   // stamps in mode graph, cupti in mode eager
	RecorderStamps = "stamps" // kernels note their times
	RecorderCUPTI  = "cupti"  // CUDA's activity records
)

// openRecorder makes ready what records passes. CUPTI must be asked before there is a
// context. Where it cannot be had, stamps take its place, and that is said.
func (b *Backend) openRecorder() error {
	switch b.options.Recorder {
	case RecorderNone, RecorderStamps:
		return nil
	case RecorderAuto:
		if b.mode == Graph {
			return nil
		}
	case RecorderCUPTI:
	default:
		return fmt.Errorf("there is no recorder %q; there are auto, stamps and cupti", b.options.Recorder)
	}
	var err error
	b.cupti, err = cupti.Open(cupti.Options{})
	if errors.Is(err, cupti.ErrAbsent) || errors.Is(err, cupti.ErrBusy) || errors.Is(err, cupti.ErrRefused) {
		b.notice(fmt.Sprintf("recorder stamps, since cupti cannot be used: %v", err))
		return nil
	}
	return err
}

// Recorder returns by what passes are recorded, when they are.
func (b *Backend) Recorder() string {
	if b.cupti != nil {
		return RecorderCUPTI
	}
	return RecorderStamps
}

// tagOf packs what a recorded call belongs to into the 64 bits of a CUPTI tag: pass
// id, phase and step + 1.
func tagOf(pass uint64, phase, step int32) uint64 {
	return pass<<28 | uint64(phase&0xfff)<<16 | uint64(step+1)&0xffff
}

// tagged is the opposite of tagOf.
func tagged(tag uint64) (phase, step int32, pass uint64) {
	return int32(tag >> 16 & 0xfff), int32(tag&0xffff) - 1, tag >> 28
}

// push puts a tag on what is launched until pop; step is -1 for a whole graph.
func (n *passNote) push(step int) {
	if n != nil && n.cupti != nil {
		n.cupti.Push(tagOf(n.id, n.phase, int32(step)))
	}
}

func (n *passNote) pop() {
	if n != nil && n.cupti != nil {
		n.cupti.Pop()
	}
}

// stopCUPTI ends recording by CUPTI and returns the events.
func (rec *recording) stopCUPTI() ([]traces.Event, error) {
	if err := rec.cupti.Stop(); err != nil {
		return nil, err
	}
	clock, err := rec.cupti.Clock()
	if err != nil {
		return nil, err
	}
	var records []cupti.Record
	for r := range rec.cupti.Records() {
		records = append(records, r)
	}
	var events []traces.Event
	rec.profile.Header(func(h *traces.Header) {
		// Not by the wall clock, which may step meanwhile.
		events = cupti.Convert(records, clock.CUPTI-rec.profile.OfMonotonic(clock.Monotonic), tagged)
		rec.cupti.Describe(h, clock)
	})
	return events, nil
}
