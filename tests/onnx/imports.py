#!/usr/bin/env python3
"""imports.py TESSERA: imports ONNX files of dense layers, and compares Tessera's answers with onnxruntime's.

Each imported job starts from the file's weights and is saved before its first step. A value may differ by 1e-5 of the
largest one. The module `tessera` must be found (PYTHONPATH, TESSERA_LIBRARY), and onnx and onnxruntime of PyPI.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxruntime
import tessera

SAMPLES = 40
TOLERANCE = 1e-5
SHORT = ["data.samples=256", "data.test_samples=64", "data.batch=64"]


def run(*command, status=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != status:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class File:
    """An ONNX file in the making: its methods add a node and return the name of its output."""

    def __init__(self, **inputs):
        self.rng = np.random.default_rng(7)
        self.nodes, self.constants, self.outputs = [], [], []
        self.inputs = inputs

    def constant(self, value, name="", dtype=np.float32):
        name = name or f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def random(self, *shape, name=""):
        return self.constant(self.rng.normal(size=shape) * 0.5, name)

    def node(self, op, *inputs, outputs=1, **attributes):
        names = [f"{op}_{len(self.nodes)}" + (f"_{k}" if k else "") for k in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def gemm(self, x, inside, outside, name):
        return self.node("Gemm", x, self.random(outside, inside, name=f"{name}.weight"),
                         self.random(outside, name=f"{name}.bias"), transB=1)  # fmt: skip

    def output(self, value, name, flat=False):
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"output {name}"))
        shape = ["batch"] if flat else ["batch", None]
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def save(self, path, opset=20, check=True, **more):
        shapes = {name: width if isinstance(width, tuple) else (width,) for name, width in self.inputs.items()}
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
                  for name, shape in shapes.items()]  # fmt: skip
        graph = helper.make_graph(self.nodes, "dense", inputs, self.outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        if check:
            onnx.checker.check_model(model, full_check=True)
        onnx.save(model, str(path), **more)


def mlps(folder):
    """Two chains of linear layers, with and without biases, and a sigmoid at the end."""
    f = File(dense=6, user=8, item=4)
    x = f.node("Concat", "dense", "user", "item", axis=1)
    x = f.node("Relu", f.gemm(x, 18, 16, "deep.0"))
    x = f.node("Relu", f.gemm(x, 16, 8, "deep.2"))
    wide = f.node("MatMul", "dense", f.random(6, 8, name="wide.weight"))
    wide = f.node("Tanh", f.node("Add", wide, f.random(8)))
    x = f.node("Concat", x, wide, axis=-1)
    score = f.node("Sigmoid", f.gemm(x, 16, 1, "top"))
    f.output(f.node("Squeeze", score, f.constant([-1], dtype=np.int64)), "click", True)
    f.save(folder / "mlps.onnx", save_as_external_data=True, location="mlps.data", size_threshold=64)
    return ["deep (mlp), wide (mlp), top (linear)", "heads: click (binary_cross_entropy)"]


def activations(folder):
    """Every activation, by its operator or by its formula, each with a linear layer of its own."""
    f = File(x=12)
    outs = []
    for k, (op, more) in enumerate(
        [("Relu", {}), ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.2}), ("Sigmoid", {}), ("Tanh", {}), ("Elu", {}),
         ("Selu", {}), ("Softplus", {}), ("Mish", {}), ("Gelu", {}), ("HardSigmoid", {}), ("Softmax", {"axis": -1})]
    ):  # fmt: skip
        outs.append(f.node(op, f.gemm("x", 12, 3, f"act{k}"), **more))
    outs.append(f.node("PRelu", f.gemm("x", 12, 3, "prelu"), f.constant([0.3])))
    outs.append(f.node("Clip", f.gemm("x", 12, 3, "clip"), f.constant(0), f.constant(0.6)))
    y = f.gemm("x", 12, 3, "silu")
    outs.append(f.node("Mul", y, f.node("Sigmoid", y)))
    y = f.gemm("x", 12, 3, "mish")
    outs.append(f.node("Mul", f.node("Tanh", f.node("Softplus", y)), y))
    for half_first in (True, False):
        y = f.gemm("x", 12, 3, f"gelu{half_first}")
        one = f.node("Add", f.node("Erf", f.node("Div", y, f.constant(np.sqrt(2)))), f.constant(1))
        half = f.constant(0.5)
        outs.append(f.node("Mul", f.node("Mul", y, half), one) if half_first
                    else f.node("Mul", f.node("Mul", y, one), half))  # fmt: skip
    x = f.node("Concat", *outs, axis=1)
    f.output(f.gemm(x, 3 * len(outs), 1, "top"), "y")
    f.save(folder / "activations.onnx")
    return ["geluTrue (mlp), geluFalse (mlp), top (linear)", "leaky_relu_2 (activation)", "heads: y (mse)",
            "import it with --logits"]  # fmt: skip


def arithmetic(folder):
    """Sums, products, constants, norms, crosses and ranges of columns."""
    f = File(dense=5, a=8, b=8)
    standard = f.node("Div", f.node("Sub", "dense", f.random(5)), f.constant([1, 2, 3, 4, 5]))
    n = f.gemm(standard, 5, 8, "numbers")
    n = f.node("BatchNormalization", n, f.random(8), f.random(8), f.random(8),
               f.constant(1 + f.rng.random(8)))  # fmt: skip
    cross = f.node("Add", f.node("Mul", "a", f.gemm("b", 8, 8, "cross")), "a")
    left = f.node("Slice", "a", f.constant([2], dtype=np.int64), f.constant([6], dtype=np.int64),
                  f.constant([1], dtype=np.int64))  # fmt: skip
    s1, s2 = f.node("Split", "b", f.constant([3, 5], dtype=np.int64), outputs=2, axis=1)
    column = f.node("Gather", n, f.constant(2, dtype=np.int64), axis=1)
    column = f.node("Unsqueeze", column, f.constant([1], dtype=np.int64))
    dot = f.node("ReduceSum", f.node("Mul", "a", "b"), f.constant([1], dtype=np.int64), keepdims=1)
    mean = f.node("ReduceMean", "a", f.constant([-1], dtype=np.int64), keepdims=1)
    norm = f.node("Max", f.node("ReduceL2", "a", f.constant([1], dtype=np.int64)), f.constant(1e-6))
    unit = f.node("Div", "a", norm)
    layer_norm = f.node("LayerNormalization", cross, f.random(8), f.random(8), axis=-1)
    gated = f.node("Mul", f.node("Sigmoid", column), layer_norm)
    less = f.node("Sub", f.constant(1), f.node("Sub", "a", "b"))
    square = f.node("Pow", less, f.constant(2))
    scaled = f.node("Mul", square, f.random(8))
    shape = f.node("Shape", unit)
    batch = f.node("Gather", shape, f.constant([0], dtype=np.int64))
    unit = f.node("Reshape", unit, f.node("Concat", batch, f.constant([8], dtype=np.int64), axis=0))
    batch = f.node("Shape", "b", start=0, end=1)  # as torch.onnx writes functional.normalize
    length = f.node("Clip", f.node("ReduceL2", "b", f.constant([-1], dtype=np.int64)), f.constant(1e-12), "")
    other = f.node("Expand", length, f.node("Concat", batch, f.constant([8], dtype=np.int64), axis=0))
    other = f.node("Div", "b", other)
    parts = [n, left, s1, s2, column, dot, mean, unit, layer_norm, gated, f.node("Neg", less), scaled, other]
    x = f.node("Concat", *parts, axis=1)
    width = 8 + 4 + 3 + 5 + 1 + 1 + 1 + 8 + 8 + 8 + 8 + 8 + 8
    f.output(f.node("Flatten", f.gemm(x, width, 1, "top")), "score")
    f.output(f.node("Softmax", f.gemm(x, width, 3, "classes"), axis=1), "class")
    f.output(f.node("Sigmoid", f.gemm(x, width, 2, "tasks")), "task")
    f.save(folder / "arithmetic.onnx")
    return ["class_logits (softmax_cross_entropy)", "task_0 (binary_cross_entropy)", "task_1 (binary_cross_entropy)"]


def matrices(folder):
    """Stacked vectors: their dot products in two orders, a factorization machine, and experts that gates weigh."""
    f = File(dense=6, a=6, b=6, c=6)

    def stacked(*rows):
        return f.node("Concat", *[f.node("Unsqueeze", one, f.constant([1], dtype=np.int64)) for one in rows], axis=1)

    all_rows = stacked("dense", "a", "b", "c")
    dots = f.node("MatMul", all_rows, f.node("Transpose", all_rows, perm=[0, 2, 1]))
    lower = [(i, j) for i in range(4) for j in range(i)]
    chosen = f.node("GatherND", f.node("Transpose", dots, perm=[1, 2, 0]), f.constant(lower, dtype=np.int64))
    lower = f.node("Transpose", chosen, perm=[1, 0])
    flat = f.node("Reshape", dots, f.constant([0, 16], dtype=np.int64))
    upper = f.node("Gather", flat, f.constant([1, 2, 3, 6, 7, 11], dtype=np.int64), axis=1)
    side = f.node("Concat", "a", "b", "c", axis=1)
    rows = f.node("Reshape", side, f.constant([-1, 3, 6], dtype=np.int64))
    one = f.constant([1], dtype=np.int64)
    square = f.node("Pow", f.node("ReduceSum", rows, one, keepdims=0), f.constant(2))
    squares = f.node("ReduceSum", f.node("Pow", rows, f.constant(2)), one, keepdims=0)
    fm = f.node("ReduceSum", f.node("Sub", square, squares), f.constant([-1], dtype=np.int64))
    experts = stacked(*[f.node("Relu", f.gemm(side, 18, 4, f"expert{k}")) for k in range(3)])
    gates = f.node("Unsqueeze", f.node("Softmax", f.gemm(side, 18, 3, "gate")), f.constant([-1], dtype=np.int64))
    mixed = f.node("ReduceSum", f.node("Mul", gates, experts), one, keepdims=0)
    mean = f.node("ReduceMean", rows, one, keepdims=0)
    x = f.node("Concat", "dense", lower, upper, fm, mixed, mean, axis=1)
    f.output(f.node("Sigmoid", f.gemm(x, 6 + 6 + 6 + 1 + 4 + 6, 1, "top")), "click")
    f.save(folder / "matrices.onnx")
    return ["dot_interaction (dot_interaction)", "mixture (mixture)", "expert0 (mlp)"]


def attention(f, x, width, heads, scale="scores"):
    """Self-attention of rows [batch, rows, width], in heads, or without a dimension of heads if there is one."""
    q, k, v = (f.node("MatMul", x, f.random(width, width)) for _ in range(3))
    q = f.node("Add", q, f.random(width))
    turned = [0, 2, 1]
    if heads > 1:
        shape = f.constant([0, 0, heads, width // heads], dtype=np.int64)
        q, k, v = (f.node("Transpose", f.node("Reshape", one, shape), perm=[0, 2, 1, 3]) for one in (q, k, v))
        turned = [0, 1, 3, 2]
    k = f.node("Transpose", k, perm=turned)
    factor = (width // heads) ** -0.5
    if scale == "inputs":  # as torch.onnx writes scaled_dot_product_attention
        q, k = (f.node("Mul", one, f.constant(factor**0.5)) for one in (q, k))
    scores = f.node("MatMul", q, k)
    if scale == "scores":
        scores = f.node("Div", scores, f.constant(1 / factor))
    out = f.node("MatMul", f.node("Softmax", scores, axis=-1), v)
    if heads == 1:
        return out
    out = f.node("Transpose", out, perm=[0, 2, 1, 3])
    return f.node("Reshape", out, f.constant([0, 0, width], dtype=np.int64))


def multihead(f, x, width, heads):
    """torch.nn.MultiheadAttention, as torch.onnx writes it: the length first, and heads as a part of the batch."""
    def integers(*values):
        return f.constant(values, dtype=np.int64)

    sizes = f.node("Shape", x)
    batch, length = (f.node("Slice", sizes, integers(k), integers(k + 1)) for k in (0, 1))
    y = f.node("MatMul", f.node("Transpose", x, perm=[1, 0, 2]), f.random(width, 3 * width))
    y = f.node("Add", y, f.random(3 * width))
    y = f.node("Reshape", y, f.node("Concat", length, batch, integers(3, width), axis=0))
    y = f.node("Transpose", f.node("Unsqueeze", y, integers(0)), perm=[3, 1, 2, 0, 4])
    y = f.node("Squeeze", y, integers(-2))
    many = f.node("Mul", batch, integers(heads))
    merged = f.node("Concat", length, many, integers(width // heads), axis=0)
    apart = f.node("Concat", batch, integers(heads), length, integers(width // heads), axis=0)
    q, k, v = (f.node("Gather", y, f.constant(part, dtype=np.int64), axis=0) for part in range(3))
    q, k, v = (f.node("Transpose", f.node("Reshape", one, merged), perm=[1, 0, 2]) for one in (q, k, v))
    q, k, v = (f.node("Reshape", one, apart) for one in (q, k, v))
    rest = f.node("Slice", f.node("Shape", k), integers(2), integers(4))
    k = f.node("Reshape", k, f.node("Concat", integers(-1), rest, axis=0))
    k = f.node("Transpose", k, perm=[0, 2, 1])
    k = f.node("Reshape", k, f.node("Concat", batch, integers(heads, width // heads), length, axis=0))
    weights = f.node("Softmax", f.node("MatMul", f.node("Mul", q, f.constant([0.5])), k), axis=-1)
    y = f.node("Transpose", f.node("MatMul", weights, v), perm=[2, 0, 1, 3])
    y = f.gemm(f.node("Reshape", y, integers(-1, width)), width, width, "out")
    y = f.node("Reshape", y, f.node("Concat", length, batch, integers(width), axis=0))
    return f.node("Transpose", y, perm=[1, 0, 2])


def sequences(folder):
    """A transformer's block over rows of any number, a row of the sample added to each, and every way to one row."""
    f = File(dense=4, history=("length", 8), other=("length", 8))
    one = f.constant([1], dtype=np.int64)
    user = f.node("Unsqueeze", f.gemm("dense", 4, 8, "user"), one)
    x = f.node("Add", "history", user)
    x = f.node("Add", x, attention(f, x, 8, 2, "inputs"))
    x = f.node("LayerNormalization", x, f.random(8), f.random(8), axis=-1)
    x = f.node("Add", x, multihead(f, x, 8, 4))
    hidden = f.node("Relu", f.node("Add", f.node("MatMul", x, f.random(8, 16)), f.random(16)))
    x = f.node("Add", x, f.node("MatMul", hidden, f.random(16, 8)))
    y = attention(f, f.node("Tanh", "other"), 8, 1)
    sizes = f.node("Shape", y)
    length = f.node("Slice", sizes, f.constant([0], dtype=np.int64), f.constant([2], dtype=np.int64))
    y = f.node("Reshape", y, f.node("Concat", length, f.constant([4, 2], dtype=np.int64), axis=0))
    y = f.node("Reshape", y, f.node("Concat", length, f.constant([-1], dtype=np.int64), axis=0))
    gate = f.node("Sigmoid", f.node("MatMul", y, f.random(8, 1)))
    y = f.node("Mul", gate, y)
    last = f.node("Gather", x, f.constant(-1, dtype=np.int64), axis=1)
    newest = f.node("Slice", y, f.constant([-1], dtype=np.int64), f.constant([2**62], dtype=np.int64), one)
    parts = [last, f.node("Squeeze", newest, one), f.node("ReduceMean", x, one, keepdims=0)]
    parts += [f.node("ReduceSum", y, one, keepdims=0), f.node("ReduceMax", y, one, keepdims=0)]
    f.output(f.node("Sigmoid", f.gemm(f.node("Concat", *parts, axis=1), 40, 1, "top")), "click")
    f.save(folder / "sequences.onnx")
    return ["history (sequence, table history, 8 values)", "attention (attention)", "add (add)", "last_row (last_row)",
            "max_pooling (max_pooling)"]  # fmt: skip


