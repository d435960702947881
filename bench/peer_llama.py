"""GPT-2 in llama.cpp, through llama-cpp-python's binding of its C interface.

The weights become a GGUF file: matrices in the dtype that is measured (f32, bf16 or q8_0), the rest float32. Of
these settings the first process tries one after the other and keeps the fastest for each work: flash attention on or
off, n_ubatch (of a prefill), with bf16 the KV cache in float16 or bfloat16, and with q8_0 whether weights are
repacked at load for the processor's instructions, such as AMX. The KV cache of f32 is float32, of q8_0 float16.

    peer_llama.py GGUF PAST THREADS

prints the milliseconds from opening the file, when Python has already started, to the first token after a prompt of
PAST tokens. The peak memory of this process is that of decode at PAST tokens.
"""

import ctypes
import json
import pathlib
import sys
import time

import gguf
import llama_cpp as llama
import numpy as np

from case import Case

CACHES = {"f32": llama.GGML_TYPE_F32, "f16": llama.GGML_TYPE_F16, "bf16": 30}  # the package has no name for GGML_TYPE_BF16
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "q8": gguf.GGMLQuantizationType.Q8_0}
MATRICES = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}

silent = llama.llama_log_callback(lambda *_: None)  # kept here: C calls it as long as the process lives
llama.llama_log_set(silent, ctypes.c_void_p(0))
llama.llama_backend_init()

FEATURES = [f.split(" = ")[0].strip(" :") for f in llama.llama_print_system_info().decode().split("|") if f.strip().endswith("= 1")]
VERSION = f"{llama.__version__} ({' '.join(f.removeprefix('CPU : ') for f in FEATURES)})"


class Peer:
    def __init__(self, case: Case, threads: int, dtype: str):
        self.case, self.threads, self.dtype = case, threads, dtype
        self.path = case.folder / f"{dtype}.gguf"
        if not self.path.exists():
            write(case, self.path, TYPES[dtype])
        self.models = {}  # by whether weights are repacked

    def prepare(self, work: str):
        """Returns a function that does the work once, at its best settings, and returns logits, [T, V] or [V]."""
        kept = self.case.folder / f"{self.dtype}-{work}.json"  # a later process of the same benchmark starts here
        if not kept.exists():
            kept.write_text(json.dumps(self.best_setting(work)))
        setting = json.loads(kept.read_text())
        run = self.run(work, **setting)
        run.setting = ", ".join(f"{name} {value}" for name, value in setting.items())
        return run

    def best_setting(self, work: str) -> dict:
        tokens = self.case.tokens
        choices = {
            "flash": (True, False),
            "cache": {"f32": ("f32",), "bf16": ("f16", "bf16"), "q8": ("f16",)}[self.dtype],
            "repack": (True, False) if self.dtype == "q8" else (True,),
            "ubatch": sorted({min(n, tokens) for n in (128, 256, 512, tokens)}, key=lambda n: abs(n - 512)) if work != "decode" else (tokens,),
        }
        best = {name: values[0] for name, values in choices.items()}
        seconds = {}
        for name, values in choices.items():  # one after the other: all combinations take minutes
            for value in values:
                setting = best | {name: value}
                key = tuple(setting.values())
                if key not in seconds:
                    run = self.run(work, **setting)
                    seconds[key] = time_of(run, 20 if work == "decode" else 2)
                    run.close()
            best[name] = min(values, key=lambda value: seconds[tuple((best | {name: value}).values())])
        return best

    def run(self, work: str, flash: bool, cache: str, repack: bool, ubatch: int):
        if repack not in self.models:
            self.models[repack] = load(self.path, repack)
        return Run(self.case, work, self.threads, self.models[repack], flash, cache, ubatch)


