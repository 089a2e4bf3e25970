"""Sharded collections: tables that are looked up and trained where they live."""

from __future__ import annotations

import contextlib
import ctypes as c
import json
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _check, _library as _l
from ._arrays import Tensor, as_array, output_array, owned_view, view_of
from ._batch import Batch, QuantCollection
from ._pictures import StepReport
from ._runtime import ProcessGroup, Runtime
from ._step import Shard, Step, next_rows
from ._tables import EmbeddingConfig, Module, Optimizer, Plan, Planner, check_modules, check_planner, describe

_lib = _l.lib


class Collection:
    """Tables of one model, looked up together. ``EmbeddingBagCollection`` and ``EmbeddingCollection`` make one;
    ``DistributedModelParallel`` has several.

    kind: "bags" or "sequences". tables: name -> (rows, dim). features: the features whose ids a batch has. outputs:
    name -> dim, one for each feature of each table, in order. keys: the keys of the tables in a state dict.
    is_weighted: True if ids have weights.
    """

    def __init__(self, model: DistributedModelParallel, path: str, is_weighted: bool = False) -> None:
        self.is_weighted = is_weighted
        self._handle = _l.Handle("collection")
        self._group = model.group
        self._model = model
        _l.call("model_parallel_collection", model._handle.value, path.encode(), self._handle.out)
        info = self._info()
        self.kind: str = ("bags", "sequences")[info.kind]
        self.width: int = info.width
        self._describe(info)
        self._batch = Batch(self.features, is_weighted)
        self._grad, self._out = Tensor(), Tensor()
        self._grad_pointer = c.c_void_p()
        self._grad_address = c.addressof(self._grad_pointer)

    def _info(self) -> Any:
        info = _l.CollectionInfo()
        _l.call("collection_describe", self._handle.value, c.byref(info))
        return info

    def _describe(self, info: Any) -> None:
        table, output, name = _l.TableInfo(), _l.OutputInfo(), c.c_char_p()
        self.tables: Dict[str, Tuple[int, int]] = {}
        self.keys: List[str] = []
        self.features: List[str] = []
        self.outputs: Dict[str, int] = {}
        for i in range(info.num_tables):
            _l.call("collection_get_table", self._handle.value, i, c.byref(table))
            self.tables[table.name.decode()] = (table.rows, table.dim)
            self.keys.append(table.key.decode())
        for i in range(info.num_features):
            _l.call("collection_get_feature", self._handle.value, i, c.byref(name))
            self.features.append(name.value.decode())
        for i in range(info.num_outputs):
            _l.call("collection_get_output", self._handle.value, i, c.byref(output))
            self.outputs[output.name.decode()] = output.dim

    @property
    def steps(self) -> int:
        """The number of updates so far."""
        return self._info().steps

    @property
    def dropped_ids(self) -> int:
        """Ids out of range that this rank has let pass (``bounds_check="ignore"`` and ``"warning"``)."""
        return self._info().dropped_ids

    def forward(
        self,
        values: Any,
        lengths: Any = None,
        *,
        offsets: Any = None,
        weights: Any = None,
        keys: Optional[Sequence[str]] = None,
        strides: Optional[Sequence[int]] = None,
        inverse: Any = None,
        finished: bool = False,
    ) -> Step:
        """Looks up this rank's samples. Collective.

        values: ids, int32 or int64 ``[n]``, key-major: all samples of the first key, then all of the next one.
        lengths: int32 or int64 ``[keys * samples]`` or ``[keys, samples]``, ids of each bag.
        offsets: ``[keys * samples + 1]``, given instead of lengths: the start of each bag, and the end of the last one.
        weights: float32 ``[n]``, for a weighted collection.
        keys: the order of the features in the batch; None: ``features``.
        strides, inverse: for features with different numbers of samples. strides has the number for each key. inverse
        is int64 ``[keys, samples]``: the index of each sample among those of the key.
        finished: True if this rank has no more batches. It goes on with empty ones until ``Step.all_finished``.

        Backward reads the batch again, so the arrays are copied. Raises ``InvalidArgument`` for wrong shapes or
        dtypes, or for an id out of range on any rank. The error ends the step on all ranks; the next step may follow.
        """
        return self._forward(copy=True, values=values, lengths=lengths, offsets=offsets, weights=weights, keys=keys,
                             strides=strides, inverse=inverse, finished=finished)  # fmt: skip

    def _forward(self, **batch: Any) -> Step:
        """Works like ``forward``, but without ``copy`` the arrays must stay as they are until backward is done."""
        handle = _l.Handle("step")
        group = self._group
        group._enter()
        try:
            try:
                inputs = self._batch.set(**batch)
            except Exception as error:
                self._tell_others(error)
                raise
            step = c.addressof(handle.value)
            group._wait(_lib.tsr_collection_forward, self._handle.value, self._batch.address, None, step)
        finally:
            group._used.release()
        return Step(self, handle, inputs, batch.get("finished", False))

    def lookup(self, values: Any, lengths: Any = None, *, out: Optional[np.ndarray] = None, **batch: Any) -> np.ndarray:
        """Works like ``forward``, but no backward can follow. Returns the pooled rows, float32 ``[samples, width]``, in
        new memory or in ``out``. Only for bags."""
        if self.kind != "bags":
            raise _l.Unimplemented("sequences have an output for each feature: use forward(...).outputs")
        group = self._group
        group._enter()
        try:
            try:
                inputs = self._batch.set(values, lengths, **batch)
                if batch.get("strides") is not None and batch.get("inverse") is None:
                    raise _l.InvalidArgument("a batch with other numbers of samples per feature needs inverse indices")
                out = output_array(out, (self._batch.samples(inputs), self.width))
                to = self._out.set(out)
            except Exception as error:
                self._tell_others(error)
                raise
            group._wait(_lib.tsr_collection_forward, self._handle.value, self._batch.address, to, None)
        finally:
            group._used.release()
        return out

    def weight_gradients(self, grad: Any, values: Any, lengths: Any = None, **batch: Any) -> np.ndarray:
        """Returns the gradients of the weights of a batch's ids, float32 ``[n]``: each id's row times its bag's
        gradient. grad: float32 ``[samples, width]``; the other arguments are the batch, as in ``forward``. Call this
        before backward, because it looks up the rows again and backward changes them. Only for weighted collections of
        bags. Collective."""
        group = self._group
        group._enter()
        try:
            try:
                inputs = self._batch.set(values, lengths, **batch)
                grad = as_array(grad, "grad")
                out = np.empty(inputs[0].size, np.float32)
                tensors = Tensor(grad), Tensor(out)
            except Exception as error:
                self._tell_others(error)
                raise
            group._wait(_lib.tsr_collection_weight_gradients, self._handle.value, self._batch.address,
                        tensors[0].address, tensors[1].address)  # fmt: skip
        finally:
            group._used.release()
        return out

    def _tell_others(self, error: Exception) -> None:
        """Ends the step on the other ranks, which would otherwise wait for this rank's batch."""
        why = self._batch.refuse(error)
        with contextlib.suppress(_l.InvalidArgument):  # raises the error again, as "rank N: ..."
            self._group._wait(_lib.tsr_collection_forward, self._handle.value, self._batch.address, None, None)
        del why

    def _backward(self, step: Step, grad: Any) -> None:
        if self.kind == "bags":
            array = as_array(grad, "grad")
            group = self._group
            group._enter()
            try:
                self._grad_pointer.value = self._grad.set(array)
                group._wait(_lib.tsr_step_backward, step._handle.value, self._grad_address, 1, None)
            finally:
                group._used.release()
            return
        _check.of_type(grad, Mapping, "grad", f"a mapping from the outputs {', '.join(self.outputs)} to arrays")
        unknown = set(grad) - set(self.outputs)
        if unknown:
            raise _l.NotFound(f'there is no output "{unknown.pop()}"; the collection has {", ".join(self.outputs)}')
        arrays = {name: as_array(value, f"grad[{name!r}]") for name, value in grad.items()}
        tensors = {name: Tensor(array) for name, array in arrays.items()}
        addresses = [tensors[n].address if n in tensors else None for n in self.outputs]
        pointers = (c.c_void_p * len(addresses))(*addresses)
        self._group._call(_lib.tsr_step_backward, step._handle.value, c.addressof(pointers), len(pointers), None)

    def quantize(
        self, format: str = "int8", formats: Optional[Mapping[str, str]] = None, bounds_check: str = "fatal"
    ) -> QuantCollection:
        """Returns a copy for inference, with all rows quantized on every rank. format: "int8", "int4", "int2", "fp16"
        or "fp8"; formats: table -> format, for tables with another one. Collective. Raises ``InvalidArgument`` for a
        row with NaN or infinity, and for a dim that the format cannot have."""
        _check.of_type(formats or {}, Mapping, "formats", "a mapping from tables to formats")
        options = {"format": format, "formats": dict(formats or {}), "bounds_check": bounds_check}
        handle = _l.Handle("quant_collection")
        self._group._call(
            _lib.tsr_collection_quantize, self._handle.value, json.dumps(options).encode(), c.addressof(handle.value)
        )
        return QuantCollection(handle, self.kind, self.features, self.outputs, self.is_weighted)

    def stats(self, restart: bool = False) -> StepReport:
        """Returns statistics of this rank's work for the collection, as a dict that a notebook shows as a picture:
        ``["stages"]``, seconds in ``["steps"]`` steps, ``["bytes_sent"]``, ``["tables"]``, ``["updates"]``,
        ``["dropped_ids"]`` (``tsr_collection_stats``). restart: the stages count from 0 again. Not collective."""
        out = c.c_void_p()
        restart = _check.truth(restart, "restart")
        self._group._call(_lib.tsr_collection_stats, self._handle.value, int(restart), c.addressof(out))
        return StepReport(json.loads(_l.text(out)))

    # ---- rows

    def weight(self, table: str, first: int = 0, count: Optional[int] = None) -> np.ndarray:
        """Returns rows [first, first + count) of a table, on every rank: float32 ``[count, dim]``. Collective."""
        rows, dim = self._table(table)
        _check.whole(first, "first", 0)
        if count is not None:
            _check.whole(count, "count", 0)
        out = np.empty((rows - first if count is None else count, dim), np.float32)
        tensor = Tensor(out)
        self._group._call(_lib.tsr_collection_read_rows, self._handle.value, table.encode(), first, tensor.address)
        return out

    def set_weight(self, table: str, rows: Any, first: int = 0) -> None:
        """Replaces the rows from ``first`` on by these, float32 ``[any, dim]``. Each rank writes the rows that it
        holds. The optimizer's state does not change."""
        array = as_array(rows, "rows")
        if array.dtype.kind not in "fiub":
            raise _l.InvalidArgument(f"rows are floats, not {array.dtype}")
        array = np.ascontiguousarray(array, np.float32)
        _check.text(table, "table")
        _check.whole(first, "first", 0)
        tensor = Tensor(array)
        self._group._call(_lib.tsr_collection_write_rows, self._handle.value, table.encode(), first, tensor.address)

    def _table(self, table: str) -> Tuple[int, int]:
        if table not in self.tables:
            raise _l.NotFound(f'there is no table "{table}"; the collection has {", ".join(self.tables)}')
        return self.tables[table]

    def shards(self) -> List[Shard]:
        """The shards of this rank, including its data-parallel tables."""
        out, info, state = [], _l.ShardInfo(), _l.StateInfo()
        names = list(self.tables)
        for i in range(self._info().num_shards):
            _l.call("collection_get_shard", self._handle.value, i, c.byref(info))
            states = []
            for k in range(info.num_states):
                _l.call("shard_get_state", self._handle.value, i, k, c.byref(state))
                states.append(state.name.decode())
            out.append(Shard(i, names[info.table], info.rows, info.cols, info.row, info.col, tuple(states)))
        return out

    def _shard_arrays(self, shard: Shard, count: int) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
        state, states = _l.StateInfo(), {}
        for k, name in enumerate(shard.states):
            _l.call("shard_get_state", self._handle.value, shard.index, k, c.byref(state))
            states[name] = np.empty((count, shard.cols) if state.kind == _l.STATE_PER_ELEMENT else count, np.float32)
        return np.empty((count, shard.cols), np.float32), states

    def read_shard(
        self, shard: Shard, first: int = 0, count: Optional[int] = None
    ) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
        """Returns rows of a shard of this rank, float32 ``[count, cols]``, and the states of its optimizer, ``[count]``
        or ``[count, cols]``. Not collective."""
        _check.of_type(shard, Shard, "shard", "one of shards()")
        weights, states = self._shard_arrays(shard, shard.rows - first if count is None else count)
        self._shard_call(_lib.tsr_shard_read, shard, first, weights, list(states.values()))
        return weights, states

    def shard_rows(self, shard: Shard, at_a_time: int = 65536) -> Iterator[Tuple[np.ndarray, np.ndarray, Dict]]:
        """Yields all existing rows of a shard, in blocks of at most ``at_a_time``: their ids in the table, int64
        ``[count]``, the rows, float32 ``[count, cols]``, and states as in ``read_shard``. It works for all tables,
        including those whose rows are made on demand. The table must not change meanwhile. Not collective."""
        _check.of_type(shard, Shard, "shard", "one of shards()")
        weights, states = self._shard_arrays(shard, _check.whole(at_a_time, "at_a_time", 1))
        return next_rows(self._group, self._handle, shard, weights, states)

    def write_shard(
        self, shard: Shard, weights: Any, states: Optional[Mapping[str, Any]] = None, first: int = 0
    ) -> None:
        """Writes rows of a shard. Give all states, or None to keep them."""
        _check.of_type(shard, Shard, "shard", "one of shards()")
        rows = np.ascontiguousarray(as_array(weights, "weights"), np.float32)
        values = None
        if states is not None:
            if set(states) != set(shard.states):
                raise _l.InvalidArgument(f"the shard's states are {', '.join(shard.states)}: give all of them")
            values = [np.ascontiguousarray(as_array(states[name], name), np.float32) for name in shard.states]
        self._shard_call(_lib.tsr_shard_write, shard, first, rows, values)

    def _shard_call(
        self, function: Any, shard: Shard, first: int, weights: np.ndarray, states: Optional[List[np.ndarray]]
    ) -> None:
        tensor = Tensor(weights)
        tensors = [Tensor(state) for state in states or []]
        pointers = (c.c_void_p * max(1, len(tensors)))(*[t.address for t in tensors])
        self._group._call(
            function, self._handle.value, shard.index, first, tensor.address,
            None if states is None else c.addressof(pointers), len(tensors),
        )  # fmt: skip

    def view_shard(self, shard: Shard) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
        """Returns a shard's rows and states as views of the library's memory. The next lookup reads what you write
        there, and updates show in the views. Rows ``[rows, cols]`` have the stored type, with bfloat16 as its bits in
        uint16; states are float32 ``[rows]`` or ``[rows, cols]``. Arrays may have strides, and stay valid as long as
        you hold them. Not collective. Raises ``Unimplemented`` if the kernel gives no view; then use ``read_shard`` and
        ``write_shard``."""
        _check.of_type(shard, Shard, "shard", "one of shards()")
        arrays = []
        for state in range(-1, len(shard.states)):
            out = c.c_void_p()
            self._group._call(_lib.tsr_shard_export, self._handle.value, shard.index, state, c.addressof(out))
            arrays.append(owned_view(out.value))
        return arrays[0], dict(zip(shard.states, arrays[1:]))

    def shard_ids(self, shard: Shard, first: int = 0, count: Optional[int] = None) -> np.ndarray:
        """Returns the ids in the table of rows of a shard: int64 ``[count]``."""
        _check.of_type(shard, Shard, "shard", "one of shards()")
        out = np.empty(shard.rows - first if count is None else count, np.int64)
        tensor = Tensor(out)
        _l.call("shard_ids", self._handle.value, shard.index, first, tensor.address)
        return out

    # ---- optimizer

    def set_learning_rate(self, value: float, table: Optional[str] = None) -> None:
        """Sets the learning rate of all tables, or of one table and all tables with the same optimizer."""
        value = _check.number(value, "the learning rate", least=0)
        if table is not None:
            _check.text(table, "table")
        _l.call("collection_set_learning_rate", self._handle.value, table and table.encode(), value)

    def learning_rate(self, table: str) -> float:
        """Returns the learning rate. Raises ``FailedPrecondition`` if this rank has no table with that optimizer."""
        out = c.c_double()
        _l.call("collection_get_learning_rate", self._handle.value, table.encode(), c.byref(out))
        return out.value

    def set_steps(self, steps: int) -> None:
        """Sets the number of updates, which is Adam's t."""
        _l.call("collection_set_steps", self._handle.value, _check.whole(steps, "steps", 0))


