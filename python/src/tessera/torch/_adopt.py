"""Takes over the tables of models of other libraries, and gives them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

import torch
from torch import Tensor, nn

from .._tables import DataType, Optimizer, PoolingType
from . import _ops
from ._configs import EmbeddingBagConfig, EmbeddingConfig
from ._embeddings import Embeddings
from ._modules import EmbeddingBagCollection, EmbeddingCollection
from ._sparse import KeyedJaggedTensor
from ._weights import Rows, forget

_MODES = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}


_OPTIONS = frozenset("padding_idx max_norm norm_type scale_grad_by_freq sparse mode include_last_offset".split())


class _Adopted:
    """The attributes and methods that PyTorch's modules have and a model may use."""

    def __getattr__(self, name: str) -> Any:
        theirs = self.__dict__.get("_adopted")
        return getattr(theirs, name) if name in _OPTIONS and theirs else super().__getattr__(name)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OPTIONS:
            raise NotImplementedError(
                f"{name} of an adopted module cannot be changed: release() the model, change it, and adopt it again"
            )
        if name == "weight":  # the next lookup copies it into the table
            self._places()._modules[self._configs[0].name].weight = value  # type: ignore[attr-defined]
        else:
            super().__setattr__(name, value)

    def reset_parameters(self) -> None:
        """Draws the rows anew as PyTorch's module does. Optimizer states stay."""
        if self.core._group.world_size > 1:  # type: ignore[attr-defined]
            raise RuntimeError("the tables are sharded already: draw their rows before that")
        with torch.no_grad():
            nn.init.normal_(self.weight)
            if self.padding_idx is not None:
                self.weight[self.padding_idx].zero_()

    def _load_from_state_dict(self, state_dict: Dict[str, Any], prefix: str, *rest: Any) -> None:
        """Also takes a state dict of the model before it was adopted."""
        for _, key in self._named_tables():  # type: ignore[attr-defined]
            if f"{prefix}weight" in state_dict:
                state_dict.setdefault(prefix + key, state_dict.pop(f"{prefix}weight"))
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc]

    @property
    def weight(self) -> nn.Parameter:
        """The table's rows, or this rank's part of them."""
        return self._places()._modules[self._configs[0].name].weight  # type: ignore[attr-defined]

    @property
    def num_embeddings(self) -> int:
        """The number of rows."""
        return self._configs[0].num_embeddings  # type: ignore[attr-defined]

    @property
    def embedding_dim(self) -> int:
        """The number of columns."""
        return self._configs[0].embedding_dim  # type: ignore[attr-defined]

    def __prepare_scriptable__(self) -> Any:
        raise NotImplementedError(
            "torch.jit.script cannot compile an adopted module: make a copy of the model by copy.deepcopy, give its "
            "modules back by release(), and script that; or use torch.jit.trace"
        )

    def _limit_norms(self, ids: Tensor) -> None:
        theirs = self.__dict__["_adopted"]
        if theirs.max_norm is not None and _ops.wanted():
            raise NotImplementedError(
                "max_norm changes rows before they are looked up, which a compiled or exported graph does too late: "
                "leave the module out of the graph by torch.compiler.disable"
            )
        if theirs.max_norm is not None and ids.numel():
            with torch.no_grad():
                torch.embedding_renorm_(self.weight, ids.contiguous().long(), theirs.max_norm, theirs.norm_type)


