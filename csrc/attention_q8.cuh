// Part of attention.cu: a cache in 8 bits (gs_attention_args.wide). A row, which is a head's key or value of one
// position, has integers of -127 to 127 and a scale, so that its largest value is kept. Decode steps read integers;
// prompts work on a cache of bfloat16 that is written from them first, and their rows are rounded after.

template <> struct Chunk<int8_t> {
  static constexpr int N = 16, TURN = 2;
  using Row = bf16;
};

// The scales of a head's keys or values, which lie behind the integers of all heads.
struct Scales {
  float *of;
  __device__ Scales(const Attention &a, void *cache, int head)
      : of(reinterpret_cast<float *>(static_cast<int8_t *>(cache) + int64_t(a.B) * a.NH * a.P * a.HS) +
           int64_t(head) * a.P) {}
  __device__ float &operator[](int position) const { return of[position]; }
};

// 0x4b before two zeros and a byte is the float32 of 2^23 plus the byte.
__device__ inline void unpack(const uint4 &v, float (&f)[16]) {
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
  for (int i = 0; i < 16; i++)
    f[i] = __uint_as_float(__byte_perm(w[i / 4] ^ 0x80808080u, 0x4b000000u, 0x7440 + i % 4)) - 8388736.0f;
}

// A lane's N values of a row of qkv, zeros if it has none.
template <typename T, int N> __device__ inline void read_row(const T *row, bool ok, float (&f)[N]) {
  constexpr int EACH = 16 / sizeof(T);
  for (int i = 0; i < N; i += EACH) {
    float part[EACH];
    unpack(ok ? *reinterpret_cast<const uint4 *>(row + i) : make_uint4(0, 0, 0, 0), part);
    for (int e = 0; e < EACH; e++) f[i + e] = part[e];
  }
}

// Rounds a row, of which each of LANES lanes has 16 values.
template <int LANES> __device__ inline uint4 round8(const float (&f)[16], float &scale) {
  float top = 0;
  for (int i = 0; i < 16; i++) top = fmaxf(top, fabsf(f[i]));
  for (int x = LANES / 2; x > 0; x >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
  scale = top / 127;
  const float inverse = scale > 0 ? 1 / scale : 0;
  auto word = [&](int i) {
    const int q[4] = {__float2int_rn(f[i] * inverse), __float2int_rn(f[i + 1] * inverse),
                      __float2int_rn(f[i + 2] * inverse), __float2int_rn(f[i + 3] * inverse)};
    return __byte_perm(__byte_perm(q[0], q[1], 0x40), __byte_perm(q[2], q[3], 0x40), 0x5410);
  };
  return make_uint4(word(0), word(4), word(8), word(12));
}

// Rounds and stores the new row's key and value, and begins the maximum, sum and output of a head's first lanes with
// them.
template <int LANES, typename Thread>
__device__ inline void begin_with_row(const Thread &t, float scale, int pos, bool mine, const float (&q)[16], float &m,
                                      float &l, float (&o)[16]) {
  float f[16], k_scale, v_scale, s = 0;
  read_row(t.row + t.C, t.column_ok, f);
  const uint4 k = round8<LANES>(f, k_scale);
  unpack(k, f);
  for (int e = 0; e < 16; e++) s = fmaf(q[e], f[e], s);
  for (int x = LANES / 2; x > 0; x >>= 1) s += __shfl_xor_sync(0xffffffffu, s, x);
  read_row(t.row + 2 * t.C, t.column_ok, f);
  const uint4 v = round8<LANES>(f, v_scale);
  if (!mine) return;
  m = s * k_scale * scale, l = 1;
  unpack(v, o);
  for (int e = 0; e < 16; e++) o[e] *= v_scale;
  if (!t.column_ok || pos >= t.P) return;
  *reinterpret_cast<uint4 *>(t.k_cache + int64_t(pos) * t.HS) = k;
  *reinterpret_cast<uint4 *>(t.v_cache + int64_t(pos) * t.HS) = v;
  if (t.column == 0) t.k_scales[pos] = k_scale, t.v_scales[pos] = v_scale;
}

// Rounds keys and values of new rows: one block per row of a sequence, eight lanes for each of a head.
template <typename S> __global__ void __launch_bounds__(128) attention_append8(const S stamp, const Attention a) {
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  const int r = blockIdx.x, b = blockIdx.y, pad = a.pad ? *a.pad : 0, position = a.pos[b] + r - pad;
  if (r < pad || position >= a.P) return;
  const int column = threadIdx.x % 8 * 16;
  for (int i = 0; i < 2 * a.NH; i += 16) {  // keys of all heads, then values
    const int of = i + threadIdx.x / 8, head = b * a.NH + of % a.NH;
    const bool ok = of < 2 * a.NH && column < a.HS;
    float f[16], scale;
    read_row(static_cast<const bf16 *>(a.qkv) + (int64_t(b) * a.T + r) * a.ldqkv + (a.NH + of) * a.HS + column,
             ok, f);
    const uint4 bytes = round8<8>(f, scale);
    int8_t *const cache = static_cast<int8_t *>(of < a.NH ? a.k_cache : a.v_cache);
    if (ok) *reinterpret_cast<uint4 *>(cache + (int64_t(head) * a.P + position) * a.HS + column) = bytes;
    if (ok && column == 0) Scales(a, cache, head)[position] = scale;
  }
}

// Writes the positions that the cache has as bfloat16: blocks (n, B*NH).
template <typename S>
__global__ void __launch_bounds__(256) attention_widen(const S stamp, const Attention a, bf16 *keys,
                                                       bf16 *values) {
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  const int head = blockIdx.y, chunks = a.HS / 16, count = min(a.pos[head / a.NH], a.P) * chunks;
  const int64_t first = int64_t(head) * a.P * chunks;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < 2 * count; i += gridDim.x * 256) {
    const int at = i % count;
    void *const cache = i < count ? a.k_cache : a.v_cache;
    float f[16];
    unpack(static_cast<const uint4 *>(cache)[first + at], f);
    const float scale = Scales(a, cache, head)[at / chunks];
    uint32_t *const to = reinterpret_cast<uint32_t *>((i < count ? keys : values) + (first + at) * 16);
    for (int j = 0; j < 8; j++) to[j] = pack_bf16(f[2 * j] * scale, f[2 * j + 1] * scale);
  }
}
