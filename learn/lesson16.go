package learn

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"gpt2scope/cuda/nvml"
)

var lesson16 = Lesson{
	Number: 16,
	Claim:  "GPU utilisation is the share of SMs in use",
	GPU: &Experiment{Run: onGPU(runUtilisation), Judge: judgeUtilisation,
		Picture: bars("Utilisation, and the share of SMs that run a block", linear("%"), 1, found(judgeUtilisation, "%"))},
	Why: `What nvidia-smi calls GPU-Util is a share of time: during how much of the last sampling period, a sixth of a
second to a second, did any kernel run? One block on one SM makes it as high as a kernel that fills the device; so
does a decode step whose SMs mostly wait for memory. A low figure does tell something: the GPU had nothing to run,
often because the host was late. A high one says only that it was never empty. To learn how much of the GPU works,
compare the time of a step with its floor, the time that its bytes or its operations need at the measured ceilings, or
ask ncu for sm__throughput. Power is a rough hint that needs no profiler: compare it with that of the idle GPU, and
with its limit.`,
	GoOn: "infer trace kpi sample:metrics",
}

// The cases of lesson 16, in the order in which they run.
const (
	idleGPU    = "idle"
	oneBlock   = "one block"
	blockPerSM = "one block per SM"
)

var utilisationCases = []string{idleGPU, oneBlock, blockPerSM}

func runUtilisation(g *gpu) {
	n, err := nvml.Open()
	if err != nil {
		check(fmt.Errorf("%w: %w", errNotHere, err))
	}
	defer n.Close()
	spin := g.kernels("lesson16.cu", "spin")[0]
	info := g.Device.Info()
	b := g.buffer(int64(4 * info.Processors))
	g.add("all", "sms", 0, float64(info.Processors))
	// The driver averages over up to a second, so what is read in the first part of a case belongs to the case before.
	settle := time.Duration(g.pick(1200, 1)) * time.Millisecond
	launches, each := g.pick(20, 1), time.Duration(g.pick(100, 1))*time.Millisecond
	for _, of := range utilisationCases {
		blocks := map[string]int{oneBlock: 1, blockPerSM: info.Processors}[of]
		for i := 0; i < launches && blocks > 0; i++ {
			g.launch(spin, blocks, 32, b, each.Nanoseconds(), int32(100_000_000))
		}
		watch, stop := context.WithTimeout(g.ctx, time.Duration(launches)*each)
		start := time.Now()
		err := n.Sample(watch, info.PCI, 50*time.Millisecond, func(s nvml.Sample) {
			if at := s.Time.Sub(start); at >= settle && s.Utilisation >= 0 {
				g.add(of, "utilisation_percent", 0, float64(s.Utilisation))
				g.add(of, "power_w", 0, s.Power)
			}
		})
		stop()
		check(err, context.Cause(g.ctx), g.Stream.Synchronize())
		sms := g.read(b, 4*blocks)
		used := map[uint32]bool{}
		for i := range blocks {
			used[binary.LittleEndian.Uint32(sms[4*i:])] = true
		}
		g.add(of, "sms_used", 0, float64(len(used)))
	}
}

func judgeUtilisation(d Data) Finding {
	var utilisation, power []Figure
	for _, of := range utilisationCases {
		utilisation = append(utilisation, figureOf("GPU utilisation, "+of, "%", d.values(of, "utilisation_percent")))
		power = append(power, figureOf("power, "+of, "W", d.values(of, "power_w")))
	}
	idle, one := utilisation[0], utilisation[1]
	all, used := median(d.values("all", "sms")), median(d.values(oneBlock, "sms_used"))
	share := exact("SMs in use, one block", "%", 100*used/all)
	f := Finding{Figures: append(append(utilisation, share), power...)}
	f.Text = fmt.Sprintf("While one block occupies %.0f of %.0f SMs, the driver (NVML, as in nvidia-smi) reports a "+
		"utilisation of %s.", used, all, one.Short())
	low, high := one.interval()
	return f.decide(
		rule{Unknown, idle.Value > 10, "Another program used the GPU while nothing should have run, so this does not tell."},
		rule{Refuted, low > share.Value+50, ""},
		rule{Shown, low > share.Value-5 && high < share.Value+5, ""})
}
