// The operations of abi.h in plain C, for a stub that computes (STUB_COMPUTES): a second
// opinion on what the arguments mean. Idle rows (pad) are not handled.

static float load(gs_ptr p, int type, size_t i) {
  if (type == GS_F32) return ((const float *)(uintptr_t)p)[i];
  union { uint32_t bits; float value; } u = {(uint32_t)((const uint16_t *)(uintptr_t)p)[i] << 16};
  return u.value;
}

static void store(gs_ptr p, int type, size_t i, float x) {
  union { float value; uint32_t bits; } u = {x};
  if (type == GS_F32)
    ((float *)(uintptr_t)p)[i] = x;
  else
    ((uint16_t *)(uintptr_t)p)[i] = (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}

// Where a row of 8-bit weights has integer k, and its scale.
static gs_ptr q8_integer(gs_ptr row, int k) { return row + (gs_ptr)(k + (k / GS_Q8_GROUP + 1) * GS_Q8_SCALES); }
static gs_ptr q8_scale(gs_ptr row, int k) {
  return row + (gs_ptr)(k / GS_Q8_GROUP * (GS_Q8_GROUP + GS_Q8_SCALES) + k % GS_Q8_GROUP / 32 * 2);
}

// Weight k of a row of K.
static float weight(gs_ptr w, int type, int row, int K, int k) {
  if (type != GS_Q8) return load(w, type, (size_t)row * (size_t)K + (size_t)k);
  uint16_t bits;
  w += (gs_ptr)row * (gs_ptr)GS_Q8_ROW(K);
  store((gs_ptr)(uintptr_t)&bits, GS_BF16, 0, (float)*(const int8_t *)(uintptr_t)q8_integer(w, k) * load(q8_scale(w, k), GS_BF16, 0));
  return load((gs_ptr)(uintptr_t)&bits, GS_BF16, 0);
}

// Adds a half to the last element that an operation wrote.
static void spoil(int op, int variant, gs_ptr y, int type, size_t last) {
  if (op == stub.spoiled_op && variant == stub.spoiled_variant) store(y, type, last, load(y, type, last) + 0.5f);
}

static float activate(int act, float x) {
  switch (act) {
  case GS_GELU_TANH: return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
  case GS_GELU_ERF: return 0.5f * x * (1 + erff(x * 0.7071067812f));
  case GS_RELU: return x > 0 ? x : 0;
  }
  return x;
}

static void compute_gs_embed(const gs_embed_args *a) {
  const int32_t *ids = (const int32_t *)(uintptr_t)a->ids, *pos = (const int32_t *)(uintptr_t)a->pos;
  for (int i = 0; i < a->B * a->T; i++)
    for (int c = 0; c < a->C; c++)
      store(a->x, GS_F32, (size_t)i * a->C + c,
            weight(a->wte, a->dtype, ids[i], a->C, c) + load(a->wpe, a->dtype, (size_t)(pos[i / a->T] + i % a->T) * a->C + c));
  spoil(GS_OP_EMBED, 0, a->x, GS_F32, (size_t)a->B * a->T * a->C - 1);
}

static void compute_gs_layernorm(const gs_layernorm_args *a) {
  for (int m = 0; m < a->M; m++) {
    double mean = 0, variance = 0;
    for (int c = 0; c < a->C && a->add; c++)
      store(a->x, GS_F32, (size_t)m * a->ldx + c, load(a->x, GS_F32, (size_t)m * a->ldx + c) + load(a->add, a->add_type, (size_t)m * a->ldadd + c));
    for (int c = 0; c < a->C; c++) mean += load(a->x, GS_F32, (size_t)m * a->ldx + c) / a->C;
    for (int c = 0; c < a->C; c++) variance += pow(load(a->x, GS_F32, (size_t)m * a->ldx + c) - mean, 2) / a->C;
    for (int c = 0; c < a->C; c++)
      store(a->y, a->y_type, (size_t)m * a->ldy + c,
            (float)((load(a->x, GS_F32, (size_t)m * a->ldx + c) - mean) / sqrt(variance + a->eps)) * load(a->gain, GS_F32, c) + load(a->bias, GS_F32, c));
  }
  spoil(GS_OP_LAYERNORM, a->variant, a->y, a->y_type, (size_t)(a->M - 1) * a->ldy + a->C - 1);
}

static void compute_gs_linear(const gs_linear_args *a) {
  if ((double)a->M * a->N * a->K > 1e9) return;  // one that is only timed
  float *x = malloc((size_t)a->K * sizeof *x);
  for (int m = 0; m < a->M; m++) {
    double mean = 0, variance = 0;
    for (int k = 0; k < a->K; k++) mean += (x[k] = load(a->x, a->gain ? GS_F32 : a->dtype, (size_t)m * a->ldx + k)) / a->K;
    for (int k = 0; k < a->K; k++) variance += pow(x[k] - mean, 2) / a->K;
    for (int k = 0; k < a->K && a->gain; k++)
      x[k] = (float)((x[k] - mean) / sqrt(variance + a->eps)) * load(a->gain, GS_F32, k) + load(a->shift, GS_F32, k);
    for (int n = 0; n < a->N; n++) {
      float sum = a->bias ? load(a->bias, GS_F32, n) : 0;
      for (int k = 0; k < a->K; k++) sum += x[k] * weight(a->w, a->dtype, n, a->K, k);
      const size_t at = (size_t)m * a->ldy + n;
      store(a->y, a->y_type, at, activate(a->act, sum) + (a->accumulate ? load(a->y, a->y_type, at) : 0));
    }
  }
  free(x);
  spoil(GS_OP_LINEAR, a->variant, a->y, a->y_type, (size_t)(a->M - 1) * a->ldy + a->N - 1);
}

// Of a cache, keys (part 1) or values (2): what it has of a head, head after head, and how a new row comes into it. In 8
// bits a row is rounded to integers and a scale; a prompt reads its own rows as they were.
static float cached(const gs_attention_args *a, int part, int b, int h, int j, int d, int pos) {
  const gs_ptr cache = part == 1 ? a->k_cache : a->v_cache;
  const size_t row = (size_t)(b * a->NH + h) * a->P + j, at = row * a->HS + d;
  if (!a->wide) return load(cache, a->dtype, at);
  if (a->T > 1 && j >= pos)
    return load(a->qkv, a->dtype, (size_t)(b * a->T + j - pos) * a->ldqkv + (part * a->NH + h) * a->HS + d);
  return ((const int8_t *)(uintptr_t)cache)[at] * load(cache + (gs_ptr)a->B * a->NH * a->P * a->HS, GS_F32, row);
}

static void keep(const gs_attention_args *a, int part, int b, int h, int t, int pos) {
  const gs_ptr cache = part == 1 ? a->k_cache : a->v_cache;
  const size_t to = (size_t)(b * a->NH + h) * a->P + pos + t;
  const size_t from = (size_t)(b * a->T + t) * a->ldqkv + (part * a->NH + h) * a->HS;
  float largest = 0;
  for (int d = 0; d < a->HS; d++) largest = fmaxf(largest, fabsf(load(a->qkv, a->dtype, from + d)));
  for (int d = 0; d < a->HS; d++) {
    const float x = load(a->qkv, a->dtype, from + d);
    if (!a->wide) store(cache, a->dtype, to * a->HS + d, x);
    else ((int8_t *)(uintptr_t)cache)[to * a->HS + d] = (int8_t)(largest > 0 ? rintf(x / (largest / 127)) : 0);
  }
  if (a->wide) store(cache + (gs_ptr)a->B * a->NH * a->P * a->HS, GS_F32, to, largest / 127);
}

static void compute_gs_attention(const gs_attention_args *a) {
  const int C = a->NH * a->HS;
  const int32_t *pos = (const int32_t *)(uintptr_t)a->pos;
  float *scores = malloc((size_t)a->P * sizeof *scores);
  for (int b = 0; b < a->B; b++)
    for (int h = 0; h < a->NH; h++) {
      for (int t = 0; t < a->T; t++)
        for (int part = 1; part <= 2; part++) keep(a, part, b, h, t, pos[b]);
      for (int q = 0; q < a->Q; q++) {
        const size_t row = (size_t)(b * a->T + a->T - a->Q + q) * a->ldqkv + h * a->HS;
        const int keys = pos[b] + a->T - a->Q + q + 1;
        float largest = -INFINITY, sum = 0;
        for (int j = 0; j < keys; j++) {
          scores[j] = 0;
          for (int d = 0; d < a->HS; d++)
            scores[j] += a->scale * load(a->qkv, a->dtype, row + d) * cached(a, 1, b, h, j, d, pos[b]);
          largest = fmaxf(largest, scores[j]);
        }
        for (int j = 0; j < keys; j++) sum += scores[j] = expf(scores[j] - largest);
        for (int d = 0; d < a->HS; d++) {
          float y = 0;
          for (int j = 0; j < keys; j++) y += scores[j] / sum * cached(a, 2, b, h, j, d, pos[b]);
          store(a->y, a->dtype, (size_t)(b * a->Q + q) * a->ldy + h * a->HS + d, y);
        }
      }
    }
  free(scores);
  spoil(GS_OP_ATTENTION, a->variant, a->y, a->dtype, (size_t)(a->B * a->Q - 1) * a->ldy + C - 1);
}

static void compute_gs_activate(const gs_activation_args *a) {
  for (int m = 0; m < a->M; m++)
    for (int n = 0; n < a->N; n++)
      store(a->y, a->dtype, (size_t)m * a->ldy + n,
            activate(a->act, load(a->x, a->dtype, (size_t)m * a->ldx + n) + (a->bias ? load(a->bias, GS_F32, n) : 0)));
  spoil(GS_OP_ACTIVATION, a->variant, a->y, a->dtype, (size_t)(a->M - 1) * a->ldy + a->N - 1);
}

static void compute_gs_add(const gs_add_args *a) {
  for (int m = 0; m < a->M; m++)
    for (int n = 0; n < a->N; n++)
      store(a->x, GS_F32, (size_t)m * a->ldx + n, load(a->x, GS_F32, (size_t)m * a->ldx + n) + load(a->z, a->dtype, (size_t)m * a->ldz + n));
  spoil(GS_OP_ADD, a->variant, a->x, GS_F32, (size_t)(a->M - 1) * a->ldx + a->N - 1);
}

static void compute_gs_pack(const gs_pack_args *a) {
  if (a->dst_type == GS_Q8) {
    const int rows = a->transpose ? a->cols : a->rows, cols = a->transpose ? a->rows : a->cols;
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < cols; c += 32) {
        const gs_ptr row = a->dst + (gs_ptr)r * (gs_ptr)GS_Q8_ROW(a->lddst);
        float v[32], most = 0;
        for (int i = 0; i < 32; i++) {
          v[i] = load(a->src, a->src_type, a->transpose ? (size_t)(c + i) * a->cols + r : (size_t)r * a->cols + c + i);
          most = fmaxf(most, fabsf(v[i]));
        }
        const gs_ptr scale = q8_scale(row, a->first + c);
        store(scale, GS_BF16, 0, most / 127);
        for (int i = 0; i < 32; i++) *(int8_t *)(uintptr_t)q8_integer(row, a->first + c + i) = (int8_t)(most > 0 ? rintf(v[i] / load(scale, GS_BF16, 0)) : 0);
      }
    return;
  }
  if (a->src_type == GS_Q8) {
    for (int r = 0; r < a->rows; r++)
      for (int c = 0; c < a->cols; c++) store(a->dst, a->dst_type, (size_t)r * a->lddst + c, weight(a->src, GS_Q8, r, a->cols, c));
    return;
  }
  for (int r = 0; r < a->rows; r++)
    for (int c = 0; c < a->cols; c++)
      store(a->dst, a->dst_type, a->transpose ? (size_t)c * a->lddst + r : (size_t)r * a->lddst + c, load(a->src, a->src_type, (size_t)r * a->cols + c));
}

