"""Rows of tables as PyTorch's parameters: tensors over the table's own memory."""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from .._collections import Collection
from .._library import Unimplemented
from .._step import Shard

if TYPE_CHECKING:
    from ._embeddings import Embeddings

# The collection and table of each parameter. Copies of parameters have no entry.
_of_tables: WeakIdKeyDictionary = WeakIdKeyDictionary()


def remember(parameter: Tensor, module: Embeddings, table: str) -> None:
    """Notes which table a parameter belongs to."""
    _of_tables[parameter] = (weakref.ref(module), table)


def forget(parameter: Tensor) -> None:
    """Forgets the table of a parameter."""
    _of_tables.pop(parameter, None)


def table_of(parameter: Tensor) -> Optional[Tuple[Embeddings, str]]:
    """Returns the collection and the table whose rows a parameter holds, or None."""
    module, table = _of_tables.get(parameter, (lambda: None, ""))
    found = module()
    return None if found is None else (found, table)


def known() -> List[Tuple[Tensor, Tuple[Embeddings, str]]]:
    """Returns all parameters of existing tables, with their collections and tables."""
    pairs = [(parameter, table_of(parameter)) for parameter in list(_of_tables.keys())]
    return [(parameter, place) for parameter, place in pairs if place is not None]


def trained_in_backward(parameter: Tensor) -> bool:
    """True if an optimizer updates a parameter in backward."""
    place = table_of(parameter)
    fused = place is not None and place[0]._optimizer(place[1]) is not None
    return fused or hasattr(parameter, "_in_backward_optimizers")


@functools.lru_cache(maxsize=None)
def _counts_lists() -> bool:
    """True if PyTorch counts the writes of several tensors in one call. 2.4 takes one tensor at a time."""
    try:
        torch.autograd.graph.increment_version([torch.zeros(())])
    except (TypeError, RuntimeError):
        return False
    return True


def count_writes(parameters: List[nn.Parameter]) -> None:
    """Lets autograd know that these tensors have changed."""
    for written in [parameters] if _counts_lists() else parameters:
        torch.autograd.graph.increment_version(written)


_watched: WeakIdKeyDictionary = WeakIdKeyDictionary()


def watch_gradient(parameter: Tensor) -> None:
    """Warns when a table that its optimizer updates in backward gets a gradient from another use of its weight."""
    if parameter.requires_grad and parameter not in _watched:
        _watched[parameter] = True
        parameter.register_post_accumulate_grad_hook(_tell_of_gradient)


def _tell_of_gradient(parameter: Tensor) -> None:
    place = table_of(parameter)
    if parameter.grad is not None and place is not None and place[0]._optimizer(place[1]) is not None:
        warnings.warn(
            f"table {place[1]} is updated by its own optimizer in backward, and the loss also uses its weight "
            "directly: that gradient is in weight.grad, and only an optimizer of PyTorch that has the parameter "
            "applies it"
        )


# These methods do not change a tensor's values, although their names end with "_" or begin like a setter's.
_HARMLESS = {"requires_grad_", "retain_grad", "rename_", "share_memory_", "pin_memory"}


class RowCopy(Tensor):
    """A copy of a shard's rows, for a kernel that gives no view of them. It refuses writes, because they would be
    lost."""

    _table = ""

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        changed = kwargs.get("out")
        if changed is None and args and (name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))):
            changed = args[0] if name not in _HARMLESS else None
        if func == Tensor.data.__set__:  # type: ignore[attr-defined]
            name, changed = "data", args[0]
        if isinstance(changed, RowCopy):
            raise NotImplementedError(
                f"{name}: the rows of table {changed._name()} are a copy, because its kernel gives no view of them, "
                "and a write to the copy would be lost: use load_state_dict or core.set_weight"
            )
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **kwargs)
            of = args[0] if args and isinstance(args[0], RowCopy) else None
            if of is None or type(out) not in (Tensor, RowCopy) or out is of:
                return out
            if out.untyped_storage().data_ptr() != of.untyped_storage().data_ptr():
                return out.as_subclass(Tensor)
            view = out.as_subclass(RowCopy)
            view._table = of._table
            return view

    def __deepcopy__(self, memo: Dict[int, Any]) -> nn.Parameter:
        with torch._C.DisableTorchFunctionSubclass():
            out = nn.Parameter(self.detach().as_subclass(Tensor).clone(), requires_grad=self.requires_grad)
        memo[id(self)] = out
        return out

    def _name(self) -> str:
        return self._table or "a collection"


