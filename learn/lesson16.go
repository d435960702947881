package learn

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/internal/chart"
)

//go:embed lesson16.cu
var utilisationSource string

var lesson16 = Lesson{
	Number: 16,
	Claim:  "GPU utilisation is the share of SMs in use",
	GPU: &Experiment{Run: onGPU(runUtilisation), Judge: judgeUtilisation, Picture: drawUtilisation,
		Sources: []Source{{"lesson16.cu", utilisationSource}}},
	Why: `What nvidia-smi calls GPU-Util is a share of time: during how much of the last sampling period, a sixth of a
second to a second, did any kernel run? One block on one SM makes it as high as a kernel that fills the device; so
does a decode step whose SMs mostly wait for memory. A low figure does tell something: the GPU had nothing to run,
often because the host was late. A high one says only that it was never empty. To learn how much of the GPU works,
compare the time of a step with its floor, the time that its bytes or its operations need at the measured ceilings, or
ask ncu for sm__throughput. Power is a rough hint that needs no profiler: compare it with that of the idle GPU, and
with its limit.`,
	GoOn: "infer bench --device cuda -m random:gpt2",
}

// The cases of lesson 16, in the order in which they run.
const (
	idleGPU    = "idle"
	oneBlock   = "one block"
	blockPerSM = "one block per SM"
)

var utilisationCases = []string{idleGPU, oneBlock, blockPerSM}

func runUtilisation(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	n, err := nvml.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotHere, err)
	}
	defer n.Close()
	kernels := g.kernels(Source{"lesson16.cu", utilisationSource}, "spin")
	info := g.Device.Info()
	b := g.buffers(1, int64(4*info.Processors))
	if g.err != nil {
		return nil, g.err
	}
	d.add("all", "sms", 0, float64(info.Processors))
	// The driver averages over up to a second, so what is read in the first part of a case belongs to the case before.
	settle := time.Duration(e.pick(1200, 1)) * time.Millisecond
	launches, each := e.pick(20, 1), time.Duration(e.pick(100, 1))*time.Millisecond
	for _, of := range utilisationCases {
		blocks := map[string]int{oneBlock: 1, blockPerSM: info.Processors}[of]
		for i := 0; i < launches && blocks > 0; i++ {
			if err := kernels[0].Launch(g.Stream, line(blocks, 32), b[0], each.Nanoseconds(), int32(100_000_000)); err != nil {
				return nil, err
			}
		}
		watch, stop := context.WithTimeout(ctx, time.Duration(launches)*each)
		start := time.Now()
		err := n.Sample(watch, info.PCI, 50*time.Millisecond, func(s nvml.Sample) {
			if at := s.Time.Sub(start); at >= settle && s.Utilisation >= 0 {
				d.add(of, "utilisation_percent", 0, float64(s.Utilisation))
				d.add(of, "power_w", 0, s.Power)
			}
		})
		stop()
		if err = errors.Join(err, context.Cause(ctx), g.Stream.Synchronize()); err != nil {
			return nil, err
		}
		sms := make([]byte, 4*blocks)
		if err := b[0].Read(0, sms); err != nil {
			return nil, err
		}
		used := map[uint32]bool{}
		for i := range blocks {
			used[binary.LittleEndian.Uint32(sms[4*i:])] = true
		}
		d.add(of, "sms_used", 0, float64(len(used)))
	}
	return d, nil
}

func judgeUtilisation(d Data) Finding {
	percent := func(of string) Figure {
		return figureOf("GPU utilisation, "+of, "%", d.values(of, "utilisation_percent"))
	}
	idle, one, full := percent(idleGPU), percent(oneBlock), percent(blockPerSM)
	all, used := median(d.values("all", "sms")), median(d.values(oneBlock, "sms_used"))
	share := exact("SMs in use, one block", "%", 100*used/all)
	f := Finding{Figures: []Figure{idle, one, full, share, figureOf("power, idle", "W", d.values(idleGPU, "power_w")),
		figureOf("power, one block", "W", d.values(oneBlock, "power_w")), figureOf("power, one block per SM", "W", d.values(blockPerSM, "power_w"))}}
	f.Text = fmt.Sprintf("While one block occupies %.0f of %.0f SMs, the driver (NVML, as in nvidia-smi) reports a utilisation of %s.", used, all, one.Short())
	low, high := one.interval()
	switch {
	case idle.Value > 10:
		f.Verdict = Unknown
		f.Text += " Another program used the GPU while nothing should have run, so this does not tell."
	case low > share.Value+50:
		f.Verdict = Refuted
	case low > share.Value-5 && high < share.Value+5:
		f.Verdict = Shown
	default:
		f.Verdict = Unknown
	}
	return f
}

func drawUtilisation(d Data) chart.Picture {
	all := median(d.values("all", "sms"))
	var figures []Figure
	for _, of := range utilisationCases[1:] {
		figures = append(figures, figureOf("utilisation, "+of, "%", d.values(of, "utilisation_percent")), exact("SMs in use, "+of, "%", 100*median(d.values(of, "sms_used"))/all))
	}
	return bars("Utilisation, and the share of SMs that run a block", linear("%"), 1, figures...)
}