def target(folder):
    """DIN's attention: an item beside each row of a history, by Expand and by a product of [batch, 1, width]."""
    f = File(item=6, history=("length", 6))
    one = f.constant([1], dtype=np.int64)
    item = f.node("Unsqueeze", "item", one)
    length = f.node("Shape", "history", start=1, end=2)
    q = f.node("Expand", item, f.node("Concat", one, length, one, axis=0))
    parts = [q, "history", f.node("Sub", q, "history"), f.node("Mul", item, "history")]
    x = f.node("Add", f.node("MatMul", f.node("Concat", *parts, axis=-1), f.random(24, 8)), f.random(8))
    weights = f.node("Sigmoid", f.node("MatMul", f.node("Relu", x), f.random(8, 1)))
    interest = f.node("ReduceSum", f.node("Mul", weights, "history"), one, keepdims=0)
    f.output(f.node("Sigmoid", f.gemm(f.node("Concat", "item", interest, axis=1), 12, 1, "top")), "click")
    f.save(folder / "target.onnx")
    return ["item (table item, 6 values), history (sequence, table history, 6 values)", "sum_pooling (sum_pooling)"]


def fields(folder):
    """Vectors of features as [batch, fields, width]: AutoInt's attention, squeeze and excitation, and a product."""
    f = File(dense=4, fields=(5, 6))
    x = f.node("Add", "fields", f.random(5, 6))
    x = f.node("Relu", f.node("Add", attention(f, x, 6, 3), f.node("MatMul", "fields", f.random(6, 6))))
    flat = f.node("Reshape", x, f.constant([0, 30], dtype=np.int64))
    squeezed = f.node("ReduceMean", "fields", f.constant([-1], dtype=np.int64), keepdims=0)
    weights = f.node("Unsqueeze", f.node("Relu", f.gemm(squeezed, 5, 5, "excite")), f.constant([2], dtype=np.int64))
    excited = f.node("Flatten", f.node("Mul", "fields", weights), axis=1)
    compressed = f.node("MatMul", f.random(2, 5, name="compress"), "fields")
    products = f.node("MatMul", "fields", f.node("Transpose", compressed, perm=[0, 2, 1]))
    products = f.node("Reshape", products, f.constant([0, 10], dtype=np.int64))
    left = f.node("Gather", "fields", f.constant([0, 0, 1], dtype=np.int64), axis=1)
    right = f.node("Gather", "fields", f.constant([1, 2, -1], dtype=np.int64), axis=1)
    pairs = f.node("Reshape", f.node("Mul", left, right), f.constant([-1, 18], dtype=np.int64))
    second = f.node("Gather", x, f.constant(1, dtype=np.int64), axis=1)
    parts = ["dense", flat, excited, products, pairs, second]
    f.output(f.node("Sigmoid", f.gemm(f.node("Concat", *parts, axis=1), 4 + 30 + 30 + 10 + 18 + 6, 1, "top")), "click")
    f.save(folder / "fields.onnx")
    return ["fields (tables fields_0 to fields_4, 6 values each)", "attention (attention)",
            "field_linear (field_linear)", "field_scale (field_scale)", "field_sum (field_sum)"]  # fmt: skip


