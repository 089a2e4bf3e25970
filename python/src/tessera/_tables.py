"""Descriptions of tables, their shardings, and plans."""

from __future__ import annotations

import ctypes as c
import enum
import json
import os
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _check, _library as _l
from ._runtime import Runtime


class PoolingType(enum.Enum):
    """The way to combine the rows of a bag."""

    SUM = "SUM"
    MEAN = "MEAN"
    NONE = "NONE"


class DataType(enum.Enum):
    """How rows are stored."""

    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"
    INT8 = "INT8"  # for quantized tables, like the next two
    INT4 = "INT4"
    INT2 = "INT2"


@dataclass
class EmbeddingConfig:
    """A table of ``num_embeddings`` rows of ``embedding_dim`` floats, like TorchRec's.

    feature_names: the features that look up this table; none: one feature with the table's name. init_range: start
    values are uniform in [-init_range, init_range]; None: 1 / sqrt(rows). optimizer: for this table only, see
    ``Optimizer``. any_id: ids may be any number from 0 to 2^63 - 2, and num_embeddings is the number of rows at a time.
    It needs a compute kernel that creates rows on demand, which constraints name. use_index_dedup: with several ranks,
    a row that a batch repeats travels once (docs/sequences.md, "Rows that repeat").
    """

    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: Union[DataType, str] = DataType.FP32
    feature_names: List[str] = field(default_factory=list)
    init_range: Optional[float] = None
    optimizer: Optional[Optimizer] = None
    any_id: bool = False
    use_index_dedup: bool = False


@dataclass
class EmbeddingBagConfig(EmbeddingConfig):
    """A table whose rows are pooled."""

    pooling: Union[PoolingType, str] = PoolingType.SUM


# Options that only some of FBGEMM's formulas use, with the ends of those optimizers' names.
_ONLY_OF = {"momentum": ("lars_sgd",), "beta1": ("adam", "lamb"), "beta2": ("adam", "lamb"), "eta": ("lars_sgd",)}
_OF_FBGEMM = frozenset(
    "exact_sgd exact_adagrad exact_rowwise_adagrad adam partial_rowwise_adam lamb partial_rowwise_lamb lars_sgd "
    "none".split()
)


class Optimizer:
    """The optimizer that updates rows during backward: the id of an optimizer component, and its options.

    ``Optimizer("exact_rowwise_adagrad", learning_rate=0.05, eps=1e-8)``. max_gradient: each value of the output's
    gradient is clamped to [-max_gradient, max_gradient].
    """

    def __init__(self, name: str, *, max_gradient: Optional[float] = None, **options: Any) -> None:
        self.name = name
        self.options = dict(options)
        for key, kinds in _ONLY_OF.items() if name in _OF_FBGEMM else ():
            if options.get(key) and not name.endswith(kinds):
                better = ': name "sgd", which has it' if (name, key) == ("exact_sgd", "momentum") else ": leave it out"
                raise _l.InvalidArgument(f"{key} = {options[key]!r} has no effect on the optimizer {name}{better}")
        if max_gradient is not None:
            self.options["max_gradient"] = max_gradient

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return f"Optimizer({self.name!r}{options})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimizer) and (self.name, self.options) == (other.name, other.options)

    def _json(self) -> dict:
        return {"name": self.name, **self.options}


@dataclass
class ParameterConstraints:
    """Limits on the planner's choices for a table, and facts about its input (docs/plans.md). None: the planner
    chooses."""

    sharding_types: Optional[Sequence[str]] = None
    compute_kernels: Optional[Sequence[str]] = None
    min_partition: Optional[int] = None
    max_shards: Optional[int] = None
    ranks: Optional[Sequence[int]] = None
    forbidden_ranks: Optional[Sequence[int]] = None
    keep_together: Optional[str] = None
    keep_apart: Optional[Sequence[str]] = None
    pooling_factors: Optional[Sequence[float]] = None
    num_poolings: Optional[Sequence[float]] = None
    batch_sizes: Optional[Sequence[float]] = None
    is_weighted: Optional[bool] = None
    zipf_exponent: Optional[float] = None

    def _json(self) -> dict:
        values = {key: value for key, value in vars(self).items() if value is not None}
        return {key: list(v) if isinstance(v, (tuple, list)) else v for key, v in values.items()}


