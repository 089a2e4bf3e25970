"""The base of the collections: tables, their parameters, copies and state dicts."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from .._collections import Collection, DistributedModelParallel
from .._step import Shard
from .._tables import Module, Optimizer
from . import _ops, _traced, _weights
from ._configs import EmbeddingConfig, core_config, drawn_here, stored_dtype
from ._optim import COLLECTS, optimizer_of_class
from ._state import load_table


def drawn_seed() -> int:
    """Draws the seed of start values from PyTorch's generator, so torch.manual_seed decides them."""
    return int(torch.randint(0, 2**62, (), device="cpu").item())


def _anchor() -> Tensor:
    """Makes the input that lets autograd call the backward of lookups, although no parameter needs a gradient."""
    return torch.zeros((), dtype=torch.float32, device="cpu", requires_grad=True)


# Attributes of a collection that copies and pickles leave out.
_OF_THIS_PROCESS = ("_core", "_model", "_held", "_states", "_fused", "_plain", "_anchor", "_seen", "_seen_as",
                    "_op_name")  # fmt: skip


class Embeddings(nn.Module):
    """The base of the collections. A table's rows are the parameter ``embedding_bags.TABLE.weight`` (or
    ``embeddings.TABLE.weight``), over the table's own memory. A table with an optimizer is updated by it during
    backward, and its parameter has no gradient. A table without one has a gradient, for an optimizer of PyTorch."""

    kind = ""
    _rows_kind: type = _weights.Rows  # the class of a table's place
    collects_gradients = False  # the core keeps the gradients of tables without an optimizer, as a state

    def __init__(
        self,
        tables: List[EmbeddingConfig],
        is_weighted: bool = False,
        device: Union[None, str, torch.device] = None,
        *,
        optimizer: Optional[Optimizer] = None,
    ) -> None:
        super().__init__()
        names = [config.name for config in tables]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"two tables are called {twice[0]}")
        self.device = torch.empty(0).device if device is None else torch.device(device)
        if self.device.type not in ("cpu", "meta"):
            raise NotImplementedError(f"tables on {self.device} have no counterpart here: cpu and meta have")
        self._set_up(list(tables), is_weighted, [optimizer] * len(tables))
        if self.device.type == "meta":
            for config in self._configs:
                shape = config.num_embeddings, config.embedding_dim
                empty = torch.empty(shape, dtype=stored_dtype(config), device="meta")
                self._place(config.name, [empty], True)
        else:
            self._make_core(drawn_seed())

    def _set_up(self, configs: List[Any], is_weighted: bool, optimizers: List[Optional[Optimizer]]) -> None:
        self._configs, self._is_weighted, self._optimizers = configs, is_weighted, optimizers
        self._core: Optional[Collection] = None
        self._model: Optional[DistributedModelParallel] = None
        self._anchor = _anchor()
        self._dtype = torch.float32  # the type of lookup results
        self._held: List[Tuple[nn.Parameter, str, Shard]] = []
        self._states: Dict[int, Dict[str, Tensor]] = {}  # by shard.index
        places = nn.ModuleDict()
        for config in configs:  # not add_module, which refuses names such as "keys"
            places._modules[config.name] = _weights.place_of(config, self._rows_kind)
        setattr(self, self._inside(), places)

    @classmethod
    def _inside(cls) -> str:
        return "embedding_bags" if cls.kind == "bags" else "embeddings"

    def _places(self) -> nn.ModuleDict:
        return getattr(self, self._inside())

    def _place(self, table: str, tensors: List[Tensor], requires_grad: bool) -> List[nn.Parameter]:
        made = self._places()._modules[table].place(tensors, requires_grad)
        for parameter in made:
            _weights.remember(parameter, self, table)
        return made

    # ---- tables

    def set_optimizer(self, optimizer: Optimizer, tables: Optional[List[str]] = None) -> None:
        """Lets the optimizer update these tables, or all, during backward. Rows stay; optimizer states start again."""
        for i, config in enumerate(self._configs):
            if tables is None or config.name in tables:
                self._optimizers[i] = optimizer
        if self._core is not None:
            if self._core._group.world_size > 1:
                raise RuntimeError("the tables are sharded already: choose the optimizer before that")
            self._make_core(0)

    def optimizers(self) -> List[Optional[Optimizer]]:
        """The optimizer of each table, including one set by torch's ``_apply_optimizer_in_backward``."""
        out = []
        for config, own in zip(self._configs, self._optimizers):
            told = self._places()._modules[config.name]._parameters.get("weight")
            classes, options = getattr(told, "_optimizer_classes", []), getattr(told, "_optimizer_kwargs", [])
            if own is None and len(classes) > 1:
                raise NotImplementedError(f"several optimizers of table {config.name} have no counterpart: give one")
            out.append(optimizer_of_class(classes[0], options[0]) if own is None and classes else own)
        return out

    def description(self, otherwise: Optional[Optimizer] = None, optimizers: Any = None) -> Module:
        """Returns the library's description of the tables. ``otherwise``: the optimizer of tables without one."""
        pairs = zip(self._configs, self.optimizers() if optimizers is None else optimizers)
        tables = [core_config(config, self.kind, optimizer or otherwise) for config, optimizer in pairs]
        return Module(tables, self.kind, self._is_weighted)

    def _make_core(self, seed: int) -> None:
        """Makes the tables of a collection on one rank. Rows that exist stay."""
        before = [place._parameters.get("weight") for place in self._places()._modules.values()]
        rows = {c.name: w.detach().clone() for c, w in zip(self._configs, before) if w is not None and not w.is_meta}
        self.collects_gradients = any(self._optimizers) and not all(self._optimizers)
        otherwise = COLLECTS if self.collects_gradients else None
        described = self.description(otherwise, self._optimizers)
        self._model = DistributedModelParallel({"": described}, seed=seed)
        self._model.group.let_threads_wait()
        self.attach(self._model[""], rows)

    def attach(self, core: Collection, rows: Optional[Dict[str, Tensor]] = None) -> None:
        """Uses these tables from now on, with these rows or with start values."""
        self._core = core
        for config in self._configs:
            if rows is not None and config.name in rows:
                core.set_weight(config.name, rows[config.name].float())
            elif drawn_here(config):
                start = self._start_of(config).contiguous().numpy()
                if core._group.world_size > 1:
                    core._group.broadcast(start)  # so that copies of a table are equal
                core.set_weight(config.name, start)
        self._bind(core)

    def _bind(self, core: Collection) -> None:
        self._held, self._states = [], {}
        shards = core.shards()
        for config in self._configs:
            own = [shard for shard in shards if shard.table == config.name]
            viewed = [_weights.shard_tensors(core, shard, stored_dtype(config)) for shard in own]
            nothing = torch.empty(0, config.embedding_dim, dtype=stored_dtype(config), device="cpu")
            tensors = [rows for rows, _ in viewed] or [nothing]
            made = self._place(config.name, tensors, True)
            for shard, parameter, (_, states) in zip(own, made, viewed):
                self._held.append((parameter, config.name, shard))
                self._states[shard.index] = states
        # The lists also have tables without a shard on this rank, because all ranks must make the same calls.
        self._fused: List[nn.Parameter] = []
        self._plain: List[nn.Parameter] = []
        self._names, self._dims = list(core.outputs), list(core.outputs.values())
        self._op_name = _ops.name_of(self, list(core.tables))
        _weights.look(self)
        for config, optimizer in zip(self._configs, self._optimizers):
            kind = self._plain if optimizer is None else self._fused
            kind.extend(self._places()._modules[config.name]._parameters.values())
        for parameter in self._fused:
            _weights.watch_gradient(parameter)

    def reset_parameters(self) -> None:
        """Draws the start values of all tables again. Optimizer states stay."""
        if self.device.type == "meta":
            return
        if self.core._group.world_size > 1:
            raise RuntimeError("the tables are sharded already: draw their rows before that")
        for config in self._configs:
            self.core.set_weight(config.name, self._start_of(config))

    @staticmethod
    def _start_of(config: Any) -> Tensor:
        """Returns start values for a table, by its init_fn or uniform."""
        made = torch.empty(config.num_embeddings, config.embedding_dim, dtype=torch.float32, device="cpu")
        if config.init_fn is None:
            return made.uniform_(config.get_weight_init_min(), config.get_weight_init_max())
        changed = config.init_fn(made)
        return (made if changed is None else changed).detach()

    def _optimizer(self, table: str) -> Optional[Optimizer]:
        return next(o for config, o in zip(self._configs, self._optimizers) if config.name == table)

    @property
    def core(self) -> Collection:
        """The library's collection, with rows, shards and learning rates (docs/python.md)."""
        if self._core is None:
            raise RuntimeError("these tables are on the meta device: shard them, or make them on the cpu")
        return self._core

    def _apply(self, fn: Callable, recurse: bool = True) -> Embeddings:
        """Lets ``double()`` and the like set the type of lookup results. Rows keep their type."""
        probe = fn(torch.zeros(1, device=self.device))
        if probe.device.type != self.device.type and (self.device.type, probe.device.type) != ("meta", "cpu"):
            raise NotImplementedError(f"tables on {probe.device} have no counterpart here: they stay on {self.device}")
        if probe.is_shared():
            raise NotImplementedError("tables cannot be shared among processes: use DistributedModelParallel")
        if probe.is_floating_point():
            self._dtype = probe.dtype
        if probe.device.type != self.device.type:
            self.device = probe.device
            self._make_core(drawn_seed())
        return super()._apply(fn, recurse)

    # ---- called by lookups

    def trains(self) -> bool:
        """True if backward updates a table."""
        return any(parameter.requires_grad for parameter in self._fused)

    def dense_weights(self) -> List[nn.Parameter]:
        """The parameters of tables that get a gradient."""
        return [parameter for parameter in self._plain if parameter.requires_grad]

    def table_name(self, parameter: nn.Parameter) -> str:
        """Returns the table whose rows a parameter holds."""
        return next(table for held, table, _ in self._held if held is parameter)

    def frozen_features(self) -> List[str]:
        """Features of tables that are not updated although they have an optimizer."""
        off = {
            config.name for config in self._configs if self._optimizer(config.name) is not None
            and not all(p.requires_grad for p in self._places()._modules[config.name]._parameters.values())
        }  # fmt: skip
        named = {c.name: c.feature_names or [c.name] for c in self._configs}
        frozen = {feature for table in off for feature in named[table]}
        for table in set(named) - off:
            both = frozen.intersection(named[table])
            if both:
                raise NotImplementedError(
                    f"feature {sorted(both)[0]} is looked up in table {table}, which is trained, and in one with "
                    "requires_grad False: freeze both, or give them features of their own"
                )
        return sorted(frozen)

    def outputs_in_order(self) -> Iterator[Tuple[Any, str, str]]:
        """The config, the feature and the name of each output."""
        pairs = [(config, feature) for config in self._configs for feature in config.feature_names or [config.name]]
        for (config, feature), name in zip(pairs, self.core.outputs):
            yield config, feature, name

    def refresh(self, table: str) -> None:
        """Refreshes the copies of rows, for a kernel that gives no view of its rows."""
        for parameter, name, shard in self._held:
            if name == table and isinstance(parameter, _weights.RowCopy):
                rows, self._states[shard.index] = _weights.shard_tensors(self.core, shard, parameter.dtype)
                parameter.data = rows

    def write_back(self, table: str) -> None:
        """Writes changed copies of states back to a kernel that gives no views."""
        for parameter, name, shard in self._held:
            if name == table and isinstance(parameter, _weights.RowCopy) and self._states[shard.index]:
                states = {k: v.numpy() for k, v in self._states[shard.index].items()}
                self.core.write_shard(shard, self.core.read_shard(shard)[0], states)

    def before_update(self) -> None:
        """Clears the gradients that the core collects."""
        if self.collects_gradients:
            for parameter, _, shard in self._held:
                if any(parameter is plain for plain in self._plain):
                    self._states[shard.index]["momentum_buffer"].zero_()

    def collected_gradient(self, parameter: nn.Parameter) -> Tensor:
        """The gradient that the last update has collected."""
        shard = next((shard for held, _, shard in self._held if held is parameter), None)
        if shard is None:
            return torch.zeros_like(parameter)
        return self._states[shard.index]["momentum_buffer"].to(parameter.dtype, copy=True)

    def after_update(self) -> None:
        """Lets autograd know that rows have changed."""
        _weights.count_writes(self._fused)

    def _asked(self) -> Tensor:
        """Returns the input that gives lookups in tables with an optimizer a backward, as in TorchRec, even if all of
        them are frozen."""
        return self._anchor if self._fused else self._anchor.detach()

    def _given(self, rows: Tensor) -> Tensor:
        return rows if self._dtype is torch.float32 else rows.to(self._dtype)

    def settle(self) -> bool:
        """Copies the rows that a program has assigned to a table's parameter. Returns True if PyTorch must compute this
        lookup, because another tensor replaces a table's rows."""
        return not self._seen_as.same() and _weights.take_over(self)

    def swap(self, old: nn.Parameter, new: nn.Parameter) -> None:
        """Replaces a parameter by another one, with its rows."""
        self._held = [(new if held is old else held, table, shard) for held, table, shard in self._held]
        self._fused, self._plain = ([new if p is old else p for p in ps] for ps in (self._fused, self._plain))

    def stands_in(self) -> bool:
        """True if a tensor that is not a parameter replaces a table's rows, as ``functional_call`` does."""
        places = self._places()._modules.values()
        return any(not isinstance(place._parameters.get("weight"), nn.Parameter) for place in places)

    def asked_of_graph(self) -> Tuple[bool, Optional[Tensor], List[nn.Parameter]]:
        """Returns, for a lookup as an operator: whether a backward may follow, the tensor that requires it, and the
        parameters that get a gradient."""
        if _traced.exporting():
            _traced.refuse_training(self, bool(self._plain))
        if not torch.is_grad_enabled() or _traced.exporting():
            return False, None, []
        optimizers = zip(self._places()._modules.values(), self._optimizers)
        plain = [p for place, optimizer in optimizers if optimizer is None for p in place._parameters.values()]
        return True, self._anchor if any(self._optimizers) else None, [p for p in plain if p.requires_grad]

    def rows_in_graph(self) -> List[Tensor]:
        """Returns the rows of all tables as inputs of a compiled graph."""
        if _traced.exporting():
            return []
        return [p.detach() for place in self._places()._modules.values() for p in place._parameters.values()]

    def check_rows(self, rows: List[Tensor]) -> None:
        """Refuses rows that a graph has changed without writing them back yet."""
        before = self._seen
        if self.settle():
            raise NotImplementedError("another tensor stands in for a table's rows: compile the model after that")
        for given, (_, table, _, _, _, address, _) in zip(rows, self._seen):
            if before is self._seen and address and given.data_ptr() != address:
                raise NotImplementedError(
                    f"a compiled graph changes the rows of table {table} before it looks them up: change them outside "
                    "of the graph"
                )

    def __prepare_scriptable__(self) -> Any:
        raise NotImplementedError(
            "torch.jit.script cannot compile a KeyedJaggedTensor: use torch.jit.trace, torch.export or torch.compile, "
            "which call tables as operators"
        )

    # ---- copies

    def __copy__(self) -> Embeddings:
        """Returns another module over the same tables."""
        out = type(self).__new__(type(self))
        out.__dict__.update(self.__dict__)
        return out

    def __getstate__(self) -> Dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in _OF_THIS_PROCESS}
        if self._core is not None:
            if self._core._group.world_size > 1:
                raise RuntimeError("sharded tables cannot be copied or pickled: save() them, or take full_state_dict()")
            states = {shard.table: {n: t.clone() for n, t in self._states[shard.index].items()}
                      for _, _, shard in self._held}  # fmt: skip
            rates = {c.name: self._core.learning_rate(c.name) for c, o in zip(self._configs, self._optimizers) if o}
            state["_saved"] = {"states": states, "steps": self._core.steps, "rates": rates}
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        saved = state.pop("_saved", None)
        super().__setstate__(state)
        self._anchor = _anchor()
        self._core, self._model, self._held, self._states = None, None, [], {}
        if saved is None:
            for config in self._configs:
                _weights.remember(self._places()._modules[config.name].weight, self, config.name)
            return
        self._make_core(0)
        for _, table, shard in self._held:
            for name, values in saved["states"][table].items():
                self._states[shard.index][name].copy_(values)
        self._core.set_steps(saved["steps"])
        for table, rate in saved["rates"].items():
            self._core.set_learning_rate(rate, table)

    # ---- state dict

    def _named_tables(self) -> List[Tuple[str, str]]:
        return [(config.name, f"{self._inside()}.{config.name}.weight") for config in self._configs]

    def _save_to_state_dict(self, destination: Dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for table, key in self._named_tables():
            saved = self._table_tensor(table)
            destination[prefix + key] = saved if keep_vars or not isinstance(saved, Tensor) else saved.detach()
        super()._save_to_state_dict(destination, prefix, keep_vars)  # parameters that a subclass or a program has added

    def _table_tensor(self, table: str) -> Any:
        if self._core is not None:
            self.refresh(table)
        return self._places()._modules[table].weight

    def _load_from_state_dict(
        self,
        state_dict: Dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: List[str],
        unexpected_keys: List[str],
        error_msgs: List[str],
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        known, inside = {prefix + key for _, key in self._named_tables()}, f"{prefix}{self._inside()}."
        if strict:  # PyTorch already reports keys of tables that do not exist
            ours = [key for key in state_dict if key.startswith(inside) and key not in known]
            places = self._places()._modules
            unexpected_keys += [key for key in ours if key[len(inside) :].rpartition(".")[0] in places]
        for config, (table, key) in zip(self._configs, self._named_tables()):
            value = state_dict.get(prefix + key)
            shape = (config.num_embeddings, config.embedding_dim)
            if value is None:
                if strict:
                    missing_keys.append(prefix + key)
            elif tuple(value.shape) != shape:
                error_msgs.append(
                    f"size mismatch for {prefix + key}: it is {list(value.shape)} in the state dict, and the table is "
                    f"{list(shape)}"
                )
            else:
                wrong = load_table(self, table, value)
                if wrong:
                    error_msgs.append(wrong)
