"""Optimizers that update tables during backward: TorchRec's names for them."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, Union

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
    """The optimizer of ``fused_params``: ``{"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.1}``."""
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
    params: Union[nn.Module, Iterable[nn.Module]],
    optimizer_kwargs: Mapping[str, Any],
) -> None:
    """The tables of these modules are updated by that optimizer during backward. Before they are used or sharded.

    TorchRec takes parameters here; the rows are no parameters of PyTorch, so this takes the modules that hold them.
    """
    from ._modules import Embeddings

    optimizer = optimizer_of_class(optimizer_class, optimizer_kwargs)
    given = [params] if isinstance(params, nn.Module) else list(params)
    found = [part for each in given if isinstance(each, nn.Module) for part in each.modules()]
    tables = [part for part in found if isinstance(part, Embeddings)]
    if not tables or not all(isinstance(each, nn.Module) for each in given):
        raise NotImplementedError(
            "apply_optimizer_in_backward takes modules with tables: their rows are no parameters of PyTorch"
        )
    for part in tables:
        part.set_optimizer(optimizer)


def in_backward_optimizer_filter(
    named_parameters: Iterable[Tuple[str, nn.Parameter]], include: bool = False
) -> Iterable[Tuple[str, nn.Parameter]]:
    """The parameters that are not updated in backward: all, since rows are none. include: the others."""
    return iter(()) if include else iter(named_parameters)


