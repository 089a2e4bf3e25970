"""The fused optimizers of collections, as PyTorch's schedulers and checkpoints see optimizers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Tuple

import torch
from torch import Tensor

from ._counterpart import STATE_HOOKS, lacks
from ._state import sharded_state, state_memory

if TYPE_CHECKING:
    from ._embeddings import Embeddings

_COUNTED = ("adam", "lamb")  # optimizers whose formula uses the number of steps
_FIXED = {"momentum", "betas", "eps", "weight_decay", "dampening", "nesterov", "alpha", "rho", "maximize"}


@lacks(*STATE_HOOKS, instead="do it before or after the call")
class FusedOptimizer(torch.optim.Optimizer):
    """The optimizers that update tables in backward. The tables of a module that have equal optimizers form a parameter
    group.

    ``zero_grad()`` and ``step()`` only pass the learning rates of ``param_groups`` to the tables, because backward
    updates the rows. ``state_dict()`` is ``{"state": {"embedding_bags.t.weight": {"t.momentum1": ...}}}``. States of
    sharded tables are ShardedTensors, as in TorchRec. Also as in TorchRec, it has ``param_groups``, and so the learning
    rates, only after ``save_param_groups(True)``."""

    _step_supports_amp_scaling = True  # a GradScaler has nothing to unscale here

    def __init__(self, modules: Mapping[str, Embeddings]) -> None:
        self._modules = dict(modules)
        self._with_groups = False
        self._tables = list(self._find())
        kinds: List[Tuple[int, Any]] = []
        groups: List[Dict[str, Any]] = []
        self._group_of: List[int] = []  # the group's index, by table
        for module, table, _ in self._tables:
            kind = id(module), module._optimizer(table)
            if kind not in kinds:
                kinds.append(kind)
                groups.append({"params": [], "lr": _rate(module, table)})
            self._group_of.append(kinds.index(kind))
            groups[self._group_of[-1]]["params"] += _parameters(module, table)
        super().__init__(groups or [{"params": [torch.empty(0)]}], {"lr": 0.0})
        self._applied = [self._lr(i) for i in range(len(self._tables))]

    def _lr(self, table: int) -> float:
        return float(self.param_groups[self._group_of[table]]["lr"])

    def _find(self) -> Iterator[Tuple[Embeddings, str, str]]:
        for path, module in self._modules.items():
            for (table, key), optimizer in zip(module._named_tables(), module._optimizers):
                if optimizer is not None:
                    yield module, table, f"{path}.{key}" if path else key

    def fused_keys(self) -> List[str]:
        """The keys of the tables in a state dict."""
        return [key for _, _, key in self._tables]

    @property
    def params(self) -> Dict[str, Tensor]:
        """The tables' parameters by key."""
        return {key: _parameters(module, table)[0] for module, table, key in self._tables}

    def save_param_groups(self, save: bool) -> None:
        """Chooses if ``state_dict()`` has the groups with their learning rates."""
        self._with_groups = save

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Raises an error, because the tables determine the groups."""
        if len(self.param_groups) >= max(1, len(set(self._group_of))):
            raise NotImplementedError("a fused optimizer has the groups of its tables, and takes no others")
        super().add_param_group(param_group)

    def init_state(self, sparse_grad_parameter_names: Any = None) -> None:
        """Does nothing: tables have their states."""

    def post_load_state_dict(self) -> None:
        """Does nothing."""

    def hand_on_rates(self) -> None:
        """Passes learning rates to the tables."""
        changed = []
        for group in self.param_groups:
            if not _FIXED.isdisjoint(group):
                raise NotImplementedError(
                    f"{sorted(_FIXED.intersection(group))[0]} of a fused optimizer cannot be changed by its "
                    "param_groups, only lr: give it in fused_params, or to apply_optimizer_in_backward"
                )
        for i, (module, table, _) in enumerate(self._tables):
            rate = self._lr(i)
            if rate != self._applied[i]:
                self._applied[i] = rate
                changed.append(i)
                module.core.set_learning_rate(rate, table)
        for module in {id(self._tables[i][0]): self._tables[i][0] for i in changed}.values():
            self._check_shared(module)

    def compare_rates(self, directory: str) -> None:
        """Warns if the newest checkpoint there was saved with other learning rates than the groups have."""
        saved: Dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # load() tells what is wrong with it
            number = max(int(name[5:]) for name in os.listdir(directory) if re.fullmatch(r"save-\d+", name))
            with open(os.path.join(directory, f"save-{number}", "checkpoint.json"), encoding="utf-8") as file:
                saved = {one["parameter"]: one["learning_rate"] for one in json.load(file)["content"]["tables"]}
        for i, (_, table, key) in enumerate(self._tables):
            if abs(saved.get(key, self._lr(i)) - self._lr(i)) > 1e-12 + 1e-6 * self._lr(i):
                return warnings.warn(
                    f"table {table} was saved with the learning rate {saved[key]:g} and goes on with {self._lr(i):g}, "
                    'because load() leaves rates as they are: set "lr" in fused_optimizer.param_groups, which a '
                    "scheduler's state does not do, before the next step",
                    stacklevel=3,
                )

    def _check_shared(self, module: Embeddings) -> None:
        """Raises if tables that share a learning rate in the library were given different ones."""
        held = {shard.table for shard in module.core.shards()}
        for i, (of, table, key) in enumerate(self._tables):
            if of is module and table in held:
                rate = module.core.learning_rate(table)
                if abs(rate - self._applied[i]) > 1e-12 + 1e-7 * abs(rate):
                    raise RuntimeError(
                        f"table {table} shares its learning rate with tables of the same optimizer, and their groups "
                        f"have different ones, {self._applied[i]:g} and {rate:g}: give it another optimizer, such as "
                        "one with another start rate"
                    )

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """Passes learning rates to the tables. closure: computes the loss and its backward, as for PyTorch's
        optimizers. Returns the closure's result."""
        self.hand_on_rates()
        if closure is None:
            return None
        with torch.enable_grad():
            return closure()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Passes learning rates to the tables, so that the next backward uses them."""
        self.hand_on_rates()

    def state_dict(self) -> Dict[str, Any]:  # type: ignore[override]
        """Returns the states by key and name."""
        states: Dict[str, Dict[str, Any]] = {}
        for module, table, key in self._tables:
            if not any(name == table for _, name, _ in module._held):
                continue
            states[key] = {f"{table}.{name}": value for name, value in sharded_state(module, table).items()}
            if _counts(module, table):
                states[key][f"{table}.step"] = torch.tensor(module.core.steps)
        out: Dict[str, Any] = {"state": states}
        if self._with_groups:
            out["param_groups"] = [{"params": [], "lr": group["lr"]} for group in self.param_groups]
            for (_, _, key), at in zip(self._tables, self._group_of):
                out["param_groups"][at]["params"].append(key)
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Copies the states of a ``state_dict()`` under the same plan, and the learning rates if it has them."""
        given = state_dict["state"]
        unknown = [key for key in given if key not in self.fused_keys()]
        if unknown:
            raise ValueError(f"the state dict has a state of {unknown[0]}, which has no fused optimizer here")
        for module, table, key in self._tables:
            if not any(name == table for _, name, _ in module._held):
                continue
            if key not in given:
                raise KeyError(f"the state dict has no state of {key}")
            memories = state_memory(module, table)
            names = [*memories, "step"] if _counts(module, table) else list(memories)
            other = set(given[key]).difference(f"{table}.{name}" for name in names)
            if other:
                raise ValueError(f"the state dict has {sorted(other)[0]} of {key}, which is another optimizer's state")
            for name, memory in memories.items():
                _copy(memory, given[key].get(f"{table}.{name}"), f"{name} of {key}")
            module.write_back(table)
            steps = given[key].get(f"{table}.step")
            if steps is not None:
                module.core.set_steps(int(steps))
        saved = {key: group for group in state_dict.get("param_groups", []) for key in group["params"]}
        for (_, _, key), at in zip(self._tables, self._group_of):
            if key in saved:
                self.param_groups[at]["lr"] = saved[key]["lr"]
        self.hand_on_rates()


def _counts(module: Embeddings, table: str) -> bool:
    optimizer = module._optimizer(table)
    return optimizer is not None and any(word in optimizer.name for word in _COUNTED)


def _parameters(module: Embeddings, table: str) -> List[Tensor]:
    return list(module._places()._modules[table]._parameters.values())


def _rate(module: Embeddings, table: str) -> float:
    if any(shard.table == table for shard in module.core.shards()):
        return module.core.learning_rate(table)
    optimizer = module._optimizer(table)
    return 0.01 if optimizer is None else float(optimizer.options.get("learning_rate", 0.01))


def _copy(to: List[Tensor], given: Any, name: str) -> None:
    if given is None:
        raise KeyError(f"the state dict has no {name}")
    parts = [shard.tensor for shard in given.local_shards()] if hasattr(given, "local_shards") else [given]
    if len(parts) != len(to):
        raise ValueError(f"{name} is cut otherwise in the state dict: take the same plan, or load it by DCP")
    for a, b in zip(to, parts):
        if a.shape != b.shape:
            raise ValueError(f"{name} is {list(b.shape)} in the state dict, and {list(a.shape)} here")
        with torch.no_grad():
            a.copy_(b)
