package stages

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
)

// Threshold is the least confidence with which a kernel gets a stage.
const Threshold = 0.5

// Kernel is a kernel of a recording with the stage that was found for it.
type Kernel struct {
	Start int64   `json:"start_ns"` // after the recording's base
	Name  string  `json:"name"`
	Stage *string `json:"stage"` // nil if it is of none, or of none with enough confidence

	// Confidence is the probability, by the model of [Infer], that the stage is right; of a kernel without a stage,
	// that it is of none.
	Confidence float64 `json:"confidence"`

	event *traces.Event
	layer int // -1 outside the layers
	state state
}

// Pass is a pass that was found.
type Pass struct {
	Start  int64  `json:"start_ns"` // of its first kernel
	End    int64  `json:"end_ns"`   // of its last one
	Phase  string `json:"phase"`    // "prefill" or "decode step"
	Layers int    `json:"layers"`
	Whole  bool   `json:"whole"` // it has its embeddings and its end; else its layers are numbered as in the others

	// What it computes; nil is not known.
	Batch  *int `json:"batch"`  // B, sequences
	Tokens *int `json:"tokens"` // T, new tokens of each
	Past   *int `json:"past"`   // tokens in the cache before

	size    size
	kernels []*Kernel
	chain   int // kernels of one program on one device
}

// Inference is what [Infer] found.
type Inference struct {
	Kernels []*Kernel `json:"kernels"` // in order of time
	Passes  []*Pass   `json:"passes"`
	Layers  int       `json:"layers"`

	DType     string   `json:"dtype"`      // of the matrix products: "f32", "bf16" or "f16"; "" if no name says it
	CostsFrom []string `json:"costs_from"` // in words: what costs follow from, and what is not known

	// Against are sentences: what says that the recording is of no GPT-2, or of no model that is known.
	Against []string `json:"against"`

	// Confidence is the mean confidence of the kernels that have a stage, weighted by their time; 0 if there are none.
	Confidence float64 `json:"confidence"`

	model *Model // nil if costs are not known
}

// Infer finds the stages of the kernels of a recording of a transformer without its ranges, by the names of the kernels,
// their grids and their order alone, in each process and on each device by itself. Models that are known are GPT-2 and its
// like, those of the same layers whose queries, keys and values have a product each, and Llama and its like.
//
// The order of the stages is a hidden Markov model. Its first reading of the kernels takes what their names say. A
// kernel with the same name and grid is then expected to have the same place in every layer and pass, so that a second
// reading also understands names that say nothing, or the wrong thing.
//
// The costs of steps are those of the model; if it is nil, they are not known. What a pass computes follows from grids,
// as far as it does.
func Infer(t *traces.Trace, model *Model) (*Inference, error) {
	var parts []*Inference
	for _, events := range split(t) {
		parts = append(parts, inferList(events, model))
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("the recording has no kernels of a GPU, of which stages could be found")
	}
	return unite(parts), nil
}

// inferList finds the stages of kernels in order of time.
func inferList(events []*traces.Event, model *Model) *Inference {
	f := &finder{events: events}
	f.read()
	f.fit()
	f.judge()
	f.number()
	g := f.size(model)
	r := f.name()
	if time, weighted := r.sure(); len(r.Passes) > 0 && weighted <= Threshold*time {
		f.say("the confidence is %.2f, no more than %.1f", weighted/max(1, time), Threshold)
		r.Passes = []*Pass{}
		for _, k := range r.Kernels {
			k.Stage = nil
		}
	}
	for i, p := range r.Passes {
		p.size = g.passes[i]
		p.Batch, p.Tokens = known(p.size.batch), known(p.size.tokens)
		if p.size.past >= 0 {
			p.Past = &p.size.past
		}
	}
	r.DType, r.CostsFrom, r.model, r.Against = g.dtype, g.from, g.model, append(r.Against, f.against...)
	return r
}

// finder is the state of Infer.
type finder struct {
	events []*traces.Event
	names  []kernelName
	keys   []int // of each kernel: its name and grid, numbered
	states []state
	sure   []float64
	cost   float64 // of the walk
	pass   []int   // of each kernel, -1 for none
	layer  []int   // of each kernel within its pass, -1 outside the layers
	passes []found
	layers int

	*design
	inner   []bool // of each product: it is within an attention
	rms     bool   // more normalisations are RMSNorm than LayerNorm
	against []string
}

