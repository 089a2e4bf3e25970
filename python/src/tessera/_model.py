"""Predictions of models, without PyTorch (infer.h)."""

from __future__ import annotations

import ctypes as c
import json
import os
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from . import _check, _library as _l
from ._arrays import Tensor, as_array
from ._columns import INT64, TEXT, column_of, wanted_as
from ._rows import Rows, as_mapping, columns_taken, predict_rows

_WHO_ENCODES = (
    "a model's vocabularies and transforms are applied by `tessera predict` and `tessera serve`, and by predict(data) "
    "without dense"
)
_ROWS, _NUMBERS = "row numbers", "numbers as the model's layers see them"


def _refuse_text(name: str, taken: str) -> None:
    raise _l.InvalidArgument(f"{name}: it has text, but predict() takes {taken}; {_WHO_ENCODES}")


def _has_tuples(data: Any) -> bool:
    """True if a value is a tuple of arrays: (values, lengths)."""
    return isinstance(data, Mapping) and any(isinstance(value, tuple) for value in data.values())


def _encoded(columns: Sequence[Mapping[str, Any]], features: Mapping[str, int]) -> Dict[str, str]:
    """Returns, by column, how a model encodes the columns that it was trained on as inputs of its layers."""
    out = {}
    for column in columns:
        if column["as"] == "dense" and column.get("transform"):
            out[column["name"]] = " and ".join(column["transform"])
        elif column["as"] == "ids" and column["name"] in features and column.get("ids", "cross") != "row":
            out[column["name"]] = column.get("ids", "cross")
    return out


def load_model(
    directory: Union[str, os.PathLike], *, threads: int = 1, kernel: str = "auto", plugin_path: str = ""
) -> PackedModel:
    """Loads a model for predictions from a directory that ``tessera.train(save=...)``, ``tessera.pack`` or ``tessera
    quantize`` wrote. From a directory of checkpoints it loads the newest one, with unquantized rows. See
    ``PackedModel``."""
    return PackedModel(directory, threads=threads, kernel=kernel, plugin_path=plugin_path)


