// GS_LINEAR of many rows with 8-bit weights on AMX tiles of bytes (TDPBSSD).
//
//   C[32][32] = A[32][128] B[128][32]: signed bytes of 128 rows of a panel, sums that are exact in 32 bits
//   y[32][32] += float32(C) d_x d_W
//
// Scaling sums takes vector units longer than tiles take for 32 products: so rows of x are rounded to 8 bits with a
// scale for each 128 values, once for all workers, and the four blocks of 32 rows of W are brought to the largest of
// their scales, within a task. One group of 128 is scaled while the next is multiplied.
#ifndef GS_TILE_INT8_H
#define GS_TILE_INT8_H

#include "bf16.h"
#include "tile_amx.h"

enum {
	IB = INT8_GROUP / GS_QB, // blocks of a group
	INT8_GROUPS = 3, // of a panel at a time: 12 KiB, for the L1 cache beside x, sums and y
};

typedef struct int8_rows { // a group of 16 rows of x
	int8_t q[2][16][INT8_GROUP / 2];
	float d[16];
} int8_rows;

typedef struct int8_panel { // a group of a panel
	int8_t q[INT8_GROUP / 4][GS_NR][4];
	float d[GS_NR];
} int8_panel;

// int8_quantise rounds row r of x, normalised if the step has a norm.
static void int8_quantise(const gs_linear *o, void *rows, int64_t r, const float *x) {
	const int64_t K = o->w.K;
	int8_rows *to = (int8_rows *)rows + r / 16 * gs_ceil(K, INT8_GROUP);
	r %= 16;
	float mean = 0, rstd = 0;
	if (o->norm.gain) row_stats(x, K, o->norm.eps, &mean, &rstd);
	for (int64_t k = 0; k < K; k += INT8_GROUP, to++) {
		float rest[INT8_GROUP];
		const int whole = K - k >= INT8_GROUP;
		if (!whole) {
			memset(rest, 0, sizeof rest);
			copy_row(o, rest, x, k, K - k, mean, rstd);
		}
		vf v[INT8_GROUP / VL];
		vu top = {0};
#pragma GCC unroll 8
		for (int j = 0; j < INT8_GROUP / VL; j++) {
			v[j] = load(whole ? x + k + j * VL : rest + j * VL);
			if (whole && o->norm.gain)
				v[j] = (v[j] - mean) * rstd * load(o->norm.gain + k + j * VL) + load(o->norm.bias + k + j * VL);
			top = (vu)_mm512_max_epu32((__m512i)top, (__m512i)((vu)v[j] & 0x7fffffffu));
		}
		const uint32_t bits = _mm512_reduce_max_epu32((__m512i)top); // larger for NaN and infinity than for numbers
		float most;
		memcpy(&most, &bits, sizeof most);
		const float inverse = most >= Q8_LEAST ? 127.0f / most : 0;
		to->d[r] = bits >= 0x7f800000u ? NAN : most >= Q8_LEAST ? most * (1.0f / 127) : 0;
#pragma GCC unroll 8
		for (int j = 0; j < INT8_GROUP / VL; j++)
			_mm_store_si128((__m128i *)(to->q[j / 4][r] + j % 4 * VL),
				_mm512_cvtepi32_epi8(_mm512_cvtps_epi32((__m512)(v[j] * inverse))));
	}
}

