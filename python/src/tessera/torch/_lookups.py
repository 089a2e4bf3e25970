"""Lookups as autograd functions: their backward updates tables, or returns their gradients."""

from __future__ import annotations

import functools
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable as _once_differentiable

from .._collections import Collection
from . import _scaling


def array_of(tensor: Tensor) -> np.ndarray:
    """Returns a CPU tensor as a contiguous array, which the library takes."""
    if not tensor.is_cpu:
        raise ValueError(f"a tensor on {tensor.device} is not taken: bring it to the cpu")
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.numpy() if tensor.is_contiguous() else tensor.contiguous().numpy()


def gradient_of(tensor: Tensor) -> np.ndarray:
    """Returns a gradient as float32, without a GradScaler's factor."""
    scale = _scaling.current()
    return array_of(tensor.float() if scale == 1 else tensor.float() / scale)


_NARROW = frozenset((torch.int8, torch.int16, torch.uint8))  # types of ids that the library does not take


def batch_arguments(features: Any, known: List[str], is_weighted: bool, pooled: bool = True) -> Dict[str, Any]:
    """Returns the arguments for a lookup of a KeyedJaggedTensor, of this package or of TorchRec. known: the features
    of the collection."""
    keys, lengths, ids = features.keys(), features.lengths_or_none(), features.values()
    batch: Dict[str, Any] = {"values": array_of(ids.long() if ids.dtype in _NARROW else ids)}
    if keys != known:
        batch["keys"] = keys
    if lengths is not None:
        batch["lengths"] = array_of(lengths)
    else:
        batch["offsets"] = array_of(features.offsets())
    weights = features.weights_or_none()
    if weights is not None and (is_weighted or pooled):  # the library refuses unused weights
        batch["weights"] = array_of(weights.float())
    if features.variable_stride_per_key():
        strides, inverse = features.stride_per_key(), features.inverse_indices_or_none()
        if inverse is not None or not pooled or len(set(strides)) > 1:
            batch["strides"] = strides
        if inverse is not None:
            order = [inverse[0].index(key) for key in keys]
            batch["inverse"] = inverse[1][order]
    return batch


def without_ids(batch: Dict[str, Any], features: Any, known: List[str], left_out: List[str]) -> Dict[str, Any]:
    """Returns a copy of the batch in which the features ``left_out`` have no ids."""
    keys, lengths = batch.get("keys", known), features.lengths().reshape(-1)
    per_key = torch.split(lengths, features.stride_per_key())
    stays = torch.cat([torch.full_like(part, key not in left_out) for key, part in zip(keys, per_key)]).bool()
    of_ids = torch.repeat_interleave(stays, lengths)
    out = {**batch, "lengths": array_of(lengths * stays), "values": array_of(features.values()[of_ids])}
    out.pop("offsets", None)
    if "weights" in batch:
        out["weights"] = batch["weights"][of_ids.numpy()]
    return out


# Held from the update of tables until the gradients that it collected have been read.
_collecting = threading.Lock()


