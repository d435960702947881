// GS_EMBED, GS_ADD, GS_ACTIVATION, GS_COPY. Included by kernels_impl.h, once per instruction set.

enum { SPAN = 1024, EMBED_SPAN = 128 }; // columns of a task

INLINE float widen_bf16(uint16_t h) {
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

// lookup reads columns [c, c+n) of row `id` of a table.
INLINE void lookup(float *y, const gs_weight *w, int64_t id, int64_t c, int64_t n) {
	if (w->dtype == GS_F32) {
		copy_values(y, (const float *)w->data + id * row_length(w) + c, n);
	} else if (w->dtype == GS_BF16) {
		const uint16_t *p = (const uint16_t *)w->data + id * row_length(w) + c;
		for (int64_t i = 0; i < n; i++) y[i] = widen_bf16(p[i]);
	} else {
		for (int64_t i = 0; i < n; i++) y[i] = q8_at(w, c + i, id);
	}
}

// by_panel returns the rows of a prompt in the order of the panels that hold their tokens, by counting (each worker for itself: some
// microseconds); NULL where that does not pay. Tokens of one panel share its cache lines, and gathering is bound by how fast lines come.
static const int32_t *by_panel(gs_worker *w, const gs_embed *o) {
	const int64_t M = (int64_t)o->B * o->T, panels = (o->wte.N + GS_NR - 1) / GS_NR;
	if (o->wte.dtype != GS_Q8 || M < 64 || M + panels + 1 > GS_SCRATCH) return NULL;
	int32_t *first = (int32_t *)w->scratch, *order = first + panels + 1; // of each panel; rows
	memset(first, 0, (size_t)(panels + 1) * sizeof *first);
	for (int64_t r = 0; r < M; r++) first[o->ids[r] / GS_NR + 1]++;
	for (int64_t p = 0; p < panels; p++) first[p + 1] += first[p];
	for (int64_t r = 0; r < M; r++) order[first[o->ids[r] / GS_NR]++] = (int32_t)r;
	return order;
}

static void op_embed(gs_worker *w, const gs_step *s) {
	const gs_embed *o = &s->embed;
	const int32_t *order = by_panel(w, o);
	int64_t C = o->C, spans = (C + EMBED_SPAN - 1) / EMBED_SPAN;
	for (int64_t t = gs_first(w, (int64_t)o->B * o->T * spans); t >= 0; t = gs_next(w)) {
		int64_t r = order ? order[t / spans] : t / spans, c = t % spans * EMBED_SPAN, n = C - c < EMBED_SPAN ? C - c : EMBED_SPAN;
		float *y = row_of(&o->y, r) + c, p[EMBED_SPAN];
		lookup(y, &o->wte, o->ids[r], c, n);
		lookup(p, &o->wpe, o->pos[r / o->T] + r % o->T, c, n);
		for (int64_t i = 0; i < n; i++) y[i] += p[i];
	}
}

static void op_add(gs_worker *w, const gs_step *s) {
	const gs_elementwise *o = &s->elementwise;
	int64_t spans = (o->C + SPAN - 1) / SPAN;
	for (int64_t t = gs_first(w, o->M * spans); t >= 0; t = gs_next(w)) {
		int64_t r = t / spans, c = t % spans * SPAN, end = c + SPAN < o->C ? c + SPAN : o->C;
		const float *a = row_of(&o->a, r), *b = row_of(&o->b, r);
		float *y = row_of(&o->y, r);
		for (; c + VL <= end; c += VL) store(y + c, load(a + c) + load(b + c));
		for (; c < end; c++) y[c] = a[c] + b[c];
	}
}

INLINE void activation_span(const gs_elementwise *o, const int act, const float *a, float *y, int64_t c, int64_t end) {
	const float *bias = o->bias;
	for (; c + VL <= end; c += VL) {
		vf v = load(a + c);
		if (bias) v += load(bias + c);
		store(y + c, activate(act, v));
	}
	if (c < end) {
		float t[VL] = {0};
		for (int64_t j = c; j < end; j++) t[j - c] = bias ? a[j] + bias[j] : a[j];
		store(t, activate(act, load(t)));
		memcpy(y + c, t, (size_t)(end - c) * sizeof(float));
	}
}

static void op_activation(gs_worker *w, const gs_step *s) {
	const gs_elementwise *o = &s->elementwise;
	int64_t spans = (o->C + SPAN - 1) / SPAN;
	for (int64_t t = gs_first(w, o->M * spans); t >= 0; t = gs_next(w)) {
		int64_t r = t / spans, c = t % spans * SPAN, end = c + SPAN < o->C ? c + SPAN : o->C;
		const float *a = row_of(&o->a, r);
		float *y = row_of(&o->y, r);
		switch (o->act) {
		case GS_GELU_TANH: activation_span(o, GS_GELU_TANH, a, y, c, end); break;
		case GS_GELU_ERF: activation_span(o, GS_GELU_ERF, a, y, c, end); break;
		case GS_RELU: activation_span(o, GS_RELU, a, y, c, end); break;
		default: activation_span(o, GS_NONE, a, y, c, end);
		}
	}
}

static void op_copy(gs_worker *w, const gs_step *s) {
	const gs_elementwise *o = &s->elementwise;
	for (int64_t r = gs_first(w, o->M); r >= 0; r = gs_next(w))
		memmove(row_of(&o->y, r), row_of(&o->a, r), (size_t)o->C * sizeof(float));
}
