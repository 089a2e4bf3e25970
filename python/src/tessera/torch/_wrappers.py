"""Optimizers that wrap others, with TorchRec's names: warm-up of the learning rate, and gradient clipping."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch

from ._counterpart import STATE_HOOKS, lacks, refuse, usual


@lacks(*STATE_HOOKS, instead="do it before or after the call")
class OptimizerWrapper(torch.optim.Optimizer):
    """An optimizer that wraps another one with named parameters: a ``KeyedOptimizerWrapper``, a ``CombinedOptimizer``,
    ``model.fused_optimizer`` or a wrapper."""

    def __init__(self, optimizer: Any) -> None:
        check_named(optimizer)
        self._optimizer, self.defaults = optimizer, {}
        self._optimizer_step_pre_hooks: Any = OrderedDict()
        self._optimizer_step_post_hooks: Any = OrderedDict()
        self._patch_step_function()

    @property
    def params(self) -> Dict[str, Any]:
        """The parameters by name."""
        return self._optimizer.params

    @property
    def param_groups(self) -> List[Dict[str, Any]]:  # type: ignore[override]
        """The groups of the optimizer inside."""
        return self._optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The states of the optimizer inside."""
        return self._optimizer.state

    def step(self, closure: Any = None) -> Any:
        """The step of the optimizer inside."""
        return self._optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Calls the ``zero_grad`` of the optimizer inside."""
        self._optimizer.zero_grad(set_to_none)

    def hand_on_rates(self) -> None:
        """Hands learning rates on to tables."""
        hand_on_rates(self._optimizer)

    def init_state(self, sparse_grad_parameter_names: Any = None) -> None:
        """Creates the states that the first step would create."""
        self._optimizer.init_state(sparse_grad_parameter_names)

    def post_load_state_dict(self) -> None:
        """Called when a state dict has been loaded."""
        self._optimizer.post_load_state_dict()

    def save_param_groups(self, save: bool) -> None:
        """Chooses if ``state_dict()`` has the groups with their learning rates."""
        self._optimizer.save_param_groups(save)

    def state_dict(self) -> Dict[str, Any]:
        """The state dict of the optimizer inside."""
        return self._optimizer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a ``state_dict()``."""
        self._optimizer.load_state_dict(state_dict)
        self.post_load_state_dict()


def check_named(optimizer: Any) -> None:
    """Refuses optimizers whose state dicts have numbers for parameters."""
    if not hasattr(optimizer, "params") or not hasattr(optimizer, "save_param_groups"):
        kind = type(optimizer).__name__
        raise TypeError(f"a {kind} has no names for its parameters: give a KeyedOptimizerWrapper of it")


def hand_on_rates(optimizer: Any) -> None:
    """Hands learning rates on to tables, before a closure computes their update."""
    if hasattr(optimizer, "hand_on_rates"):
        optimizer.hand_on_rates()


class WarmupPolicy(enum.Enum):
    """The rule by which a stage's factor on the learning rate follows the number of steps."""

    NONE = "none"
    LINEAR = "linear"
    CONSTANT = "constant"
    POLY = "poly"
    STEP = "step"
    INVSQRT = "inv_sqrt"
    COSINE_ANNEALING_WARM_RESTARTS = "cosine_annealing_warm_restarts"
    INTERPOLATE = "interpolate"


