"""Optimizers that update tables during backward: TorchRec's names for them."""

from __future__ import annotations

import enum
from typing import Any, Dict, Iterable, Mapping, Optional, Type, Union

import torch
from torch import nn

from .._collections import Collection
from .._tables import Optimizer


class EmbOptimType(enum.Enum):
    """Fused optimizers, as ``fused_params["optimizer"]`` names them: ids of optimizer plugins."""

    EXACT_SGD = "exact_sgd"
    EXACT_ADAGRAD = "exact_adagrad"
    EXACT_ROWWISE_ADAGRAD = "exact_rowwise_adagrad"
    ADAM = "adam"
    PARTIAL_ROWWISE_ADAM = "partial_rowwise_adam"
    LAMB = "lamb"
    PARTIAL_ROWWISE_LAMB = "partial_rowwise_lamb"
    LARS_SGD = "lars_sgd"
    NONE = "none"


_BY_CLASS = {
    "SGD": EmbOptimType.EXACT_SGD,
    "Adagrad": EmbOptimType.EXACT_ADAGRAD,
    "RowWiseAdagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "Adam": EmbOptimType.ADAM,
    "PartialRowWiseAdam": EmbOptimType.PARTIAL_ROWWISE_ADAM,
    "LAMB": EmbOptimType.LAMB,
    "PartialRowWiseLAMB": EmbOptimType.PARTIAL_ROWWISE_LAMB,
    "LarsSGD": EmbOptimType.LARS_SGD,
}


def fused_optimizer(fused_params: Optional[Mapping[str, Any]]) -> Optional[Optimizer]:
    """What a sharder's ``fused_params`` ask for: ``{"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.1}``."""
    if fused_params is None:
        return None
    options = dict(fused_params)
    kind = options.pop("optimizer", EmbOptimType.EXACT_SGD)
    options.setdefault("learning_rate", 0.01)
    name = kind.value if isinstance(kind, enum.Enum) else str(kind)
    return Optimizer(name, **options)


def optimizer_of_class(optimizer_class: Union[type, str], kwargs: Mapping[str, Any]) -> Optimizer:
    """The fused optimizer with the formula of a PyTorch or TorchRec class, and its options under our names."""
    name = optimizer_class if isinstance(optimizer_class, str) else optimizer_class.__name__
    if name not in _BY_CLASS:
        raise NotImplementedError(f"{name} cannot run in backward; {', '.join(_BY_CLASS)} can")
    options: Dict[str, Any] = {}
    for key, value in kwargs.items():
        if key == "betas":
            options["beta1"], options["beta2"] = value
        else:
            options["learning_rate" if key == "lr" else key] = value
    return Optimizer(_BY_CLASS[name].value, **options)


def apply_optimizer_in_backward(
    optimizer_class: Type[torch.optim.Optimizer],
    modules: Union[nn.Module, Iterable[nn.Module]],
    optimizer_kwargs: Mapping[str, Any],
) -> None:
    """The tables of these modules are updated by that optimizer during backward. Before they are used or sharded.

    TorchRec takes parameters here; the rows are no parameters of PyTorch, so this takes the modules that hold them.
    """
    from ._modules import Embeddings

    optimizer = optimizer_of_class(optimizer_class, optimizer_kwargs)
    for module in [modules] if isinstance(modules, nn.Module) else modules:
        if not isinstance(module, nn.Module):
            raise NotImplementedError(
                "apply_optimizer_in_backward takes modules with tables: their rows are no parameters of PyTorch"
            )
        for part in module.modules():
            if isinstance(part, Embeddings):
                part.set_optimizer(optimizer)


class FusedOptimizer(torch.optim.Optimizer):
    """The fused optimizers of collections, as PyTorch's schedulers and checkpoints see optimizers.

    ``step()`` only hands on a learning rate that was changed in ``param_groups``: rows are updated in backward. States
    are those of the rows that this rank holds: ``{"embedding_bags.t.weight": {"t.momentum1": tensor}}``.
    """

    def __init__(self, collections: Mapping[str, Collection]) -> None:
        self._collections = dict(collections)
        rates = [_rate(collection) for collection in self._collections.values()]
        groups = [{"params": [torch.empty(0)], "lr": rate} for rate in rates] or [{"params": [torch.empty(0)]}]
        super().__init__(groups, {"lr": 0.0})
        self._applied = [group["lr"] for group in self.param_groups]

    def step(self, closure: Any = None) -> None:
        for i, collection in enumerate(self._collections.values()):
            rate = self.param_groups[i]["lr"]
            if rate != self._applied[i]:
                collection.set_learning_rate(rate)
                self._applied[i] = rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        pass

    def _states(self) -> Iterable[Any]:
        for path, collection in self._collections.items():
            keys = dict(zip(collection.tables, collection.keys))
            pieces: Dict[str, int] = {}
            for shard in collection.shards():
                key = f"{path}.{keys[shard.table]}" if path else keys[shard.table]
                piece = pieces[key] = pieces.get(key, -1) + 1  # several column shards of a table on one rank
                yield collection, shard, f"{key}#{piece}" if piece else key

    def state_dict(self) -> Dict[str, Any]:
        states: Dict[str, Dict[str, torch.Tensor]] = {}
        for collection, shard, key in self._states():
            _, values = collection.read_shard(shard)
            states[key] = {f"{shard.table}.{name}": torch.from_numpy(value) for name, value in values.items()}
        groups = [{"lr": group["lr"]} for group in self.param_groups]
        steps = {path: collection.steps for path, collection in self._collections.items()}
        return {"state": states, "param_groups": groups, "steps": steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for collection, shard, key in self._states():
            if key not in state_dict["state"]:
                raise KeyError(f"the state dict has no state of {key}")
            values = state_dict["state"][key]
            weights, _ = collection.read_shard(shard)
            states = {name: values[f"{shard.table}.{name}"].numpy() for name in shard.states}
            if states:
                collection.write_shard(shard, weights, states)
        for path, steps in state_dict["steps"].items():
            self._collections[path].set_steps(steps)
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group["lr"] = saved["lr"]


def _rate(collection: Collection) -> float:
    held = {shard.table for shard in collection.shards()}
    return collection.learning_rate(next(iter(held))) if held else 0.0
