// Package predict predicts how long work takes on a device before it runs there.
//
// # The law
//
// What is known of work before it runs is in a [Work]: its floor, the least time that the
// device's ceilings allow, the steps it is made of, and the bytes that it moves between host
// and device. A [Law] predicts a time from that:
//
//	time = efficiency * floor + launch * steps + traffic * bytes + transfers (latency + bytes / rate) + base + start if cold
//
// Its coefficients are fitted to measured times by least squares of relative errors with no
// coefficient below 0 ([NNLS]), so that more work never takes less time by it. Laws are fitted at levels, each pulled towards one before as far
// as data are few: all work of a kind of device, a task there, the task on a device, and in one type.
//
// On a CPU the law takes idle floor + standard for the floor. idle is the number of threads for each part of a product that has fewer parts than there are threads. standard is the
// floor of the same work on a standard CPU, and stands for what does not go with ceilings: times of work differ less from one CPU to
// another than ceilings do.
//
// # What a law leaves
//
// No smooth law follows all that work does: caches, products of few rows, a library that changes its kernel. What is left in the logarithms of
// times is a Gaussian process over floor, rows, steps, the length of sums, FLOPs for each byte, bytes, threads, the kernel that multiplies and idle threads. It is a sum of functions: one
// that all work on a kind of device has in common, others of a type, a task, a processor, a machine, a task on a machine. So ten measurements
// of a new machine correct what is particular to it, a task that was never measured has what is common to the others, and a processor with another number of threads what its machines have in
// common. How strong it is, and
// how much is noise, the marginal likelihood decides.
//
// A prediction has to be brief: what the process expects for a task on a device is fitted once more, by a sum over a few dozen [Points], which lie where it bends.
// Beyond the measured work times grow by the law alone.
//
// # Trust
//
// An [Estimate] has an interval that holds nine of ten times, taken from errors on shapes
// that were left out of the process, and says whether the work lies in the domain that was
// measured.
//
// A [Model] is read and written as JSON. [Model.Predict] allocates nothing.
//
// docs/cost-model.md says how far off the model is, and what was tried on the way to it.
package predict