// found is a pass.
type found struct {
	from, to   int // its kernels: from the first to after the last
	count      int // of layers that were seen
	begun, end bool
	phase      int
}

// read classifies the kernels.
func (f *finder) read() {
	type key struct {
		name string
		grid [3]int32
	}
	known := map[string]kernelName{}
	numbers := map[key]int{}
	for _, e := range f.events {
		n, ok := known[e.Name]
		if !ok {
			n = readName(e.Name)
			known[e.Name] = n
		}
		k := key{n.key, e.Grid}
		number, ok := numbers[k]
		if !ok {
			number = len(numbers)
			numbers[k] = number
		}
		f.names, f.keys = append(f.names, n), append(f.keys, number)
	}
	f.readBroadcasts()
	f.readRMS()
	f.readAttentions()
}

// readBroadcasts classifies the additions and products of ggml's graphs. LayerNorm is a normalisation, a product by the
// gain and a sum with the bias. A sum right after a matrix product is that of its bias, unless a LayerNorm follows:
// then it is the residual.
func (f *finder) readBroadcasts() {
	norm := numberOf(f.keys) // of the kinds of kernels, those of a LayerNorm have numbers of their own
	for i := 1; i < len(f.names); i++ {
		if !isBroadcast(f.events[i].Name) {
			continue
		}
		n, before := &f.names[i], f.names[i-1].class
		hasNext := i+1 < len(f.names)
		switch {
		case before == layerNorm && (n.class == multiply || n.class == add && isBroadcast(f.events[i-1].Name)):
			n.class = layerNorm
			f.keys[i] += norm
		case n.class == add && before == product && hasNext && !f.names[i+1].norm:
			n.class = productTail
			f.keys[i] += 2 * norm
		}
	}
}

// numberOf returns a number above all of a list.
func numberOf(list []int) int { return slices.Max(append([]int{0}, list...)) + 1 }

// walk finds the states, first by what names say, then also by where kernels of the same name and grid are.
func (f *finder) walk() {
	costs := make([]costsOf, len(f.events))
	parts := f.inParts()
	for i, n := range f.names {
		for s := range numStates {
			costs[i][s] = emission[n.class][roles[s]]
			if n.class == product && s == sdpa && !parts[i] {
				costs[i][s] = fusedAttention
			}
			if n.class == layerNorm && f.rms && (roles[s] == rolePost || s == sdpa) { // of queries and keys
				costs[i][s] = 0.5
			}
			if n.again && (roles[s] == roleNorm || roles[s] == rolePost) {
				costs[i][s] = -staying[s]
			}
			if n.embed && s == embed {
				costs[i][s] = min(costs[i][s], 0.3)
			}
		}
	}
	f.states, _ = f.viterbi(costs)
	learned := f.learn(costs)
	f.states, f.cost = f.viterbi(learned)
	f.sure = f.posterior(learned, f.states)
}

// inParts reports of each kernel whether the attention nearest to it consists of several kernels: products and a
// softmax.
func (f *finder) inParts() []bool {
	parts := make([]bool, len(f.names))
	var seen []int
	for i, n := range f.names {
		if n.class == attention || n.class == softmax {
			seen = append(seen, i)
		}
	}
	at := 0
	for i := range parts {
		for at+1 < len(seen) && seen[at+1]-i < i-seen[at] {
			at++
		}
		parts[i] = len(seen) == 0 || f.names[seen[at]].class == softmax
	}
	return parts
}

// learn returns costs that also know where the kernels of each name and grid were found.
func (f *finder) learn(costs []costsOf) []costsOf {
	votes := map[int]*[numStates]float64{}
	for i, s := range f.states {
		v := votes[f.keys[i]]
		if v == nil {
			v = new([numStates]float64)
			votes[f.keys[i]] = v
		}
		v[s]++
	}
	learned := make([]costsOf, len(costs))
	for i := range costs {
		v := votes[f.keys[i]]
		all := 0.0
		for _, n := range v {
			all += n
		}
		const prior = 0.2 // of a vote for each state
		trust := all / (all + 4)
		if f.names[i].again { // where a normalisation is, its first kernel says
			trust = 0
		}
		for s := range numStates {
			place := -math.Log((v[s] + prior) / (all + prior*float64(numStates)))
			learned[i][s] = costs[i][s]*(1-0.5*trust) + place*trust
		}
	}
	return learned
}