class DistributedModelParallel:
    """Collections that one plan shards; ``collections`` has them by path. Collective. ``group`` None: only this rank.

    optimizer: for tables that name none; a table without any optimizer cannot be trained. plan: from ``tessera.plan()``
    or a file; None: rank 0 plans with the settings in ``planner``, and all ranks use its plan. bounds_check: the effect
    of an id out of range, "fatal", "warning" or "ignore". seed: decides the start values, which are the same under
    every plan. gradient_scale: a factor on the gradient of the sum of all ranks' losses; None: 1 / ranks. dense: shapes
    by name of the caller's arrays that checkpoints also hold; see ``dense()``.
    """

    def __init__(
        self,
        modules: Mapping[str, Module],
        *,
        optimizer: Optional[Optimizer] = None,
        group: Optional[ProcessGroup] = None,
        plan: Union[None, Plan, str] = None,
        planner: Optional[Planner] = None,
        kernel: str = "auto",
        bounds_check: str = "fatal",
        seed: int = 0,
        gradient_scale: Optional[float] = None,
        data_parallel_gradient_scale: Optional[float] = None,
        dense: Optional[Mapping[str, Sequence[int]]] = None,
        runtime: Optional[Runtime] = None,
    ) -> None:
        check_modules(modules)
        planner = Planner() if planner is None else planner
        check_planner(planner, modules)
        for value, kind, name in (
            (group, ProcessGroup, "group"), (runtime, Runtime, "runtime"), (optimizer, Optimizer, "optimizer"),
        ):  # fmt: skip
            if value is not None:
                _check.of_type(value, kind, name, f"a tessera.{kind.__name__}")
        if group is not None and runtime is not None and runtime is not group._runtime:
            raise _l.InvalidArgument("runtime has no effect with group, which has its own: leave one of them out")
        if plan is not None:
            _check.of_type(plan, (Plan, str), "plan", "a tessera.Plan or the path of a file")
            if planner.shardings:
                raise _l.InvalidArgument("shardings of the planner have no effect beside plan: leave one of them out")
        _check.text(kernel, "kernel")
        for name, shape in (dense or {}).items():
            if isinstance(shape, str) or not hasattr(shape, "__iter__"):
                raise _l.InvalidArgument(f'the shape of dense["{name}"] is a list of numbers, not {shape!r}')
        self.group = group or ProcessGroup(rank=0, world_size=1, runtime=runtime)
        planner = planner.where_untrained(modules, optimizer)
        model = describe(
            modules, planner.constraints, optimizer, kernel=kernel, bounds_check=bounds_check, seed=seed,
            gradient_scale=gradient_scale, data_parallel_gradient_scale=data_parallel_gradient_scale,
            dense={name: list(shape) for name, shape in dense.items()} if dense else None,
        )  # fmt: skip
        options = _l.ModelOptions(
            model=model.encode(), planner=json.dumps(planner._json(), default=_check.plain).encode()
        )
        if plan is not None:
            options.plan = (plan.json if isinstance(plan, Plan) else plan).encode()
        self._handle = _l.Handle("model_parallel")
        self.group._call(
            _lib.tsr_model_parallel_create,
            self.group._runtime._handle.value,
            self.group._handle.value,
            c.addressof(options),
            c.addressof(self._handle.value),
        )
        self.collections: Dict[str, Collection] = {
            path: Collection(self, path, bool(module.is_weighted)) for path, module in modules.items()
        }

    def __getitem__(self, path: str) -> Collection:
        if path not in self.collections:
            known = ", ".join(f'"{p}"' for p in self.collections)
            raise _l.NotFound(f'the model has no such collection "{path}"; it has {known}')
        return self.collections[path]

    @property
    def plan(self) -> Plan:
        """The plan of all tables."""
        out = c.c_void_p()
        _l.call("model_parallel_plan", self._handle.value, c.byref(out))
        return Plan(_l.text(out))

    def dense(self, name: str) -> np.ndarray:
        """Returns a float32 array of the dense part, valid as long as the model lives. The next checkpoint saves its
        contents, and ``load`` writes them."""
        view = _l.DLTensor()
        _l.call("model_parallel_dense", self._handle.value, name.encode(), c.byref(view))
        return view_of(view, self._handle)

    def save(self, directory: Union[str, os.PathLike], progress: str = "", keep: int = 2) -> None:
        """Writes a checkpoint of all tables with their optimizers' state. It loads under any plan and number of ranks
        (docs/checkpoints.md). progress: a text that ``load`` returns. keep: the number of checkpoints to keep.
        Collective."""
        directory, progress = _check.path(directory, "directory"), _check.text(progress, "progress")
        keep = _check.whole(keep, "keep", 1, 2**31 - 1)
        options = _l.SaveOptions(progress=progress.encode(), keep=keep)
        function = _lib.tsr_model_parallel_save
        self.group._call(function, self._handle.value, directory.encode(), c.addressof(options))

    def load(self, directory: Union[str, os.PathLike]) -> str:
        """Loads the newest checkpoint there, and returns its ``progress``. Raises ``NotFound`` or ``DataLoss``, or
        ``InvalidArgument`` if the checkpoint is of another model; then nothing changes. Collective."""
        out, directory = c.c_void_p(), _check.path(directory, "directory")
        self.group._call(_lib.tsr_model_parallel_load, self._handle.value, directory.encode(), None, c.addressof(out))
        return _l.text(out)