class AdoptedEmbeddingBag(_Adopted, EmbeddingBagCollection):
    """Replaces an ``nn.EmbeddingBag`` and takes the same arguments."""

    def forward(
        self, input: Tensor, offsets: Optional[Tensor] = None, per_sample_weights: Optional[Tensor] = None
    ) -> Tensor:
        """Returns pooled rows [bags, dim], as ``nn.EmbeddingBag`` does."""
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        if input.dim() == 2:
            if offsets is not None:
                raise ValueError("offsets are for indices of one dimension")
            bags, width = input.shape
            offsets = torch.arange(0, bags * width + 1, width) if width else torch.zeros(bags + 1, dtype=torch.int64)
            input = input.reshape(-1)
        elif offsets is None:
            raise ValueError("indices of one dimension need offsets")
        elif not self.__dict__["_adopted"].include_last_offset:
            offsets = torch.cat([offsets, torch.tensor([input.numel()], dtype=offsets.dtype)])
        self._limit_norms(input)
        if self.padding_idx is not None:  # bags leave out this id
            if not _ops.wanted() and offsets.numel() and offsets[0] != 0:
                raise ValueError(f"offsets begin at {int(offsets[0])}: they begin at 0")
            stays = input != self.padding_idx
            before = torch.cat([torch.zeros(1, dtype=torch.int64), stays.cumsum(0)])
            input, offsets = input[stays], before[offsets.long()]
            weights = None if weights is None else weights[stays]
        if weights is None and self._is_weighted:
            weights = torch.ones(input.numel(), dtype=torch.float32)
        features = KeyedJaggedTensor([self._configs[0].name], input, weights, offsets=offsets)
        return super().forward(features).values()


class AdoptedEmbedding(_Adopted, EmbeddingCollection):
    """Replaces an ``nn.Embedding``."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns a row for each id, as ``nn.Embedding`` does."""
        ids = input.reshape(-1)
        name, padding = self._configs[0].name, self.padding_idx
        self._limit_norms(ids)
        stays = None if padding is None else ids != padding
        looked_up = ids if stays is None else ids[stays]
        features = KeyedJaggedTensor([name], looked_up, lengths=torch.tensor([looked_up.numel()]))
        rows = super().forward(features)[name].values()
        if stays is not None:  # ids equal to padding_idx get a copy of the row, without a gradient
            row = self._row(padding).to(rows.dtype)
            place = torch.cumsum(stays, 0) - stays.long()
            rows = torch.where(stays[:, None], torch.cat([rows, row])[place], row)
        return rows.reshape(*input.shape, rows.shape[-1])

    def _row(self, at: int) -> Tensor:
        """Returns the current row ``at``, float32 [1, dim]."""
        if self.core._group.world_size == 1:
            return self.weight.detach()[at : at + 1].float()
        return torch.from_numpy(self.core.weight(self._configs[0].name, at, 1))


def _check(module: nn.Module, path: str) -> None:
    """Refuses a module with options, hooks or a forward that its replacement would not have."""
    plain = nn.EmbeddingBag if isinstance(module, nn.EmbeddingBag) else nn.Embedding
    if type(module).forward is not plain.forward or type(module).__call__ is not plain.__call__:
        raise NotImplementedError(
            f"{path} is a {type(module).__name__}, which has a forward of its own, and no counterpart in tessera.torch"
        )
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for name in hooks) or hasattr(module, "parametrizations"):
        raise NotImplementedError(f"{path} has hooks or parametrizations, which would be lost: remove them before")
    if module.scale_grad_by_freq:
        raise NotImplementedError(f"scale_grad_by_freq of {path} has no counterpart in tessera.torch")
    if isinstance(module, nn.EmbeddingBag) and module.mode not in _MODES:
        raise NotImplementedError(f"mode {module.mode} of {path} has no counterpart in tessera.torch")


def _stored(weight: Tensor, path: str) -> DataType:
    if not weight.is_cpu:
        raise NotImplementedError(f"{path} is on {weight.device}: tables are on the cpu, so bring it there before")
    if weight.dtype not in _STORED:
        raise NotImplementedError(f"{path} has rows of {weight.dtype}: tables have float32, float16 or bfloat16")
    return _STORED[weight.dtype]


_STORED = {torch.float32: DataType.FP32, torch.float16: DataType.FP16, torch.bfloat16: DataType.BF16}


@dataclass
class _Found:
    """A module to be replaced."""

    module: nn.Module
    paths: List[str]
    make: Callable[[], Embeddings]  # makes the replacement, with tables on the meta device
    weights: Dict[str, nn.Parameter]  # by table name


