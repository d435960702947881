// Package gpt2 is the model: what a GPT-2 checkpoint means, which stages a forward pass has, what each of them costs,
// and how tokens come out of it. It knows no backend: it writes plans, and something else executes them.
//
// # The plan
//
// [Forward] is the definition of the model. It is one straight function, a line per stage, and it computes nothing: it
// writes a [Plan], the list of [Step]s of one pass, with the buffers by name, the weights by name, the shapes and the
// costs. A [Backend] may fuse neighbouring steps ([Plan.Fuse]) and then executes what is left. Everything that names,
// counts or times a part of the model (tables, traces, profiler ranges, tests) derives from the plan, so that nothing
// is named twice.
//
// # Words
//
// A pass is one forward evaluation: a prefill (T > 1 tokens), a decode step (T = 1 with a KV cache), or, of speculation,
// a draft step of the first layers or a verify step of all drafts. A stage is a named part of the mathematics, such as
// h.0.attn.c_attn; its names are the checkpoint's own module paths. A step is one thing that a backend does in a pass:
// one operation that covers one stage, or several fused ones. An exit is the reading of logits after layer n: ln_f and
// lm_head applied to the residual stream there, which is what running the first n layers does.
//
// Shape letters, here and everywhere: B batch, T tokens, C channels (n_embd), NH
// heads, HS head size, L layers, V vocabulary, Vp padded vocabulary.
//
// A [Model] may be shared between sessions and goroutines. A [Session] belongs to one goroutine at a time.
//
// # Errors
//
// Whatever the input, these packages return an error that says what was wrong, where, and what to do; they do not
// panic. A failure inside a pass is a [*StageError]. The first error of a session sticks: every later call returns it.
package gpt2