class _Alone(Collection):
    """A model of one collection."""

    _kind = ""

    def __init__(self, tables: Sequence[EmbeddingConfig], *, is_weighted: bool = False, **options: Any) -> None:
        module = Module(tables, self._kind, is_weighted)
        super().__init__(DistributedModelParallel({"": module}, **options), "", bool(is_weighted))

    @property
    def plan(self) -> Plan:
        return self._model.plan

    @property
    def group(self) -> ProcessGroup:
        return self._group

    def save(self, directory: Union[str, os.PathLike], progress: str = "", keep: int = 2) -> None:
        self._model.save(directory, progress, keep)

    def load(self, directory: Union[str, os.PathLike]) -> str:
        return self._model.load(directory)

    save.__doc__ = DistributedModelParallel.save.__doc__
    load.__doc__ = DistributedModelParallel.load.__doc__


class EmbeddingBagCollection(_Alone):
    """Tables with pooled rows, sharded over ``group``: a model with one collection. Collective.

    ``EmbeddingBagCollection(tables, optimizer=Optimizer("exact_sgd", learning_rate=0.1), group=group)``; is_weighted:
    True if ids have weights. The other options are as in ``DistributedModelParallel``. See ``Collection``."""

    _kind = "bags"


class EmbeddingCollection(_Alone):
    """Tables that return a row for each id; otherwise like ``EmbeddingBagCollection``."""

    _kind = "sequences"
