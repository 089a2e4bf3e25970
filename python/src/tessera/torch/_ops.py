"""Lookups as operators of PyTorch, ``torch.ops.tessera``: torch.compile, torch.export and torch.jit.trace keep them
unchanged. Each operator names its collection, which must exist in the process that runs it."""

from __future__ import annotations

import functools
import itertools
import weakref
from typing import Any, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from . import _lookups
from ._keyed import KeyedTensor
from ._sparse import KeyedJaggedTensor

# The batch of every operator: a KeyedJaggedTensor, and the collection that looks it up. dense: parameters that get a
# gradient. rows: all tables' rows as the graph has them, which shows whether the graph has changed them. Keys are lines
# of one text, because torch.jit has no lists of texts.
_BATCH = (
    "Tensor values, Tensor lengths, Tensor? weights, Tensor? inverse, Tensor[] dense, Tensor[] rows, str collection, "
    "str keys, SymInt[]? strides, SymInt samples"
)
_SCHEMAS = (
    f"pooled(Tensor? asked, {_BATCH}, int width, bool learns) -> (Tensor, Tensor)",
    f"pooled_backward(Tensor grad, Tensor step, {_BATCH}, bool of_weights) -> Tensor[]",
    f"sequences(Tensor? asked, {_BATCH}, SymInt[] counts, int[] dims, bool learns) -> Tensor[]",
    f"sequences_backward(Tensor[] grads, Tensor step, {_BATCH}) -> Tensor[]",
)


class _Step(np.ndarray):
    """The number of a lookup, as an array of one value that a graph passes to its backward. It owns the lookup, which
    lives as long as a tensor over this array."""

    work: Any


class _Known:
    """The collections of this process by name, the lookups that wait for their backward, and the operators."""

    def __init__(self) -> None:
        self.collections: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.steps: weakref.WeakValueDictionary[int, _Step] = weakref.WeakValueDictionary()
        self.numbers = itertools.count(1)
        self.library = torch.library.Library("tessera", "DEF")


@functools.lru_cache(maxsize=None)
def _known() -> _Known:
    return _Known()


def name_of(module: Any, tables: List[str]) -> str:
    """Registers a collection and returns its name: its tables, and a number if another collection has the same
    tables."""
    name = ",".join(tables)
    names = itertools.chain([name], (f"{name}#{i}" for i in itertools.count(2)))
    free = next(n for n in names if _known().collections.get(n) in (None, module))
    _known().collections[free] = module
    return free


