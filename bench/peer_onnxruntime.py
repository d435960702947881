"""GPT-2 in ONNX Runtime, as a hand-made graph of the operators that its CPU provider runs fastest.

Linear layers are Gemm (weights prepacked at load, bias inside), attention is GroupQueryAttention, which
keeps keys and values in one preallocated buffer per layer, in place, as onnxruntime-genai does. Inputs,
outputs and cache are bound once (IO binding), so that a run copies nothing. Weights are read from the
case's file as external data.
"""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from case import Case

VERSION = onnxruntime.__version__
F32, I32, I64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


class Peer:
    def __init__(self, case: Case, threads: int, dtype: str):  # dtype is f32
        self.case, self.threads = case, threads

    def prepare(self, work: str):
        """Returns a function that does the work once and returns float32 logits, [T, V] or [V]."""
        case = self.case
        path = case.folder / f"{work}.onnx"
        graph = Graph(case, work)
        path.write_bytes(graph.model().SerializeToString())

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        ids = case.expected()["ids"].astype(np.int64)
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        binding = session.io_binding()
        binding.bind_ortvalue_input("ids", value(ids[case.past:case.past + 1] if work == "decode" else ids))
        logits = value(np.zeros((graph.rows_out, case.vocab), np.float32))
        binding.bind_ortvalue_output("logits", logits)
        for i, (k, v) in enumerate(case.past_keys_values()):
            for name, past in (("k", k), ("v", v)):
                cache = np.zeros((1, case.heads, graph.capacity, case.head_size), np.float32)
                if work == "decode":
                    cache[0, :, :case.past] = past
                cache = value(cache)
                if i not in graph.without_past:
                    binding.bind_ortvalue_input(f"past.{i}.{name}", cache)
                binding.bind_ortvalue_output(f"present.{i}.{name}", cache)
        result = logits.numpy()  # a view of the bound buffer

        def run():
            session.run_with_iobinding(binding)
            return (logits.numpy() if not np.shares_memory(result, logits.numpy()) else result).reshape(
                (-1, case.vocab) if work == "prefill-all" else (-1,))

        return run


class Graph:
    """Writes the nodes of one work's graph. Shapes are fixed: that is what lets ONNX Runtime plan memory."""

    def __init__(self, case: Case, work: str):
        self.case, self.work = case, work
        self.tokens = 1 if work == "decode" else case.tokens
        self.past = case.past if work == "decode" else 0
        self.rows_out = case.tokens if work == "prefill-all" else 1
        self.capacity = case.tokens  # of the KV cache
        self.without_past = {case.layers - 1} if work == "prefill-last" else set()
        self.nodes, self.initializers, self.inputs, self.outputs = [], {}, [], []
        self.spans = case.weight_spans()

    def node(self, op: str, inputs: list[str], outputs: int = 1, domain: str = "", **attributes) -> str:
        names = [f"{op}.{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=names[0], domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values, dtype=np.int64) -> str:
        array = np.asarray(values, dtype)
        name = f"const.{array.dtype}.{array.tolist()}"
        self.initializers[name] = onnx.numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str) -> str:
        shape, offset, length = self.spans[name]
        tensor = TensorProto(name=name, data_type=F32, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, val in (("location", self.case.weights_file.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(val))
        self.initializers[name] = tensor
        return name

    def linear(self, x: str, name: str) -> str:
        return self.node("Gemm", [x, self.weight(name + ".weight"), self.weight(name + ".bias")])

    def norm(self, x: str, name: str) -> str:
        return self.node("LayerNormalization", [x, self.weight(name + ".weight"), self.weight(name + ".bias")],
                         axis=-1, epsilon=self.case.epsilon)

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", [x, self.constant(shape)])

    def last_row(self, x: str) -> str:
        return self.node("Slice", [x, self.constant([self.tokens - 1]), self.constant([self.tokens]), self.constant([0])])

    def attention(self, i: int, qkv: str) -> str:
        """[T, 3C] -> [T, C], with keys and values added to the layer's cache in place."""
        case, t = self.case, self.tokens
        shape = (1, case.heads, self.capacity, case.head_size)
        for name in "kv":
            self.inputs.append(helper.make_tensor_value_info(f"past.{i}.{name}", F32, shape))
            self.outputs.append(helper.make_tensor_value_info(f"present.{i}.{name}", F32, shape))
        out = f"attention.{i}"
        self.nodes.append(helper.make_node(
            "GroupQueryAttention",
            [self.reshape(qkv, 1, t, 3 * case.channels), "", "", f"past.{i}.k", f"past.{i}.v",
             self.constant([self.past + t - 1], np.int32), self.constant(self.past + t, np.int32)],
            [out, f"present.{i}.k", f"present.{i}.v"], name=out, domain="com.microsoft",
            num_heads=case.heads, kv_num_heads=case.heads, scale=case.scale))
        return self.reshape(out, t, case.channels)

    def last_attention(self, i: int, x: str) -> str:
        """The last layer of prefill-last: [T, C] -> [1, C], keys and values of all tokens, query of the last."""
        case, t = self.case, self.tokens

        def heads(y, rows):  # [rows, C] -> [1, NH, rows, HS]
            return self.node("Transpose", [self.reshape(y, 1, rows, case.heads, case.head_size)], perm=[0, 2, 1, 3])

        q = heads(self.linear(self.last_row(x), "last.q"), 1)
        k, v = self.node("Split", [self.linear(x, "last.kv")], 2, axis=1, num_outputs=2)
        k, v = heads(k, t), heads(v, t)
        for name, y in (("k", k), ("v", v)):
            shape = (1, case.heads, t, case.head_size)
            self.nodes.append(helper.make_node("Identity", [y], [f"present.{i}.{name}"]))
            self.outputs.append(helper.make_tensor_value_info(f"present.{i}.{name}", F32, shape))
        scores = self.node("MatMul", [self.node("Mul", [q, self.constant(case.scale, np.float32)]),
                                      self.node("Transpose", [k], perm=[0, 1, 3, 2])])
        a = self.node("MatMul", [self.node("Softmax", [scores], axis=-1), v])
        return self.reshape(a, 1, case.channels)

    def model(self) -> onnx.ModelProto:
        case = self.case
        self.inputs.append(helper.make_tensor_value_info("ids", I64, (self.tokens,)))
        positions = self.node("Slice", [self.weight("wpe.weight"), self.constant([self.past]),
                                        self.constant([self.past + self.tokens]), self.constant([0])])
        x = self.node("Add", [self.node("Gather", [self.weight("wte.weight"), "ids"]), positions])
        for i in range(case.layers):
            h = f"h.{i}"
            n = self.norm(x, h + ".ln_1")
            if i in self.without_past:
                a, x = self.last_attention(i, n), self.last_row(x)
            else:
                a = self.attention(i, self.linear(n, h + ".attn.c_attn"))
            x = self.node("Add", [x, self.linear(a, h + ".attn.c_proj")])
            m = self.node("Gelu", [self.linear(self.norm(x, h + ".ln_2"), h + ".mlp.c_fc")], approximate="tanh")
            x = self.node("Add", [x, self.linear(m, h + ".mlp.c_proj")])
        self.nodes.append(helper.make_node("Gemm", [self.norm(x, "ln_f"), self.weight("wte.weight")], ["logits"], transB=1))
        self.outputs.append(helper.make_tensor_value_info("logits", F32, (self.rows_out, case.vocab)))
        graph = helper.make_graph(self.nodes, "gpt2", self.inputs, self.outputs, list(self.initializers.values()))
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
