"""GPT-2 in OpenVINO, as a model made of its own operators.

Attention is scaled_dot_product_attention. In a decode step the KV cache is OpenVINO's own state
(ReadValue/Assign), which its CPU plugin grows in place and fuses with the attention. Precisions are set
explicitly: otherwise the plugin computes in bfloat16 if the CPU has it, and keeps the cache in 8 bits. With bf16
it converts the float32 weights, and holds weights, activations and cache in bfloat16.
"""

import numpy as np
import openvino
from openvino import opset6
from openvino import opset13 as ops
from openvino.op.util import Variable, VariableInfo

from case import Case

VERSION = openvino.__version__.split("-")[0]


class Peer:
    def __init__(self, case: Case, threads: int, dtype: str):
        self.case = case
        self.weights = case.weights()
        self.core = openvino.Core()
        self.options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": dtype, "KV_CACHE_PRECISION": dtype,
                        "EXECUTION_MODE_HINT": "ACCURACY" if dtype == "f32" else "PERFORMANCE", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(threads)}

    def prepare(self, work: str):
        """Returns a function that does the work once and returns float32 logits, [T, V] or [V]."""
        case = self.case
        model = self.decode_model() if work == "decode" else self.prefill_model(work == "prefill-last")
        request = self.core.compile_model(model, "CPU", self.options).create_infer_request()
        ids = case.expected()["ids"].astype(np.int64)
        shape = (case.tokens, case.vocab) if work == "prefill-all" else (case.vocab,)

        if work != "decode":
            request.set_input_tensor(0, openvino.Tensor(ids))

            def run():
                request.infer()
                return request.get_output_tensor(0).data.reshape(shape)

            return run

        past = {f"past.{i}.{name}": x[None] for i, kv in enumerate(case.past_keys_values()) for name, x in zip("kv", kv)}
        ids_in, position_in = np.array([ids[case.past]]), np.array([case.past])
        request.set_input_tensor(0, openvino.Tensor(ids_in, shared_memory=True))
        request.set_input_tensor(1, openvino.Tensor(position_in, shared_memory=True))

        def rewind(to: int):
            """Sets the cache to the first `to` tokens."""
            for state in request.query_state():
                state.state = openvino.Tensor(np.ascontiguousarray(past[state.name][:, :, :to]))
            position_in[0], ids_in[0] = to, ids[to]

        def run():
            request.infer()
            position_in[0] += 1  # the state has grown by one token
            return request.get_output_tensor(0).data.reshape(shape)

        run.rewind = rewind
        rewind(case.past)
        return run

    def constant(self, name: str):
        return ops.constant(self.weights[name], shared_memory=True)

    def linear(self, x, name: str):
        return ops.add(ops.matmul(x, self.constant(name + ".weight"), False, False), self.constant(name + ".bias"))

    def norm(self, x, name: str):
        n = ops.mvn(x, ops.constant(np.array([-1], np.int64)), True, self.case.epsilon, "inside_sqrt")
        return ops.add(ops.multiply(n, self.constant(name + ".weight")), self.constant(name + ".bias"))

    def heads(self, x):  # [1, T, C] -> [1, NH, T, HS]
        case = self.case
        shape = np.array([1, -1, case.heads, case.head_size], np.int64)
        return ops.transpose(ops.reshape(x, shape, False), np.array([0, 2, 1, 3], np.int64))

    def merge(self, x):  # [1, NH, T, HS] -> [1, T, C]
        return ops.reshape(ops.transpose(x, np.array([0, 2, 1, 3], np.int64)), np.array([1, -1, self.case.channels], np.int64), False)

    def mlp(self, x, h: str):
        m = ops.gelu(self.linear(self.norm(x, h + ".ln_2"), h + ".mlp.c_fc"), "tanh")
        return ops.add(x, self.linear(m, h + ".mlp.c_proj"))

    def lm_head(self, x):
        return ops.matmul(self.norm(x, "ln_f"), self.constant("wte.weight"), False, True)

    def embed(self, ids, positions):
        zero = ops.constant(np.int64(0))
        rows = ops.add(ops.gather(self.constant("wte.weight"), ids, zero), ops.gather(self.constant("wpe.weight"), positions, zero))
        return ops.unsqueeze(rows, zero)  # [1, T, C]

    def last_row(self, x):
        one = np.array([1], np.int64)
        return ops.slice(x, ops.constant(-one), ops.constant(np.array([2**31 - 1], np.int64)), ops.constant(one), ops.constant(one))

    def prefill_model(self, last_only: bool) -> openvino.Model:
        """Fixed T; outputs the logits and every layer's keys and values."""
        case = self.case
        ids = ops.parameter([case.tokens], np.int64, "ids")
        x = self.embed(ids, ops.constant(np.arange(case.tokens)))
        cache = []
        for i in range(case.layers):
            h = f"h.{i}"
            n = self.norm(x, h + ".ln_1")
            if last_only and i == case.layers - 1:
                k, v = (self.heads(y) for y in ops.split(self.linear(n, "last.kv"), 2, 2).outputs())
                q, x = self.heads(self.linear(self.last_row(n), "last.q")), self.last_row(x)
                a = ops.scaled_dot_product_attention(q, k, v, causal=False)
            else:
                q, k, v = (self.heads(y) for y in ops.split(self.linear(n, h + ".attn.c_attn"), 2, 3).outputs())
                a = ops.scaled_dot_product_attention(q, k, v, causal=True)
            cache += [k, v]
            x = self.mlp(ops.add(x, self.linear(self.merge(a), h + ".attn.c_proj")), h)
        return openvino.Model([ops.result(self.lm_head(x))] + [ops.result(y) for y in cache], [ids], "prefill")

    def decode_model(self) -> openvino.Model:
        """T = 1; keys and values are state, of a length that grows."""
        case = self.case
        ids, position = ops.parameter([1], np.int64, "ids"), ops.parameter([1], np.int64, "position")
        x = self.embed(ids, position)
        beam = ops.constant(np.zeros(1, np.int32))
        assigns = []

        def extend(new, name: str):  # [1, NH, 1, HS] -> [1, NH, past + 1, HS]
            info = VariableInfo()
            info.data_shape = openvino.PartialShape([1, case.heads, -1, case.head_size])
            info.data_type = openvino.Type.f32
            info.variable_id = name
            variable = Variable(info)
            empty = ops.constant(np.zeros((1, case.heads, 0, case.head_size), np.float32))
            # The gather stands for the choice of a beam: the plugin's pattern for a cache in place wants it.
            read = ops.gather(opset6.read_value(empty, variable), beam, ops.constant(np.int64(0)))
            both = ops.concat([read, new], 2)
            assigns.append(opset6.assign(both, variable))
            return both

        for i in range(case.layers):
            h = f"h.{i}"
            qkv = self.linear(self.norm(x, h + ".ln_1"), h + ".attn.c_attn")
            q, k, v = (self.heads(y) for y in ops.split(qkv, 2, 3).outputs())
            a = ops.scaled_dot_product_attention(q, extend(k, f"past.{i}.k"), extend(v, f"past.{i}.v"), causal=False)
            x = self.mlp(ops.add(x, self.linear(self.merge(a), h + ".attn.c_proj")), h)
        return openvino.Model([ops.result(self.lm_head(x))], assigns, [ids, position], "decode")
