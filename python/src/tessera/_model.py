"""Predictions of packed models, without PyTorch (infer.h)."""

from __future__ import annotations

import ctypes as c
import json
import os
import warnings
from typing import Any, Dict, List, Mapping, Optional, Union

import numpy as np

from . import _library as _l
from ._arrays import Tensor, as_array
from ._columns import INT64, TEXT, column_of, wanted_as

_WHO_ENCODES = "a model's vocabularies and transforms are applied by `tessera predict` and `tessera serve`"
_ROWS, _NUMBERS = "row numbers", "numbers as the model's layers see them"


def _refuse_text(name: str, taken: str) -> None:
    raise _l.InvalidArgument(f"{name}: it has text, but predict() takes {taken}; {_WHO_ENCODES}")


def _encoded(directory: Union[str, os.PathLike], features: Mapping[str, int]) -> Dict[str, str]:
    """Of a model that was trained on columns: what stands between them and what its layers see."""
    with open(os.path.join(directory, "model.json"), encoding="utf-8") as file:
        columns = json.load(file)["content"].get("encoding", {}).get("columns", [])
    out = {}
    for column in columns:
        if column["as"] == "dense" and column.get("transform"):
            out[column["name"]] = " and ".join(column["transform"])
        elif column["as"] == "ids" and column["name"] in features and column.get("ids", "cross") != "row":
            out[column["name"]] = column.get("ids", "cross")
    return out


class PackedModel:
    """A packed model (docs/models.md) that answers: ``PackedModel("model").predict({"film": [[3, 7]]})["click"]``.

    name, version, type: what it says of itself. dense_inputs: dense values of a sample. features: name -> how many ids
    there are. outputs: name -> values of a sample. is_weighted: ids may have weights. encoded: of a model that was
    trained on columns, name -> what `tessera predict` and `tessera serve` make row numbers and inputs of layers by, and
    ``predict`` does not: "vocabulary", "hash", "bucket", "cross", "log1p and standardise". Processes on a host share
    its tables. Any number of threads may predict at a time; threads: that one prediction may use. kernel: a kernel
    plugin."""

    def __init__(
        self, directory: Union[str, os.PathLike], *, threads: int = 1, kernel: str = "auto", plugin_path: str = ""
    ) -> None:
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
        self.encoded: Dict[str, str] = _encoded(directory, self.features)
        self._told = not self.encoded

    def predict(self, features: Mapping[str, Any], dense: Any = None) -> Dict[str, np.ndarray]:
        """By output: float32 ``[samples]``, or ``[samples, values]`` of one with several; probabilities in (0, 1) where
        that is what its head learnt.

        features: for each of the model's, an id for each sample, a list of ids, a list of pairs of an id and its weight
        or a mapping from ids to weights; or a tuple of arrays, all samples one after the other: (values, lengths) or
        (values, lengths, weights). Ids are row numbers of the tables. dense: ``[samples, dense_inputs]``, numbers as
        the model's layers see them. Vocabularies, hashes and transforms of the columns that a model was trained on are
        not applied here: text is refused, and the first prediction of a model that has such (``encoded``) warns.
        Further features are ignored. ``NotFound``, ``InvalidArgument``, ``OutOfRange``: the sentence names feature,
        sample and bound."""
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
                stacklevel=2,
            )
        samples = len(columns[0][1]) if columns else len(given[0]) if given else 0
        if given and given[0].ndim == 1 and self.dense_inputs == 1:
            given[0] = given[0].reshape(-1, 1)
        out = {n: np.empty((samples, w) if w > 1 else samples, np.float32) for n, w in self.outputs.items()}
        kept: List[Tensor] = []

        def address(array: Optional[np.ndarray]) -> Optional[int]:
            if array is None:
                return None
            kept.append(Tensor(array))
            return kept[-1].address

        def addresses(arrays: Any) -> Any:
            return (c.c_void_p * max(1, len(arrays)))(*[address(array) for array in arrays])

        values, lengths, weights = (addresses([column[k] for column in columns]) for k in range(3))
        batch = _l.ModelTensors(
            num_features=len(columns), dense=address(given[0] if given else None), values=c.addressof(values),
            lengths=c.addressof(lengths), weights=c.addressof(weights),
        )  # fmt: skip
        wanted = addresses(list(out.values()))
        _l.call("model_predict_outputs", self._handle.value, c.byref(batch), c.addressof(wanted), len(out))
        return out

    def _column(self, features: Mapping[str, Any], name: str) -> List[Optional[np.ndarray]]:
        """Values, lengths, and weights or none."""
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
