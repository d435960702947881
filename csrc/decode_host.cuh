// What the host computes for a launch of a decode kernel. k is the kernel: its members have the names of Traits.
#pragma once

#include <algorithm>

#include "decode_sample.cuh"

namespace {

typedef gs_persistent_kernel Kernel;

int blocks_of(const gs_stream *s, const gs_persistent_args *a) { return a->blocks > 0 ? a->blocks : s->processors; }

size_t aligned(size_t n) { return (n + 255) / 256 * 256; }

// Everything of a program but for addresses outside of the work area, and the size of that.
void lay_out(const Kernel &k, gs_stream *s, const gs_persistent_args *a, Params *p, size_t *bytes) {
  const int blocks = blocks_of(s, a);
  p->count = a->count, p->C = a->C, p->NH = a->NH, p->P = a->P, p->V = a->V;
  p->B = k.PROMPT ? a->rows : k.VERIFY ? k.ROWS : a->B;
  // Of several sequences enough blocks have a part in attention with fewer splits.
  p->splits = !k.BATCHED ? SPLITS : p->B * a->NH * 2 <= blocks ? 2 : 1;
  p->items = p->B * a->NH * p->splits;
  p->side = !k.MANY ? 1 : p->B > 4 ? 8 : 4;
  p->x = shape_of(a->C, blocks, k.X_VALUES, p->side), p->h = shape_of(4 * a->C, blocks, BF16_PER_PACKET, p->side),
  p->a = shape_of(3 * a->C, blocks, BF16_PER_PACKET, p->side);
  char *at = (char *)a->work;
  p->near = (uint32_t *)(at + HEADER);
  size_t n = HEADER + NEAR_SMS * (1 + NEAR_WORDS) * sizeof(uint32_t);
  n += (PAIR - ((size_t)at + n) % PAIR) % PAIR;
  auto take = [&](size_t bytes) {
    char *first = at + n;
    n += aligned(bytes);
    return first;
  };
  auto twice = [](int packets) { return (packets + PAGE - 1) / PAGE * PAIR; };
  p->header = (Header *)at;
  p->residual = take(twice(blocks * p->x.stride * p->side));
  p->hidden = take(twice(blocks * p->h.stride * p->side));
  p->qkv = take(twice(blocks * p->a.stride * p->side));
  p->row_o = twice(a->NH * p->splits * ATTENDED_STRIDE);
  p->attended = take((size_t)p->B * p->row_o);
  p->own = (float *)take((size_t)p->B * a->C * sizeof(float));
  auto pair = [&](const char *packets) { return (int)((packets - p->residual) / PAIR); };
  p->pair_h = pair(p->hidden), p->pair_a = pair(p->qkv), p->pair_o = pair(p->attended), p->pairs = pair(at + n);
  static_assert(LINE >= GS_PERSISTENT_SEQUENCES, "a packet for each sequence");
  p->best = (uint4 *)take((k.PROMPT ? 2 : BEST_BUFFERS) * (size_t)p->B * blocks * LINE * 16);
  if (!k.PROMPT) p->lists = (uint4 *)take((size_t)p->B * blocks * LIST_PACKETS * 16);
  *bytes = n + PAIR;  // pairs lie at multiples of their size

  p->tails = k.PROMPT ? p->B : 1;  // one of all rows is as large as so many of a token
  for (int b = 0; b < blocks && !k.PROMPT && !k.READS_BACK; b++) {
    int n = 0, head;
    for (int i = 0; i + 1 < p->count; i += STEPS)
      n += k.BATCHED ? last_splits(i, b, blocks, *p) : split_of(i, b, blocks, p->NH, &head) == SPLITS - 1;
    if (n > p->tails) p->tails = n;
  }
  p->head = rows_of(p->V, blocks, F32_PER_PACKET);
  // Weights that do not fit the L2 cache push each other out of it before they are read again, unless some are told to
  // stay: of the logits, where nothing but the memory's bandwidth counts.
  const int64_t weights = k.ROW_BYTES * ((int64_t)(p->count / STEPS) * 12 * p->C + p->V);
  p->kept = weights <= s->l2_bytes / 4 * 3 ? -1 : s->l2_bytes / 5 * 2 / k.ROW_BYTES / blocks;
  p->text_at = (int)(p->count * sizeof(BlockStep) + p->head * 2 * sizeof(float));
  p->table = (int)((p->text_at + (k.VERIFY ? (p->P + 1) * sizeof(int) : 0) + 127) / 128 * 128);
}

size_t shared_before_ring(const Params &p, int tokens) {
  return p.table + (size_t)p.tails * tokens * 2 * HEAD * sizeof(bf16);
}

// Whether residual stream, hidden layer and qkv of these shapes fit.
bool fits(const Kernel &k, const Shape &x, const Shape &h, const Shape &q) {
  return (k.WIDE || h.rows <= 32) && x.rows <= 16 && covered(x, k.X_VALUES, k.SMALL, k.C, k.X_LANES) &&
         covered(h, BF16_PER_PACKET, k.LARGE / (k.HALVES ? 2 : 1), 4 * k.C, k.H_LANES) &&
         covered(q, BF16_PER_PACKET, HEAD, 3 * k.C, 16);
}

// What one step needs at once must fit, wherever in the ring it begins: two tiles of rows, or the keys and values of a
// split, and as much as the larger of two may leave unused at the end.
int64_t ring_at_least(const Kernel &k, const Params &p) {
  const int64_t rows = k.TILE_ROWS * (int64_t)k.ROW_BYTES + k.PAD, wide = p.x.rows * (int64_t)k.CHUNK_PITCH;
  const int64_t keys = (k.BATCHED ? k.CHUNK : part_of(p.P, SPLITS)) * (int64_t)(2 * HEAD);
  // All of a step of 4C inputs is one tile where there is one chunk.
  int64_t least = std::max((k.WIDE ? 3 : 2) * wide, 3 * std::max(rows, keys));
  if (k.HALVES) least = std::max(wide + rows, 3 * keys);  // one half
  // Two groups of sequences read all tiles of 4C inputs before the first one is free.
  const int64_t all = (k.CHUNKS + 1) * wide;
  return k.WIDE && k.BATCHED && p.B > k.GROUP && least < all ? all : least;
}

// The bytes of the ring in launches of so many tokens, 0 if there is too little shared memory.
int ring_of(const Kernel &k, gs_stream *s, const Params &p, int tokens) {
  const int64_t ring = (s->shared_per_block - k.FIXED - (int64_t)shared_before_ring(p, tokens)) / 128 * 128;
  return ring < ring_at_least(k, p) ? 0 : (int)ring;
}

// Checks whether the device and the shape have a kernel, and lays out the program. *tokens is how many a launch may
// have.
int prepare(const Kernel &k, gs_stream *s, const gs_persistent_args *a, Params *p, size_t *bytes, int *tokens) {
  if (s->major < 9)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel needs code of compute capability 9.0; this GPU runs that of %d.%d",
                   s->major, s->minor);
  const int blocks = blocks_of(s, a);
  if (blocks > MOST_BLOCKS)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes at most %d SMs; this GPU has %d", MOST_BLOCKS, blocks);
  if (a->NH * HEAD != a->C)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes heads of %d; this model's are of %d", HEAD,
                   a->C / (a->NH > 0 ? a->NH : 1));
  const Shape x = shape_of(a->C, blocks, k.X_VALUES, 1), h = shape_of(4 * a->C, blocks, BF16_PER_PACKET, 1),
              q = shape_of(3 * a->C, blocks, BF16_PER_PACKET, 1);
  if ((!k.BATCHED && a->NH * SPLITS > blocks) || !fits(k, x, h, q))
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel of a width of %d does not divide among %d SMs", a->C,
                   blocks);
  lay_out(k, s, a, p, bytes);
  if (a->candidates && p->head > MAX_ROWS)
    return gs_fail(GS_UNSUPPORTED, "a vocabulary of %d is too large to draw tokens in one kernel of %d blocks", p->V,
                   blocks);
  for (*tokens = k.TOKENS; ring_of(k, s, *p, *tokens) == 0; *tokens /= 2)
    if (*tokens == 1)
      return gs_fail(GS_UNSUPPORTED,
                     "%d steps, a context of %d and %d %s leave too little shared memory to decode in one kernel",
                     p->count, p->P, p->B, k.PROMPT ? "rows of a prompt" : "sequences");
  return GS_OK;
}