// int8_prepare brings the blocks of a group, at most IB, to one scale for each column and makes their bytes signed.
static void int8_prepare(int8_panel *to, const char *block, int64_t n) {
	vf d[IB][NVP], most[NVP] = {{0}};
	for (int64_t b = 0; b < IB; b++)
		for (int j = 0; j < NVP; j++) d[b][j] = (vf){0};
	for (int64_t b = 0; b < n; b++) {
		q8_scales(d[b], block + b * GS_Q8_BLOCK);
		for (int j = 0; j < NVP; j++) most[j] = vmax(most[j], d[b][j]);
	}
	for (int j = 0; j < NVP; j++) // NaN if one of them is
		store(to->d + j * VL, most[j] + (d[0][j] + d[1][j] + d[2][j] + d[3][j]) * 0.0f);
	for (int64_t b = 0; b < n; b++, block += GS_Q8_BLOCK) {
		vu ratio[NVP]; // as a fraction of 2^15, twice in a lane
		for (int j = 0; j < NVP; j++) {
			const vf share = d[b][j] / vmax(most[j], splat(0x1p-126f)) * 0x1p15f;
			ratio[j] = (vu)_mm512_min_epi32(_mm512_cvtps_epi32((__m512)share), _mm512_set1_epi32(0x7fff));
			ratio[j] |= ratio[j] << 16;
		}
#pragma GCC unroll 8
		for (int i = 0; i < GS_QB / 4; i++)
#pragma GCC unroll 2
			for (int j = 0; j < NVP; j++) {
				const vu q = load_u(block + 2 * GS_NR + i * 4 * GS_NR + j * GS_VB) ^ 0x80808080u;
				const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16((__m512i)q, 8), 8), odd = _mm512_srai_epi16((__m512i)q, 8);
				const vu e = (vu)_mm512_mulhrs_epi16(even, (__m512i)ratio[j]), f = (vu)_mm512_mulhrs_epi16(odd, (__m512i)ratio[j]);
				store_u(to->q[b * GS_QB / 4 + i][j * VL], (e & 0x00ff00ffu) | (vu)_mm512_slli_epi16((__m512i)f, 8));
			}
	}
	for (int64_t i = n * GS_QB / 4; i < INT8_GROUP / 4; i++) memset(to->q[i], 0, sizeof to->q[i]);
}

// Sums of a group that are not in y yet.
typedef struct int8_sums {
	_Alignas(GS_LINE) int32_t of[4][16][VL]; // by quarters of y: rows, then columns
	const int8_rows *x[2];
	const float *d; // of the panel
	float *y;       // (32, 32)
	int first;      // y is set, not added to
} int8_sums;

// int8_scale adds a quarter to y.
INLINE void int8_scale(const int8_sums *s, const int quarter) {
	const int8_rows *x = s->x[quarter / 2];
	const vf d = load(s->d + quarter % 2 * VL);
	float *y = s->y + quarter / 2 * 16 * GS_NR + quarter % 2 * VL;
	// Not left to the compiler, which fuses in one place and not in another.
#define SCALE(r) ((__m512)(d * x->d[r]))
#define SUMS(r) _mm512_cvtepi32_ps((__m512i)load_u(s->of[quarter][r]))
	if (s->first) {
#pragma GCC unroll 16
		for (int r = 0; r < 16; r++) store(y + r * GS_NR, (vf)_mm512_mul_ps(SUMS(r), SCALE(r)));
	} else {
#pragma GCC unroll 16
		for (int r = 0; r < 16; r++)
			store(y + r * GS_NR, (vf)_mm512_fmadd_ps(SUMS(r), SCALE(r), (__m512)load(y + r * GS_NR)));
	}
#undef SCALE
#undef SUMS
}

// int8_multiply writes the sums of a group to s, and scales those before. It prefetches lines from `ahead`.
static __attribute__((noinline)) void int8_multiply(int8_sums *s, const int8_panel *w, const char *ahead,
		const int8_sums *before) {
	enum { ROW = GS_NR * 4 };
#pragma GCC unroll 12
	for (int line = 0; line < 12; line++) __builtin_prefetch(ahead + line * GS_LINE, 0, 2);
	TILE_FENCE();
	TILE_ZERO(0);
	TILE_ZERO(1);
	TILE_ZERO(2);
	TILE_ZERO(3);
	TILE_LOAD(4, s->x[0]->q[0], INT8_GROUP / 2);
	TILE_LOAD(6, w->q[0][0], ROW);
	TILE_DOT_BYTES(0, 4, 6);
	TILE_LOAD(7, w->q[0][16], ROW);
	TILE_DOT_BYTES(1, 4, 7);
	int8_scale(before, 0);
	TILE_LOAD(5, s->x[1]->q[0], INT8_GROUP / 2);
	TILE_DOT_BYTES(2, 5, 6);
	TILE_DOT_BYTES(3, 5, 7);
	int8_scale(before, 1);
	TILE_LOAD(4, s->x[0]->q[1], INT8_GROUP / 2);
	TILE_LOAD(6, w->q[16][0], ROW);
	TILE_DOT_BYTES(0, 4, 6);
	TILE_LOAD(7, w->q[16][16], ROW);
	TILE_DOT_BYTES(1, 4, 7);
	int8_scale(before, 2);
	TILE_LOAD(5, s->x[1]->q[1], INT8_GROUP / 2);
	TILE_DOT_BYTES(2, 5, 6);
	TILE_DOT_BYTES(3, 5, 7);
	int8_scale(before, 3);
	TILE_STORE(0, s->of[0], 64);
	TILE_STORE(1, s->of[1], 64);
	TILE_STORE(2, s->of[2], 64);
	TILE_STORE(3, s->of[3], 64);
}

