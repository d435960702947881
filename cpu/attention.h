// GS_APPEND and GS_ATTENTION over the KV cache (layout in kernels.h).
//
//   y = sum_j p_j v_j,  p = softmax_j(scale q . k_j),  j = the slots up to the query's own
//
// Many queries: a task has up to QT tiles of MR queries of one head and goes over the keys in blocks of KEYS. The
// register tile of products (tile.h) computes the scores of a tile with a panel of keys, and the product of their
// exponentials with a panel of values. A running maximum and sum per query make the softmax exact without a (T, T)
// matrix (T. Dao et al., FlashAttention, NeurIPS 2022, algorithm 1; M. Milakov, N. Gimelshein, Online normalizer
// calculation for softmax, 2018). Blocks above the diagonal are skipped.
//
// One query, or a few that are computed each by itself: keys are divided into chunks of KEYS, so that few heads are work
// for many workers. Partial results are merged in order.
//
// The scale includes log2(e), so that exponentials are powers of two.
#ifndef GS_ATTENTION_H
#define GS_ATTENTION_H

#include "rows.h"
#include "tile.h"

enum {
	QT = 4,           // tiles of queries that share a block of keys in L1
	QROWS = QT * MR,  // queries of a task
	KEYS = GS_KEYS,   // keys of a block
	MAX_HS = 512,     // a row of Q fits in LDA
};

static const float LOG2_E = 1.44269504088896341f;

// panel_words returns the words of a panel of n values for each column.
INLINE int64_t panel_words(const gs_cache *c, int64_t n) { return (c->dtype == GS_BF16 ? n / 2 : n) * GS_NR; }

// key_panel returns the words of a panel of 32 keys, value_panel those of a panel of 32 channels of a block's values.
INLINE int64_t key_panel(const gs_cache *c) { return c->dtype == GS_BF16 ? padded(c->HS) / 2 * GS_NR : c->HS * GS_NR; }
INLINE int64_t value_panel(const gs_cache *c) { return panel_words(c, KEYS); }

// keys_of and values_of return the keys and values of a head from slot k on. k is a multiple of 32; of
// values, any slot, of a bfloat16 cache an even one.
INLINE float *keys_of(const gs_cache *c, int64_t b, int64_t h, int64_t k) {
	const int64_t panels = (b * c->NH + h) * KEYS / GS_NR, words = key_panel(c); // before those of the head; of one
	return c->data + k / KEYS * c->stride + panels * (words + panel_words(c, padded(c->HS))) + k % KEYS / GS_NR * words;
}
INLINE float *values_of(const gs_cache *c, int64_t b, int64_t h, int64_t k) {
	return keys_of(c, b, h, k / KEYS * KEYS) + KEYS / GS_NR * key_panel(c) + panel_words(c, k % KEYS);
}

// prefetch_head prefetches a head of a row of qkv or y: rows are too far apart for processors to read ahead.
INLINE void prefetch_head(const float *p, int64_t HS) {
	for (int64_t d = 0; d < HS; d += GS_LINE / 4) __builtin_prefetch(p + d, 0, 3);
}