@dataclass
class Sharding:
    """How one table is sharded, and on which ranks its shards are: ``table_wise(1)``, ``row_wise()``, ..."""

    sharding_type: str
    ranks: Optional[Sequence[int]] = None
    compute_kernel: Optional[str] = None
    min_partition: Optional[int] = None
    pieces: Optional[int] = None

    def _json(self) -> dict:
        return {key: list(v) if key == "ranks" else v for key, v in vars(self).items() if v is not None}


def table_wise(rank: int = 0) -> Sharding:
    """Puts the whole table on one rank."""
    return Sharding("table_wise", [_check.whole(rank, "rank", 0)])


def row_wise() -> Sharding:
    """Puts an equal part of the rows on each rank."""
    return Sharding("row_wise")


def column_wise(ranks: Sequence[int]) -> Sharding:
    """Splits the columns, with one shard for each entry of ``ranks``."""
    return Sharding("column_wise", _ranks(ranks), pieces=len(ranks))


def data_parallel() -> Sharding:
    """Puts a copy on each rank, and all-reduces gradients."""
    return Sharding("data_parallel")


def table_row_wise(host_index: int = 0, *, local_world_size: Optional[int] = None) -> Sharding:
    """Splits the rows over the ranks of one host. local_world_size: the number of ranks per host; None: from the
    launcher."""
    return Sharding("table_row_wise", [_first_rank(host_index, local_world_size)])


def table_column_wise(ranks: Sequence[int]) -> Sharding:
    """Splits the columns over ranks of one host, with one shard for each entry."""
    return Sharding("table_column_wise", _ranks(ranks), pieces=len(ranks))


def grid_shard(host_indexes: Sequence[int], *, local_world_size: Optional[int] = None) -> Sharding:
    """Splits the columns over hosts, and each host's rows over its ranks."""
    hosts = _ranks(host_indexes, "host_indexes")
    return Sharding("grid_shard", [_first_rank(h, local_world_size) for h in hosts], pieces=len(hosts))


def _ranks(ranks: Any, name: str = "ranks") -> List[int]:
    if isinstance(ranks, (str, bytes)) or not hasattr(ranks, "__len__") or not len(ranks):
        raise _l.InvalidArgument(f"{name} is a list of one or more numbers, not {ranks!r}")
    return [_check.whole(rank, f"one of {name}", 0) for rank in ranks]


def _first_rank(host_index: int, local_world_size: Optional[int]) -> int:
    """Returns the first rank of a host, which stands for the whole host."""
    _check.whole(host_index, "host_index", 0)
    if host_index == 0:
        return 0
    told = local_world_size or int(os.environ.get("LOCAL_WORLD_SIZE", 0))
    if told < 1:
        raise _l.InvalidArgument(f"where host {host_index} begins is not known: give local_world_size")
    return host_index * told


@dataclass
class Planner:
    """Settings of the planner: docs/c.md has the meaning and the defaults.

    constraints: by table. shardings: by table; every table is sharded as given, without a search. world_size and
    similar settings are for ``plan()``; in a process group, the group's values are used."""

    constraints: Mapping[str, ParameterConstraints] = field(default_factory=dict)
    shardings: Mapping[str, Sharding] = field(default_factory=dict)
    world_size: Optional[int] = None
    local_world_size: Optional[int] = None
    compute_device: Optional[str] = None
    hbm_gib: Union[None, float, Sequence[float]] = None
    ddr_gib: Union[None, float, Sequence[float]] = None
    ssd_gib: Union[None, float, Sequence[float]] = None
    batch_size: Optional[int] = None
    reserved_percentage: Optional[float] = None
    search: Optional[str] = None
    cost_model: Optional[str] = None
    time_limit_s: Optional[float] = None
    torchrec_limits: Optional[bool] = None

    def where_untrained(self, modules: Mapping[str, Module], optimizer: Optional[Optimizer]) -> Planner:
        """Returns a copy with the compute kernel "dense" for tables without an optimizer, unless they name another
        one."""
        tables = [table for module in modules.values() for table in module.tables]
        names = [table.name for table in tables if table.optimizer is None and optimizer is None]
        constraints, shardings = dict(self.constraints), dict(self.shardings)
        for name in names:
            told = constraints.get(name, ParameterConstraints())
            constraints[name] = replace(told, compute_kernels=told.compute_kernels or ["dense"])
            if name in shardings:
                cut = shardings[name]
                shardings[name] = replace(cut, compute_kernel=cut.compute_kernel or "dense")
        return replace(self, constraints=constraints, shardings=shardings) if names else self

    def _json(self) -> dict:
        own = {k: v for k, v in vars(self).items() if v is not None and k not in ("constraints", "shardings")}
        if self.shardings:
            own["shardings"] = {table: sharding._json() for table, sharding in self.shardings.items()}
        return own


