package predict

import (
	"errors"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

// A process is a Gaussian process of what one law leaves in the logarithms of all measured times of a kind of device (Rasmussen and
// Williams, "Gaussian Processes for Machine Learning", 2006, chapter 2). It is a sum of functions of the features of work: one for all work, one
// for each type, task, machine, and so on. What few measurements of a machine or a task say is so weighed against what others
// have in common.
type process struct {
	levels  [levels]level
	law     Law
	rows    []Row
	labels  []labels
	scale   [2]*scales // see reaches
	at      []place
	left    []float64    // what the law leaves
	alpha   []float64    // (K + noise)^-1 left
	inverse mat.SymDense // (K + noise)^-1
}

// labels name what a measurement or a prediction is of. "" is unknown, and equal to nothing.
type labels struct {
	task, dtype, processor, machine string // machine with its device
	memory                          Memory
}

// level is a function of the sum: it has one for each set of labels.
type level struct {
	constant, smooth float64 // variances
	threads          bool    // the smooth part is a function of the number of threads too, with reaches of its own
}

// place is the features of work, scaled by the reaches of functions without and with the number of threads.
type place [2][features]float64

// reaches returns those of functions without and with the number of threads, in octaves as those of [Reach]; rounded from those with the
// largest marginal likelihood on the samples of tasks/samples. The samples of Zen processors alone and those of Xeons alone give nearly the same: in functions
// of a type or a machine 0.8 to 1.2 for bytes, where caches end, 2 to 5 for intensity, and so little for the kernel that works of two kernels have little in common.
func reaches(kind string) [2][features]float64 {
	if kind == "cuda" {
		return [2][features]float64{gpuReach, gpuReach}
	}
	return [2][features]float64{
		{24, 6, 12, 6, 4, 1, 0.25, 5, math.Inf(1)},
		{15, 30, 12, 20, 13, 13, 80, 12, 8},
	}
}

func (p *process) placeOf(w *Work) place { return place{p.scale[0].of(w), p.scale[1].of(w)} }

// The levels, of what works share.
const (
	ofAll        = iota
	ofAllThreads // with a function of the number of threads
	ofType
	ofTask
	ofTaskType
	ofProcessor // with a function of the number of threads
	ofMachine   // with the memory
	ofMachineTask
	levels
)

// levelsOf returns standard deviations of the levels, and of noise, rounded from those with the largest marginal likelihood on the samples of
// tasks/samples. Those of a fit are these times a factor. The samples are of one GPU, of which nothing says how others differ. The likelihood does not know what four
// processors have in common: that of all samples has 1.5 for ofAllThreads, but a stronger function extrapolates further to processors that were not measured, and is further off
// there. Those of ofProcessor are of the Xeons, the only samples of one processor with several numbers of threads.
func levelsOf(kind string) (all [levels]level, noise float64) {
	if kind == "cuda" {
		return [levels]level{
			ofAll:         {constant: 0.08, smooth: 0.17},
			ofType:        {constant: 0.06, smooth: 0.1},
			ofTask:        {constant: 0.05, smooth: 0.04},
			ofTaskType:    {constant: 0.03, smooth: 0.04},
			ofMachine:     {constant: 0.05, smooth: 0.14},
			ofMachineTask: {constant: 0.03, smooth: 0.05},
		}, 0.1
	}
	return [levels]level{
		ofAll:         {constant: 0.16},
		ofAllThreads:  {smooth: 0.5, threads: true},
		ofType:        {constant: 0.06, smooth: 0.09},
		ofTask:        {constant: 0.1},
		ofTaskType:    {constant: 0.02, smooth: 0.02},
		ofProcessor:   {constant: 0.4, smooth: 0.8, threads: true},
		ofMachine:     {constant: 0.02, smooth: 0.13},
		ofMachineTask: {constant: 0.01, smooth: 0.05},
	}, 0.08
}

// same tells which levels two works share.
func same(a, b *labels) (s [levels]bool) {
	task, dtype := a.task != "" && a.task == b.task, a.dtype != "" && a.dtype == b.dtype
	processor := a.processor != "" && a.processor == b.processor
	machine := a.machine != "" && a.machine == b.machine && a.memory == b.memory
	return [levels]bool{ofAll: true, ofAllThreads: true, ofType: dtype, ofTask: task, ofTaskType: task && dtype, ofProcessor: processor, ofMachine: machine, ofMachineTask: machine && task}
}

// covariance of what two works leave is constant + smooth near + threads nearThreads, with the kernel without and with the number of
// threads.
func (p *process) covariance(a, b *labels) (constant, smooth, threads float64) {
	for l, is := range same(a, b) {
		if !is {
			continue
		}
		v := &p.levels[l]
		if constant += v.constant; v.threads {
			threads += v.smooth
		} else {
			smooth += v.smooth
		}
	}
	return constant, smooth, threads
}

func (p *process) kernel(a, b *labels, at, other *place) float64 {
	constant, smooth, threads := p.covariance(a, b)
	return constant + smooth*near(&at[0], &other[0]) + threads*near(&at[1], &other[1])
}

// maxLeft bounds what is fitted: a factor of e^3.
const maxLeft = 3

// reach sets the scales to those of a kind of device.
func (p *process) reach(kind string) {
	for i, r := range reaches(kind) {
		p.scale[i] = scalesTo(r)
	}
}

// newProcess returns a process that is not fitted yet.
func newProcess(kind string, rows []Row, law Law) *process {
	p := &process{law: law, rows: rows}
	p.reach(kind)
	for i := range rows {
		r := &rows[i]
		p.labels = append(p.labels, labels{r.Task, r.DType, r.Processor(), byMachine(r), r.Memory})
		p.at = append(p.at, p.placeOf(&r.Work))
		p.left = append(p.left, max(-maxLeft, min(maxLeft, math.Log(r.Us/max(law.Time(&r.Work), leastUs)))))
	}
	return p
}

// fitProcess fits a process to warm measurements.
func fitProcess(kind string, rows []Row, law Law) (*process, error) {
	p := newProcess(kind, rows, law)
	return p, p.solve(p.choose(kind))
}

// solve finds what predictions need, by the levels that are set.
func (p *process) solve(noise float64) error {
	n := len(p.rows)
	variance := make([]float64, n)
	for i := range variance {
		variance[i] = noise*noise + p.rows[i].chance*p.rows[i].chance
	}
	for round := range robustRounds {
		factor, err := p.factor(allOf(n), variance)
		if err != nil {
			return err
		}
		p.alpha = make([]float64, n)
		if err := factor.SolveVecTo(mat.NewVecDense(n, p.alpha), mat.NewVecDense(n, p.left)); err != nil {
			return errProcess
		}
		if round+1 == robustRounds {
			return factor.InverseTo(&p.inverse)
		}
		// What is left after the fit is variance times alpha. Beyond huberNoise times the noise a measurement counts less.
		for i := range variance {
			if miss := math.Abs(variance[i]*p.alpha[i]) / noise; miss > huberNoise {
				variance[i] *= miss / huberNoise
			}
		}
	}
	return nil
}

const (
	robustRounds  = 2
	huberNoise    = 1.5
	mostForChoice = 250 // measurements for the marginal likelihood
)

var errProcess = errors.New("what the law leaves cannot be fitted: the data may hold extreme values")

func allOf(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// factor factorizes the covariance of some measurements with their noise.
func (p *process) factor(of []int, variance []float64) (*mat.Cholesky, error) {
	k := mat.NewSymDense(len(of), nil)
	for i, a := range of {
		for j, b := range of[:i+1] {
			k.SetSym(j, i, p.kernel(&p.labels[a], &p.labels[b], &p.at[a], &p.at[b]))
		}
		k.SetSym(i, i, k.At(i, i)+variance[a])
	}
	var c mat.Cholesky
	if !c.Factorize(k) {
		return nil, errProcess
	}
	return &c, nil
}

// some draws measurements, the same ones each time.
func (p *process) some(most int) []int {
	of := rand.New(rand.NewPCG(9, 10)).Perm(len(p.rows))
	return of[:min(most, len(of))]
}

// set sets the levels to those of a kind of device times a factor.
func (p *process) set(base *[levels]level, scale float64) {
	for l, v := range base {
		p.levels[l] = level{scale * scale * v.constant * v.constant, scale * scale * v.smooth * v.smooth, v.threads}
	}
}

// likelihood returns the logarithm of the marginal likelihood of some measurements, but for a constant, minus infinity if it cannot be computed.
func (p *process) likelihood(of []int, noise float64) float64 {
	y, variance := mat.NewVecDense(len(of), nil), make([]float64, len(p.rows))
	for i, a := range of {
		y.SetVec(i, p.left[a])
		variance[a] = noise*noise + p.rows[a].chance*p.rows[a].chance
	}
	factor, err := p.factor(of, variance)
	if err != nil {
		return math.Inf(-1)
	}
	var alpha mat.VecDense
	if factor.SolveVecTo(&alpha, y) != nil {
		return math.Inf(-1)
	}
	return -mat.Dot(y, &alpha)/2 - factor.LogDet()/2
}

// choose sets the levels, and returns the noise, that have the largest marginal likelihood of some measurements, drawn at random.
func (p *process) choose(kind string) float64 {
	base, usual := levelsOf(kind)
	of := p.some(mostForChoice)
	best, noise, chosen := math.Inf(-1), usual, 1.0
	for _, scale := range []float64{0.5, 1, 2} {
		p.set(&base, scale)
		for _, part := range []float64{0.2, 0.5, 1, 1.5} {
			if likelihood := p.likelihood(of, part*usual); likelihood > best {
				best, noise, chosen = likelihood, part*usual, scale
			}
		}
	}
	p.set(&base, chosen)
	return noise
}

// mean returns a function of features: the expected logarithm of the factor to the law of work with some labels.
func (p *process) mean(of labels) func(at *place) float64 {
	type term struct{ smooth, threads float64 }
	shift, terms := 0.0, make([]term, len(p.rows))
	for i := range p.rows {
		constant, smooth, threads := p.covariance(&of, &p.labels[i])
		shift += constant * p.alpha[i]
		terms[i] = term{smooth * p.alpha[i], threads * p.alpha[i]}
	}
	return func(at *place) float64 {
		sum := shift
		for i := range terms {
			if terms[i].smooth != 0 {
				sum += terms[i].smooth * near(&at[0], &p.at[i][0])
			}
			if terms[i].threads != 0 {
				sum += terms[i].threads * near(&at[1], &p.at[i][1])
			}
		}
		return sum
	}
}

// leftOut returns the errors, in logarithm, of all measurements, each as predicted without its group.
func (p *process) leftOut(group func(*Row) string) []float64 {
	of := map[string][]int{}
	for i := range p.rows {
		k := group(&p.rows[i])
		of[k] = append(of[k], i)
	}
	out := make([]float64, len(p.rows))
	for _, group := range of {
		for k, e := range p.without(group) {
			out[group[k]] = e
		}
	}
	return out
}

// without returns the errors of predictions of some measurements by all others (Rasmussen and Williams, section
// 5.4.2, for several at once).
func (p *process) without(of []int) []float64 {
	n := len(of)
	block, right, out := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil), make([]float64, n)
	for i, a := range of {
		right.SetVec(i, p.alpha[a])
		for j, b := range of[:i+1] {
			block.SetSym(j, i, p.inverse.At(a, b))
		}
	}
	var c mat.Cholesky
	if !c.Factorize(block) || c.SolveVecTo(mat.NewVecDense(n, out), right) != nil {
		for i, a := range of {
			out[i] = p.left[a]
		}
	}
	return out
}