def conditional(folder):
    """ESMM, as torch writes it: the product of two probabilities."""
    f = File(dense=4)
    click, buy = (f.node("Sigmoid", f.gemm("dense", 4, 1, name)) for name in ("click_logit", "buy_logit"))
    f.output(click, "click")
    f.output(f.node("Mul", click, buy), "both")
    f.save(folder / "conditional.onnx")
    return ["both (logit_product)", "both (binary_cross_entropy)"]


def rows_of(program, checkpoint, tables, folder):
    out = {}
    for name in tables:
        file = folder / f"{name}.npy"
        run(program, "model", "export", checkpoint, "--vectors", name, "--output", file, "--overwrite")
        out[name] = np.load(file)
    return out


def request(program, model, checkpoint, session, folder):
    """Random ids as Tessera takes them, and their rows as the file's inputs. Sequences have the same length here."""
    rng = np.random.default_rng(3)
    dense = rng.normal(size=(SAMPLES, model.dense_inputs)).astype(np.float32)
    inputs, ours, features = {}, {}, iter(model.features.items())
    for given in session.get_inputs():
        name, shape = given.name, given.shape
        if name in ("dense", "x") and len(shape) == 2:
            inputs[name] = dense
            continue
        several = len(shape) == 3 and not isinstance(shape[1], str)
        parts = []
        for table in [f"{name}_{k}" for k in range(shape[1])] if several else [name]:
            length = 4 if len(shape) == 3 and not several else 1
            feature, many = next(features)
            ids = rng.integers(0, many, SAMPLES * length)
            ours[feature] = (ids.astype(np.int64), np.full(SAMPLES, length, np.int32))
            parts.append(rows_of(program, checkpoint, [table], folder)[table][ids].reshape(SAMPLES, length, -1))
        rows = np.concatenate(parts, 1)
        inputs[name] = rows if len(shape) == 3 else rows[:, 0]
    for feature, _ in features:  # of a table that no layer takes
        ours[feature] = (np.zeros(SAMPLES, np.int64), np.ones(SAMPLES, np.int32))
    return inputs, ours, dense