class Work:
    """One lookup, with the data that its backward needs.

    core, batch: the lookup. trains: tables are updated in backward. updates: the library's backward runs. kept: the
    batch without the ids of tables that are frozen, if there are any. dense: the parameters that get gradients.
    inputs: tensors that may be read again, with their versions."""

    __slots__ = ("core", "batch", "trains", "kept", "module", "step", "dense", "features", "updates", "inputs")

    def __init__(self, module: Any, batch: Dict[str, Any], features: Any) -> None:
        self.module, self.core, self.batch, self.features = module, module.core, batch, features
        trained = [parameter.requires_grad for parameter in module._fused]
        self.trains, self.kept, self.dense, self.step = any(trained), None, module.dense_weights(), None
        self.updates = self.trains or (module.collects_gradients and bool(self.dense))
        self.inputs: List[Tuple[Tensor, int]] = []
        self.remember(features.values(), features.weights_or_none(), features.lengths_or_none())
        _scaling.forget_failed()
        if self.updates:
            _refuse_plain_ddp(module, self.trains)
            frozen = [] if all(trained) else module.frozen_features()
            if frozen:
                self.kept = without_ids(batch, features, self.core.features, frozen)

    def remember(self, *tensors: Optional[Tensor]) -> None:
        """Notes the tensors that backward reads again, so that a program must not write to them before."""
        self.inputs += [(t, t._version) for t in tensors if t is not None and not t.is_inference()]

    def check_inputs(self) -> None:
        """Raises PyTorch's error if a program has written to these tensors since."""
        if any(tensor._version != version for tensor, version in self.inputs):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a "
                "batch's ids, weights or lengths, or a table's rows, were written after they were looked up; write to "
                "a copy, or call backward before"
            )

    def forward(self) -> Any:
        """Returns the rows: an array of pooled rows, or arrays by output."""
        if self.kept is not None:
            self.step = self.core._forward(**self.kept)
            return _only_rows(self.core, self.batch)
        if not self.updates:
            return _only_rows(self.core, self.batch)
        self.step = self.core._forward(**self.batch)
        return self.step.output if self.core.kind == "bags" else self.step.outputs

    def backward(self, grad: Any) -> List[Optional[Tensor]]:
        """Updates tables, and returns the gradients of ``dense``. grad: the gradient of the result of ``forward``."""
        if not self.module.collects_gradients:
            return self._backward(grad)
        with _collecting:
            return self._backward(grad)

    def skip(self) -> List[Optional[Tensor]]:
        """Leaves tables unchanged. The gradients of ``dense`` become infinite, so that a GradScaler skips the step."""
        self.step = None
        return [_infinite(parameter) for parameter in self.dense]

    def _backward(self, grad: Any) -> List[Optional[Tensor]]:
        if self.updates:
            if self.step is None:  # a second backward over a graph that was retained
                self.check_inputs()
                self.step = self.core._forward(**(self.batch if self.kept is None else self.kept))
            self.module.before_update()
            self.step.backward(grad)
            self.step = None
            self.module.after_update()
        if not self.dense:
            return []
        if self.module.collects_gradients:
            return [self.module.collected_gradient(p) for p in self.dense]
        self.check_inputs()
        by_table = dense_gradients(self.module, self.batch, self.features, grad)
        found = [by_table.get(self.module.table_name(p)) for p in self.dense]
        return [None if g is None else g.to(p.dtype) for g, p in zip(found, self.dense)]


def _infinite(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, float("inf"), requires_grad=False)


def _only_rows(core: Collection, batch: Dict[str, Any]) -> Any:
    return core.lookup(**batch) if core.kind == "bags" else core._forward(**batch).outputs


def _refuse_plain_ddp(module: Any, fused: bool) -> None:
    if not dist.is_available() or not dist.is_initialized():
        return
    ddp = torch.nn.parallel.DistributedDataParallel._get_active_ddp_module()
    if ddp is None or ddp.process_group.size() == 1:
        return
    if module.core._group.world_size == 1:
        if not fused:
            return
        raise RuntimeError(
            "these tables have an optimizer of their own, and DistributedDataParallel cannot reduce its updates, so "
            "that ranks would train different tables: use DistributedModelParallel, give adopt() a plan, or leave the "
            "optimizer out and let the model's own train the tables"
        )
    ignored = {id(p) for name, p in ddp.module.named_parameters() if name in ddp.parameters_to_ignore}
    if not all(id(p) in ignored for p in module.parameters()):
        raise RuntimeError(
            "DistributedDataParallel has overwritten the shards of these tables, because it was not told to ignore "
            "them: pass it the model that was sharded, or use DistributedModelParallel for all of it"
        )