// divide finds the passes, and counts the layers within each.
func (f *finder) divide() {
	f.pass, f.layer = make([]int, len(f.states)), make([]int, len(f.states))
	before, layer := outside, 0
	for i, s := range f.states {
		f.pass[i], f.layer[i] = -1, -1
		if s == outside {
			before = s
			continue
		}
		isNew := before == outside || s == embed && before != embed && before != between || before >= lnf && s < before
		if isNew {
			f.passes = append(f.passes, found{from: i, begun: s == embed &&
				(i > 0 || f.names[i].embed || f.names[i].class == embedding)})
			layer = 0
		}
		p := &f.passes[len(f.passes)-1]
		if s >= firstOfLayer && s <= lastOfLayer {
			if !isNew && before >= firstOfLayer && s < before && !(stageOf[s] == stageOf[before]) {
				layer++
			}
			f.layer[i] = layer
			p.count = layer + 1
		}
		p.to = i + 1
		p.end = s >= lnf
		f.pass[i] = len(f.passes) - 1
		before = s
	}
}

// number gives each kernel the number of its layer. A pass without its beginning ends with the last layer of the
// others.
func (f *finder) number() {
	f.settle()
	whole := map[int]int{}
	most := 0
	for _, p := range f.passes {
		most = max(most, p.count)
		if p.begun && p.end {
			whole[p.count]++
		}
	}
	f.layers = cmp.Or(mostVotes(whole), most)
	for i := range f.layer {
		if p := f.pass[i]; p >= 0 && f.layer[i] >= 0 && !f.passes[p].begun && f.passes[p].end {
			f.layer[i] += max(0, f.layers-f.passes[p].count)
		}
	}
}

// words are the stages of the states in GPT-2's words.
var words = map[state]string{embed: "wte+wpe", ln1: "ln_1", attn: "attn.c_attn", sdpa: "attn.sdpa",
	proj: "attn.c_proj", res1: "residual_1",
	ln2: "ln_2", fc: "mlp.c_fc", act: "mlp.gelu", down: "mlp.c_proj", res2: "residual_2", lnf: "ln_f", head: "lm_head",
	sample: "sample"}

// separateWords are those of a model with LayerNorm whose queries, keys and values have a product each; it may be no
// decoder. llamaWords are those of Llama and its like.
var (
	separateWords = map[state]string{embed: "embeddings", attn: "attn.q_proj", key: "attn.k_proj", value: "attn.v_proj",
		proj: "attn.out_proj", fc: "mlp.fc1", up: "mlp.up_proj", act: "mlp.act",
		down: "mlp.fc2", head: "head"}
	llamaWords = map[state]string{embed: "embed_tokens", ln1: "input_layernorm", attn: "self_attn.q_proj",
		key: "self_attn.k_proj", value: "self_attn.v_proj", sdpa: "self_attn.sdpa", proj: "self_attn.o_proj",
		ln2: "post_attention_layernorm", fc: "mlp.gate_proj", up: "mlp.up_proj", act: "mlp.act_fn",
		down: "mlp.down_proj", lnf: "norm"}
)

// stageAt returns the stage of a kernel: after the second product of a gated MLP, its tail or the activation.
func (f *finder) stageAt(i int) state {
	if f.states[i] == upPost && f.names[i].class == productTail {
		return up
	}
	return stageOf[f.states[i]]
}

func (f *finder) label(s state, layer int) string {
	word, prefix := words[s], "h."
	switch {
	case f.rms:
		word, prefix = cmp.Or(llamaWords[s], word), "layers."
		if s == attn && !f.has(key) {
			word = "self_attn.qkv_proj"
		} else if s == fc && !f.has(up) {
			word = "mlp.gate_up_proj"
		}
	case f.design != fused:
		word = cmp.Or(separateWords[s], word)
	}
	if s >= firstOfLayer && s <= lastOfLayer {
		return fmt.Sprintf("%s%d.%s", prefix, layer, word)
	}
	return word
}