class Plan:
    """The rank of every row of every table. docs/plans.md describes ``json``; ``report`` is for people."""

    def __init__(self, json: str, report: str = "") -> None:
        self.json = json
        self.report = report

    @classmethod
    def load(cls, path: Union[str, os.PathLike]) -> Plan:
        """Loads a plan from a file that ``save`` wrote."""
        with open(_check.path(path, "path"), encoding="utf-8") as file:
            return cls(file.read())

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes the plan as JSON."""
        with open(_check.path(path, "path"), "w", encoding="utf-8") as file:
            file.write(self.json)

    def to_dict(self) -> dict:
        """Returns the plan as a dict: ``modules`` with their tables and shards."""
        return json.loads(self.json)

    def __str__(self) -> str:
        return self.report or self.json

    def _repr_html_(self) -> Optional[str]:
        """Draws the plan in a notebook: the values on each rank, as a box for each shard, and the tables."""
        from ._pictures import plan_picture

        return plan_picture(self.to_dict())


@dataclass
class Module:
    """A collection before it is sharded: its tables, and whether rows are pooled ("bags") or not ("sequences")."""

    tables: Sequence[EmbeddingConfig]
    kind: str = "bags"
    is_weighted: bool = False


def _name(value: Union[enum.Enum, str]) -> str:
    return str(value.value if isinstance(value, enum.Enum) else value)


def _check_table(table: Any, kind: str) -> None:
    _check.of_type(table, EmbeddingConfig, "a table", "a tessera.EmbeddingBagConfig or EmbeddingConfig")
    _check.texts(table.feature_names, f'feature_names of table "{table.name}"')
    if table.optimizer is not None:
        _check.of_type(table.optimizer, Optimizer, f'the optimizer of table "{table.name}"', "a tessera.Optimizer")
    pooling = _name(getattr(table, "pooling", PoolingType.NONE)).upper()
    if kind == "sequences" and pooling == "MEAN":
        warnings.warn(
            f'pooling of table "{table.name}" has no effect: a collection of sequences gives each row', stacklevel=5
        )


def check_modules(modules: Any) -> None:
    """Raises ``InvalidArgument`` unless ``modules`` is a mapping from paths to modules."""
    _check.of_type(modules, Mapping, "modules", "a mapping from paths to tessera.Module")
    for path, module in modules.items():
        _check.of_type(module, Module, f'module "{path}"', "a tessera.Module")
        if isinstance(module.tables, (str, EmbeddingConfig)) or not hasattr(module.tables, "__iter__"):
            raise _l.InvalidArgument(f"tables is a list of tables, not {module.tables!r}")
        for table in module.tables:
            _check_table(table, module.kind)
        if module.is_weighted and module.kind == "sequences":
            raise _l.InvalidArgument(
                "is_weighted has no effect on a collection of sequences, which gives rows as they are: leave it out"
            )


def check_planner(planner: Any, modules: Mapping[str, Module]) -> None:
    """Raises ``InvalidArgument`` if the planner names a table that no module has, or has a value of another type."""
    _check.of_type(planner, Planner, "planner", "a tessera.Planner")
    names = [table.name for module in modules.values() for table in module.tables]
    for what, given, kind in (
        ("constraints", planner.constraints, ParameterConstraints), ("shardings", planner.shardings, Sharding),
    ):  # fmt: skip
        _check.of_type(given, Mapping, f"{what} of the planner", "a mapping from tables")
        for name, value in given.items():
            _check.of_type(value, kind, f'{what}["{name}"] of the planner', f"a tessera.{kind.__name__}")
            if name not in names and what == "constraints":
                known = ", ".join(names)
                warnings.warn(
                    f'the planner has constraints for "{name}", which is none of the tables {known}', stacklevel=4
                )
    for name, sharding in planner.shardings.items():
        allowed = planner.constraints[name].sharding_types if name in planner.constraints else None
        if allowed and sharding.sharding_type not in allowed:
            raise _l.InvalidArgument(
                f'shardings of the planner cut table "{name}" by {sharding.sharding_type}, which its constraints do '
                "not have: leave one of them out"
            )
    if planner.shardings and (planner.search is not None or planner.time_limit_s is not None):
        what = "search" if planner.search is not None else "time_limit_s"
        raise _l.InvalidArgument(f"{what} of the planner has no effect with shardings, which leave nothing to search")


def _table_json(table: EmbeddingConfig, kind: str, constraints: Mapping[str, ParameterConstraints]) -> dict:
    out: Dict[str, Any] = {
        "name": table.name,
        "num_embeddings": table.num_embeddings,
        "embedding_dim": table.embedding_dim,
        "data_type": _name(table.data_type),
    }
    if table.feature_names:
        out["feature_names"] = list(table.feature_names)
    for key in ("any_id", "use_index_dedup"):
        if getattr(table, key):
            out[key] = True
    if kind == "bags":
        out["pooling"] = _name(getattr(table, "pooling", PoolingType.SUM))
    if table.init_range is not None:
        out["init_range"] = table.init_range
    if table.optimizer is not None:
        out["optimizer"] = table.optimizer._json()
    if table.name in constraints:
        out.update(constraints[table.name]._json())
    return out


def describe(
    modules: Mapping[str, Module],
    constraints: Mapping[str, ParameterConstraints],
    optimizer: Optional[Optimizer] = None,
    **settings: Any,
) -> str:
    """Returns the description of modules that the library takes (docs/c.md)."""
    out: Dict[str, Any] = {"modules": []}
    for path, module in modules.items():
        tables = [_table_json(table, module.kind, constraints) for table in module.tables]
        entry = {"path": path, "kind": module.kind, "tables": tables}
        if module.is_weighted:
            entry["is_weighted"] = True
        out["modules"].append(entry)
    if optimizer is not None:
        out["optimizer"] = optimizer._json()
    out.update({key: value for key, value in settings.items() if value is not None})
    return json.dumps(out, default=_check.plain)


def plan(
    modules: Union[Sequence[EmbeddingConfig], Mapping[str, Module]],
    planner: Optional[Planner] = None,
    *,
    kernel: str = "auto",
    runtime: Optional[Runtime] = None,
) -> Plan:
    """Makes a plan for these tables, or for several modules by path. It does not communicate.

    Raises ``InvalidArgument``, ``ResourceExhausted`` or ``FailedPrecondition`` if there is no plan; the sentence says
    what would help.
    """
    planner = Planner() if planner is None else planner
    if not isinstance(modules, Mapping):
        modules = {"": Module(modules)}
    check_modules(modules)
    check_planner(planner, modules)
    if not any(module.tables for module in modules.values()):
        raise _l.InvalidArgument("there are no tables to plan for")
    _check.text(kernel, "kernel")
    if runtime is not None:
        _check.of_type(runtime, Runtime, "runtime", "a tessera.Runtime")
    text, report = c.c_void_p(), c.c_void_p()
    _l.call(
        "plan",
        (runtime or Runtime.default())._handle.value,
        describe(modules, planner.constraints, kernel=kernel).encode(),
        json.dumps(planner._json(), default=_check.plain).encode(),
        c.byref(text),
        c.byref(report),
    )
    return Plan(_l.text(text), _l.text(report))