class _InBackward(torch.optim.Optimizer):
    """Only a name, for ``apply_optimizer_in_backward``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        name = type(self).__name__
        raise NotImplementedError(f"{name} only names an optimizer: apply_optimizer_in_backward({name}, MODULE, ...)")


class SGD(_InBackward):
    """``exact_sgd``."""


class Adagrad(_InBackward):
    """``exact_adagrad``."""


class RowWiseAdagrad(_InBackward):
    """``exact_rowwise_adagrad``."""


class Adam(_InBackward):
    """``adam``."""


class PartialRowWiseAdam(_InBackward):
    """``partial_rowwise_adam``."""


class LAMB(_InBackward):
    """``lamb``."""


class PartialRowWiseLAMB(_InBackward):
    """``partial_rowwise_lamb``."""


class LarsSGD(_InBackward):
    """``lars_sgd``."""


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
        groups = []
        for (path, collection), group in zip(self._collections.items(), self.param_groups):
            keys = [f"{path}.{key}" if path else key for key in collection.keys]
            groups.append({"params": keys, "lr": group["lr"], "steps": collection.steps})
        return {"state": states, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for collection, shard, key in self._states():
            if key not in state_dict["state"]:
                raise KeyError(f"the state dict has no state of {key}")
            values = state_dict["state"][key]
            weights, _ = collection.read_shard(shard)
            states = {name: values[f"{shard.table}.{name}"].numpy() for name in shard.states}
            if states:
                collection.write_shard(shard, weights, states)
        for collection, group, saved in zip(self._collections.values(), self.param_groups, state_dict["param_groups"]):
            collection.set_steps(saved["steps"])
            group["lr"] = saved["lr"]


class KeyedOptimizerWrapper(torch.optim.Optimizer):
    """An optimizer whose state dict has the parameters' names in the place of numbers.

    ``KeyedOptimizerWrapper(dict(model.named_parameters()), lambda params: torch.optim.SGD(params, lr=0.1))``.
    params: by name. optim_factory: makes the optimizer of a list of them."""

    def __init__(
        self,
        params: Mapping[str, torch.Tensor],
        optim_factory: Callable[[Any], torch.optim.Optimizer],
        pass_params_dict: bool = False,
    ) -> None:
        """pass_params_dict: optim_factory is given params by name."""
        self.params = dict(params)
        self._optimizer = optim_factory(self.params if pass_params_dict else list(self.params.values()))
        super().__init__(self._optimizer.param_groups, self._optimizer.defaults)
        self.state, self.param_groups = self._optimizer.state, self._optimizer.param_groups

    def step(self, closure: Any = None) -> Any:
        return self._optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._optimizer.zero_grad(set_to_none)

    def init_state(self, sparse_grad_parameter_names: Optional[Sequence[str]] = None) -> None:
        """Makes the state that comes with the first step, by a step without gradients."""
        for name, param in self.params.items():
            if param.requires_grad:
                zero = torch.zeros_like(param)
                param.grad = zero.to_sparse() if name in (sparse_grad_parameter_names or ()) else zero
        self.step()

    def state_dict(self) -> Dict[str, Any]:
        names = list(self.params)
        inner = self._optimizer.state_dict()
        groups = [{**group, "params": [names[i] for i in group["params"]]} for group in inner["param_groups"]]
        return {"state": {names[i]: state for i, state in inner["state"].items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        place = {name: i for i, name in enumerate(self.params)}
        named = [name for group in state_dict["param_groups"] for name in group["params"]]
        wrong = set(place).symmetric_difference(named)
        if wrong:
            raise ValueError(f"the state dict and the optimizer do not have the same parameters: {sorted(wrong)[0]}")
        groups = [{**group, "params": [place[n] for n in group["params"]]} for group in state_dict["param_groups"]]
        states = {place[name]: state for name, state in state_dict["state"].items()}
        self._optimizer.load_state_dict({"state": states, "param_groups": groups})
        self.state, self.param_groups = self._optimizer.state, self._optimizer.param_groups


class CombinedOptimizer(torch.optim.Optimizer):
    """Several optimizers as one: ``CombinedOptimizer([model.fused_optimizer, dense])``. Each is a
    ``KeyedOptimizerWrapper`` or a ``FusedOptimizer``, or a pair of one and a name before it, which begins its keys."""

    def __init__(self, optims: Sequence[Union[torch.optim.Optimizer, Tuple[str, torch.optim.Optimizer]]]) -> None:
        self.optimizers: List[Tuple[str, torch.optim.Optimizer]] = [
            optim if isinstance(optim, tuple) else ("", optim) for optim in optims
        ]
        for _, optim in self.optimizers:
            if not isinstance(optim, (KeyedOptimizerWrapper, FusedOptimizer, CombinedOptimizer)):
                raise TypeError(
                    f"a {type(optim).__name__} has no names for its parameters: give a KeyedOptimizerWrapper of it"
                )
        self.defaults: Dict[str, Any] = {}
        self.state: Any = {}

    @property
    def param_groups(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        return [group for _, optim in self.optimizers for group in optim.param_groups]

    def step(self, closure: Any = None) -> None:
        for _, optim in self.optimizers:
            optim.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for _, optim in self.optimizers:
            optim.zero_grad(set_to_none)

    def state_dict(self) -> Dict[str, Any]:
        out: Dict[str, Any] = {"state": {}, "param_groups": []}
        for name, optim in self.optimizers:
            inner = optim.state_dict()
            for key, state in inner["state"].items():
                if _named(name, key) in out["state"]:
                    raise ValueError(f"two optimizers have a parameter {_named(name, key)}: give them names")
                out["state"][_named(name, key)] = state
            for group in inner["param_groups"]:
                out["param_groups"].append({**group, "params": [_named(name, key) for key in group["params"]]})
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        groups = list(state_dict["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError(f"the state dict has {len(groups)} groups, and the optimizers {len(self.param_groups)}")
        for name, optim in self.optimizers:
            own, groups = groups[: len(optim.param_groups)], groups[len(optim.param_groups) :]
            keys = [key for group in own for key in group["params"]]
            begin = len(_named(name, ""))
            # Further shards of a table on a rank are "key#1", "key#2", ...
            states = {k[begin:]: v for k, v in state_dict["state"].items() if k.split("#")[0] in keys}
            own = [{**group, "params": [key[begin:] for key in group["params"]]} for group in own]
            optim.load_state_dict({"state": states, "param_groups": own})


def _named(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _rate(collection: Collection) -> float:
    held = {shard.table for shard in collection.shards()}
    return collection.learning_rate(next(iter(held))) if held else 0.0
