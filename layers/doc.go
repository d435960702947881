// Package layers measures what each transformer layer costs in time, memory and energy, and what it buys in quality.
//
// A [Variant] is a list of layers to run. A [Schedule] makes of variants a list of tasks, in rounds of random order, so
// that drift of clocks or temperature affects all variants alike. An [Experiment] does tasks, each with a session of
// its own; a journal ([State]) keeps what they found. To the medians of the depths a line is fitted, time(L) = A + B L, and
// tested ([Fit]). Memory is computed: the bytes of a variant's weights, KV cache and activations.
package layers