// append_head writes the keys and values of new tokens [i0, i1) of one head to their slots. Both ends of [pos + i0, pos
// + i1) are multiples of 32 or ends of the new tokens. In a bfloat16 cache it also zeroes the values of the slots that
// follow the last of several new tokens in its block of 32, as attention_bf16 multiplies whole blocks.
INLINE void append_head(const gs_attention *o, int64_t b, int64_t h, int64_t i0, int64_t i1) {
	const gs_cache *c = &o->cache;
	const int bf16 = c->dtype == GS_BF16;
	const int64_t HS = c->HS, HSp = padded(HS), C = HS * c->NH, pos = o->pos[b], words = bf16 ? HSp / 2 : HS; // of a key
	float row[MAX_HS], block[GS_NR][MAX_HS];
	memset(row + HS, 0, (size_t)(HSp - HS) * sizeof *row);
	for (int64_t i = i0, n; i < i1; i += n) {
		const int64_t slot = pos + i, first = slot % GS_NR;
		n = i1 - i < GS_NR - first ? i1 - i : GS_NR - first;
		float *keys = keys_of(c, b, h, slot - first), *values = values_of(c, b, h, slot - first);
		for (int64_t j = 0; j < n; j++) {
			const float *k = row_of(&o->qkv, b * o->T + i + j) + C + h * HS;
			prefetch_head(k + 8 * o->qkv.ld, HS);
			prefetch_head(k + C, HS);
			copy_values(bf16 ? row : block[j], k, HS);
			if (bf16) narrow(block[j], row, HSp);
		}
		if (n == GS_NR && words % VL == 0)
			transpose(keys, block[0], MAX_HS, words);
		else
			for (int64_t d = 0; d < words; d++)
				for (int64_t j = 0; j < n; j++) keys[d * GS_NR + first + j] = block[j][d];
		for (int64_t j = 0; j < n; j++) {
			const float *v = row_of(&o->qkv, b * o->T + i + j) + 2 * C + h * HS;
			if (bf16) copy_values(row, v, HS);
			for (int64_t d = 0; d < HS; d += GS_NR) {
				float *to = values + d / GS_NR * value_panel(c) + panel_words(c, first + j);
				if (!bf16) copy_values(to, v + d, HS - d < GS_NR ? HS - d : GS_NR);
				else
					for (int u = 0; u < GS_NR; u += VL) { // an odd slot keeps the even one of its pair
						vu t = to_bf16(load(row + d + u));
						store_u(to + u, (slot + j) % 2 ? (load_u(to + u) & 0xffffu) | t << 16 : t);
					}
			}
		}
	}
	if (!bf16 || i1 < o->T || o->T == 1) return;
	for (int64_t slot = (pos + i1 + 1) / 2 * 2; slot % GS_NR != 0; slot += 2) // the odd one of a pair is 0 already
		for (int64_t d = 0; d < HSp; d += GS_NR)
			memset(values_of(c, b, h, slot) + d / GS_NR * value_panel(c), 0, GS_NR * sizeof(float));
}

static void op_append(gs_worker *w, const gs_step *s) {
	const gs_attention *o = &s->attention;
	enum { TOKENS = 32 };
	// The most that a sequence can have, whatever its pos.
	int64_t parts = (o->T + GS_NR - 1 + TOKENS - 1) / TOKENS, NH = o->cache.NH;
	for (int64_t t = gs_first(w, o->B * NH * parts); t >= 0; t = gs_next(w)) {
		int64_t part = t % parts, h = t / parts % NH, b = t / parts / NH;
		int64_t i0 = part * TOKENS - o->pos[b] % GS_NR, i1 = i0 + TOKENS; // divided at the ends of blocks of slots
		if (i0 < 0) i0 = 0;
		if (i1 > o->T) i1 = o->T;
		if (i0 >= i1) continue;
		append_head(o, b, h, i0, i1);
	}
}

// ---- few queries ----