def check(program, folder, make):
    name = make.__name__
    expected = make(folder)
    job = folder / f"{name} job"
    said = " ".join(run(program, "model", "import", "--onnx", folder / f"{name}.onnx", "--save", job).split())
    for text in expected:
        if text not in said:
            raise SystemExit(f"{name}: {text!r} is missing in\n{said}")
    changes = [word for change in SHORT for word in ("--set", change)]
    checkpoint = folder / f"{name} checkpoint"
    train = [program, "train", "--config", job / "job.toml", "--start", job / "dense.safetensors", *changes]
    said = run(*train, "--save", checkpoint, "--max-steps", 0)
    if "parameter" in said.replace("parameters from", ""):
        raise SystemExit(f"{name}: a parameter is not taken\n{said}")
    trained = run(*train)
    if "nan" in trained.lower():
        raise SystemExit(f"{name}: training ends in nan\n{trained}")
    model = tessera.load_model(checkpoint)
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
    inputs, ours, dense = request(program, model, checkpoint, session, folder)
    theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
    answers = model.predict(ours, dense if model.dense_inputs else None)
    worst = 0.0
    for output, values in theirs.items():
        values = values.reshape(SAMPLES, -1)
        got = answers[output] if output in answers else np.stack(
            [answers[f"{output}_{k}"].reshape(SAMPLES) for k in range(values.shape[1])], 1)  # fmt: skip
        if np.ptp(values) < 1e-3:
            raise SystemExit(f"{name}: all values of {output} are equal, so nothing is compared")
        worst = max(worst, float(np.abs(got.reshape(values.shape) - values).max() / max(1, np.abs(values).max())))
    print(f"{name}: {', '.join(theirs)}, at most {worst:.1e} apart", flush=True)
    if not worst <= TOLERANCE:
        raise SystemExit(f"{name}: values are {worst:.1e} apart, which is more than {TOLERANCE}")