def _as_tensor(array: np.ndarray) -> Tensor:
    if array.dtype == np.uint16:  # bfloat16, which NumPy lacks
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def shard_tensors(core: Collection, shard: Shard, dtype: torch.dtype) -> Tuple[Tensor, Dict[str, Tensor]]:
    """Returns the rows and the optimizer's states of a shard: views, or copies if its kernel gives no views."""
    try:
        rows, states = core.view_shard(shard)
        return _as_tensor(rows), {name: torch.from_numpy(state) for name, state in states.items()}
    except Unimplemented:
        rows, states = core.read_shard(shard)
    copy = torch.from_numpy(rows).to(dtype).as_subclass(RowCopy)
    copy._table = shard.table
    return copy, {name: torch.from_numpy(state) for name, state in states.items()}


# Attributes of PyTorch's modules that are options of a lookup.
_OPTIONS = frozenset("mode padding_idx max_norm norm_type scale_grad_by_freq include_last_offset".split())


class Rows(nn.Module):
    """The place of one table in a collection, where TorchRec has an ``nn.EmbeddingBag`` or ``nn.Embedding``: ``weight``
    is the table's rows, or this rank's first shard. Other shards of this rank are ``weight_1``, ..."""

    def __init__(self, num_embeddings: int, embedding_dim: int, **options: Any) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.__dict__.update(options)

    def _apply(self, fn: Callable, recurse: bool = True) -> Rows:
        """Does nothing: rows keep their type, and the collection converts lookup results."""
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse_dtensor(value)
        if name in _OPTIONS and value != self.__dict__.get(name):
            raise NotImplementedError(
                f"{name} of a table's place has no effect on lookups of its collection: it cannot be changed"
            )
        super().__setattr__(name, value)

    def place(self, tensors: List[Tensor], requires_grad: bool) -> List[nn.Parameter]:
        """Makes these tensors the parameters. An existing parameter stays the same object."""
        out = []
        for i, tensor in enumerate(tensors):
            name = f"weight_{i}" if i else "weight"
            old = self._parameters.get(name)
            if old is not None and old.device == tensor.device and type(old.data) is type(tensor):
                old.data = tensor
            else:
                grad = requires_grad if old is None else old.requires_grad
                kept = dict(old.__dict__) if old is not None else {}
                old = nn.Parameter(tensor, requires_grad=grad)
                kept.setdefault("_table", getattr(tensor, "_table", ""))
                old.__dict__.update(kept)
                self._parameters[name] = old
            out.append(old)
        return out

    def extra_repr(self) -> str:
        """The shape of the table, for ``print(module)``."""
        return f"{self.num_embeddings}, {self.embedding_dim}"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """The collection saves all of its tables."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """The collection loads all of its tables."""


def _telling(name: str) -> Callable:
    plain = getattr(nn.Module, name)

    @functools.wraps(plain)
    def register(self: Rows, *args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"{name}: a lookup of the collection does not call the places of its tables, and so not their hooks: "
            "register it on the collection"
        )
        return plain(self, *args, **kwargs)

    return register


for _of in ("forward", "forward_pre", "full_backward", "full_backward_pre"):
    setattr(Rows, f"register_{_of}_hook", _telling(f"register_{_of}_hook"))


def _refuse_dtensor(value: Any) -> None:
    """Refuses a DTensor, with which fully_shard and parallelize_module replace a weight."""
    if isinstance(value, nn.Parameter) and hasattr(value, "placements"):
        raise NotImplementedError(
            "a table's weight cannot become a DTensor: DistributedModelParallel shards tables, and fully_shard and "
            "parallelize_module take the other modules of a model"
        )


_AS_IN_PYTORCH = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "sparse": False}


class BagRows(Rows, nn.EmbeddingBag):
    """The place of a table in a collection of bags on one rank."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Returns pooled rows as ``nn.EmbeddingBag`` does, for a table without an optimizer."""
        return nn.EmbeddingBag.forward(_readable(self), *args, **kwargs)


