package learn

import "fmt"

var lesson22 = Lesson{
	Number: 22,
	Claim:  "a copy is a copy: whether memory is pageable or pinned makes no difference",
	GPU:    &Experiment{Run: onGPU(linkOnGPU), Judge: judgePinned, Picture: drawLink},
	DataOf: 3,
	Why: `Memory of malloc, of NumPy and of an ordinary tensor is pageable: the system may move a page or write it to
disk at any time, so that the copy engine of a GPU cannot work on it by itself. The driver copies it piece by piece
into a buffer of its own that is pinned, that is, locked in place, and sends that; the host is busy meanwhile. Pinned
memory (cudaMallocHost, pin_memory() in PyTorch) goes directly, at the speed of the link, and the call returns at
once, so that kernels can run beside it. Its price: pinning takes time itself, and memory from the system. So pin
buffers that are used again and again, once, at the start; leave what is sent once. A recording tells: Memcpy HtoD
(Pageable -> Device).`,
	GoOn: "infer trace kpi sample:bad",
}

// Pinned memory is pinnedFaster times as fast or more, or large copies are alike within pinnedAlike and small ones, whose
// times differ by tens of percent from run to run, within smallAlike.
const pinnedFaster, pinnedAlike, smallAlike = 2, 1.2, 1.5

func judgePinned(d Data) Finding {
	sizes := d.xs(pageable, "time_us")
	if len(sizes) < minSizes {
		return undecided(fmt.Sprintf("Copies of fewer than %d sizes were measured.", minSizes))
	}
	var f Finding
	for _, n := range []float64{sizes[0], sizes[len(sizes)-1]} {
		for _, of := range []string{pageable, toDevice} {
			f.Figures = append(f.Figures, figureOf(of+", "+sizeText(n), "us", d.at(of, "time_us", n)))
		}
	}
	small := exact("pageable over pinned, "+sizeText(sizes[0]), "x", f.Figures[0].Value/f.Figures[1].Value)
	large := exact("pageable over pinned, "+sizeText(sizes[len(sizes)-1]), "x", f.Figures[2].Value/f.Figures[3].Value)
	f.Figures = append(f.Figures, small, large)
	f.Text = fmt.Sprintf("From pageable memory a copy of %s takes %s the time of one from pinned memory, a copy of %s %s.",
		sizeText(sizes[len(sizes)-1]), large.Short(), sizeText(sizes[0]), small.Short())
	return f.decide(
		rule{HalfTrue, large.Value >= pinnedFaster && small.Value <= smallAlike, "Half true: of small copies only."},
		rule{Refuted, large.Value >= pinnedFaster, ""},
		rule{Shown, large.Value <= pinnedAlike && small.Value <= smallAlike, ""})
}