def dense_gradients(module: Any, batch: Dict[str, Any], features: Any, grad: Any) -> Dict[str, Tensor]:
    """Returns the gradients of the tables of a collection on one rank, float32 [rows, dim]. Tables whose outputs have
    no gradient are left out."""
    core = module.core
    used = {config.name for config, _, name in module.outputs_in_order() if core.kind == "bags" or name in grad}
    out = {name: torch.zeros(shape, dtype=torch.float32) for name, shape in core.tables.items() if name in used}
    keys = batch.get("keys", core.features)
    strides = features.stride_per_key()
    lengths = dict(zip(keys, torch.split(features.lengths().reshape(-1).long(), strides)))
    counts = features.length_per_key()
    ids = dict(zip(keys, torch.split(features.values().long(), counts)))
    weights = torch.split(torch.from_numpy(batch["weights"]), counts) if "weights" in batch else [None] * len(keys)
    by_key, column = dict(zip(keys, weights)), 0
    for config, feature, name in module.outputs_in_order():
        if core.kind == "sequences":
            rows = grad.get(name)
            if rows is not None:
                out[config.name].index_add_(0, ids[feature], torch.from_numpy(rows))
            continue
        pooled = torch.from_numpy(grad)[:, column : column + config.embedding_dim]
        column += config.embedding_dim
        if "inverse" in batch:
            of_key = torch.as_tensor(batch["inverse"])[keys.index(feature)].long()
            pooled = pooled.new_zeros(len(lengths[feature]), config.embedding_dim).index_add_(0, of_key, pooled)
        if str(getattr(config.pooling, "value", config.pooling)) == "MEAN":
            pooled = pooled / lengths[feature].clamp(min=1)[:, None]
        rows = torch.repeat_interleave(pooled, lengths[feature], dim=0)
        if by_key[feature] is not None:
            rows = rows * by_key[feature][:, None]
        out[config.name].index_add_(0, ids[feature], rows)
    return out


def pooled_backward(work: Work, grad: Tensor, of_weights: bool) -> Tuple[Optional[Tensor], List[Optional[Tensor]]]:
    """Updates tables. Returns the gradients of the ids' weights, or None unless of_weights, and of ``work.dense``."""
    if (work.updates or of_weights) and _scaling.skips(work.core._group, [grad]):
        return _infinite(work.features.weights()) if of_weights else None, work.skip()
    array, weights = gradient_of(grad), None
    if of_weights:  # needs the rows before the update
        work.check_inputs()
        weights = torch.from_numpy(work.core.weight_gradients(array, **work.batch)) * _scaling.current()
    return weights, _scaling.scaled(work.backward(array))


def sequences_backward(work: Work, names: Sequence[str], grads: Sequence[Optional[Tensor]]) -> List[Optional[Tensor]]:
    """Updates tables after a lookup that does not pool. grads: a gradient, or None, for each output. Returns the
    gradients of ``work.dense``."""
    if work.updates and _scaling.skips(work.core._group, [grad for grad in grads if grad is not None]):
        return work.skip()
    named = {name: gradient_of(grad) for name, grad in zip(names, grads) if grad is not None}
    return _scaling.scaled(work.backward(named))


def once_differentiable(backward: Any) -> Any:
    """PyTorch's ``once_differentiable``, whose check is needed, and run, only in a backward with create_graph."""
    checked = _once_differentiable(backward)

    @functools.wraps(backward)
    def chosen(ctx: Any, *grads: Any) -> Any:
        return (checked if torch.is_grad_enabled() else backward)(ctx, *grads)

    return chosen


def _refuse_twice(ctx: Any) -> None:
    """Raises PyTorch's error if the graph went backward already and was not retained."""
    _ = ctx.saved_tensors


class Pooled(torch.autograd.Function):
    """A lookup of pooled rows, whose backward updates the tables. ``anchor`` requires a gradient, so that autograd
    calls the backward even if no other input requires one."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, work: Work, weights: Optional[Tensor], *dense: Tensor) -> Tensor:
        """Returns the pooled rows."""
        ctx.work, ctx.weighted = work, weights is not None
        ctx.save_for_backward(anchor)
        return torch.from_numpy(work.forward())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Updates tables. Returns the gradients of the ids' weights and of tables without an optimizer."""
        _refuse_twice(ctx)
        weights, dense = pooled_backward(ctx.work, grad, ctx.weighted)
        return (None, None, weights, *dense)


class Sequences(torch.autograd.Function):
    """A lookup that does not pool, whose backward updates the tables."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, work: Work, *dense: Tensor) -> Tuple[Tensor, ...]:
        """Returns the rows, a tensor for each output."""
        ctx.work = work
        ctx.save_for_backward(anchor)
        ctx.set_materialize_grads(False)
        outputs = work.forward()
        ctx.names = list(outputs)
        return tuple(torch.from_numpy(rows) for rows in outputs.values())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        """Updates tables. Returns the gradients of tables without an optimizer."""
        _refuse_twice(ctx)
        return (None, None, *sequences_backward(ctx.work, ctx.names, grads))
