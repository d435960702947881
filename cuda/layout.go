package cuda

// #include "shim.h"
import "C"

// layouts pairs each struct of Go with that of C, for the test that compares them; tests cannot use cgo themselves.
func layouts() map[string][2]any {
	return map[string][2]any{
		"EmbedArgs":      {EmbedArgs{}, C.gs_embed_args{}},
		"LayerNormArgs":  {LayerNormArgs{}, C.gs_layernorm_args{}},
		"LinearArgs":     {LinearArgs{}, C.gs_linear_args{}},
		"AttentionArgs":  {AttentionArgs{}, C.gs_attention_args{}},
		"ActivationArgs": {ActivationArgs{}, C.gs_activation_args{}},
		"AddArgs":        {AddArgs{}, C.gs_add_args{}},
		"SampleArgs":     {SampleArgs{}, C.gs_sample_args{}},
		"PackArgs":       {PackArgs{}, C.gs_pack_args{}},
		"PersistentStep": {PersistentStep{}, C.gs_persistent_step{}},
		"FoldArgs":       {FoldArgs{}, C.gs_fold_args{}},
		"PersistentArgs": {PersistentArgs{}, C.gs_persistent_args{}},
		"CollectArgs":    {CollectArgs{}, C.gs_collect_args{}},
		"Sampling":       {Sampling{}, C.gs_sampling{}},
		"Slot":           {Slot{}, C.gs_slot{}},
	}
}

var _ = layouts // of tests only