// name makes the result: stages, with those that have no kernel of their own joined to the kernel that does their work.
func (f *finder) name() *Inference {
	r := &Inference{Passes: []*Pass{}, Layers: f.layers, Against: []string{}}
	for _, p := range f.passes {
		end := int64(math.MinInt64)
		for i := p.from; i < p.to; i++ {
			end = max(end, f.events[i].End())
		}
		r.Passes = append(r.Passes, &Pass{Start: f.events[p.from].Time, End: end, Phase: phaseNames[p.phase], Layers: p.count,
			Whole: p.begun && p.end})
	}
	joined, once := f.joins(), f.once()
	last := -1
	for i, e := range f.events {
		s := f.stageAt(i)
		k := &Kernel{Start: e.Time, Name: e.Name, Confidence: round(f.sure[i]), event: e, layer: f.layer[i], state: s}
		r.Kernels = append(r.Kernels, k)
		if last = max(last, f.pass[i]); f.pass[i] >= 0 || last >= 0 && e.Time < r.Passes[last].End {
			r.Passes[last].kernels = append(r.Passes[last].kernels, k)
		}
		// Choosing the rows of which logits are wanted is no part of lm_head.
		choosing := f.states[i] == headPre && f.names[i].class == concatenation
		if s == outside || f.sure[i] < Threshold || once[f.keys[i]] || choosing {
			continue
		}
		text := joined.of(f, i)
		k.Stage = &text
	}
	return r
}

func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// once returns the kernels within layers that work on positions and masks for all layers: by their names they are of no
// stage, and they are in one layer of each pass.
func (f *finder) once() map[int]bool {
	layers := map[int]map[place]bool{}
	passes := map[int]map[int]bool{}
	for i := range f.states {
		if key := f.keys[i]; f.layer[i] >= 0 && f.names[i].class == other {
			if layers[key] == nil {
				layers[key], passes[key] = map[place]bool{}, map[int]bool{}
			}
			layers[key][place{f.pass[i], f.layer[i]}] = true
			passes[key][f.pass[i]] = true
		}
	}
	found := map[int]bool{}
	for key := range layers {
		found[key] = f.layers > 1 && len(layers[key]) == len(passes[key])
	}
	return found
}

// place is a layer of a pass, or, with layer -1, what is outside its layers.
type place struct{ pass, layer int }

// host is a kernel that may do the work of another stage: the kernels of a name and grid in a state.
type host struct {
	state state
	key   int
}

// joinable are the stages whose work a kernel of another may do, and whether their names come before that one's.
var joinable = []struct {
	host, missing state
	before        bool
}{{ln1, res2, true}, {lnf, res2, true}, {ln2, res1, true}, {attn, ln1, true}, {fc, ln2, true}, {head, lnf, true},
	{fc, act, false}, {proj, res1, false}, {down, res2, false}}

// joins are the stages without kernels of their own, by the kernels that do their work.
type joins struct {
	hosts   map[host][]state
	present map[place]map[state]bool // stages that have kernels of their own
}

// placeOf is where a stage is that a kernel of another one in a layer may do.
func (f *finder) placeOf(missing, host state, here place) place {
	switch {
	case host == lnf && missing == res2:
		return place{here.pass, f.layers - 1}
	case host == ln1 && missing == res2:
		return place{here.pass, here.layer - 1}
	}
	return here
}