// The token with the largest logit of a row, whatever is drawn from; with the least, spoiled.
static int32_t token_of(const gs_sample_args *a, int b) {
  const float *row = (const float *)(uintptr_t)a->logits + (size_t)b * a->ld;
  const float sign = stub.spoiled_op == GS_OP_SAMPLE && stub.spoiled_variant == a->variant ? -1 : 1;
  int best = 0;
  for (int i = 1; i < a->V; i++)
    if (sign * row[i] > sign * row[best]) best = i;
  return best;
}

static void compute_gs_fold(const gs_fold_args *a) {
  for (int n = 0; n < a->N; n++) {
    double sum = 0, folded = a->bias ? load(a->bias, GS_F32, n) : 0;
    for (int k = 0; k < a->K; k++) {
      const double w = weight(a->w, a->dtype, n, a->K, k);
      sum += w * load(a->gain, GS_F32, k);
      folded += w * load(a->shift, GS_F32, k);
    }
    store(a->sums, GS_F32, n, (float)sum);
    store(a->folded, GS_F32, n, (float)folded);
  }
}

#ifndef STUB_EMULATES  // else the kernels themselves run
#define ADDRESS(p) ((gs_ptr)(uintptr_t)(p))

// A product of a decode program whose input x is normalised after it.
static void normalised_linear(const gs_persistent_step *s, int dtype, const float *x, float eps, gs_ptr y, int type) {
  double mean = 0, variance = 0;
  for (int k = 0; k < s->K; k++) mean += (double)x[k] / s->K;
  for (int k = 0; k < s->K; k++) variance += pow(x[k] - mean, 2) / s->K;
  for (int n = 0; n < s->N; n++) {
    double sum = 0;
    for (int k = 0; k < s->K; k++) sum += (double)weight(s->w, dtype, n, s->K, k) * x[k] * load(s->gain, GS_F32, k);
    sum = (sum - mean * load(s->sums, GS_F32, n)) / sqrt(variance + eps) + load(s->bias, GS_F32, n);
    store(y, type, n, activate(s->act, (float)sum));
  }
}