class SequenceRows(Rows, nn.Embedding):
    """The place of a table in a collection of sequences on one rank."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns rows as ``nn.Embedding`` does, for a table without an optimizer."""
        return nn.Embedding.forward(_readable(self), input)


def _readable(place: Rows) -> Any:
    if torch.is_grad_enabled() and place.weight.requires_grad and trained_in_backward(place.weight):
        raise NotImplementedError("this table's optimizer is the collection's: look rows up by the collection")
    return place


def place_of(config: Any, kind: type) -> Rows:
    """Makes the module that holds a table's parameters, an object of the class ``kind``."""
    shape = config.num_embeddings, config.embedding_dim
    if kind is BagRows:
        pooling = str(getattr(config.pooling, "value", config.pooling)).lower()
        return BagRows(*shape, mode=pooling, include_last_offset=True, **_AS_IN_PYTORCH)
    return kind(*shape, **_AS_IN_PYTORCH) if kind is SequenceRows else kind(*shape)


# ---- tensors with which a program replaces a parameter


class _SeenAs:
    """The modules, parameters and addresses of all tables. Each lookup checks if they have changed."""

    __slots__ = ("_places", "_modules", "_parameters", "_ids", "_viewed", "_addresses")

    def __init__(self, places: Dict[str, Any], parameters: List[nn.Parameter]) -> None:
        self._places, self._modules = places, list(places.values())
        self._parameters = [(place._parameters, name) for place in self._modules for name in place._parameters]
        self._ids = list(map(id, parameters))
        self._viewed = [p for p in parameters if not isinstance(p, RowCopy)]
        self._addresses = [p.data_ptr() for p in self._viewed]

    def same(self) -> bool:
        """True if nothing has changed."""
        return (
            list(self._places.values()) == self._modules
            and [id(found.get(name)) for found, name in self._parameters] == self._ids
            and [p.data_ptr() for p in self._viewed] == self._addresses
        )


def look(module: Embeddings) -> None:
    """Notes each table's module, its current parameters, and its own rows."""
    places = module._places()._modules
    module._seen = [
        (places, table, place, name, p, 0 if isinstance(p, RowCopy) else p.data_ptr(), p.detach())
        for table, place in places.items() for name, p in place._parameters.items()
    ]  # fmt: skip
    module._seen_as = _SeenAs(places, [p for _, _, _, _, p, _, _ in module._seen])


def take_over(module: Embeddings) -> bool:
    """Copies rows that a program has assigned, as a parameter or as its ``data``, into the table. Returns True if
    another tensor replaces a table's rows, so that PyTorch computes the lookup."""
    stands_in = False
    for places, table, place, name, parameter, address, own in module._seen:
        if places.get(table) is not place:
            raise RuntimeError(
                f"the place of table {table} has become another module, {type(places.get(table)).__name__}: write to "
                "the weight that was there instead, or make another collection"
            )
        given = place._parameters.get(name)
        _refuse_dtensor(given)
        if not isinstance(given, nn.Parameter) or _of_another(given, module, table):
            stands_in = True
        elif given is not parameter or (address and given.data_ptr() != address):
            _copy_in(module, table, parameter, given, own)
    if stands_in and (module.core._group.world_size > 1 or (torch.is_grad_enabled() and module.trains())):
        raise NotImplementedError(
            "another tensor stands in for a table's rows, as functional_call, parametrizations and shared weights put "
            "it there: the tables must be whole on this rank and have no optimizer of their own"
        )
    if not stands_in:
        look(module)
    return stands_in


def _of_another(given: nn.Parameter, module: Embeddings, table: str) -> bool:
    other = table_of(given)
    return other is not None and (other[0] is not module or other[1] != table)


def _copy_in(module: Embeddings, table: str, parameter: nn.Parameter, given: nn.Parameter, own: Tensor) -> None:
    if given.shape != own.shape or given.device != own.device:
        shape, device = list(given.shape), given.device
        if given is parameter:
            parameter.data = own
        raise ValueError(
            f"the weight of table {table} has become {shape} on {device}, and the table is {list(own.shape)} on "
            f"{own.device}"
        )
    with torch.no_grad():
        own.copy_(given)
    given.data = own
    if given is not parameter:
        forget(parameter)
        remember(given, module, table)
        module.swap(parameter, given)