// joins finds where the work of the stages without kernels is. Kernels of one name and grid do the same work, so that
// they vote: that a kernel was lost makes no difference.
func (f *finder) joins() joins {
	present := map[place]map[state]bool{}
	addsIn := map[state]int{} // kernels that say that they add, by stage
	for i, st := range f.states {
		if f.pass[i] < 0 {
			continue
		}
		p, s := place{f.pass[i], f.layer[i]}, stageOf[st]
		if present[p] == nil {
			present[p] = map[state]bool{}
		}
		present[p][s] = true
		if f.names[i].adds {
			addsIn[s]++
		}
	}
	productsAdd := addsIn[proj]+addsIn[down] > 0 && addsIn[ln1]+addsIn[ln2] == 0
	votes, all := map[host]map[state]int{}, map[host]int{}
	for i, st := range f.states {
		s, here := stageOf[st], place{f.pass[i], f.layer[i]}
		if here.pass < 0 || s == outside {
			continue
		}
		h := host{s, f.keys[i]}
		if votes[h] == nil {
			votes[h] = map[state]int{}
		}
		all[h]++
		for _, j := range joinable {
			where := present[f.placeOf(j.missing, s, here)]
			if j.host != s || len(where) == 0 || where[j.missing] || s == ln1 && here.layer == 0 {
				continue
			}
			if j.missing == res1 || j.missing == res2 {
				// The product before a residual adds it, or else the LayerNorm after it.
				norm, at := s, here
				switch s {
				case proj:
					norm = ln2
				case down:
					if norm, at = ln1, (place{here.pass, here.layer + 1}); len(present[at]) == 0 {
						norm, at = lnf, place{here.pass, -1}
					}
				}
				if byProduct := productsAdd || !present[at][norm]; byProduct != (s == proj || s == down) {
					continue
				}
			}
			votes[h][j.missing]++
		}
	}
	j := joins{map[host][]state{}, present}
	for h, v := range votes {
		for s, n := range v {
			if 2*n > all[h] {
				j.hosts[h] = append(j.hosts[h], s)
			}
		}
	}
	return j
}

// of names the stage of a kernel with those joined to it.
func (j joins) of(f *finder, i int) string {
	s, here := f.stageAt(i), place{f.pass[i], f.layer[i]}
	parts := []string{f.label(s, here.layer)}
	for _, join := range joinable {
		where := f.placeOf(join.missing, s, here)
		switch {
		case join.host != s || !slices.Contains(j.hosts[host{s, f.keys[i]}], join.missing) || j.present[where][join.missing],
			s == ln1 && here.layer == 0, s == attn && here.layer == 0 && f.normalisesAtEmbed(here.pass):
		case join.before:
			parts = slices.Insert(parts, 0, f.label(join.missing, where.layer))
		default:
			parts = append(parts, f.label(join.missing, where.layer))
		}
	}
	if s == embed && f.names[i].norm {
		parts = append(parts, f.label(ln1, 0))
	}
	return strings.Join(parts, "+")
}

// normalisesAtEmbed reports whether the kernel of the embeddings normalises too.
func (f *finder) normalisesAtEmbed(pass int) bool {
	p := f.passes[pass]
	for i := p.from; i < p.to && f.states[i] <= between; i++ {
		if f.states[i] == embed && f.names[i].norm {
			return true
		}
	}
	return false
}

// Stage is what was found of a stage over all layers and passes.
type Stage struct {
	Name       string // "h.N.attn.c_attn"; "" for the kernels of no stage
	Kernels    int
	Time       int64   // ns, of its kernels
	Confidence float64 // the mean of its kernels', weighted by their time
}

// Stages returns the stages in the order in which they are first there; the kernels of no stage come last, if there are
// any.
func (r *Inference) Stages() []Stage {
	var list []Stage
	index := map[string]int{}
	none := Stage{}
	for _, k := range r.Kernels {
		s := &none
		if k.Stage != nil {
			name := traces.InAnyLayer(*k.Stage)
			at, known := index[name]
			if !known {
				at = len(list)
				index[name] = at
				list = append(list, Stage{Name: name})
			}
			s = &list[at]
		}
		s.Kernels++
		s.Time += k.event.Duration
		s.Confidence += float64(k.event.Duration) * k.Confidence
	}
	if none.Kernels > 0 {
		list = append(list, none)
	}
	for i := range list {
		list[i].Confidence /= float64(max(1, list[i].Time))
	}
	return list
}

// Describe says in a line what was found: "5 passes of 12 layers (1 prefill, 4 decode steps)".
func (r *Inference) Describe() string {
	var kinds []string
	for _, phase := range phaseNames {
		n := 0
		for _, p := range r.Passes {
			if p.Phase == phase {
				n++
			}
		}
		if n > 0 {
			kinds = append(kinds, humanize.Count(n, phase, humanize.Plural(phase)))
		}
	}
	if len(kinds) == 0 {
		return "no pass of a model that is known was found"
	}
	return fmt.Sprintf("%s of %s (%s)", humanize.Count(len(r.Passes), "pass", "passes"),
		humanize.Count(r.Layers, "layer", "layers"), strings.Join(kinds, ", "))
}
