// Package cpu executes plans on the host: kernels in C, called through cgo, for AVX-512, AVX2, NEON and plain C, chosen
// at run time; weights packed once into panels, as float32, bfloat16 or 8-bit integers with a scale per 32;
// neighbouring steps fused; one call into C per pass. It is tested against the executor of package reference/executor.
package cpu