// attend computes for some queries over keys [k, k + n) of a head: m = max score, l = sum 2^(score - m), out = sum
// 2^(score - m) value. Each query has its own n, the last the largest, and the result that it has alone: weights beyond
// its n are 0.
INLINE void attend(const gs_cache *c, int64_t b, int64_t h, int64_t k, int rows, const float q[][MAX_HS],
		const int64_t *n, float *m, float *l, float out[][MAX_HS]) {
	float score[GS_GR][KEYS], block[GS_GR * GS_NR];
	const int bf16 = c->dtype == GS_BF16;
	const int64_t most = n[rows - 1], width = padded(most);
	for (int64_t j = 0; j < width; j += GS_NR) {
		rows_of_panel[bf16][rows](c->HS, q[0], MAX_HS, keys_of(c, b, h, k + j), block);
		for (int r = 0; r < rows; r++) copy_values(score[r] + j, block + r * GS_NR, GS_NR);
	}
	for (int r = 0; r < rows; r++) {
		for (int64_t j = n[r]; j < width; j++) score[r][j] = -INFINITY;
		vf top = splat(-INFINITY);
		for (int64_t j = 0; j < width; j += VL) top = vmax(top, load(score[r] + j));
		m[r] = max_lanes(top);
		vf sum = {0};
		for (int64_t j = 0; j < width; j += VL) {
			vf e = vexp2(load(score[r] + j) - m[r]);
			store(score[r] + j, e);
			sum += e;
		}
		l[r] = sum_lanes(sum);
	}
	for (int64_t d = 0; d < c->HS; d += GS_NR) {
		rows_of_panel[bf16][rows](most, score[0], KEYS, values_of(c, b, h, k) + d / GS_NR * value_panel(c), block);
		for (int r = 0; r < rows; r++) copy_values(out[r] + d, block + r * GS_NR, GS_NR);
	}
}

// keys_seen returns the keys to which query r attends: those of all sequences are counted one after another.
INLINE int64_t keys_seen(const gs_attention *o, int64_t r) { return o->pos[r / o->nq] + o->T - o->nq + r % o->nq + 1; }
INLINE int64_t chunks_of(const gs_attention *o, int64_t r) { return (keys_seen(o, r) + KEYS - 1) / KEYS; }

static void attention_one(gs_worker *w, const gs_attention *o) {
	const gs_cache *c = &o->cache;
	int64_t HS = c->HS, NH = c->NH, HSp = padded(HS), queries = (int64_t)o->B * o->nq;
	const float scale = o->scale * LOG2_E;
	int64_t most = 0, record = HSp + GS_NR, slots = c->S / KEYS; // work: (queries, NH, slots, record): m, l, out
	for (int64_t r = 0; r < queries; r++)
		if (chunks_of(o, r) > most) most = chunks_of(o, r);
	const int64_t groups = (o->nq + GS_GR - 1) / GS_GR; // of queries of a sequence, which read its keys and values once
	for (int64_t t = gs_first(w, o->B * groups * NH * most); t >= 0; t = gs_next(w)) {
		// Heads of a chunk follow one another in memory.
		const int64_t h = t % NH, chunk = t / NH % most, b = t / most / NH / groups, g = t / most / NH % groups;
		// The worker of the last chunk appends a single new token, as no other chunk reads it. (op_attention has appended
		// several.)
		if (o->append && o->T == 1 && chunk == chunks_of(o, b) - 1) append_head(o, b, h, 0, 1);
		float q[GS_GR][MAX_HS], out[GS_GR][MAX_HS], m[GS_GR], l[GS_GR];
		int64_t n[GS_GR], first = b * o->nq + o->nq * g / groups;
		const int64_t end = b * o->nq + o->nq * (g + 1) / groups;
		while (first < end && chunk >= chunks_of(o, first)) first++;
		if (first == end) continue;
		for (int64_t r = first; r < end; r++) {
			const float *query = row_of(&o->qkv, b * o->T + o->T - o->nq + r % o->nq) + h * HS;
			for (int64_t d = 0; d < HS; d++) q[r - first][d] = query[d] * scale;
			n[r - first] = keys_seen(o, r) - chunk * KEYS < KEYS ? keys_seen(o, r) - chunk * KEYS : KEYS;
		}
		attend(c, b, h, chunk * KEYS, (int)(end - first), q, n, m, l, out);
		for (int64_t r = first; r < end; r++) {
			const float *of = out[r - first];
			if (chunks_of(o, r) == 1) {
				float *y = row_of(&o->y, r) + h * HS;
				for (int64_t d = 0; d < HS; d++) y[d] = of[d] / l[r - first];
				continue;
			}
			float *part = o->work + ((r * NH + h) * slots + chunk) * record;
			part[0] = m[r - first];
			part[1] = l[r - first];
			memcpy(part + GS_NR, of, (size_t)HS * sizeof(float));
		}
	}
	if (most == 1) return;
	if (!gs_barrier(w)) return;
	for (int64_t t = gs_first(w, queries * NH); t >= 0; t = gs_next(w)) {
		int64_t h = t % NH, r = t / NH, chunks = chunks_of(o, r);
		if (chunks == 1) continue;
		const float *part = o->work + t * slots * record;
		float m = -INFINITY, l = 0, out[MAX_HS] = {0}, weight[VL];
		for (int64_t j = 0; j < chunks; j++)
			if (!(part[j * record] <= m)) m = part[j * record];
		for (int64_t j = 0; j < chunks; j++, part += record) {
			store(weight, vexp2(splat(part[0] - m)));
			l += part[1] * weight[0];
			for (int64_t d = 0; d < HS; d++) out[d] += part[GS_NR + d] * weight[0];
		}
		float *y = row_of(&o->y, r) + h * HS;
		for (int64_t d = 0; d < HS; d++) y[d] = out[d] / l;
	}
}

