"""Optimizers that update tables during backward: TorchRec's names for them."""

from __future__ import annotations

import enum
import inspect
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

import torch
from torch import nn

from .._tables import Optimizer
from ._counterpart import STATE_HOOKS, lacks
from ._wrappers import OptimizerWrapper, WarmupOptimizer, check_named, hand_on_rates


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


# For tables that an optimizer of PyTorch trains: it keeps the sum of gradients as its state and changes no row.
COLLECTS = Optimizer("sgd", learning_rate=0.0, momentum=1.0)

_BY_CLASS = {
    "SGD": EmbOptimType.EXACT_SGD,
    "Adagrad": EmbOptimType.EXACT_ADAGRAD,
    "RowWiseAdagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "Adam": EmbOptimType.ADAM,
    "AdamW": EmbOptimType.ADAM,
    "PartialRowWiseAdam": EmbOptimType.PARTIAL_ROWWISE_ADAM,
    "LAMB": EmbOptimType.LAMB,
    "PartialRowWiseLAMB": EmbOptimType.PARTIAL_ROWWISE_LAMB,
    "LarsSGD": EmbOptimType.LARS_SGD,
}


def fused_optimizer(fused_params: Optional[Mapping[str, Any]]) -> Optional[Optimizer]:
    """Returns the optimizer of ``fused_params``: ``{"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.1}``."""
    if fused_params is None:
        return None
    options = {key: value for key, value in fused_params.items() if key not in _OF_FBGEMM}
    for key, usual in _OF_FBGEMM.items():
        if key in fused_params and _plain(fused_params[key]) not in usual:
            raise NotImplementedError(
                f"fused_params: {key} has no counterpart in tessera.torch, and was given as {fused_params[key]!r:.60}"
            )
    if options.pop("gradient_clipping", "max_gradient" in options):
        options.setdefault("max_gradient", 1.0)
    else:
        options.pop("max_gradient", None)
    kind = options.pop("optimizer", EmbOptimType.EXACT_SGD)
    options.setdefault("learning_rate", 0.01)
    name = str(_plain(kind)).replace("row_wise", "rowwise")  # FBGEMM's spelling
    return _named_optimizer(f"exact_{name}" if name in ("adagrad", "rowwise_adagrad") else name, options)


# Further keys of FBGEMM's tables, with the values that have no effect here.
_OF_FBGEMM: Dict[str, Any] = {
    "stochastic_rounding": (False, True),  # here rows of 16 bits are rounded to nearest
    "output_dtype": ("fp32", 0, None), "cache_algorithm": (None,), "cache_load_factor": (None,),
    "prefetch_pipeline": (False,), "bounds_check_mode": (None,), "cache_precision": (None,),
    "weights_precision": (None,), "feature_table_map": (None,),
}  # fmt: skip


def _plain(value: Any) -> Any:
    """The value of an enum, ours or FBGEMM's."""
    return value.value if isinstance(value, enum.Enum) else value


# Options that only some formulas use, with the ends of those optimizers' names.
_ONLY_OF = {"momentum": "sgd", "beta1": ("adam", "lamb"), "beta2": ("adam", "lamb"), "eta": "lars_sgd"}


def _named_optimizer(name: str, options: Dict[str, Any]) -> Optimizer:
    """Returns the optimizer of this name. If options ask for momentum, it is sgd instead of exact_sgd."""
    of_momentum = ("momentum", "dampening", "nesterov")
    for key, kinds in _ONLY_OF.items():
        if options.get(key) and not name.endswith(kinds):
            raise NotImplementedError(f"{key} has no effect on {name}, and was given as {options[key]!r}: leave it out")
    if name in ("exact_sgd", "sgd"):
        given = {key: options.pop(key) for key in of_momentum if key in options}
        if any(given.values()) or name == "sgd":
            return Optimizer("sgd", **options, **{key: value for key, value in given.items() if value})
    return Optimizer(name, **options)


