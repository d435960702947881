// Launches of the kernels of decode_kernel.cuh.
#pragma once

#include "decode_kernel.cuh"

namespace {

int blocks_of(const gs_stream *s, const gs_persistent_args *a) { return a->blocks > 0 ? a->blocks : s->processors; }

size_t aligned(size_t n) { return (n + 255) / 256 * 256; }

// Everything of a program but for addresses outside of the work area, and the size of that.
template <typename Traits> void lay_out(gs_stream *s, const gs_persistent_args *a, Params *p, size_t *bytes) {
  const int blocks = blocks_of(s, a);
  p->count = a->count, p->C = a->C, p->NH = a->NH, p->P = a->P, p->V = a->V;
  p->B = Traits::PROMPT ? a->rows : Traits::VERIFY ? Traits::ROWS : a->B;
  // Of several sequences enough blocks have a part in attention with fewer splits.
  p->splits = !Traits::BATCHED ? SPLITS : p->B * a->NH * 2 <= blocks ? 2 : 1;
  p->items = p->B * a->NH * p->splits;
  p->side = !Traits::MANY ? 1 : p->B > 4 ? 8 : 4;
  p->x = shape_of(a->C, blocks, F32_PER_PACKET, p->side), p->h = shape_of(4 * a->C, blocks, BF16_PER_PACKET, p->side),
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
  auto pair = [&](const char *packets) { return (int)((packets - p->residual) / PAIR); };
  p->pair_h = pair(p->hidden), p->pair_a = pair(p->qkv), p->pair_o = pair(p->attended), p->pairs = pair(at + n);
  static_assert(LINE >= GS_PERSISTENT_SEQUENCES, "a packet for each sequence");
  p->best = (uint4 *)take((Traits::PROMPT ? 2 : BEST_BUFFERS) * (size_t)p->B * blocks * LINE * 16);
  if (!Traits::PROMPT) p->lists = (uint4 *)take((size_t)p->B * blocks * LIST_PACKETS * 16);
  *bytes = n + PAIR;  // pairs lie at multiples of their size

  p->tails = Traits::PROMPT ? p->B : 1;  // one of all rows is as large as so many of a token
  for (int b = 0; b < blocks && !Traits::PROMPT && !Traits::HALVES; b++) {
    int n = 0, head;
    for (int i = 0; i + 1 < p->count; i += STEPS)
      n += Traits::BATCHED ? last_splits(i, b, blocks, *p) : split_of(i, b, blocks, p->NH, &head) == SPLITS - 1;
    if (n > p->tails) p->tails = n;
  }
  p->head = rows_of(p->V, blocks, F32_PER_PACKET);
  // Weights that do not fit the L2 cache push each other out of it before they are read again, unless some are told to
  // stay: of the logits, where nothing but the memory's bandwidth counts.
  const int64_t weights = Traits::ROW_BYTES * ((int64_t)(p->count / STEPS) * 12 * p->C + p->V);
  p->kept = weights <= s->l2_bytes / 4 * 3 ? -1 : s->l2_bytes / 5 * 2 / Traits::ROW_BYTES / blocks;
  p->text_at = (int)(p->count * sizeof(BlockStep) + p->head * 2 * sizeof(float));
  p->table = (int)((p->text_at + (Traits::VERIFY ? (p->P + 1) * sizeof(int) : 0) + 127) / 128 * 128);
}

template <typename Traits> size_t fixed_shared() {
  return (sizeof(Shared<Traits>) + 127) / 128 * 128 + (sizeof(Work<Traits>) + 127) / 128 * 128 + 1024;
}
size_t shared_before_ring(const Params &p, int tokens) {
  return p.table + (size_t)p.tails * tokens * 2 * HEAD * sizeof(bf16);
}

// The bytes of the ring in launches of so many tokens, 0 if there is too little shared memory.
template <typename Traits> int ring_of(gs_stream *s, const Params &p, int tokens) {
  const int64_t ring =
      ((int64_t)s->shared_per_block - (int64_t)fixed_shared<Traits>() - (int64_t)shared_before_ring(p, tokens)) / 128 *
      128;
  return ring < ring_at_least<Traits>(p) ? 0 : (int)ring;
}

// Checks whether the device and the shape have a kernel, and lays out the program. *tokens is how many a launch may
// have.
template <typename Traits>
int prepare(gs_stream *s, const gs_persistent_args *a, Params *p, size_t *bytes, int *tokens) {
  if (s->major < 9)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel needs code of compute capability 9.0; this GPU runs that of %d.%d",
                   s->major, s->minor);
  const int blocks = blocks_of(s, a);
  if (blocks > MOST_BLOCKS)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes at most %d SMs; this GPU has %d", MOST_BLOCKS, blocks);
  if (a->NH * HEAD != a->C)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes heads of %d; this model's are of %d", HEAD,
                   a->C / (a->NH > 0 ? a->NH : 1));
  const Shape x = shape_of(a->C, blocks, F32_PER_PACKET, 1), h = shape_of(4 * a->C, blocks, BF16_PER_PACKET, 1),
              q = shape_of(3 * a->C, blocks, BF16_PER_PACKET, 1);
  if ((!Traits::BATCHED && a->NH * SPLITS > blocks) || !fits<Traits>(x, h, q))
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel of a width of %d does not divide among %d SMs", a->C,
                   blocks);
  lay_out<Traits>(s, a, p, bytes);
  if (a->candidates && p->head > MAX_ROWS)
    return gs_fail(GS_UNSUPPORTED, "a vocabulary of %d is too large to draw tokens in one kernel of %d blocks", p->V,
                   blocks);
  for (*tokens = Traits::TOKENS; ring_of<Traits>(s, *p, *tokens) == 0; *tokens /= 2)
    if (*tokens == 1)
      return gs_fail(GS_UNSUPPORTED,
                     "%d steps, a context of %d and %d %s leave too little shared memory to decode in one kernel",
                     p->count, p->P, p->B, Traits::PROMPT ? "rows of a prompt" : "sequences");
  return GS_OK;
}

