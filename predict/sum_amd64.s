#include "textflag.h"

// DISTANCES adds up, in SUM, the squared distances of the four points of the block at an offset from SI, plus 1. Y0 to Y8
// hold minusTwice and Y9 own. A block holds square at 0, features at 32 to 288, weight at 320.
#define DISTANCES(offset, SUM, OTHER) \
	VADDPD      (offset+0)(SI), Y9, SUM         \
	VMULPD      (offset+32)(SI), Y0, OTHER      \
	VFMADD231PD (offset+64)(SI), Y1, SUM        \
	VFMADD231PD (offset+96)(SI), Y2, OTHER      \
	VFMADD231PD (offset+128)(SI), Y3, SUM       \
	VFMADD231PD (offset+160)(SI), Y4, OTHER     \
	VFMADD231PD (offset+192)(SI), Y5, SUM       \
	VFMADD231PD (offset+224)(SI), Y6, OTHER     \
	VFMADD231PD (offset+256)(SI), Y7, SUM       \
	VFMADD231PD (offset+288)(SI), Y8, OTHER     \
	VADDPD      OTHER, SUM, SUM

// func sumVectors(blocks *block, n int, p *origin) float64
//
// Two blocks share a division, which takes as long as all multiply-adds of a block: v/d + w/e = (v e + w d) / (d e).
TEXT ·sumVectors(SB), NOSPLIT, $0-32
	MOVQ         blocks+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVQ         p+16(FP), DX
	VBROADCASTSD 0(DX), Y0
	VBROADCASTSD 8(DX), Y1
	VBROADCASTSD 16(DX), Y2
	VBROADCASTSD 24(DX), Y3
	VBROADCASTSD 32(DX), Y4
	VBROADCASTSD 40(DX), Y5
	VBROADCASTSD 48(DX), Y6
	VBROADCASTSD 56(DX), Y7
	VBROADCASTSD 64(DX), Y8
	VBROADCASTSD 72(DX), Y9
	VXORPD       Y10, Y10, Y10

pair:
	DISTANCES(0, Y11, Y12)
	DISTANCES(352, Y13, Y14)
	VMULPD      320(SI), Y13, Y12
	VFMADD231PD 672(SI), Y11, Y12
	VMULPD      Y11, Y13, Y13
	VDIVPD      Y13, Y12, Y12
	VADDPD      Y12, Y10, Y10
	ADDQ        $704, SI
	SUBQ        $2, CX
	JNZ         pair

	VEXTRACTF128 $1, Y10, X11
	VADDPD       X11, X10, X10
	VPERMILPD    $1, X10, X11
	VADDSD       X11, X10, X10
	VZEROUPPER
	MOVSD        X10, ret+24(FP)
	RET