def optimizer_of_class(optimizer_class: Union[type, str], kwargs: Mapping[str, Any]) -> Optimizer:
    """Returns the fused optimizer with the formula of a PyTorch or TorchRec class, and its options under Tessera's
    names."""
    name = optimizer_class if isinstance(optimizer_class, str) else optimizer_class.__name__
    if name not in _BY_CLASS:
        raise NotImplementedError(f"{name} cannot run in backward; {', '.join(_BY_CLASS)} can")
    rate = inspect.signature(optimizer_class).parameters.get("lr") if isinstance(optimizer_class, type) else None
    if "lr" not in kwargs and rate is not None and rate.default not in (0.01, rate.empty):
        raise ValueError(f"give the lr of {name}: it is {rate.default} by default in PyTorch, and 0.01 in FBGEMM")
    options: Dict[str, Any] = {}
    for key, value in kwargs.items():
        if key == "betas":
            options["beta1"], options["beta2"] = value
        elif key in _OF_TORCH:
            if value not in _OF_TORCH[key]:
                raise NotImplementedError(f"{name} in backward has no {key}, but was given {value!r}: leave it out")
        else:
            options["learning_rate" if key == "lr" else key] = value
    if name == "Adam" and options.get("weight_decay"):
        raise NotImplementedError(
            "Adam in backward takes weight_decay off the weights, as AdamW does, and does not add it to the gradient: "
            "give AdamW, or leave weight_decay out"
        )
    if name == "AdamW":
        options.setdefault("weight_decay", 0.01)
    if name in ("Adagrad", "RowWiseAdagrad") and options.get("weight_decay"):
        options.setdefault("weight_decay_mode", "l2")
    if name == "SGD" and options.get("weight_decay"):
        return _named_optimizer("sgd", options)  # L2, as torch.optim.SGD has it
    return _named_optimizer(_BY_CLASS[name].value, options)


# Options of torch.optim's classes that say how a step is computed, with the values that change nothing.
_OF_TORCH: Dict[str, Tuple[Any, ...]] = {
    "foreach": (None, True, False), "fused": (None, True, False), "capturable": (False,), "differentiable": (False,),
    "maximize": (False,), "amsgrad": (False,), "lr_decay": (0, 0.0), "initial_accumulator_value": (0, 0.0),
    "decoupled_weight_decay": (False,),
}  # fmt: skip


def apply_optimizer_in_backward(
    optimizer_class: Type[torch.optim.Optimizer],
    params: Union[nn.Module, Iterable[Union[nn.Module, nn.Parameter]]],
    optimizer_kwargs: Mapping[str, Any],
) -> None:
    """Lets an optimizer update these tables during backward. Call it before they are sharded. Rows stay.

    params: parameters of tables, such as ``ebc.parameters()`` or ``ebc.embedding_bags["t"].parameters()``, or modules,
    which stand for all of their tables. Other parameters go to PyTorch's ``_apply_optimizer_in_backward``."""
    from ._embeddings import Embeddings
    from ._weights import table_of

    given = [params] if isinstance(params, (nn.Module, nn.Parameter)) else list(params)
    tables: Dict[Embeddings, Optional[List[str]]] = {}
    others: List[nn.Parameter] = []
    for each in given:
        if isinstance(each, nn.Module):
            found = [part for part in each.modules() if isinstance(part, Embeddings)]
            tables.update(dict.fromkeys(found))
            if not found:
                raise ValueError(f"a {type(each).__name__} was given that has no tables: give its parameters()")
            continue
        place = table_of(each)
        if place is None:
            others.append(each)
        elif tables.setdefault(place[0], []) is not None:
            tables[place[0]].append(place[1])  # type: ignore[union-attr]
    if not given:
        raise ValueError("apply_optimizer_in_backward was given no parameters: a generator may be exhausted")
    if tables:
        optimizer = optimizer_of_class(optimizer_class, optimizer_kwargs)
    for part, names in tables.items():
        part.set_optimizer(optimizer, names)
    if others:
        from torch.distributed.optim import _apply_optimizer_in_backward

        _apply_optimizer_in_backward(optimizer_class, others, dict(optimizer_kwargs))


def in_backward_optimizer_filter(
    named_parameters: Iterable[Tuple[str, nn.Parameter]], include: bool = False
) -> Iterator[Tuple[str, nn.Parameter]]:
    """Returns the parameters that no optimizer updates in backward. include: return the other parameters instead."""
    from ._weights import trained_in_backward

    for name, parameter in named_parameters:
        if trained_in_backward(parameter) == include:
            yield name, parameter


class _InBackward(torch.optim.Optimizer):
    """A base of classes that only name an optimizer for ``apply_optimizer_in_backward``."""

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


