// Package cpu executes plans on the host, in two ways.
//
// [NewReference] makes the reference executor: the functions of package reference, in
// float64, one step after another, nothing fused, over weights that gorgonia.org/tensor
// holds and multiplies. It is slow, and easy to check by reading; everything faster is
// tested against it, step by step.
//
// [New] makes the fast executor: kernels in C, called through cgo, for AVX-512,
// AVX2, NEON and plain C, chosen at run time; weights packed once into panels, as
// float32, bfloat16 or 8-bit integers with a scale per 32; neighbouring steps fused; one
// call into C per pass.
package cpu