// ---- many queries ----

// softmax_block replaces the scores of a tile's rows by exponentials and updates the running maximum m, sum l and
// output of each row. Row r attends to the first seen + r keys of the block, at most n; scores from there to `width`
// are masked. The maxima of all rows are computed first, so that the latencies of their reductions overlap.
INLINE void softmax_block(float *p, int64_t rows, int64_t seen, int64_t n, int64_t width, float *m, float *l,
		float *out, int64_t HSp) {
	float top[MR];
	for (int64_t r = 0; r < rows; r++) {
		float *row = p + r * LDA;
		for (int64_t j = seen + r < 0 ? 0 : seen + r < n ? seen + r : n; j < width; j++) row[j] = -INFINITY;
		vf t[NVP];
		for (int j = 0; j < NVP; j++) t[j] = load(row + j * VL);
		for (int64_t k = GS_NR; k < width; k += GS_NR)
			for (int j = 0; j < NVP; j++) t[j] = vmax(t[j], load(row + k + j * VL));
		for (int j = 1; j < NVP; j++) t[0] = vmax(t[0], t[j]);
		top[r] = max_lanes(t[0]);
	}
	for (int64_t r = 0; r < rows; r++) {
		float *row = p + r * LDA, now = top[r] > m[r] ? top[r] : m[r];
		vf sum[NVP];
		for (int j = 0; j < NVP; j++) sum[j] = (vf){0};
		for (int64_t k = 0; k < width; k += GS_NR)
			for (int j = 0; j < NVP; j++) {
				vf e = vexp2(load(row + k + j * VL) - now);
				store(row + k + j * VL, e);
				sum[j] += e;
			}
		for (int j = 1; j < NVP; j++) sum[0] += sum[j];
		if (now != m[r]) {
			float shrink[VL];
			store(shrink, vexp2(splat(m[r] - now))); // at the first block m is -inf, and l and the output are 0
			l[r] *= shrink[0];
			for (int64_t d = 0; d < HSp; d += VL) store(out + r * HSp + d, load(out + r * HSp + d) * shrink[0]);
			m[r] = now;
		}
		l[r] += sum_lanes(sum[0]);
	}
}

// dealt returns the j-th of `all` tasks of many queries, or a number beyond them. The last queries attend to the most
// keys: the longest tasks come first, and are dealt out, so that each worker begins with one of them.
INLINE int64_t dealt(const gs_worker *w, int64_t j, int64_t all) {
	const int64_t each = gs_ceil(all, w->n);
	return j % each * w->n + j / each;
}

#if GS_BF16_TILE == GS_BY_AMX
// pack_head packs row r of y for head h (split.h).
static void pack_head(const gs_attention *o, int64_t r, int64_t h, const float *y);
#endif

