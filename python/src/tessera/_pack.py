"""Packed models: sharded tables and a dense part in one directory, for ``tessera serve``."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _check, _library as _l
from ._arrays import Tensor, as_array
from ._collections import Collection


def pack(
    directory: Union[str, os.PathLike],
    collections: Union[Collection, Sequence[Collection]],
    graph: Mapping[str, Any],
    parameters: Mapping[str, Any],
    *,
    format: str = "int8",
    formats: Optional[Mapping[str, str]] = None,
    name: str = "",
    bounds_check: str = "fatal",
) -> List[Dict[str, Any]]:
    """Writes a packed model (docs/models.md). On rank 0 it returns how each table was stored. Collective.

    collections: all over one group, or all on this rank only. Their tables have different names. Collections of
    sequences are for layers that take a sequence. graph: how the dense part is computed, ``{"dense_inputs": 13,
    "layers": [{"name", "type", "inputs", "options"}], "heads": [{"name", "input"}]}`` as in docs/graphs.md; the input
    of a head is a logit. parameters: float32 arrays by name: ``"top.0.weight"``. format: of rows, "int8", "int4",
    "int2", "fp16", "fp8" or "fp32"; formats: table -> format, for tables with another one. Raises ``AlreadyExists`` if
    the directory exists, and ``InvalidArgument`` with the name of a layer, input or parameter that does not fit."""
    _check.of_type(graph, Mapping, "graph", "a mapping with layers and heads")
    _check.of_type(parameters, Mapping, "parameters", "a mapping from names to arrays")
    _check.of_type(formats or {}, Mapping, "formats", "a mapping from tables to formats")
    _only(graph, ("dense_inputs", "layers", "heads"), "the graph")
    for layer in graph.get("layers", []):
        _only(layer, ("name", "type", "inputs", "options"), "a layer of the graph")
    for head in graph.get("heads", []):
        _only(head, ("name", "input", "loss", "label", "weight"), "a head of the graph")
    if not isinstance(collections, Collection):
        _check.of_type(collections, (list, tuple), "collections", "a collection or a list of them")
        for collection in collections:
            _check.of_type(collection, Collection, "one of collections", "a collection")
    held = [collections] if isinstance(collections, Collection) else list(collections)
    handles = (c.c_void_p * max(1, len(held)))(*[collection._handle.value for collection in held])
    layers = [{"options": {}, **layer} for layer in graph.get("layers", [])]
    heads = [{"loss": "binary_cross_entropy", "label": "label", "weight": 1, **h} for h in graph.get("heads", [])]
    settings = {"name": name, "format": format, "formats": dict(formats or {}), "bounds_check": bounds_check}
    arrays = [as_array(value, f'"{key}"') for key, value in parameters.items()]
    tensors = [Tensor(array) for array in arrays]
    addresses = (c.c_void_p * max(1, len(tensors)))(*[tensor.address for tensor in tensors])
    options = _l.PackOptions(
        num_collections=len(held), collections=c.addressof(handles), num_tensors=len(tensors),
        graph=json.dumps({"dense_inputs": graph.get("dense_inputs", 0), "layers": layers, "heads": heads}).encode(),
        names=_l.texts(list(parameters)), tensors=c.addressof(addresses), settings=json.dumps(settings).encode(),
    )  # fmt: skip
    report = c.c_void_p()
    if not held:
        raise _l.InvalidArgument("there is no collection to pack")
    directory = _check.path(directory, "directory")
    held[0]._group._call(_l.lib.tsr_pack, directory.encode(), c.addressof(options), c.addressof(report))
    return json.loads(_l.text(report))


def _only(given: Any, known: Sequence[str], what: str) -> None:
    _check.of_type(given, Mapping, what, "a mapping")
    for key in given:
        if key not in known:
            raise _l.InvalidArgument(f'{what} has no key "{key}"; use one of {", ".join(known)}')
