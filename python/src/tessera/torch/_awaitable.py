"""Results that may come later, with TorchRec's names. Lookups here are done when they return."""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, Generic, List, Optional, TypeVar

import torch.fx

Result = TypeVar("Result")


class Awaitable(Generic[Result]):
    """A result that ``wait()`` returns. A subclass implements ``_wait_impl()``."""

    def __init__(self) -> None:
        self._callbacks: List[Callable[[Any], Any]] = []

    def _wait_impl(self) -> Result:
        raise NotImplementedError(f"{type(self).__name__} needs a _wait_impl()")

    def wait(self) -> Result:
        """Returns the result, after the callbacks."""
        out = self._wait_impl()
        for callback in self.callbacks:
            out = callback(out)
        return out

    @property
    def callbacks(self) -> List[Callable[[Any], Any]]:
        """Functions that ``wait()`` calls with the result, one after the other."""
        return self._callbacks


class NoWait(Awaitable[Result]):
    """A result that is already available."""

    def __init__(self, obj: Result) -> None:
        super().__init__()
        self._obj = obj

    def _wait_impl(self) -> Result:
        return self._obj


class LazyAwaitable(Awaitable[Result]):
    """Waits when the result is first used by a function of PyTorch, an attribute or an operator."""

    def __init__(self) -> None:
        super().__init__()
        self._result: Optional[Result] = None

    @staticmethod
    def _wait_async(obj: Any) -> Any:
        if not isinstance(obj, LazyAwaitable):
            return obj
        if obj._result is None:
            obj._result = obj.wait()
        return obj._result

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        waited = torch.fx.node.map_aggregate((tuple(args), dict(kwargs or {})), LazyAwaitable._wait_async)
        return func(*waited[0], **waited[1])

    def __getattr__(self, name: str) -> Any:
        if name in ("_result", "_callbacks"):
            raise RuntimeError(f"{type(self).__name__} has not been initialized: its __init__ calls super().__init__()")
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(LazyAwaitable._wait_async(self), name)


def _of_result(function: Callable) -> Callable:
    def method(self: Any, *others: Any) -> Any:
        return function(*(LazyAwaitable._wait_async(one) for one in (self, *others)))

    return method


_OPERATORS = (
    "add sub mul truediv floordiv mod pow matmul and or xor lt le gt ge eq ne neg pos abs invert getitem setitem "
    "contains"
)
for _name in _OPERATORS.split():
    setattr(LazyAwaitable, f"__{_name}__", _of_result(getattr(operator, f"__{_name}__")))
for _name in "add sub mul truediv floordiv mod pow matmul".split():
    _operator = getattr(operator, f"__{_name}__")
    setattr(LazyAwaitable, f"__r{_name}__", _of_result(lambda a, b, of=_operator: of(b, a)))
for _name, _function in (("len", len), ("iter", iter), ("str", str), ("bool", bool), ("float", float), ("int", int)):
    setattr(LazyAwaitable, f"__{_name}__", _of_result(_function))
LazyAwaitable.__hash__ = object.__hash__  # type: ignore[method-assign]


class LazyNoWait(LazyAwaitable[Result]):
    """A result that is already available, with the interface of ``LazyAwaitable``."""

    def __init__(self, obj: Result) -> None:
        super().__init__()
        self._obj = obj

    def _wait_impl(self) -> Result:
        return self._obj


class JaggedRows(Dict[str, Any]):
    """Rows by output name. ``wait()`` returns them, because TorchRec's programs call it."""

    def wait(self) -> JaggedRows:
        """Returns this object: the lookup is done."""
        return self