static void attention_many(gs_worker *w, const gs_attention *o) {
	const gs_cache *c = &o->cache;
	const int64_t HS = c->HS, NH = c->NH, HSp = padded(HS), nq = o->nq;
	const float scale = o->scale * LOG2_E;
	const int64_t tiles = (nq + MR - 1) / MR, tasks = (tiles + QT - 1) / QT;
	const enum tile_kind kind = c->dtype == GS_BF16 ? STREAM_BF16 : STREAM_F32;
	float *q = w->scratch;           // (QROWS, LDA) queries, scaled
	float *p = q + QROWS * LDA;      // (MR, LDA) scores, then exponentials
	float *out = p + MR * LDA;       // (QROWS, HSp)
	float *m = out + QROWS * (MAX_HS + GS_NR), *l = m + QROWS; // (QROWS)

	const int64_t all = o->B * NH * tasks;
	for (int64_t j = gs_first(w, gs_ceil(all, w->n) * w->n); j >= 0; j = gs_next(w)) {
		const int64_t t = dealt(w, j, all);
		if (t >= all) continue;
		int64_t h = t % NH, b = t / NH % o->B, part = tasks - 1 - t / NH / o->B;
		int64_t t0 = tiles * part / tasks, t1 = tiles * (part + 1) / tasks; // tasks have nearly equal numbers of tiles
		int64_t i0 = nq * t0 / tiles, rows = nq * t1 / tiles - i0;
		int64_t seen = o->pos[b] + o->T - nq + i0 + 1; // keys to which the first query of this task attends
		for (int64_t r = 0; r < rows; r++) {
			const float *x = row_of(&o->qkv, b * o->T + o->T - nq + i0 + r) + h * HS;
			prefetch_head(x + 8 * o->qkv.ld, HS);
			for (int64_t d = 0; d < HS; d++) q[r * LDA + d] = x[d] * scale;
			m[r] = -INFINITY;
			l[r] = 0;
			memset(out + r * HSp, 0, (size_t)HSp * sizeof(float));
		}
		for (int64_t k = 0; k < seen + rows - 1; k += KEYS)
			for (int64_t i = t0; i < t1; i++) {
				int64_t ra = nq * i / tiles - i0, rn = nq * (i + 1) / tiles - i0 - ra;
				int64_t n = seen + ra + rn - 1 - k; // keys of this block to which the tile's last query attends
				if (n <= 0) continue;
				if (n > KEYS) n = KEYS;
				int64_t width = padded(n);
				for (int64_t j = 0; j < width; j += GS_NR)
					tile_of[kind][rn](HS, q + ra * LDA, 0, keys_of(c, b, h, k + j), NULL, p + j, LDA, 0);
				softmax_block(p, rn, seen + ra - k, n, width, m + ra, l + ra, out + ra * HSp, HSp);
				for (int64_t d = 0; d < HSp; d += GS_NR)
					tile_of[kind][rn](n, p, 0, values_of(c, b, h, k) + d / GS_NR * value_panel(c), NULL, out + ra * HSp + d, HSp, 1);
			}
		for (int64_t r = 0; r < rows; r++) {
			float *y = o->packs ? p : row_of(&o->y, b * nq + i0 + r) + h * HS, share = 1.0f / l[r];
			if (!o->packs) prefetch_head(y + 8 * o->y.ld, HS);
			for (int64_t d = 0; d < HS; d++) y[d] = out[r * HSp + d] * share;
#if GS_BF16_TILE == GS_BY_AMX
			if (o->packs) pack_head(o, b * nq + i0 + r, h, y);
#endif
		}
	}
}

_Static_assert((QROWS + MR) * LDA + QROWS * (MAX_HS + GS_NR) + 2 * QROWS <= GS_SCRATCH,
	"scratch too small for attention");

#endif
