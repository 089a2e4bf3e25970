"""Operators over a matrix for each sample that layers can replace: stacked vectors, their sums, their dot products with
each other, and experts that gates weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, List, Union

import torch

from ._operators import Columns, Operators, _argument
from ._pack import _Value


@dataclass
class _Matrix:
    """Columns as a matrix for each sample: [samples, rows, width], or [samples, width, rows] if transposed."""

    of: Columns
    rows: int
    transposed: bool = False


@dataclass
class _Products:
    """Dot products of the rows of a matrix with each other, [samples, rows, rows]."""

    of: _Matrix


@dataclass
class _Weighted:
    """The rows of a matrix, each times a number of the sample."""

    gates: Columns
    of: _Matrix


class MatrixOperators(Operators):
    """Operators over matrices, and over a sample's values."""

    def _operator(self, node: torch.fx.Node) -> Any:
        values = [self._values.get(one) for one in node.all_input_nodes]
        name = str(node.target).split(".")[1] if str(node.target).startswith("aten.") else ""
        if any(isinstance(value, (_Matrix, _Products, _Weighted)) for value in values):
            translate = getattr(self, f"_matrix_{name}", None)
            return translate(node) if translate is not None else self._no_layer(node)
        if any(isinstance(value, Columns) for value in values):
            if name == "stack":
                return self._stack(node, list(node.args[0]))  # type: ignore[arg-type]
            shape = getattr(node.meta.get("val"), "shape", ())
            if name in ("view", "reshape", "unsqueeze") and len(shape) == 3 and str(shape[0]) == str(self._batch):
                return _Matrix(self._plain(self._of(node)), int(shape[1]))
        return super()._operator(node)

    def _stack(self, node: torch.fx.Node, given: List[Any]) -> _Matrix:
        values = [self._values.get(one) for one in given]
        if _argument(node, 1, "dim", 0) not in (1, -2) or not all(
            isinstance(v, Columns) and not v.flat for v in values
        ):
            self._no_layer(node, " along another dimension than the second")
        plain = [self._plain(value) for value in values]  # type: ignore[arg-type]
        return _Matrix(Columns([part for value in plain for part in value.parts]), len(plain))

    def _given(self, node: torch.fx.Node, index: int = 0) -> _Matrix:
        value = self._values.get(node.args[index]) if len(node.args) > index else None  # type: ignore[arg-type]
        return value if isinstance(value, _Matrix) and not value.transposed else self._no_layer(node)

    def _matrix_cat(self, node: torch.fx.Node) -> _Matrix:
        matrices = [self._values.get(one) for one in node.args[0]]  # type: ignore[arg-type, union-attr]
        if (
            not all(isinstance(one, _Matrix) and not one.transposed for one in matrices)
            or _argument(node, 1, "dim", 0) != 1
        ):
            self._no_layer(node)
        parts = [part for one in matrices for part in one.of.parts]  # type: ignore[union-attr]
        return _Matrix(Columns(parts), sum(one.rows for one in matrices))  # type: ignore[union-attr]

    def _same(self, node: torch.fx.Node) -> Any:
        return self._values[node.args[0]]  # type: ignore[index]

    _matrix_clone = _matrix_alias = _matrix_detach = _same

    def _matrix_slice(self, node: torch.fx.Node) -> Any:
        first, last = _argument(node, 2, "start") or 0, _argument(node, 3, "end")
        if first != 0 or _argument(node, 4, "step", 1) != 1 or not (last is None or last > 1 << 62):
            self._no_layer(node)
        return self._same(node)

    def _matrix_transpose(self, node: torch.fx.Node) -> Any:
        value = self._same(node)
        axes = {int(axis) % 3 for axis in node.args[1:3]}  # type: ignore[arg-type]
        if axes != {1, 2} or isinstance(value, _Weighted):
            self._no_layer(node)
        return replace(value, transposed=not value.transposed) if isinstance(value, _Matrix) else value

    def _matrix_permute(self, node: torch.fx.Node) -> Any:
        value = self._same(node)
        if list(node.args[1]) != [0, 2, 1] or not isinstance(value, _Matrix):  # type: ignore[arg-type]
            self._no_layer(node)
        return replace(value, transposed=not value.transposed)

    def _matrix_bmm(self, node: torch.fx.Node) -> _Products:
        first, second = (self._values.get(one) for one in node.args)  # type: ignore[arg-type]
        if not isinstance(first, _Matrix) or first.rows < 2 or second != replace(first, transposed=True):
            self._no_layer(node, ", except of vectors with each other,")
        return _Products(first)  # type: ignore[arg-type]

    _matrix_matmul = _matrix_bmm

    def _matrix_index(self, node: torch.fx.Node) -> Columns:
        """Pairs of the dot products, as columns of a dot_interaction."""
        value, places = self._same(node), list(node.args[1])  # type: ignore[arg-type]
        if not isinstance(value, _Products) or len(places) != 3 or places[0] is not None:
            return self._no_layer(node)
        lists = [self._constant(one) for one in places[1:]]
        if any(one is None or one.dim() != 1 for one in lists):
            return self._no_layer(node)
        matrix = value.of
        rows, dim = matrix.rows, matrix.of.width // matrix.rows
        first = self._name(self._cut(matrix.of, 0, dim))
        rest = self._cut(matrix.of, dim, matrix.of.width - dim)
        width = dim + rows * (rows - 1) // 2
        made = self._made("dot_interaction", Columns([(first, dim), *rest.parts]), width).parts[0][0]
        pairs = [sorted((int(i) % rows, int(j) % rows)) for i, j in zip(*lists)]  # type: ignore[arg-type]
        if any(i == j for i, j in pairs):
            self._no_layer(node, ", which asks for a vector's product with itself,")
        cut = self.layer("split_columns", [made], dim, {"widths": [dim] + [1] * (width - dim)}, "dots").inputs[0]
        columns = [i * (2 * rows - i - 1) // 2 + j - i for i, j in pairs]
        if columns == list(range(1, width - dim + 1)):
            self.layers[-1]["options"] = {"widths": [dim, width - dim]}
            return Columns([(f"{cut}:1", width - dim)])
        return Columns([(f"{cut}:{column}", 1) for column in columns])

    # ---- element by element, and sums

    def _both(self, node: torch.fx.Node, kind: str) -> _Matrix:
        a, b = self._given(node), self._given(node, 1)
        if a.rows != b.rows or a.of.width != b.of.width or node.kwargs:
            self._no_layer(node)
        return _Matrix(self._combined(node, kind, a.of, b.of), a.rows)

    def _matrix_add(self, node: torch.fx.Node) -> _Matrix:
        return self._both(node, "sum")

    def _matrix_pow(self, node: torch.fx.Node) -> _Matrix:
        value = self._given(node)
        if node.args[1] != 2:
            self._no_layer(node, ", except with the exponent 2,")
        return _Matrix(self._combined(node, "product", value.of, value.of), value.rows)

    def _matrix_mul(self, node: torch.fx.Node) -> Union[_Matrix, _Weighted]:
        a, b = self._given(node), self._given(node, 1)
        for gates, rows in ((a, b), (b, a)):
            if gates.rows == rows.rows and gates.of.width == gates.rows < rows.of.width:
                return _Weighted(gates.of, rows)
        return self._both(node, "product")

    def _matrix_sum(self, node: torch.fx.Node) -> Columns:
        value, axis = self._same(node), _argument(node, 1, "dim")
        if list(axis or ()) not in ([1], [-2]) or _argument(node, 2, "keepdim", False):
            return self._no_layer(node, ", except over the vectors,")
        if isinstance(value, _Weighted):
            inputs = [self._name(value.gates), self._name(value.of.of)]
            width = value.of.of.width // value.of.rows
            return Columns([(self.layer("mixture", inputs, width, {"softmax": False}).inputs[0], width)])
        matrix = self._given(node)
        width = matrix.of.width // matrix.rows
        rows = [self._name(self._cut(matrix.of, k * width, width)) for k in range(matrix.rows)]
        out: _Value = self.layer("sum", rows, width) if len(rows) > 1 else _Value(rows, width)
        return Columns([(out.inputs[0], width)])

    def _matrix_mean(self, node: torch.fx.Node) -> Columns:
        return self._scaled(node, self._matrix_sum(node), scale=1 / self._given(node).rows)

    # ---- from a matrix to a row for each sample

    def _matrix_view(self, node: torch.fx.Node) -> Any:
        matrix, shape = self._given(node), node.meta["val"].shape
        if str(shape[0]) != str(self._batch) or len(shape) not in (2, 3):
            self._no_layer(node)
        if len(shape) == 3:
            return _Matrix(matrix.of, int(shape[1]))
        return matrix.of if shape[1] == matrix.of.width else self._no_layer(node)

    _matrix_reshape = _matrix_flatten = _matrix__unsafe_view = _matrix_view

    def _matrix_squeeze(self, node: torch.fx.Node) -> Columns:
        return self._matrix_view(node)

    def _matrix_select(self, node: torch.fx.Node) -> Columns:
        matrix, (axis, row) = self._given(node), node.args[1:3]
        width = matrix.of.width // matrix.rows
        if axis not in (1, -2):
            self._no_layer(node)
        return self._cut(matrix.of, int(row) % matrix.rows * width, width)  # type: ignore[arg-type]
