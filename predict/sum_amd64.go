package predict

import "golang.org/x/sys/cpu"

// vectors tells whether the processor has what sumVectors uses.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// sumVectors is sum of an even number of blocks, 2 at least, by AVX2 and fused multiply-adds.
//
//go:noescape
func sumVectors(blocks *block, n int, p *origin) float64
