// Launches of the kernels of decode_kernel.cuh.
#pragma once

#include "decode_kernel.cuh"

namespace {

int blocks_of(const gs_stream *s, const gs_decode_args *a) { return a->blocks > 0 ? a->blocks : s->processors; }

size_t aligned(size_t n) { return (n + 255) / 256 * 256; }

// Everything of a program but for addresses outside of the work area, and the size of that.
template <typename Cut> void lay_out(gs_stream *s, const gs_decode_args *a, Program *p, size_t *bytes) {
  const int blocks = blocks_of(s, a);
  p->count = a->count, p->C = a->C, p->NH = a->NH, p->P = a->P, p->V = a->V, p->B = Cut::PROMPT ? a->rows : a->B;
  // Of several sequences enough blocks have a part in attention with fewer splits.
  p->splits = !Cut::MANY ? SPLITS : p->B * a->NH * 2 <= blocks ? 2 : 1;
  p->items = p->B * a->NH * p->splits;
  p->x = shape_of(a->C, blocks, F32S), p->h = shape_of(4 * a->C, blocks, BF16S), p->a = shape_of(3 * a->C, blocks, BF16S);
  char *at = (char *)a->work;
  size_t n = HEADER;
  auto take = [&](size_t units, int *row) {
    char *here = at + n;
    *row = (int)aligned(16 * units);
    n += (size_t)p->B * *row;
    return here;
  };
  int row_best;
  p->header = (Header *)at;
  p->residual = take((size_t)blocks * p->x.stride, &p->row_x);
  p->hidden = take((size_t)blocks * p->h.stride, &p->row_h);
  p->qkv = take((size_t)blocks * p->a.stride, &p->row_a);
  p->attended = take((size_t)a->NH * p->splits * ATTENDED_STRIDE, &p->row_o);
  static_assert(LINE >= GS_DECODE_SEQUENCES, "a unit for each sequence");
  p->best = (uint4 *)take((Cut::PROMPT ? 2 : DRAW_BESTS) * (size_t)blocks * LINE, &row_best);
  if (!Cut::PROMPT) p->lists = (uint4 *)take((size_t)blocks * DRAW_UNITS, &row_best);
  *bytes = n;

  p->tails = Cut::PROMPT ? p->B : 1;  // one of all rows is as large as so many of a token
  for (int b = 0; b < blocks && !Cut::PROMPT; b++) {
    int n = 0, head;
    for (int i = 0; i + 1 < p->count; i += STEPS) n += Cut::MANY ? last_splits(i, b, blocks, *p) : split_of(i, b, blocks, p->NH, &head) == SPLITS - 1;
    if (n > p->tails) p->tails = n;
  }
  p->head = rows_of(p->V, blocks, F32S);
  // Weights that do not fit the L2 cache push each other out of it before they are read again,
  // unless some are told to stay: of the logits, where nothing but the memory's bandwidth counts.
  const int64_t weights = sizeof(bf16) * ((int64_t)(p->count / STEPS) * 12 * p->C * p->C + (int64_t)p->V * p->C);
  p->kept = weights <= s->l2_bytes / 4 * 3 ? -1 : (int)(s->l2_bytes / 5 * 2 / (sizeof(bf16) * p->C) / blocks);
  p->table = (int)((p->count * sizeof(Local) + p->head * 2 * sizeof(float) + 127) / 128 * 128);
}

template <typename Cut> size_t fixed_shared() { return (sizeof(Shared<Cut>) + 127) / 128 * 128 + (sizeof(Work<Cut>) + 127) / 128 * 128 + 1024; }
size_t shared_before_ring(const Program &p, int tokens) { return p.table + (size_t)p.tails * tokens * 2 * HEAD * sizeof(bf16); }

// The bytes of the ring in launches of so many tokens, 0 if there is too little shared memory.
template <typename Cut> int ring_of(gs_stream *s, const Program &p, int tokens) {
  const int64_t ring = ((int64_t)s->shared_per_block - (int64_t)fixed_shared<Cut>() - (int64_t)shared_before_ring(p, tokens)) / 128 * 128;
  return ring < ring_at_least<Cut>(p) ? 0 : (int)ring;
}

// Checks whether the device and the shape have a kernel, and lays out the program. *tokens is
// how many a launch may have.
template <typename Cut> int prepare(gs_stream *s, const gs_decode_args *a, Program *p, size_t *bytes, int *tokens) {
  if (s->major < 9) return gs_fail(GS_UNSUPPORTED, "decoding in one kernel needs compute capability 9.0; this GPU has %d.%d", s->major, s->minor);
  const int blocks = blocks_of(s, a);
  if (blocks > MOST_BLOCKS) return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes at most %d SMs; this GPU has %d", MOST_BLOCKS, blocks);
  if (a->NH * HEAD != a->C) return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes heads of %d; this model's are of %d", HEAD, a->C / (a->NH > 0 ? a->NH : 1));
  // The kernel for prompts is not looked at, which would load it before there is a prompt.
  if constexpr (!Cut::PROMPT)
    if (int status = gs_check_code(s, (const void *)decode_kernel<Cut>)) return status;
  const Shape x = shape_of(a->C, blocks, F32S), h = shape_of(4 * a->C, blocks, BF16S), q = shape_of(3 * a->C, blocks, BF16S);
  if ((!Cut::MANY && a->NH * SPLITS > blocks) || !fits<Cut>(x, h, q))
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel of a width of %d does not divide among %d SMs", a->C, blocks);
  lay_out<Cut>(s, a, p, bytes);
  if (a->draw && p->head > DRAW_ROWS) return gs_fail(GS_UNSUPPORTED, "a vocabulary of %d is too large to draw tokens in one kernel of %d blocks", p->V, blocks);
  for (*tokens = Cut::PROMPT ? 1 : GS_DECODE_TOKENS; ring_of<Cut>(s, *p, *tokens) == 0; *tokens /= 2)
    if (*tokens == 1)
      return gs_fail(GS_UNSUPPORTED, "%d steps, a context of %d and %d %s leave too little shared memory to decode in one kernel", p->count, p->P, p->B,
                     Cut::PROMPT ? "rows of a prompt" : "sequences");
  return GS_OK;
}

// Fills in a program but for how much of it is run: a launch of so many tokens.
template <typename Cut> int fill(gs_stream *s, const gs_decode_args *a, int tokens, Program *p) {
  if (a->count % STEPS != 1) return gs_fail(GS_ARGUMENT, "decode: %d steps of the program; %d a layer and the logits are needed", a->count, STEPS);
  size_t n = 0;
  int most = 0;
  if (int status = prepare<Cut>(s, a, p, &n, &most)) return status;
  if (tokens < 1 || tokens > most) return gs_fail(GS_ARGUMENT, "decode: %d tokens in a launch; 1 to %d are possible", tokens, most);
  p->steps = (const gs_decode_step *)a->steps;
  p->ids = (const int *)a->ids;
  p->wte = (const bf16 *)a->wte, p->wpe = (const bf16 *)a->wpe;
  p->sampling = (gs_sampling *)a->sampling;
  p->pos = (int *)a->pos, p->token = (int *)a->tokens_io;
  p->slots = (gs_slot *)a->slots;
  p->logits = (float *)a->logits;
  p->patience = (uint64_t)a->timeout * 1000000;
  p->ld = Cut::PROMPT ? 0 : a->ld, p->slot_count = a->slot_count, p->tokens = tokens;
  p->eps = a->eps;
  return GS_OK;
}

// Width is the Cut of a width for one sequence. Calls run(Cut) of a number of sequences, or of a
// prompt; GS_UNSUPPORTED if there is none.
template <typename Width, typename Run> int with_kernel(const gs_decode_args *a, Run &&run) {
  if (a->B < 1 || a->B > GS_DECODE_SEQUENCES)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes 1 to %d sequences; there are %d", GS_DECODE_SEQUENCES, a->B);
  if (a->rows > 0) {
    using Prompt = typename Width::Prompt;
    if (a->rows > Prompt::PROMPT_ROWS)
      return gs_fail(GS_UNSUPPORTED, "decoding in one kernel of a width of %d takes prompts of up to %d rows; this one has %d", a->C, Prompt::PROMPT_ROWS, a->rows);
    return run(Prompt());
  }
  if (a->B > 1) return run(typename Width::Many());
  return run(Width());
}

// The same, of a kernel that draws tokens if they are to be drawn.
template <typename Width, typename Run> int with_choice(const gs_decode_args *a, Run &&run) {
  return with_kernel<Width>(a, [&](auto cut) -> int {
    if (a->draw) return run(typename decltype(cut)::Drawing());
    return run(cut);
  });
}

template <typename Cut> int launch(gs_stream *s, Program &p, int blocks) {
  p.ring_bytes = ring_of<Cut>(s, p, p.tokens);
  const size_t shared = shared_before_ring(p, p.tokens) + p.ring_bytes, most = s->shared_per_block - fixed_shared<Cut>();
  if constexpr (Cut::ALONE) {
    if (int status = gs_allow_shared<decode_one_kernel<Cut>>(s, most)) return status;
    return gs_launch(s, "decode_one", decode_one_kernel<Cut>, blocks, Cut::THREADS, shared, p);
  } else {
    if (int status = gs_allow_shared<decode_kernel<Cut>>(s, most)) return status;
    return gs_launch_cooperative(s, "decode", decode_kernel<Cut>, blocks, Cut::THREADS, shared, p);
  }
}

// gs_decode_work, gs_decode and gs_decode_one of a width.
template <typename Width> int work(gs_stream *s, const gs_decode_args *a, uint64_t *bytes, int32_t *tokens) {
  return with_choice<Width>(a, [&](auto cut) -> int {
    Program p = {};
    size_t n = 0;
    int most = 0;
    if (int status = prepare<decltype(cut)>(s, a, &p, &n, &most)) return status;
    *bytes = n, *tokens = most;
    return GS_OK;
  });
}

template <typename Width> int run(gs_stream *s, const gs_decode_args *a) {
  return with_choice<Width>(a, [&](auto cut) -> int {
    using Cut = decltype(cut);
    Program p = {};
    if (int status = fill<Cut>(s, a, a->tokens, &p)) return status;
    p.stamps = (uint64_t *)a->stamps;
    p.logits_only = a->logits_only, p.draw = a->draw;
    return p.stamps ? launch<typename Cut::Stamping>(s, p, blocks_of(s, a)) : launch<Cut>(s, p, blocks_of(s, a));
  });
}

template <typename Width> int run_one(gs_stream *s, const gs_decode_args *a, int step, int tail, uint32_t epoch) {
  return with_kernel<Width>(a, [&](auto cut) -> int {
    using Cut = decltype(cut);
    Program p = {};
    if (int status = fill<Cut>(s, a, tail + 1, &p)) return status;
    p.alone = step, p.epoch = epoch;
    return launch<Alone<Cut>>(s, p, blocks_of(s, a));
  });
}

template <typename Width> constexpr gs_decode_width launches_of = {work<Width>, run<Width>, run_one<Width>};

}  // namespace