def _counterpart(module: nn.Module, paths: List[str]) -> Optional[_Found]:
    """Returns the replacement for a module, or None if it has no tables of its own. An ``nn.EmbeddingBag`` or
    ``nn.Embedding`` has one table, which is named after the first path."""
    path = paths[0]
    name = path.replace(".", "_")
    if isinstance(module, (Embeddings, Rows)):
        return None
    if isinstance(module, (nn.EmbeddingBag, nn.Embedding)):
        _check(module, path)
        stored = _stored(module.weight, path)
        shape = module.num_embeddings, module.embedding_dim
        if isinstance(module, nn.EmbeddingBag):
            pooling = _MODES[module.mode]
            bag = EmbeddingBagConfig(*shape, name, stored, pooling=pooling)
            weighted = pooling is PoolingType.SUM
            return _Found(module, paths, lambda: AdoptedEmbeddingBag([bag], weighted, "meta"), {name: module.weight})
        table = EmbeddingConfig(*shape, name, stored)
        return _Found(module, paths, lambda: AdoptedEmbedding([table], "meta"), {name: module.weight})
    if hasattr(module, "embedding_bag_configs") and hasattr(module, "embedding_bags"):  # TorchRec's
        bags = module.embedding_bag_configs()
        configs = [_config(EmbeddingBagConfig, c, pooling=PoolingType(c.pooling.value)) for c in bags]
        weights = {c.name: module.embedding_bags[c.name].weight for c in configs}
        of_bags = module.is_weighted()
        return _Found(module, paths, lambda: EmbeddingBagCollection(configs, of_bags, "meta"), weights)
    if hasattr(module, "embedding_configs") and hasattr(module, "embeddings"):
        configs = [_config(EmbeddingConfig, c) for c in module.embedding_configs()]
        weights = {c.name: module.embeddings[c.name].weight for c in configs}
        indices = module.need_indices()
        return _Found(module, paths, lambda: EmbeddingCollection(configs, "meta", indices), weights)
    return None


def _config(kind: Any, theirs: Any, **more: Any) -> Any:
    return kind(theirs.num_embeddings, theirs.embedding_dim, theirs.name, DataType(theirs.data_type.value),
                list(theirs.feature_names), **more)  # fmt: skip