// Fills in a program but for how much of it is run: a launch of so many tokens.
template <typename Traits> int fill(gs_stream *s, const gs_persistent_args *a, int tokens, Params *p) {
  if (a->count % STEPS != 1)
    return gs_fail(GS_ARGUMENT, "decode: %d steps of the program; %d a layer and the logits are needed", a->count,
                   STEPS);
  if (a->exit < 0 || STEPS * a->exit >= a->count)
    return gs_fail(GS_ARGUMENT, "decode: %d layers draft, of a program of %d steps; fewer than its layers can", a->exit,
                   a->count);
  size_t n = 0;
  int most = 0;
  if (int status = prepare<Traits>(s, a, p, &n, &most)) return status;
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
  p->ld = Traits::PROMPT ? 0 : a->ld, p->slot_count = a->slot_count, p->tokens = tokens;
  p->eps = a->eps;
  return GS_OK;
}

// Width is the Traits of a width for one sequence. Calls run(Traits) of a number of sequences, or of a prompt;
// GS_UNSUPPORTED if there is none.
template <typename Width, typename Run> int with_kernel(const gs_persistent_args *a, Run &&run) {
  if (a->B < 1 || a->B > GS_PERSISTENT_SEQUENCES)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes 1 to %d sequences; there are %d",
                   GS_PERSISTENT_SEQUENCES, a->B);
  if (a->rows > 0) {
    using Prompt = typename Width::Prompt;
    if (a->rows > Prompt::PROMPT_ROWS)
      return gs_fail(GS_UNSUPPORTED,
                     "decoding in one kernel of a width of %d takes prompts of up to %d rows; this one has %d", a->C,
                     Prompt::PROMPT_ROWS, a->rows);
    return run(Prompt());
  }
  if (a->B > 1) return run(typename Width::Batched());
  if (a->verify) {
    if constexpr (Width::NB <= 2 || Width::HALVES) return run(typename Width::Verify());
    else
      return gs_fail(GS_UNSUPPORTED, "no kernel verifies drafts of a width of %d", a->C);
  }
  return run(Width());
}

// The same, of a kernel that samples tokens if they are to be sampled.
template <typename Width, typename Run> int with_sampling(const gs_persistent_args *a, Run &&run) {
  return with_kernel<Width>(a, [&](auto traits) -> int {
    if (a->candidates) return run(typename decltype(traits)::Sampling());
    return run(traits);
  });
}

template <typename Traits> int launch(gs_stream *s, Params &p, int blocks) {
  p.ring_bytes = ring_of<Traits>(s, p, p.tokens);
  const size_t shared = shared_before_ring(p, p.tokens) + p.ring_bytes,
               most = s->shared_per_block - fixed_shared<Traits>();
  if constexpr (Traits::SINGLE_STEP) {
    if (int status = gs_allow_shared<decode_one_kernel<Traits>>(s, most)) return status;
    return gs_launch(s, "decode_one", decode_one_kernel<Traits>, blocks, Traits::THREADS, shared, p);
  } else {
    if (int status = gs_allow_shared<decode_kernel<Traits>>(s, most)) return status;
    if (p.tokens == 0) {
      cudaFuncAttributes loaded;  // to ask for them loads the kernel
      return gs_check(cudaFuncGetAttributes(&loaded, (const void *)decode_kernel<Traits>), "cudaFuncGetAttributes");
    }
    return gs_launch_as(s, "decode", decode_kernel<Traits>, blocks, Traits::THREADS, shared, {1, false, true}, p);
  }
}

// gs_persistent_work, gs_persistent and gs_persistent_one of a width.
template <typename Width> int work(gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens) {
  return with_sampling<Width>(a, [&](auto traits) -> int {
    Params p = {};
    size_t n = 0;
    int most = 0;
    if (int status = prepare<decltype(traits)>(s, a, &p, &n, &most)) return status;
    *bytes = n, *tokens = most;
    return GS_OK;
  });
}

template <typename Width> int run(gs_stream *s, const gs_persistent_args *a) {
  return with_sampling<Width>(a, [&](auto traits) -> int {
    using Traits = decltype(traits);
    Params p = {};
    if (int status = fill<Traits>(s, a, a->tokens, &p)) return status;
    p.stamps = (uint64_t *)a->stamps;
    p.logits_only = a->logits_only, p.candidates = a->candidates;
    return launch<Traits>(s, p, blocks_of(s, a));
  });
}

template <typename Width> int run_one(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch) {
  return with_kernel<Width>(a, [&](auto traits) -> int {
    using Traits = decltype(traits);
    if constexpr (Traits::VERIFY) {
      return gs_fail(GS_ARGUMENT, "decode: single steps verify no drafts");
    } else {
      Params p = {};
      if (int status = fill<Traits>(s, a, tail + 1, &p)) return status;
      p.only_step = step, p.epoch = epoch;
      return launch<SingleStep<Traits>>(s, p, blocks_of(s, a));
    }
  });
}

// Of the kernels in the file of a width, and of those in its second one.
template <typename Width> constexpr gs_persistent_width launches_of = {work<Width>, run<Width>, nullptr};
template <typename Width>
constexpr gs_persistent_width watched_launches_of = {nullptr, run<typename Width::Stamping>, run_one<Width>};

}  // namespace
