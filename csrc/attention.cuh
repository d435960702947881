// Attention of many queries on Hopper's tensor cores (attention_wgmma.cu): bfloat16, head size 64.
#pragma once

#include "common.cuh"

int gs_attention_wgmma(gs_stream *s, const gs_attention_args *a);
bool gs_attention_wgmma_takes(const gs_stream *s, const gs_attention_args *a);
// Whether it is faster than the kernel for every GPU.
bool gs_attention_wgmma_wins(const gs_attention_args *a);
