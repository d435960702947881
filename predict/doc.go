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
// coefficient below 0 ([NNLS]), so that more work never takes less time by it. A second,
// small correction multiplies it: smooth functions of the floor, the rows, the bytes, and the FLOPs for each
// byte, and a factor for each kind of memory, fitted to the logarithm of what the law leaves by ridge
// regression. A third part, for a task in one type on one device, follows measured work nearby ([Point]), as where
// a library changes its kernel. How strong these two are, cross-validation decides; they may be none.
//
// # Levels
//
// Laws are fitted at levels, each pulled towards one before as far as data are few: all work of
// a kind of device, a task on that kind, the task on a device, and there in one type. To which one, cross-validation
// decides too, since another processor can be a worse guide to a task than other tasks of the same. So a task or a
// device that was never measured is predicted by what is common to the others, and few
// measurements of it are enough to do better.
//
// # Trust
//
// An [Estimate] has an interval that holds nine of ten times, taken from errors on shapes
// that were left out of the fit, and says whether the work lies in the domain that was
// measured.
//
// A [Model] is read and written as JSON. [Model.Predict] allocates nothing.
package predict