@lacks(*STATE_HOOKS, instead="do it before or after the call")
class KeyedOptimizerWrapper(torch.optim.Optimizer):
    """An optimizer whose state dict has the parameters' names instead of numbers.

    ``KeyedOptimizerWrapper(dict(model.named_parameters()), lambda params: torch.optim.SGD(params, lr=0.1))``.
    params: the parameters by name. optim_factory: makes the optimizer from a list of them."""

    def __init__(
        self,
        params: Mapping[str, torch.Tensor],
        optim_factory: Callable[[Any], torch.optim.Optimizer],
        pass_params_dict: bool = False,
    ) -> None:
        """pass_params_dict: optim_factory gets params by name."""
        self.params, self._with_groups = dict(params), False
        self._optimizer = optim_factory(self.params if pass_params_dict else list(self.params.values()))
        super().__init__(self._optimizer.param_groups, self._optimizer.defaults)
        self.state, self.param_groups = self._optimizer.state, self._optimizer.param_groups

    def step(self, closure: Any = None) -> Any:
        """The optimizer's step."""
        return self._optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the parameters' gradients."""
        self._optimizer.zero_grad(set_to_none)

    def init_state(self, sparse_grad_parameter_names: Optional[Sequence[str]] = None) -> None:
        """Creates the state that the first step would create, by a step without gradients."""
        for name, param in self.params.items():
            if param.requires_grad:
                zero = torch.zeros_like(param)
                param.grad = zero.to_sparse() if name in (sparse_grad_parameter_names or ()) else zero
        self.step()

    def post_load_state_dict(self) -> None:
        """Does nothing."""

    def save_param_groups(self, save: bool) -> None:
        """Chooses if ``state_dict()`` has the groups with their learning rates."""
        self._with_groups = save

    def state_dict(self) -> Dict[str, Any]:
        """Returns the optimizer's states by name. States of a sharded table's rows are ShardedTensors. As in TorchRec,
        it has ``param_groups`` only after ``save_param_groups(True)``."""
        from ._state import optimizer_state

        names, inner = list(self.params), self._optimizer.state_dict()
        states = {names[i]: optimizer_state(self.params[names[i]], state) for i, state in inner["state"].items()}
        out: Dict[str, Any] = {"state": states}
        if self._with_groups:
            groups = inner["param_groups"]
            out["param_groups"] = [{**group, "params": [names[i] for i in group["params"]]} for group in groups]
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads copies of a ``state_dict()`` of the same parameters, and their groups if it has them."""
        from ._state import local_state

        place = {name: i for i, name in enumerate(self.params)}
        given, groups = state_dict["state"], self._optimizer.state_dict()["param_groups"]
        wrong = set(given) - set(place)
        wrong.update(name for name, p in self.params.items() if self._optimizer.state.get(p) and name not in given)
        if "param_groups" in state_dict:
            named = [name for group in state_dict["param_groups"] for name in group["params"]]
            wrong.update(set(place).symmetric_difference(named))
        if wrong:
            raise ValueError(f"the state dict and the optimizer do not have the same parameters: {sorted(wrong)[0]}")
        if "param_groups" in state_dict:
            groups = [{**group, "params": [place[n] for n in group["params"]]} for group in state_dict["param_groups"]]
        states = {place[name]: local_state(self.params[name], state) for name, state in given.items()}
        self._optimizer.load_state_dict({"state": states, "param_groups": groups})
        self.state, self.param_groups = self._optimizer.state, self._optimizer.param_groups


@lacks(*STATE_HOOKS, instead="do it before or after the call")
class CombinedOptimizer(torch.optim.Optimizer):
    """Several optimizers as one: ``CombinedOptimizer([model.fused_optimizer, dense])``. Each is a
    ``KeyedOptimizerWrapper``, a ``FusedOptimizer`` or a wrapper, or a pair of a prefix for its keys and such an
    optimizer."""

    def __init__(self, optims: Sequence[Union[torch.optim.Optimizer, Tuple[str, torch.optim.Optimizer]]]) -> None:
        self.optimizers: List[Tuple[str, torch.optim.Optimizer]] = [
            optim if isinstance(optim, tuple) else ("", optim) for optim in optims
        ]
        for _, optim in self.optimizers:
            check_named(optim)
        self.defaults: Dict[str, Any] = {}
        self.state: Any = {}
        self._optimizer_step_pre_hooks: Any = OrderedDict()
        self._optimizer_step_post_hooks: Any = OrderedDict()
        self._patch_step_function()

    @property
    def params(self) -> Dict[str, torch.Tensor]:
        """The parameters of all optimizers by name."""
        out: Dict[str, torch.Tensor] = {}
        for name, optim in self.optimizers:
            for key, parameter in optim.params.items():  # type: ignore[attr-defined]
                if out.setdefault(_named(name, key), parameter) is not parameter:
                    raise ValueError(f"two optimizers have a parameter {_named(name, key)}: give them names")
        return out

    @property
    def param_groups(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        """The groups of all optimizers, one after the other."""
        return [group for _, optim in self.optimizers for group in optim.param_groups]

    def step(self, closure: Any = None) -> Any:
        """Makes a step of each optimizer. closure: computes the loss and its backward; it is called once. Returns its
        result."""
        loss = None
        if closure is not None:
            self.hand_on_rates()
            with torch.enable_grad():
                loss = closure()
        for _, optim in self.optimizers:
            optim.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls each optimizer's ``zero_grad``."""
        for _, optim in self.optimizers:
            optim.zero_grad(set_to_none)

    def hand_on_rates(self) -> None:
        """Passes learning rates to the tables."""
        for _, optim in self.optimizers:
            hand_on_rates(optim)

    def init_state(self, sparse_grad_parameter_names: Optional[Sequence[str]] = None) -> None:
        """Calls each optimizer's ``init_state``."""
        for _, optim in self.optimizers:
            optim.init_state(sparse_grad_parameter_names)  # type: ignore[attr-defined]

    def post_load_state_dict(self) -> None:
        """Calls each optimizer's ``post_load_state_dict``."""
        for _, optim in self.optimizers:
            optim.post_load_state_dict()  # type: ignore[attr-defined]

    def save_param_groups(self, save: bool) -> None:
        """Chooses if ``state_dict()`` has the groups of all optimizers with their learning rates."""
        for _, optim in self.optimizers:
            optim.save_param_groups(save)  # type: ignore[attr-defined]

    def state_dict(self) -> Dict[str, Any]:
        """Returns one state dict for all optimizers, whose keys begin with their names. As in TorchRec, it has
        ``param_groups`` only after ``save_param_groups(True)``."""
        out: Dict[str, Any] = {"state": {}}
        for name, optim in self.optimizers:
            inner = optim.state_dict()
            for key, state in inner["state"].items():
                if _named(name, key) in out["state"]:
                    raise ValueError(f"two optimizers have a parameter {_named(name, key)}: give them names")
                out["state"][_named(name, key)] = state
            for group in inner.get("param_groups", []):
                named = {**group, "params": [_named(name, key) for key in group["params"]]}
                out.setdefault("param_groups", []).append(named)
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Gives each optimizer its part of a ``state_dict()``."""
        groups = list(state_dict.get("param_groups", []))
        known = {_named(name, key) for name, optim in self.optimizers for key in _keys_of(optim)}
        unknown = sorted(set(state_dict["state"]) - known)
        if unknown:
            raise ValueError(f"the state dict has a state of {unknown[0]}, which none of the optimizers has")
        for name, optim in self.optimizers:
            keys = {_named(name, key): key for key in _keys_of(optim)}
            own = [{**group, "params": [keys[key] for key in group["params"]]} for group in groups
                   if set(group["params"]) <= set(keys)]  # fmt: skip
            inner: Dict[str, Any] = {"state": {keys[k]: v for k, v in state_dict["state"].items() if k in keys}}
            if own:
                inner["param_groups"] = own
            optim.load_state_dict(inner)


def _keys_of(optim: Any) -> List[str]:
    """Returns the keys of an optimizer's state dict."""
    own = [optim._key] if isinstance(optim, WarmupOptimizer) else []
    if isinstance(optim, OptimizerWrapper):
        return own + _keys_of(optim._optimizer)
    if isinstance(optim, CombinedOptimizer):
        return [_named(name, key) for name, inner in optim.optimizers for key in _keys_of(inner)]
    return list(optim.params)


def _named(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