def refusals(program, folder):
    def refused(sentence, path, *more):
        said = run(program, "model", "import", "--onnx", path, "--save", folder / "no", *more, status=2)
        said = " ".join(said.split())
        if sentence not in said or (folder / "no").exists():
            raise SystemExit(f"{sentence!r} is not what was said:\n{said}")

    f = File(x=4)
    f.output(f.node("HardSwish", f.gemm("x", 4, 4, "first")), "y")
    f.save(folder / "operator.onnx")
    sentence = 'the operator HardSwish of node "HardSwish_1" (inputs "Gemm_0") has no counterpart'
    refused(sentence, folder / "operator.onnx")
    f = File(x=4)
    f.output(f.node("Mul", f.node("Relu", "x"), f.random(4)), "y")
    f.save(folder / "constants.onnx")
    refused('the operator Mul of node "Mul_1"', folder / "constants.onnx")
    f = File(x=4)
    f.output(f.node("Erf", f.node("Mul", "x", f.constant(np.sqrt(0.5)))), "y")
    f.save(folder / "erf.onnx")
    refused('the operator Erf of node "Erf_1"', folder / "erf.onnx")
    f = File(x="wide")
    f.output(f.node("Relu", "x"), "y")
    f.save(folder / "width.onnx")
    refused('the width of the input "x" must be a number and is "wide"', folder / "width.onnx")
    f = File(x=4)
    x = "x"
    for _ in range(60):
        x = f.node("Concat", x, x, axis=1)
    f.output(x, "y")
    f.save(folder / "doubled.onnx", check=False)
    refused("makes more than 1048576 values of a sample", folder / "doubled.onnx")
    f = File(x=4)
    f.output(f.node("Relu", "x"), "y")
    f.save(folder / "good.onnx")
    for kind, shape, sentence in (
        (TensorProto.INT64, ["batch", 4], 'must be float32 and is INT64, which the operator Relu of node "Relu_0"'),
        (TensorProto.FLOAT, ["batch", "a", "b", 4],
         '[batch, length, width] and is [batch, a, b, 4], which the operator Relu of node "Relu_0" (inputs "x") takes'),
        (TensorProto.FLOAT, ["batch", 300, 4], 'has 300 vectors of a sample: 1 to 256 become tables'),
        (TensorProto.FLOAT, ["batch", 3, 4], 'the output "y" must be [batch, width] and is a sequence'),
        (TensorProto.FLOAT, ["batch", "rows", 4], 'the output "y" must be [batch, width] and is a sequence'),
    ):  # fmt: skip
        model = onnx.load(folder / "good.onnx")
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", kind, shape))
        onnx.save(model, folder / "rank.onnx")
        refused(sentence, folder / "rank.onnx")
    refused("--dense x: this input has several rows", folder / "rank.onnx", "--dense", "x")
    refused("--dense z: the file has no such input", folder / "good.onnx", "--dense", "z")
    for op, more, sentence in (
        ("Flatten", (), "joins the rows of a sequence, and their number differs"),
        ("Gather", (0,), "of a sequence only the last row can be chosen, by -1"),
        ("Add", ([[1.0], [2]],), 'the operator Add of node "Add_0"'),
        ("MatMul", ("x",), "cannot become a layer with these shapes of a sequence"),
        ("CumSum", (1,), 'the operator CumSum of node "CumSum_0"'),
    ):
        f = File(x=("length", 4))
        others = [one if one == "x" else f.constant(one, dtype=np.float32 if op == "Add" else np.int64) for one in more]
        f.output(f.node(op, "x", *others, **({"axis": 1} if op == "Gather" else {})), "y")
        f.save(folder / "sequence.onnx", check=False)
        refused(sentence, folder / "sequence.onnx")
    (folder / "text.onnx").write_text("this is no file of ONNX")
    refused("is no ONNX file", folder / "text.onnx")
    print("refusals: 18 sentences")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for make in (mlps, activations, arithmetic, matrices, sequences, target, fields, conditional):
            check(sys.argv[1], folder, make)
        refusals(sys.argv[1], folder)


if __name__ == "__main__":
    main()