// multiply_int8 is multiply_bf16 for these products.
static void multiply_int8(gs_worker *w, const gs_linear *o, int64_t first, void *rows) {
	const int64_t blocks = q8_blocks(o->w.K), groups = gs_ceil(blocks, IB);
	const gs_parts parts = divide_int8(o->M, panels_of(o), o->w.K, w->n);
	float *c = w->scratch;                                        // (rows, 32)
	int8_sums *sums = (int8_sums *)(c + INT8_ROWS * GS_NR);       // two, in turns
	int8_panel *panel = (int8_panel *)(sums + 2);                 // (INT8_GROUPS)
	static const int8_rows zeros;
	bf16_begin();
	for (int64_t t = gs_first(w, parts.rows * parts.panels); t >= 0; t = gs_next(w)) {
		const task cut = task_of(o, parts, t / parts.panels, t % parts.panels, BR);
		const int64_t r0 = first + cut.r0, tiles = gs_ceil(cut.rows, BR);
		const int8_rows *x = (int8_rows *)rows + cut.r0 / 16 * groups; // (cut.rows / 16, groups)
		for (int64_t q = cut.q0; q < cut.q1 && !gs_cancelled(w->pool); q++) {
			for (int64_t g = 0, n; g < groups; g += n) {
				n = groups - g < INT8_GROUPS ? groups - g : INT8_GROUPS;
				const char *at = q8_block_of(&o->w, q, g * IB), *ahead = at + n * IB * GS_Q8_BLOCK;
				for (int64_t i = 0; i < n; i++, at += IB * GS_Q8_BLOCK)
					int8_prepare(panel + i, at, blocks - (g + i) * IB < IB ? blocks - (g + i) * IB : IB);
				int last = 0;
				sums[last] = (int8_sums){.x = {&zeros, &zeros}, .d = zeros.d, .y = c, .first = 0};
				for (int64_t i = 0; i < tiles; i++)
					for (int64_t j = 0; j < n; j++, last = !last, ahead += 12 * GS_LINE) {
						int8_sums *s = sums + !last;
						s->x[0] = x + 2 * i * groups + g + j;
						s->x[1] = s->x[0] + (cut.rows - i * BR > 16 ? groups : 0);
						s->d = panel[j].d;
						s->y = c + i * BR * GS_NR;
						s->first = g + j == 0;
						int8_multiply(s, panel + j, ahead, sums + last);
					}
				for (int quarter = 0; quarter < 4; quarter++) int8_scale(sums + last, quarter);
			}
			for (int64_t i = 0; i < tiles; i++) {
				const int64_t m = cut.rows - i * BR < BR ? cut.rows - i * BR : BR;
				prefetch_y(o, r0 + i * BR + BR, cut.rows - i * BR - BR < BR ? cut.rows - i * BR - BR : BR, q * GS_NR);
				finish(o, r0 + i * BR, (int)m, q * GS_NR, c + i * BR * GS_NR);
			}
		}
	}
	bf16_end();
}

static void linear_int8(gs_worker *w, const gs_linear *o) {
	const int64_t groups = gs_ceil(o->w.K, INT8_GROUP);
	linear_packed(w, o, (int64_t)(GS_SHARED / sizeof(int8_rows)) / groups * 16 / BR * BR, int8_quantise, multiply_int8);
}
_Static_assert(INT8_ROWS * GS_NR * 4 + 2 * sizeof(int8_sums) + INT8_GROUPS * sizeof(int8_panel) <= GS_SCRATCH * 4,
	"scratch too small for a task");

#endif