class Run:
    def __init__(self, case: Case, work: str, threads: int, model, flash: bool, cache: str, ubatch: int):
        options = llama.llama_context_default_params()
        options.n_ctx = options.n_batch = case.tokens
        options.n_ubatch = ubatch
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type, options.type_k, options.type_v = flash, CACHES[cache], CACHES[cache]
        self.context = llama.llama_init_from_model(model, options)
        self.memory = llama.llama_get_memory(self.context)
        self.shape = (case.tokens, case.vocab) if work == "prefill-all" else (case.vocab,)
        ids = case.expected()["ids"].tolist()
        self.past = case.past if work == "decode" else 0
        if self.past:
            decode(self.context, batch_of(ids[:self.past], 0, False))
            ids = ids[self.past:self.past + 1]
        self.batch = batch_of(ids, self.past, work == "prefill-all")
        self.view = None

    def __call__(self) -> np.ndarray:
        llama.llama_memory_seq_rm(self.memory, 0, self.past, -1)
        decode(self.context, self.batch)
        pointer = llama.llama_get_logits(self.context)
        if self.view is None:  # the buffer stays where it is
            self.view = np.ctypeslib.as_array(pointer, self.shape)
        return self.view

    def close(self) -> None:
        llama.llama_free(self.context)


def load(path: pathlib.Path, repack: bool):
    options = llama.llama_model_default_params()
    options.use_extra_bufts = repack
    return llama.llama_model_load_from_file(str(path).encode(), options)


def batch_of(ids: list[int], past: int, all_rows: bool):
    """Tokens of sequence 0 from position `past` on, logits wanted of all or of the last."""
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, past + i, 1, 0
        batch.logits[i] = all_rows or i == len(ids) - 1
    return batch


def decode(context, batch) -> None:
    if llama.llama_decode(context, batch) != 0:
        raise SystemExit("llama_decode failed")


def time_of(run, repeats: int) -> float:
    """Of some runs after one, the shortest; of a long run, which warming up changes little, the first."""
    times = []
    while len(times) <= repeats and sum(times) < 0.5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def write(case: Case, path: pathlib.Path, matrix_type: gguf.GGMLQuantizationType) -> None:
    weights = case.weights()
    out = gguf.GGUFWriter(path, "gpt2")
    out.add_block_count(case.layers)
    out.add_context_length(len(weights["wpe.weight"]))
    out.add_embedding_length(case.channels)
    out.add_feed_forward_length(4 * case.channels)
    out.add_head_count(case.heads)
    out.add_layer_norm_eps(case.epsilon)
    out.add_vocab_size(case.vocab)
    out.add_tokenizer_model("none")

    def matrix(name: str, w: np.ndarray) -> None:  # [out, in]
        w = np.ascontiguousarray(w)
        out.add_tensor(name, gguf.quants.quantize(w, matrix_type), raw_dtype=matrix_type)

    def both(name: str, source: str) -> None:
        out.add_tensor(name + ".weight", weights[source + ".weight"])
        out.add_tensor(name + ".bias", weights[source + ".bias"])

    matrix("token_embd.weight", weights["wte.weight"])  # lm_head is tied to it
    out.add_tensor("position_embd.weight", weights["wpe.weight"])
    both("output_norm", "ln_f")
    for i in range(case.layers):
        for source, name in NORMS.items():
            both(f"blk.{i}.{name}", f"h.{i}.{source}")
        for source, name in MATRICES.items():
            matrix(f"blk.{i}.{name}.weight", weights[f"h.{i}.{source}.weight"].T)
            out.add_tensor(f"blk.{i}.{name}.bias", weights[f"h.{i}.{source}.bias"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main() -> None:
    """Loads a model, gives the first token after a prompt of PAST tokens and takes one more step."""
    path, past, threads = sys.argv[1:]
    past = int(past)
    start = time.perf_counter()
    model = load(pathlib.Path(path), True)
    options = llama.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = max(past + 1, 256)
    options.n_threads = options.n_threads_batch = int(threads)
    context = llama.llama_init_from_model(model, options)
    decode(context, batch_of([1] * past, 0, False))
    np.ctypeslib.as_array(llama.llama_get_logits(context), (llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model)),)).argmax()
    print((time.perf_counter() - start) * 1e3)
    decode(context, batch_of([1], past, False))


if __name__ == "__main__":
    main()
