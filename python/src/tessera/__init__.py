"""Tessera: sharded embedding tables, from NumPy.

    import numpy as np, tessera

    group = tessera.ProcessGroup()  # the ranks that a launcher has started; alone it is one
    tables = tessera.EmbeddingBagCollection(
        [tessera.EmbeddingBagConfig(500, 8, "user"), tessera.EmbeddingBagConfig(300, 8, "film")],
        optimizer=tessera.Optimizer("exact_rowwise_adagrad", learning_rate=0.1), group=group)
    step = tables.forward(ids, lengths)  # this rank's samples; the rows may live anywhere
    step.backward(grad_of(step.output))  # updates the rows where they live

What goes wrong is a ``TesseraError`` with one sentence, which is also the type that Python has for it.
"""

from ._batch import QuantCollection
from ._collections import (
    Collection,
    DistributedModelParallel,
    EmbeddingBagCollection,
    EmbeddingCollection,
    Shard,
    Step,
)
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
from ._runtime import ProcessGroup, Runtime
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
    plan,
    row_wise,
    table_row_wise,
    table_wise,
)

__version__ = _lib.tsr_version().decode()

__all__ = [name for name in dir() if not name.startswith("_")] + ["launch"]


def __getattr__(name: str) -> object:
    if name == "launch":  # what it needs is loaded by those who call it
        from ._launch import launch

        return launch
    raise AttributeError(f"module 'tessera' has no attribute '{name}'")