def _all_found(model: nn.Module) -> List[_Found]:
    """Returns the modules of a model that are to be replaced, each once, with all of its paths."""
    paths: Dict[int, List[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(path)
    out: List[_Found] = []
    inside: List[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(outer + ".") for outer in inside):
            continue
        found = _counterpart(module, paths[id(module)])
        if found is not None:
            if not path:
                raise ValueError(f"adopt takes a model that has a {type(module).__name__} in it, not one itself")
            out.append(found)
            inside.extend(found.paths)
    return out


def _tied(model: nn.Module, found: List[_Found]) -> Dict[int, List[str]]:
    """Returns, by the id of a table's weight, the names under which modules that are not replaced have it too."""
    own = {id(part) for each in found for part in each.module.modules()}
    weights = {id(weight) for each in found for weight in each.weights.values()}
    out: Dict[int, List[str]] = {}
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in weights and id(module) not in own:
                out.setdefault(id(parameter), []).append(f"{path}.{name}" if path else name)
    return out


def _one_of_each_weight(found: List[_Found]) -> List[_Found]:
    """Merges modules that share a weight, and refuses those whose types or options differ."""
    by_weight: Dict[int, _Found] = {}
    out = []
    for each in found:
        first = next((by_weight[id(w)] for w in each.weights.values() if id(w) in by_weight), None)
        if first is None:
            by_weight.update({id(w): each for w in each.weights.values()})
            out.append(each)
            continue
        options = [{k: v for k, v in vars(m).items() if not k.startswith("_")} for m in (first.module, each.module)]
        if type(first.module) is not type(each.module) or options[0] != options[1]:
            raise NotImplementedError(
                f"{each.paths[0]} and {first.paths[0]} have one weight and are not alike: one table cannot be both"
            )
        first.paths.extend(each.paths)
    return out


def adopt(model: nn.Module, optimizer: Optional[Optimizer], plan: Optional[Any] = None) -> List[str]:
    """Replaces the ``nn.EmbeddingBag``, ``nn.Embedding`` and TorchRec collections of a model by Tessera's, with their
    weights: all of them or, on an error, none. Returns their paths. ``release`` puts the original modules back.

    Weights stay the same parameters, but their data are in the tables' memory. Rows are updated during backward by
    ``optimizer``, unless ``requires_grad`` is False. The model's own optimizer trains the rows if ``optimizer`` is
    None, and also those of a weight that another module has, such as a tied output layer. It refuses modules with their
    own forward, with hooks, or with options without a counterpart.

    plan: how tables are sharded over the ranks of torch.distributed, a ``ShardingPlan`` or a mapping from table to
    ``row_wise()`` and the like. With a plan, this function, lookups and ``release`` are collective. A table of PyTorch
    has the name of its module, with ``_`` for each dot. None: all tables are on this rank only, until
    ``DistributedModelParallel`` shards them."""
    found = _all_found(model)
    tied = _tied(model, found)
    found = _one_of_each_weight(found)
    if plan is not None:
        for each in found:
            where = [place for weight in each.weights.values() for place in tied.get(id(weight), [])]
            if where:
                raise NotImplementedError(
                    f"{each.paths[0]} has its weight in common with {where[0]}: it cannot be sharded"
                )
            if getattr(each.module, "max_norm", None) is not None:
                raise NotImplementedError(f"max_norm of {each.paths[0]} has no counterpart for tables that are sharded")
    before = {id(weight): (weight, weight.data) for each in found for weight in each.weights.values()}
    made: List[Embeddings] = []
    try:
        for each in found:
            made.append(_made(each, optimizer, tied))
        for each, ours in zip(found, made):
            for path in each.paths:
                _replace(model, path, ours)
        if plan is not None and found:
            from ._parallel import shard_in_place

            shard_in_place(model, plan)
    except Exception:
        for weight, data in before.values():
            weight.data = data
        for each in found:
            for path in each.paths:
                _replace(model, path, each.module)
        raise
    return [path for each in found for path in each.paths]


def _made(each: _Found, optimizer: Optional[Optimizer], tied: Dict[int, List[str]]) -> Embeddings:
    """Makes the collection that replaces a module. Its parameters are the module's."""
    ours = each.make()
    ours._optimizers = [None if id(each.weights[c.name]) in tied else optimizer for c in ours._configs]
    for table, weight in each.weights.items():
        ours._places()._modules[table]._parameters["weight"] = weight
    ours.device = torch.device("cpu")
    ours._make_core(0)
    dtypes = {weight.dtype for weight in each.weights.values()}
    if isinstance(ours, _Adopted) and len(dtypes) == 1:
        ours._dtype = dtypes.pop()  # PyTorch's modules return rows in the type of their weight
    ours.train(each.module.training)
    ours.__dict__["_adopted"] = each.module
    return ours


def release(model: nn.Module) -> List[str]:
    """Puts back the modules that ``adopt`` replaced, with the current rows. Returns their paths."""
    released = []
    done: Dict[int, nn.Module] = {}
    for path, ours in list(model.named_modules(remove_duplicate=False)):
        theirs = ours.__dict__.get("_adopted")
        if theirs is None:
            continue
        ours.settle()
        tables = {ours._configs[0].name: theirs} if isinstance(theirs, (nn.EmbeddingBag, nn.Embedding)) else dict(
            getattr(theirs, "embedding_bags", None) or theirs.embeddings)  # fmt: skip
        for table, module in tables.items() if id(ours) not in done else ():
            rows = torch.from_numpy(ours.core.weight(table)).to(module.weight.dtype)
            module.weight.data = rows
            forget(module.weight)
        done[id(ours)] = theirs
        _replace(model, path, theirs)
        released.append(path)
    return released


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
