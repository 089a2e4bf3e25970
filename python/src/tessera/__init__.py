"""Tessera: sharded embedding tables, from NumPy.

    import numpy as np, tessera

    group = tessera.ProcessGroup()  # the ranks that a launcher has started; without a launcher, one rank
    tables = tessera.EmbeddingBagCollection(
        [tessera.EmbeddingBagConfig(500, 8, "user"), tessera.EmbeddingBagConfig(300, 8, "film")],
        optimizer=tessera.Optimizer("exact_rowwise_adagrad", learning_rate=0.1), group=group)
    step = tables.forward(ids, lengths)  # this rank's samples; the rows may live anywhere
    step.backward(grad_of(step.output))  # updates the rows where they live

Every error is a ``TesseraError`` with one sentence. It is also an instance of the matching Python exception.
"""

from ._library import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    TesseraError,
    Unavailable,
    Unimplemented,
    lib as _lib,
)

TYPE_CHECKING = False  # typing's own would take as long to load as this package
if TYPE_CHECKING:
    from ._batch import QuantCollection
    from ._collections import (
        Collection,
        DistributedModelParallel,
        EmbeddingBagCollection,
        EmbeddingCollection,
        Shard,
        Step,
    )
    from ._describe import Description, describe
    from ._launch import launch
    from ._model import PackedModel, load_model
    from ._pack import pack
    from ._pictures import Report, StepReport
    from ._readers import Block, reader
    from ._runtime import ProcessGroup, Runtime
    from ._sharders import Layout, LayoutPart, sharder
    from ._tables import (
        DataType,
        EmbeddingBagConfig,
        EmbeddingConfig,
        Module,
        Optimizer,
        ParameterConstraints,
        Plan,
        Planner,
        PoolingType,
        Sharding,
        column_wise,
        data_parallel,
        grid_shard,
        plan,
        row_wise,
        table_column_wise,
        table_row_wise,
        table_wise,
    )
    from ._train import train

__version__ = _lib.tsr_version().decode()

# Names that are loaded on first use, because they need NumPy.
_LATER = {
    "_batch": "QuantCollection",
    "_collections": "Collection DistributedModelParallel EmbeddingBagCollection EmbeddingCollection Shard Step",
    "_describe": "Description describe",
    "_launch": "launch",
    "_model": "PackedModel load_model",
    "_pack": "pack",
    "_pictures": "Report StepReport",
    "_readers": "Block reader",
    "_runtime": "ProcessGroup Runtime",
    "_sharders": "Layout LayoutPart sharder",
    "_tables": "DataType EmbeddingBagConfig EmbeddingConfig Module Optimizer ParameterConstraints Plan Planner "
    "PoolingType Sharding column_wise data_parallel grid_shard plan row_wise table_column_wise table_row_wise "
    "table_wise",
    "_train": "train",
}
_module_of = {name: module for module, names in _LATER.items() for name in names.split()}
__all__ = [
    "Aborted", "AlreadyExists", "Block", "Cancelled", "Collection", "DataLoss", "DataType", "DeadlineExceeded",
    "Description", "DistributedModelParallel", "EmbeddingBagCollection", "EmbeddingBagConfig", "EmbeddingCollection",
    "EmbeddingConfig", "FailedPrecondition", "Internal", "InvalidArgument", "Layout", "LayoutPart", "Module",
    "NotFound", "Optimizer", "OutOfRange", "PackedModel", "ParameterConstraints", "PermissionDenied", "Plan", "Planner",
    "PoolingType", "ProcessGroup", "QuantCollection", "Report", "ResourceExhausted", "Runtime", "Shard", "Sharding",
    "Step", "StepReport", "TesseraError", "Unavailable", "Unimplemented", "column_wise", "data_parallel", "describe",
    "grid_shard", "launch", "load_model", "pack", "plan", "reader", "row_wise", "sharder", "table_column_wise",
    "table_row_wise", "table_wise", "train",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker knows the names

    def __getattr__(name: str) -> object:
        module = _module_of.get(name)
        if module is None:
            raise AttributeError(f"module 'tessera' has no attribute '{name}'")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
        return value


def __dir__() -> "list[str]":
    return [*globals(), *_module_of]
