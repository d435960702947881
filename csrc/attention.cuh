// Attention of many queries on Hopper's tensor cores (attention_wgmma.cu): bfloat16, head size 64.
#pragma once

#include "common.cuh"

// By the queue (1), without (0), or by that of both which is faster (-1).
int gs_attention_wgmma(gs_stream *s, const gs_attention_args *a, int queue);
bool gs_attention_wgmma_takes(const gs_stream *s, const gs_attention_args *a);
