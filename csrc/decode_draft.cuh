// How the persistent kernel speculates: a pass has the row of the last token and rows of drafts. Of its tokens those
// count that have no wrong draft before them. Each row has the sums of a step of one row, in their order, so these are
// the tokens of such steps.
//
// Drafts are the tokens that followed the last ones where they occurred before: every block knows the whole text and
// looks for them by itself, so that none waits for another. Or the first layers draft: each draft takes a pass of these
// layers, of one row, and of the logits. The pass that verifies has these layers of its last row only, the others of
// all rows: what they begin with lies in the packets of the residual stream. Where drafts are the likeliest tokens
// though tokens are sampled, the pass that verifies comes as soon as all drafts so far are right with a probability below
// LEAST_SHARE.
#pragma once

#include "decode_parts.cuh"

namespace {

constexpr int MAX_RANKED = 384;                 // candidates of all blocks that are ranked, at most
constexpr int LEAST_MATCH = 2, MOST_MATCH = 8;  // as gpt2/speculate.go has it
constexpr float LEAST_SHARE = 0.5f;             // so probable must drafts be, all together, for another one

// What all warps of a block know of its passes.
struct Verified {
  int rows;    // of the pass; in layers that draft it has one
  int row;     // that one, among those that will be verified
  int last;    // pass of those that draft and verify: the one that verifies, if no draft before is the last one
  int passes;  // that have ended
  int taken;   // tokens of the last one, 0 if it drafted
  int sure;    // twice the number of passes that there will be at least; 1 more if that is all
  int wrong;   // passes whose first draft was wrong
  float share;  // how probable the drafts are, all together
  uint64_t drafted;  // when the last draft was there
};

#if __CUDA_ARCH__ >= 900

__device__ inline int *text_of(const Params &p) {
  return reinterpret_cast<int *>(dynamic + p.text_at);
}

template <typename Shared> __device__ inline int rows_of_pass(const Shared &sh) {
  return *(const volatile int *)&sh.verified.rows;
}

// Whether there will be a pass of this number. The warp that copies calls it: at the end of a launch it waits for it.
template <typename Shared> __device__ inline bool comes(const Shared &sh, int pass) {
  while (true) {
    const int sure = *(const volatile int *)&sh.verified.sure;
    if (pass < sure / 2) return true;
    if (sure % 2) return false;
    poll_again();
  }
}

// Whether the packets of the blocks' best logits have all.
__device__ inline bool packets_have_all(const Params &p) { return p.head <= 3 && p.V <= MAX_RANKED; }
// Whether drafts are the likeliest tokens though tokens are sampled: of one layer these are as often right, and sooner
// there.
template <typename Traits> __device__ inline bool drafts_likeliest(const Params &p) {
  return Traits::VERIFY && samples<Traits>(p) && p.exit == STEPS && packets_have_all(p);
}

// Whether the pass under way drafts.
template <typename Shared> __device__ inline bool drafts_now(const Shared &sh) {
  return *(const volatile int *)&sh.verified.passes < *(const volatile int *)&sh.verified.last;
}
// Whether a pass drafts. The warp that copies calls it when the layers that draft are on their way: it waits until that
// is known.
template <typename Traits, typename Shared>
__device__ inline bool drafts(const Params &p, const Shared &sh, int pass) {
  while (true) {
    const int passes = *(const volatile int *)&sh.verified.passes, last = *(const volatile int *)&sh.verified.last;
    if (pass <= (drafts_likeliest<Traits>(p) ? min(passes, last) : last)) return pass < last;
    poll_again();
  }
}

// A warp finds drafts of the tokens after the one at place t of the launch: what followed the longest match of the last
// tokens, the last such. Or it says how many passes draft.
template <typename Shared> __device__ void draft(const Params &p, Shared &sh, int t) {
  const int lane = threadIdx.x % 32, *const text = text_of(p), end = sh.pos0[0] + t + 1;
  int drafts = p.trial > 0 && sh.verified.wrong >= p.trial ? 0 : max(min(p.verify - 1, p.tokens - t - 1), 0);
  if (drafts > 0 && p.exit == 0) {
    unsigned best = 0;
    const int last = text[end - 1], before = end > 1 ? text[end - 2] : -1;
    // From the end on, up to a match of all tokens: none before it counts.
#pragma unroll 1
    for (int begin = end - 1; begin >= LEAST_MATCH && !__any_sync(~0u, best >> 16 == MOST_MATCH); begin -= 32) {
      const int i = begin - lane;
      if (i < LEAST_MATCH || text[i - 1] != last || text[i - 2] != before) continue;
      int match = LEAST_MATCH;
      bool same = true;
#pragma unroll
      for (int k = LEAST_MATCH; k < MOST_MATCH; k++)  // all at once: the next pass waits for this
        same &= (k < i) & (text[max(i - 1 - k, 0)] == text[max(end - 1 - k, 0)]), match += same;
      best = max(best, (unsigned)(match << 16 | i));
    }
    best = __reduce_max_sync(~0u, best);
    const int from = best & 0xffff;
    if (best == 0) drafts = 0;
    // A text that repeats its last tokens does so again.
    if (lane < drafts) sh.token[1 + lane] = text[from + lane % (end - from)];
  }
  if (lane == 0) {
    const int passes = sh.verified.passes, left = p.tokens - t;  // tokens
    sh.verified.rows = p.exit > 0 ? 1 : 1 + drafts, sh.verified.row = 0, sh.verified.share = 1;
    *(volatile int *)&sh.verified.last = passes + (p.exit > 0 ? drafts : 0);
    // If all drafts are right; with passes that draft there are as many as tokens.
    const int least = p.exit > 0 ? left : left > 0 ? 1 + (left - 1 - drafts + p.verify - 1) / p.verify : 0;
    *(volatile int *)&sh.verified.sure = 2 * (passes + least) + (left == 0);
  }
  __syncwarp();
}

// A warp takes the tokens of a pass that began at place t of the launch, and finds drafts for the next one.
template <typename Shared> __device__ void accept(const Params &p, Shared &sh, int t) {
  const int lane = threadIdx.x % 32, rows = sh.verified.rows;
  if (drafts_now(sh)) {  // the token is a draft
    __syncwarp();
    if (lane == 0) {
      const int row = ++sh.verified.row, passes = sh.verified.passes + 1;
      sh.token[row] = max(sh.found.drawn[0], 0), sh.verified.taken = 0;
      if (!(sh.verified.share >= LEAST_SHARE)) *(volatile int *)&sh.verified.last = passes;
      sh.verified.rows = passes == sh.verified.last ? row + 1 : 1;
      *(volatile int *)&sh.verified.passes = passes;
    }
    __syncwarp();
    return;
  }
  int taken = 1;
  while (taken < rows && sh.found.drawn[taken - 1] == sh.token[taken]) taken++;
  __syncwarp();
  if (lane < taken) text_of(p)[sh.pos0[0] + t + 1 + lane] = max(sh.found.drawn[lane], 0);
  if (lane == 0) {
    sh.token[0] = max(sh.found.drawn[taken - 1], 0);
    sh.verified.taken = taken, sh.verified.passes++, sh.verified.wrong += rows > 1 && taken == 1;
  }
  __syncwarp();
  draft(p, sh, t + taken);
  if (lane == 0) *(volatile int *)&sh.step = t + taken;
}

#endif

}  // namespace
