// Packing weights (layouts in kernels.h).
#ifndef GS_PACK_H
#define GS_PACK_H

#include "q8.h"
#include "rows.h"
#include "version.h"
#include <unistd.h>

INLINE float f16_to_f32(uint16_t h) {
	// Exponent and mantissa, shifted into place, are a float32 that is too small by 2^112. The product is exact, also for
	// subnormals.
	union { uint32_t u; float f; } v = {(uint32_t)(h & 0x7fff) << 13}, scale = {0x77800000}, sign;
	v.f *= scale.f;
	sign.u = (v.u | ((h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0)) | (uint32_t)(h & 0x8000) << 16;
	return sign.f;
}

// read_some is read_values, compiled for one n.
INLINE int64_t read_some(float *out, const void *src, int dtype, int64_t i, const int n) {
	switch (dtype) {
	case GS_F32: memcpy(out, (const char *)src + i * 4, (size_t)n * 4); break;
	case GS_BF16: {
		uint16_t h[GS_NR];
		memcpy(h, (const char *)src + i * 2, (size_t)n * 2);
		for (int j = 0; j < n; j++) out[j] = widen_bf16(h[j]);
		break;
	}
	default: {
		uint16_t h[GS_NR];
		memcpy(h, (const char *)src + i * 2, (size_t)n * 2);
		for (int j = 0; j < n; j++) out[j] = f16_to_f32(h[j]);
	}
	}
	int bad = 0;
	for (int j = 0; j < n; j++) {
		uint32_t u;
		memcpy(&u, &out[j], 4);
		bad += (u & 0x7f800000) == 0x7f800000;
	}
	for (int j = n; j < GS_NR; j++) out[j] = 0;
	return bad;
}

// read_values writes n <= 32 values of src, from index i on, as float32 to out, followed by zeros up to 32. It returns
// how many are NaN or infinite.
INLINE int64_t read_values(float *out, const void *src, int dtype, int64_t i, int n) {
	return n == GS_NR ? read_some(out, src, dtype, i, GS_NR) : read_some(out, src, dtype, i, n);
}

// copy_rows packs rows [32 panel, 32 panel + 32) of an (N, K) source for a weight stored by rows. src begins with row
// r0.
INLINE int64_t copy_rows(const gs_pack_job *job, const int dtype, int64_t panel) {
	const gs_weight *w = job->w;
	const int64_t length = row_length(w);
	int64_t bad = 0;
	for (int64_t n = panel * GS_NR; n < (panel + 1) * GS_NR; n++)
		for (int64_t k = 0; k < length; k += GS_NR) {
			int64_t cols = n >= job->r1 || k >= w->K ? 0 : w->K - k < GS_NR ? w->K - k : GS_NR;
			float t[GS_NR];
			bad += read_values(t, job->src, dtype, (n - job->r0) * w->K + k, (int)cols);
			if (w->dtype == GS_F32)
				memcpy((float *)w->data + n * length + k, t, sizeof t);
			else
				narrow((float *)w->data + (n * length + k) / 2, t, GS_NR);
		}
	return bad;
}

// write_row writes row k of a panel, and row k+1 if it is bfloat16.
INLINE void write_row(const gs_weight *w, int64_t panel, int64_t k, const float *row, const float *next) {
	if (w->dtype == GS_BF16) {
		float *dst = (float *)w->data + (panel * ((w->K + 1) / 2) + k / 2) * GS_NR;
		for (int j = 0; j < GS_NR; j += VL) store_u(dst + j, to_bf16(load(row + j)) | to_bf16(load(next + j)) << 16);
	} else {
		float *dst = (float *)w->data + (panel * w->K + k) * GS_NR;
		for (int j = 0; j < GS_NR; j += VL) store(dst + j, load(row + j));
	}
}

// pack_columns packs columns [32 panel, 32 panel + 32) of rows [r0, r1) of a (K, N) source.
INLINE int64_t pack_columns(const gs_pack_job *job, const int dtype, int64_t panel) {
	static const float zeros[GS_NR] = {0};
	const gs_weight *w = job->w;
	int64_t n = panel * GS_NR, bad = 0;
	int cols = w->N - n < GS_NR ? (int)(w->N - n) : GS_NR, step = w->dtype == GS_BF16 ? 2 : 1;
	if (w->dtype == GS_Q8) {
		for (int64_t k = job->r0; k < job->r1; k += GS_QB) {
			float block[GS_QB][GS_NR] = {{0}};
			for (int64_t i = k; i < job->r1 && i < k + GS_QB; i++)
				bad += read_values(block[i - k], job->src, dtype, (i - job->r0) * w->N + n, cols);
			write_q8(q8_block_of(w, panel, k / GS_QB), block);
		}
		return bad;
	}
	float row[GS_NR], next[GS_NR];
	int64_t k = job->r0;
	if (w->dtype == GS_BF16 && dtype == GS_BF16 && cols == GS_NR) { // as they are
		const uint16_t *src = (const uint16_t *)job->src + n;
		vi not_finite = {0};
		for (; k + 1 < job->r1; k += 2, src += 2 * w->N)
			for (int j = 0; j < GS_NR; j += VL) {
				const vu low = load_u16(src + j), high = load_u16(src + w->N + j);
				not_finite += (vi)((low & 0x7f80) == 0x7f80) + (vi)((high & 0x7f80) == 0x7f80);
				store_u((float *)w->data + (panel * ((w->K + 1) / 2) + k / 2) * GS_NR + j, low | high << 16);
			}
		for (int j = 0; j < VL; j++) bad -= not_finite[j];
	}
	for (; k < job->r1; k += step) {
		bad += read_values(row, job->src, dtype, (k - job->r0) * w->N + n, cols);
		int pair = step == 2 && k + 1 < job->r1;
		if (pair) bad += read_values(next, job->src, dtype, (k + 1 - job->r0) * w->N + n, cols);
		write_row(w, panel, k, row, pair ? next : zeros);
	}
	return bad;
}

// pack_rows packs rows [32 panel, 32 panel + 32) of an (N, K) source into a panel. src begins with row r0.
INLINE int64_t pack_rows(const gs_pack_job *job, const int dtype, int64_t panel) {
	const gs_weight *w = job->w;
	if (w->rows) return copy_rows(job, dtype, panel);
	int64_t n = panel * GS_NR, bad = 0;
	int rows = job->r1 - n < GS_NR ? (int)(job->r1 - n) : GS_NR, step = w->dtype == GS_BF16 ? 2 : 1;
	float block[GS_NR][GS_NR] = {{0}}, transposed[GS_NR + 1][GS_NR] = {{0}};
	for (int64_t k = 0; k < w->K; k += GS_NR) {
		int cols = w->K - k < GS_NR ? (int)(w->K - k) : GS_NR;
		for (int j = 0; j < rows; j++) bad += read_values(block[j], job->src, dtype, (n + j - job->r0) * w->K + k, cols);
		transpose(transposed[0], block[0], GS_NR, GS_NR);
		if (w->dtype == GS_Q8)
			write_q8(q8_block_of(w, panel, k / GS_QB), transposed); // columns beyond K are zeros
		else
			for (int i = 0; i < cols; i += step) write_row(w, panel, k + i, transposed[i], transposed[i + 1]);
	}
	return bad;
}

static int64_t pack_panel(const gs_pack_job *job, int64_t panel) {
	switch (job->src_dtype * 2 + job->transposed) {
	case GS_F32 * 2: return pack_columns(job, GS_F32, panel);
	case GS_BF16 * 2: return pack_columns(job, GS_BF16, panel);
	case GS_F16 * 2: return pack_columns(job, GS_F16, panel);
	case GS_F32 * 2 + 1: return pack_rows(job, GS_F32, panel);
	case GS_BF16 * 2 + 1: return pack_rows(job, GS_BF16, panel);
	default: return pack_rows(job, GS_F16, panel);
	}
}

// pack_file packs sources that are in a file, in parts of 32 rows: they stay in a worker's cache between reading and
// packing.
static void pack_file(gs_worker *w, const gs_pack_job *job) {
	int64_t parts = 0;
	for (int64_t i = 0; i < job->n; i++) parts += gs_ceil(job->sources[i].rows, GS_NR);
	for (int64_t i = gs_first(w, parts); i >= 0; i = gs_next(w)) {
		gs_source *s = job->sources;
		int64_t r0 = i * GS_NR;
		for (; r0 >= s->rows; s++) r0 -= gs_ceil(s->rows, GS_NR) * GS_NR;
		gs_pack_job part = {.w = &s->w, .src = w->scratch, .src_dtype = s->dtype, .transposed = s->transposed, .r0 = r0,
			.r1 = s->rows < r0 + GS_NR ? s->rows : r0 + GS_NR};
		const int64_t row = (s->transposed ? s->w.K : s->w.N) * (s->dtype == GS_F32 ? 4 : 2);
		const ssize_t size = (part.r1 - r0) * row, room = GS_SCRATCH * sizeof(float);
		int64_t bad = size > room || pread(job->fd, w->scratch, (size_t)size, s->at + r0 * row) != size;
		const int64_t panels = bad ? 0 : s->transposed ? 1 : gs_ceil(s->w.N, GS_NR);
		for (int64_t p = 0; p < panels; p++) bad += pack_panel(&part, s->transposed ? r0 / GS_NR : p);
		if (bad) __atomic_store_n(&s->bad, 1, __ATOMIC_RELAXED);
	}
}

static void pack(gs_worker *w, gs_pack_job *job) {
	if (!job->src) {
		pack_file(w, job);
		return;
	}
	int64_t bad = 0, first = job->transposed ? job->r0 / GS_NR : 0;
	int64_t end = ((job->transposed ? job->r1 : job->w->N) + GS_NR - 1) / GS_NR;
	for (int64_t p = gs_first(w, end - first); p >= 0; p = gs_next(w)) bad += pack_panel(job, first + p);
	atomic_fetch_add(&job->bad, bad);
}

#endif