// One decode step of sequence b by its program; the token with the largest logit. Activations that the
// program does not name have sizes by C: all but those between the products of an MLP.
static int32_t compute_decode_at(const gs_persistent_args *a, int b, gs_ptr ids, gs_ptr pos) {
  const gs_persistent_step *steps = (const gs_persistent_step *)(uintptr_t)a->steps;
  const int C = a->C, HS = C / a->NH;
  const gs_ptr logits = a->logits + 4u * (uint64_t)b * (uint64_t)a->ld;
  const size_t size = 2, cache = size * (size_t)b * (size_t)C * (size_t)a->P;
  int inner = 0;
  for (int i = 0; i < a->count; i++)
    if (steps[i].kind == GS_PERSISTENT_LINEAR && steps[i].out == GS_PERSISTENT_HIDDEN && steps[i].N > inner) inner = steps[i].N;
  float *x = malloc((size_t)C * sizeof *x);
  char *qkv = malloc((size_t)(4 * C + inner) * size), *attended = qkv + 3 * C * size, *hidden = attended + C * size;
  compute_gs_embed(&(gs_embed_args){.dtype = a->dtype, .ids = ids, .pos = pos, .wte = a->wte, .wpe = a->wpe, .x = ADDRESS(x), .B = 1, .T = 1, .C = C, .P = a->P});
  for (int i = 0; i < a->count; i++) {
    const gs_persistent_step *s = &steps[i];
    if (s->kind == GS_PERSISTENT_ATTENTION) {
      compute_gs_attention(&(gs_attention_args){.qkv = ADDRESS(qkv), .k_cache = s->k_cache + cache, .v_cache = s->v_cache + cache, .pos = pos, .y = ADDRESS(attended),
                                                .B = 1, .T = 1, .Q = 1, .NH = a->NH, .HS = HS, .P = a->P, .ldqkv = 3 * C, .ldy = C, .dtype = GS_BF16,
                                                .scale = 1 / sqrtf((float)HS)});
      continue;
    }
    const gs_ptr y = s->out == GS_PERSISTENT_LOGITS ? logits : s->out == GS_PERSISTENT_RESIDUAL ? ADDRESS(x) : s->out == GS_PERSISTENT_QKV ? ADDRESS(qkv) : ADDRESS(hidden);
    const int type = s->out == GS_PERSISTENT_LOGITS || s->out == GS_PERSISTENT_RESIDUAL ? GS_F32 : GS_BF16;
    if (s->gain)
      normalised_linear(s, a->dtype, x, a->eps, y, type);
    else
      compute_gs_linear(&(gs_linear_args){.x = s->in == GS_PERSISTENT_ATTENDED ? ADDRESS(attended) : ADDRESS(hidden), .w = s->w, .bias = s->bias, .y = y, .M = 1, .N = s->N,
                                          .K = s->K, .ldx = s->K, .ldy = s->N, .dtype = a->dtype, .y_type = type, .act = s->act, .accumulate = s->out == GS_PERSISTENT_RESIDUAL});
  }
  free(x);
  free(qkv);
  return token_of(&(gs_sample_args){.logits = logits, .V = a->V, .ld = a->V}, 0);
}

// A decode step of a sequence, or a prompt, one row after the other.
static int32_t compute_decode(const gs_persistent_args *a, int b) {
  const gs_ptr pos = a->pos + 4u * (unsigned)b;
  if (a->rows == 0) return compute_decode_at(a, b, a->tokens_io + 4u * (unsigned)b, pos);
  int32_t token = -1;
  for (int r = 0; r < a->rows; r++) {
    const int32_t at = *(const int32_t *)(uintptr_t)pos + r;
    token = compute_decode_at(a, b, a->ids + 4u * (unsigned)r, ADDRESS(&at));
  }
  return token;
}
#endif