// Fills in a program but for how much of it is run: a launch of so many tokens.
int fill(const Kernel &k, gs_stream *s, const gs_persistent_args *a, int tokens, Params *p) {
  if (a->count % STEPS != 1)
    return gs_fail(GS_ARGUMENT, "decode: %d steps of the program; %d a layer and the logits are needed", a->count,
                   STEPS);
  if (a->exit < 0 || STEPS * a->exit >= a->count)
    return gs_fail(GS_ARGUMENT, "decode: %d layers draft, of a program of %d steps; fewer than its layers can", a->exit,
                   a->count);
  size_t n = 0;
  int most = 0;
  if (int status = prepare(k, s, a, p, &n, &most)) return status;
  if (tokens < 0 || tokens > most)
    return gs_fail(GS_ARGUMENT, "decode: %d tokens in a launch; 0 to %d are possible", tokens, most);
  p->steps = (const gs_persistent_step *)a->steps;
  p->ids = (const int *)a->ids, p->text = (int *)a->text, p->verify = a->verify;
  p->exit = STEPS * a->exit, p->trial = a->trial;
  p->wte = (const char *)a->wte, p->wpe = (const bf16 *)a->wpe;
  p->sampling = (gs_sampling *)a->sampling;
  p->pos = (int *)a->pos, p->token = (int *)a->tokens_io;
  p->slots = (gs_slot *)a->slots;
  p->logits = (float *)a->logits;
  p->timeout = (uint64_t)a->timeout * 1000000;
  p->ld = k.PROMPT ? 0 : a->ld, p->slot_count = a->slot_count, p->tokens = tokens;
  p->eps = a->eps;
  return GS_OK;
}

}  // namespace