def wanted() -> bool:
    """True if this call is compiled, exported or traced."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


# ---- calls of the operators


def pooled(module: Any, features: Any) -> KeyedTensor:
    """Looks up pooled rows by the operator."""
    learns, asked, dense = module.asked_of_graph()
    rows, _ = torch.ops.tessera.pooled(asked, *_parts(module, features, dense), sum(module._dims), learns)
    return KeyedTensor(list(module._names), list(module._dims), module._given(rows))


def sequences(module: Any, features: Any) -> List[Tensor]:
    """Looks up rows by the operator that does not pool. Returns the rows of each output."""
    learns, asked, dense = module.asked_of_graph()
    of_key = dict(zip(features.keys(), features.length_per_key()))
    counts = [of_key[name.split("@")[0]] for name in module._names]
    parts = _parts(module, features, dense)
    out = torch.ops.tessera.sequences(asked, *parts, counts, list(module._dims), learns)
    return [module._given(rows) for rows in out[1:]]


def _parts(module: Any, features: Any, dense: List[Tensor]) -> Tuple[Any, ...]:
    strides = features.stride_per_key() if features.variable_stride_per_key() else None
    both = features.inverse_indices_or_none() if strides else None
    inverse = None if both is None else both[1][[both[0].index(key) for key in features.keys()]]
    lengths = features.lengths().reshape(-1)
    return (features.values(), lengths, features.weights_or_none(), inverse, dense, module.rows_in_graph(),
            module._op_name, "\n".join(features.keys()), strides, features.stride())  # fmt: skip


# ---- implementations of the operators


def _batch(batch: Tuple[Any, ...]) -> Tuple[Any, KeyedJaggedTensor]:
    values, lengths, weights, inverse, _, rows, name, keys, strides, samples = batch
    module = _known().collections.get(name)
    if module is None:
        raise RuntimeError(
            f"this graph looks rows up in the collection of the tables {name.split('#')[0]}, which is not in this "
            "process: make the model and load its tables before you run the graph"
        )
    if rows:
        module.check_rows(rows)
    keys = keys.split("\n") if keys else []
    both = None if inverse is None else (keys, inverse)
    return module, KeyedJaggedTensor(keys, values, weights, lengths, stride=samples,
                                     stride_per_key=strides, inverse_indices=both)  # fmt: skip


def _work(batch: Tuple[Any, ...]) -> _lookups.Work:
    module, features = _batch(batch)
    weighted, bags = module._is_weighted, module.kind == "bags"
    arguments = _lookups.batch_arguments(features, module.core.features, weighted, bags)
    return _lookups.Work(module, arguments, features)


def _looked_up(batch: Tuple[Any, ...], learns: bool) -> Tuple[Any, Tensor]:
    if learns:
        work = _work(batch)
        return work.forward(), _kept(work)
    module, features = _batch(batch)
    return module.rows_of(features), torch.zeros(1, dtype=torch.int64)


def _kept(work: _lookups.Work) -> Tensor:
    step = np.array([next(_known().numbers)]).view(_Step)
    step.work = work
    _known().steps[int(step[0])] = step
    return torch.from_numpy(step)


def _work_of(step: Tensor, batch: Tuple[Any, ...]) -> _lookups.Work:
    """Returns the lookup of a backward. Makes it again if the graph has kept only a copy of its number."""
    kept = _known().steps.pop(int(step), None)
    if kept is not None:
        return kept.work
    work = _work(batch)
    work.forward()
    return work


def _pooled(asked: Optional[Tensor], *rest: Any) -> Tuple[Tensor, Tensor]:
    *batch, _, learns = rest
    rows, step = _looked_up(tuple(batch), learns)
    return torch.from_numpy(rows), step


def _pooled_backward(grad: Tensor, step: Tensor, *rest: Any) -> List[Tensor]:
    *batch, of_weights = rest
    work = _work_of(step, tuple(batch))
    weights, dense = _lookups.pooled_backward(work, grad, of_weights)
    return [grad.new_zeros(()), grad.new_zeros(0) if weights is None else weights, *_tensors(dense, batch[4])]


def _tensors(gradients: List[Optional[Tensor]], of: List[Tensor]) -> List[Tensor]:
    return [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, of)]


def _sequences(asked: Optional[Tensor], *rest: Any) -> List[Tensor]:
    *batch, _, _, learns = rest
    rows, step = _looked_up(tuple(batch), learns)
    return [step, *(torch.from_numpy(one) for one in rows.values())]


def _sequences_backward(grads: List[Tensor], step: Tensor, *batch: Any) -> List[Tensor]:
    work = _work_of(step, batch)
    dense = _lookups.sequences_backward(work, work.module._names, grads)
    return [torch.zeros((), dtype=torch.float32), *_tensors(dense, batch[4])]


# ---- shapes, and gradients


def _shape_of_pooled(asked: Any, values: Tensor, *rest: Any) -> Tuple[Tensor, Tensor]:
    samples, width = rest[-3:-1]
    rows = values.new_empty((samples, width), dtype=torch.float32)
    return rows, values.new_empty(1, dtype=torch.int64)


def _shape_of_pooled_backward(grad: Tensor, step: Tensor, values: Tensor, *rest: Any) -> List[Tensor]:
    weights = torch.empty_like(values if rest[-1] else values[:0], dtype=torch.float32)
    return [grad.new_empty(()), weights, *(torch.empty_like(p) for p in rest[3])]


def _shape_of_sequences(asked: Any, values: Tensor, *rest: Any) -> List[Tensor]:
    counts, dims = rest[-3:-1]
    rows = [values.new_empty((count, dim), dtype=torch.float32) for count, dim in zip(counts, dims)]
    return [values.new_empty(1, dtype=torch.int64), *rows]


def _shape_of_sequences_backward(grads: List[Tensor], step: Tensor, values: Tensor, *rest: Any) -> List[Tensor]:
    return [values.new_empty((), dtype=torch.float32), *(torch.empty_like(p) for p in rest[3])]


def _keep(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    asked, values, lengths, weights, inverse, dense, rows, *rest = inputs
    ctx.asked = asked is not None
    ctx.of_weights = weights is not None and ctx.needs_input_grad[3]
    ctx.rest, ctx.dense, ctx.rows = rest, len(dense), len(rows)
    weights = None if weights is None else weights.detach()
    ctx.save_for_backward(output[0 if isinstance(output, list) else 1], values, lengths, weights, inverse, *dense)


def _gradients(ctx: Any, out: List[Tensor], weights: Optional[Tensor], left: int) -> Tuple[Any, ...]:
    dense = out[-ctx.dense :] if ctx.dense else []
    return (out[0] if ctx.asked else None, None, None, weights, None, dense, [None] * ctx.rows, *[None] * left)


def _backward_of_pooled(ctx: Any, grad: Tensor, _: Any) -> Tuple[Any, ...]:
    step, *four = ctx.saved_tensors[:5]
    batch = (*four, list(ctx.saved_tensors[5:]), [], *ctx.rest[:4])
    out = torch.ops.tessera.pooled_backward(grad, step, *batch, ctx.of_weights)
    return _gradients(ctx, out, out[1] if ctx.of_weights else None, 6)


def _backward_of_sequences(ctx: Any, grads: List[Tensor]) -> Tuple[Any, ...]:
    step, *four = ctx.saved_tensors[:5]
    batch = (*four, list(ctx.saved_tensors[5:]), [], *ctx.rest[:4])
    out = torch.ops.tessera.sequences_backward(grads[1:], step, *batch)
    return _gradients(ctx, out, None, 7)


@functools.lru_cache(maxsize=None)
def define_layer() -> None:
    """Defines the operator that represents a module in a graph until a layer replaces it. It computes nothing."""
    library = _known().library
    library.define("layer(Tensor[] inputs, str path, int width) -> Tensor")

    def shape(inputs: List[Tensor], path: str, width: int) -> Tensor:
        return inputs[0].new_empty((inputs[0].shape[0], width))

    torch.library.register_fake("tessera::layer", shape, lib=library)


def register() -> None:
    """Registers the operators. ``import tessera.torch`` calls it."""
    library = _known().library
    for schema in _SCHEMAS:
        library.define(schema)
    for name, does, shape, backward in (
        ("pooled", _pooled, _shape_of_pooled, _backward_of_pooled),
        ("pooled_backward", _pooled_backward, _shape_of_pooled_backward, None),
        ("sequences", _sequences, _shape_of_sequences, _backward_of_sequences),
        ("sequences_backward", _sequences_backward, _shape_of_sequences_backward, None),
    ):
        library.impl(name, does, "CompositeExplicitAutograd")
        torch.library.register_fake(f"tessera::{name}", shape, lib=library)
        if backward is not None:
            torch.library.register_autograd(f"tessera::{name}", backward, setup_context=_keep, lib=library)
        torch.fx.node.has_side_effect(getattr(torch.ops.tessera, name).default)  # graphs keep each call