@dataclass
class WarmupStage:
    """A stage of a ``WarmupOptimizer``, up to step max_iters.

    value: the first factor of LINEAR, the factor of CONSTANT, the power of POLY, the base of STEP, and the least factor
    of COSINE_ANNEALING_WARM_RESTARTS, whose period is sgdr_period. lr_scale: an additional factor. decay_iters: the
    number of steps of POLY, or max_iters if not positive; the steps between two decays of STEP, or 1 if not positive.
    INTERPOLATE goes from value at start_interpolating_iters to end_value."""

    policy: WarmupPolicy = WarmupPolicy.LINEAR
    max_iters: int = 1
    value: float = 1.0
    lr_scale: float = 1.0
    decay_iters: int = -1
    sgdr_period: int = 1
    start_interpolating_iters: Optional[int] = None
    end_value: Optional[float] = None

    def factor(self, step: int) -> float:
        """The factor on the learning rate."""
        return self.lr_scale * self._shape(step)

    def _shape(self, step: int) -> float:
        kind = self.policy.name
        if kind == "LINEAR":
            return self.value + (1.0 - self.value) * step / self.max_iters
        if kind == "CONSTANT":
            return self.value
        if kind == "POLY":
            return math.pow(1 - step / (self.decay_iters if self.decay_iters > 0 else self.max_iters), self.value)
        if kind == "STEP":
            return math.pow(self.value, step // max(1, self.decay_iters))
        if kind == "INVSQRT":
            return 1.0 / math.sqrt(step)
        if kind == "COSINE_ANNEALING_WARM_RESTARTS":
            turn = math.pi * (step % self.sgdr_period) / self.sgdr_period
            return self.value + (1.0 - self.value) * 0.5 * (1 + math.cos(turn))
        if kind == "INTERPOLATE":
            assert self.start_interpolating_iters is not None and self.end_value is not None
            done = (step - self.start_interpolating_iters) / (self.max_iters - self.start_interpolating_iters)
            return self.value + (self.end_value - self.value) * done
        return 1.0


def _checked(stages: List[WarmupStage]) -> List[WarmupStage]:
    before = 0
    for i, stage in enumerate(stages):
        policy = WarmupPolicy(getattr(stage.policy, "value", stage.policy))  # ours, or TorchRec's
        stages[i] = stage = WarmupStage(**{**vars(stage), "policy": policy})
        if stage.max_iters <= before:
            raise ValueError(f"stage {i} ends at step {stage.max_iters}, and the one before it at {before}")
        if policy is WarmupPolicy.INTERPOLATE:
            first = stage.start_interpolating_iters
            if first is None or stage.end_value is None or first >= stage.max_iters:
                raise ValueError(f"stage {i} interpolates: give start_interpolating_iters below max_iters, end_value")
        if policy is WarmupPolicy.INVSQRT and before == 0:
            raise ValueError("the first stage begins at step 0, of which INVSQRT has no inverse: let another be first")
        before = stage.max_iters
    return [*stages, WarmupStage(WarmupPolicy.NONE, 1 << 62)]


class WarmupOptimizer(OptimizerWrapper):
    """Sets the learning rate of all groups to ``lr`` times the factor of the current stage. Stages follow each other.

    optimizer: as for ``OptimizerWrapper``. The state dict has the number of steps under param_name."""

    def __init__(
        self,
        optimizer: Any,
        stages: List[WarmupStage],
        lr: float = 0.1,
        lr_param: str = "lr",
        param_name: str = "__warmup",
    ) -> None:
        super().__init__(optimizer)
        self._stages, self._rate, self._name, self._key = _checked(list(stages)), lr, lr_param, param_name
        self._at: Tuple[int, int] = 0, 0  # steps done, and the stage
        self._set_rate()

    def _set_rate(self) -> None:
        done, stage = self._at
        for group in self.param_groups:
            group[self._name] = self._rate * self._stages[stage].factor(done)

    def step(self, closure: Any = None) -> Any:
        """Makes a step of the optimizer inside, and sets the next learning rate."""
        out = super().step(closure)
        done, stage = self._at[0] + 1, self._at[1]
        self._at = done, min(stage + (done > self._stages[stage].max_iters), len(self._stages) - 1)
        self._set_rate()
        return out

    def post_load_state_dict(self) -> None:
        """Sets the learning rate of the step that was loaded."""
        super().post_load_state_dict()
        self._set_rate()

    def state_dict(self) -> Dict[str, Any]:
        """Returns the state dict of the optimizer inside, with the number of steps."""
        out = super().state_dict()
        return {**out, "state": {**out["state"], self._key: {"warmup": torch.tensor(self._at)}}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a ``state_dict()``, and the number of steps if it has it."""
        states = dict(state_dict["state"])
        found = states.pop(self._key, None)
        if found is not None:
            done, stage = found["warmup"].tolist()
            if not 0 <= stage < len(self._stages):
                raise ValueError(f"the state dict is in stage {stage} of a warm-up, which here has {len(self._stages)}")
            self._at = done, stage
        super().load_state_dict({**state_dict, "state": states})


class GradientClipping(enum.Enum):
    """The way in which a ``GradientClippingOptimizer`` clips."""

    NORM = "norm"
    VALUE = "value"
    NONE = "none"


class GradientClippingOptimizer(OptimizerWrapper):
    """Clips gradients before each step: their norm, or each value, to max_gradient. Tables that are updated in backward
    have no gradients then; set ``max_gradient`` in ``fused_params`` for them. For sharded tables without an optimizer,
    the norm is over all ranks' rows, and computing it is collective."""

    def __init__(
        self,
        optimizer: Any,
        clipping: GradientClipping = GradientClipping.NONE,
        max_gradient: float = 0.1,
        norm_type: Union[float, str] = 2.0,
        **theirs: Any,
    ) -> None:
        """theirs: TorchRec's other arguments, which must have their default values."""
        flags = dict.fromkeys(("enable_global_grad_clip", "track_grad_norm"), False)
        refuse("GradientClippingOptimizer", theirs, {**usual("param_to_pgs"), **flags})
        super().__init__(optimizer)
        self._clipping = GradientClipping(getattr(clipping, "value", clipping))
        self._max_gradient, self._norm_type = max_gradient, float(norm_type)
        self.last_total_grad_norm: Optional[torch.Tensor] = None

    def step(self, closure: Any = None) -> Any:
        """Clips, and calls the step of the optimizer inside. A closure is refused, because it would compute new
        gradients."""
        if closure is not None:
            raise NotImplementedError("a closure's gradients cannot be clipped: call it, and then step()")
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if self._clipping is GradientClipping.NORM and params:
            self.last_total_grad_norm = torch.nn.utils.clip_grad_norm_(params, self._max_gradient, self._norm_type)
        elif self._clipping is GradientClipping.VALUE:
            torch.nn.utils.clip_grad_value_(params, self._max_gradient)
        return super().step()