class PackedModel:
    """Predicts with a packed model (docs/models.md) or a checkpoint of ``tessera train``:
    ``PackedModel("model").predict(frame)["click"]``.

    name, version, type: as saved in the model. dense_inputs: the number of dense values per sample. features: name ->
    number of ids. outputs: name -> values per sample. is_weighted: True if ids may have weights. columns: names of the
    data's columns, for a model that was trained on columns; otherwise empty. encoded: name -> how the model encodes
    that column: "vocabulary", "hash", "bucket", "cross", "log1p and standardise". Processes on a host share the tables.
    Any number of threads may predict at once. threads: the number that one prediction may use. kernel: the id of a
    kernel plugin."""

    def __init__(
        self, directory: Union[str, os.PathLike], *, threads: int = 1, kernel: str = "auto", plugin_path: str = ""
    ) -> None:
        directory, threads = _check.path(directory, "directory"), _check.whole(threads, "threads", 0, 1024)
        kernel, plugin_path = _check.text(kernel, "kernel"), os.fspath(plugin_path)
        options = _l.OpenOptions(threads=threads, kernel=kernel.encode(), plugin_path=plugin_path.encode() or None)
        self._handle = _l.Handle("model")
        _l.call("model_open", os.fspath(directory).encode(), c.byref(options), self._handle.out)
        info = _l.ModelInfo()
        _l.call("model_describe", self._handle.value, c.byref(info))
        self.name, self.version, self.type = (text.decode() for text in (info.name, info.version, info.type))
        self.dense_inputs: int = info.dense_inputs
        self.is_weighted = bool(info.is_weighted)
        self.features: Dict[str, int] = {}
        for i in range(info.num_features):
            feature = _l.ModelFeature()
            _l.call("model_get_feature", self._handle.value, i, c.byref(feature))
            self.features[feature.name.decode()] = feature.ids
        self.outputs: Dict[str, int] = {}
        for i in range(info.num_outputs):
            output = _l.ModelOutput()
            _l.call("model_get_output", self._handle.value, i, c.byref(output))
            self.outputs[output.name.decode()] = output.width
        told = json.loads(info.encoding)["columns"] if info.encoding else []
        self.columns: List[str] = columns_taken(told, self.features)
        self.encoded: Dict[str, str] = _encoded(told, self.features)
        self._told = not self.encoded

    def predict(self, data: Any, dense: Any = None) -> Dict[str, np.ndarray]:
        """Returns the outputs by name: float32 ``[samples]``, or ``[samples, values]`` if an output has several values.
        They are probabilities in (0, 1) if the head was trained on probabilities.

        If the model was trained on columns (``columns``), data is anything that ``tessera.train`` takes, such as a
        pandas frame or a mapping from columns to raw values. The model applies its vocabularies, hashes and transforms.
        Columns may have any order. Labels and other columns are ignored.

        For other models, and whenever ``dense`` or tuples are given, ids are row numbers of the tables. Give each
        feature an id per sample, a list of ids, a list of pairs (id, weight), or a mapping from ids to weights.
        Alternatively, give it a tuple of arrays with all samples one after the other: (values, lengths) or (values,
        lengths, weights). dense: ``[samples, dense_inputs]``, the inputs of the model's layers. In this form text is
        refused, and a model with ``encoded`` columns warns once. Other features are ignored. Raises ``NotFound``,
        ``InvalidArgument`` or ``OutOfRange``; the sentence names the feature or column, the row and the bound."""
        if isinstance(data, (str, bytes, os.PathLike)):
            raise _l.InvalidArgument(
                f"predict() takes data, not the path of a file ({os.fspath(data)!r}): `tessera predict` reads files"
            )
        if self.columns and dense is None and not _has_tuples(data):
            return self._predict_rows(data)
        return self._predict_ids(as_mapping(data, set(self.features)), dense)

    def _outputs(self, samples: int) -> Dict[str, np.ndarray]:
        return {n: np.empty((samples, w) if w > 1 else samples, np.float32) for n, w in self.outputs.items()}

    def _predict_rows(self, data: Any) -> Dict[str, np.ndarray]:
        try:
            rows = Rows(data, self.columns)
        except (TypeError, ValueError) as error:
            if isinstance(error, _l.TesseraError):
                raise
            raise _l.InvalidArgument(f"the data given to predict(): {error}") from error
        out = self._outputs(rows.count)
        if not rows.pieces and hasattr(data, "__next__"):
            warnings.warn("the data given to predict() has no rows: an iterator can be read only once", stacklevel=3)
        if rows.count:
            tensors = [Tensor(array) for array in out.values()]
            addresses = (c.c_void_p * len(tensors))(*[tensor.address for tensor in tensors])
            for sentence in predict_rows(self._handle.value, rows, c.addressof(addresses), len(tensors)):
                warnings.warn(f"the data given to predict(): {sentence}", stacklevel=3)
        return out

    def _predict_ids(self, features: Mapping[str, Any], dense: Any) -> Dict[str, np.ndarray]:
        columns = [self._column(features, name) for name in self.features]
        given = [] if dense is None else [as_array(dense, "dense")]
        if given and given[0].dtype.kind in "US":
            _refuse_text("dense", _NUMBERS)
        if not self._told:
            self._told = True
            how = [f"{name} by {what}" for name, what in self.encoded.items()]
            how = ", ".join(how[:4] + ["..."] * (len(how) > 4))
            warnings.warn(
                f"predict() takes {_ROWS} and {_NUMBERS}, which are not what the data has in columns that the model "
                f"encodes ({how}); {_WHO_ENCODES}",
                stacklevel=3,
            )
        samples = len(columns[0][1]) if columns else len(given[0]) if given else 0
        if given and given[0].ndim == 1 and self.dense_inputs == 1:
            given[0] = given[0].reshape(-1, 1)
        out = self._outputs(samples)
        kept: List[Tensor] = []

        def address(array: Optional[np.ndarray]) -> Optional[int]:
            if array is None:
                return None
            kept.append(Tensor(array))
            return kept[-1].address

        def addresses(arrays: Any) -> Any:
            return (c.c_void_p * max(1, len(arrays)))(*[address(array) for array in arrays])

        values, lengths, weights = (addresses([column[k] for column in columns]) for k in range(3))
        batch = _l.ModelInput(
            num_features=len(columns), dense=address(given[0] if given else None), values=c.addressof(values),
            lengths=c.addressof(lengths), weights=c.addressof(weights),
        )  # fmt: skip
        wanted = addresses(list(out.values()))
        _l.call("model_predict", self._handle.value, c.byref(batch), c.addressof(wanted), len(out))
        return out

    def _column(self, features: Mapping[str, Any], name: str) -> List[Optional[np.ndarray]]:
        """Returns a feature's values, lengths, and weights or None."""
        if name not in features:
            raise _l.NotFound(f'there is no feature "{name}": the model takes {", ".join(self.features)}')
        value = features[name]
        if isinstance(value, tuple):
            if len(value) not in (2, 3):
                raise _l.InvalidArgument(
                    f"feature {name} is a tuple of {len(value)}: values, lengths, and weights or none"
                )
            arrays = [as_array(one, name) for one in value]
            if arrays[0].dtype.kind in "US":
                _refuse_text(f"feature {name}", _ROWS)
            if arrays[0].size == 0:
                arrays[0] = arrays[0].astype(np.int64)
            return [*arrays, None][:3]
        try:
            column = column_of(value)
            is_text = column.type == TEXT and len(column.values) > 0
            column = column if is_text else wanted_as(column, INT64, True, ",")
        except (TypeError, ValueError) as error:
            raise _l.InvalidArgument(f"feature {name}: {error}") from None
        if is_text:
            _refuse_text(f"feature {name}", _ROWS)
        return [column.values, np.diff(column.lists), column.weights]
