// Package layers measures what each transformer layer costs in time, memory and energy,
// and what it buys in quality.
//
// # Variants
//
// A [Variant] is a list of layers to run: the first n of a model ([Depth]), or the model
// with a layer left out, run twice, or elsewhere. Beyond the last layer a depth begins
// again with the first, so that a small checkpoint can be as deep as one likes: time,
// KV cache and FLOPs are those of a deeper model, weights are shared.
//
// # Tasks
//
// A [Schedule] makes of variants a list of tasks, in rounds of random order, so that
// drift, of clocks or temperature, affects all variants alike. An [Experiment] does tasks,
// each with a session of its own; a [Journal] keeps what they found, and so knows which
// are left.
//
//	for _, t := range schedule.Tasks(variants) {
//		if !journal.Done(t) {
//			values, err := experiment.Run(ctx, t)
//			...
//			err = journal.Add(t, values)
//		}
//	}
//	result, err := experiment.Summarize(variants, journal.Rows(), predict, known)
//
// # The line
//
// To the medians of the depths a line is fitted, time(L) = A + B L, with standard errors
// and prediction intervals ([FitLine]). The line is tested: if the residuals are larger
// than the noise of the repeats, or a pass without layers would take less than no time, it
// is rejected ([Fit.Rejected]), and the cost of a layer is given from depth to depth. On a
// CPU that happens when more and more layers fit a cache no longer.
//
// A recording of the deepest variant by stages gives A and B independently: if they
// disagree, either the recording is wrong or the time does not grow by layers alone.
//
// Memory is predicted by a line over the bytes of a depth's weights, KV cache and
// activations, which do not grow evenly once layers repeat.
package layers
