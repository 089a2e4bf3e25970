"""Operators of PyTorch's exported graphs (torch.ops.aten) as layers."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor, nn

from ._pack import Layer, _Graph, _Value


@dataclass
class Columns:
    """Values of each sample: parts side by side, with a factor and an offset for each column. These stay separate, so
    that a later linear layer can absorb them. flat: the shape is [samples] instead of [samples, 1]."""

    parts: List[Tuple[str, int]]
    scale: Optional[Tensor] = None
    shift: Optional[Tensor] = None
    flat: bool = False

    @property
    def width(self) -> int:
        """The number of values of a sample."""
        return sum(width for _, width in self.parts)


@dataclass
class _Length:
    """The length of each sample's vector, at least ``eps``. A division by it becomes the layer l2_norm."""

    of: Columns
    eps: float = 0.0


_ACTIVATIONS = ("relu", "sigmoid", "tanh", "silu", "mish", "selu")
_UNCHANGED = ("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "dropout", "native_dropout")
_SHAPED = ("view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze", "expand", "expand_as")


def _argument(node: torch.fx.Node, index: int, name: str, otherwise: Any = None) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, otherwise)


class Operators(_Graph):
    """The layers of a graph whose inputs and constants are known."""

    _more = ""

    def __init__(self, model: nn.Module, layers: Mapping[str, Layer]) -> None:
        super().__init__(model, layers)
        self._constants: Dict[torch.fx.Node, Tensor] = {}
        self._targets: Dict[torch.fx.Node, str] = {}  # names of parameters and buffers
        self._batch: Any = None  # the symbol, in shapes, of the number of samples
        self._activated: Dict[str, Tuple[Columns, Dict[str, Any]]] = {}  # by layer: its input and options

    def _no_layer(self, node: torch.fx.Node, why: str = "") -> Any:
        inputs = ", ".join(str(one) for one in node.all_input_nodes)
        of = f" (inputs {inputs})" if inputs else ""
        self.refuse(f'the operator {node.target} of node "{node.name}"{of}{why}')

    # ---- values

    def _of(self, node: torch.fx.Node, index: int = 0) -> Columns:
        given = node.args[index] if len(node.args) > index else None
        value = self._values.get(given) if isinstance(given, torch.fx.Node) else None
        return value if isinstance(value, Columns) else self._no_layer(node)

    def _plain(self, value: Columns) -> Columns:
        """Returns the values without factors and offsets, for which it makes layers."""
        if value.scale is None and value.shift is None:
            return value
        parts, first = [], 0
        for name, width in value.parts:
            one, zero = torch.ones(width), torch.zeros(width)
            scale = one if value.scale is None else value.scale[first : first + width]
            shift = zero if value.shift is None else value.shift[first : first + width]
            first += width
            if not (torch.all(scale == scale[0]) and torch.all(shift == shift[0])):
                self.refuse(f"a product or sum of {name} with a constant for each of {width} values, which no linear "
                            "layer after it takes over,")  # fmt: skip
            options = {"factor": float(scale[0]), "offset": float(shift[0])}
            same = options == {"factor": 1.0, "offset": 0.0}
            parts.append((name if same else self.layer("affine", [name], width, options).inputs[0], width))
        return replace(value, parts=parts, scale=None, shift=None)

    def taken(self, node: Any, by: str) -> _Value:
        """Returns the input that a layer named ``by`` takes from the node."""
        value = self._values.get(node) if isinstance(node, torch.fx.Node) else None
        if not isinstance(value, Columns):
            self.refuse(f"what {by} is given, {node},")
        return _Value([name for name, _ in self._plain(value).parts], value.width)

    def _made(self, kind: str, of: Columns, width: int, options: Any = None, name: str = "") -> Columns:
        of = self._plain(of)
        made = self.layer(kind, [part for part, _ in of.parts], width, options, name).inputs[0]
        if kind == "activation" and options["kind"] != "prelu":
            self._activated[made] = (of, options)
        return Columns([(made, width)], flat=of.flat)

    def _name(self, of: Columns) -> str:
        return self._single(_Value([name for name, _ in self._plain(of).parts], of.width))

    def _constant(self, given: Any) -> Optional[Tensor]:
        if isinstance(given, torch.fx.Node):
            return self._constants.get(given)
        return torch.tensor(float(given)) if isinstance(given, (int, float)) else None

    def _scaled(self, node: torch.fx.Node, of: Columns, scale: Any = 1.0, shift: Any = 0.0) -> Columns:
        """Returns of · scale + shift. Each constant is a number, or a tensor with a number for each column."""

        def by_column(constant: Any) -> Tensor:
            constant = torch.as_tensor(constant, dtype=torch.float64)
            one = constant.numel() == 1 and constant.dim() <= (1 if of.flat else 2)
            if one:
                return constant.reshape(1).expand(of.width)
            if constant.numel() != of.width or constant.shape[-1] != of.width or of.flat:
                self._no_layer(node, f", which combines {of.width} values with a constant of {constant.numel()},")
            return constant.reshape(-1)

        by, more = by_column(scale), by_column(shift)
        before = torch.ones(of.width) if of.scale is None else of.scale
        old = torch.zeros(of.width) if of.shift is None else of.shift
        return replace(of, scale=before.double() * by, shift=old.double() * by + more)

    # ---- operators

    def _operator(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            held = self._values.get(node.args[0])  # type: ignore[arg-type]
            out = held[node.args[1]] if isinstance(held, (list, tuple)) else None
            if isinstance(out, Tensor):
                self._constants[node] = out
            return out
        tensors = node.all_input_nodes
        if all(one in self._constants for one in tensors):
            return self._folded(node)
        name = str(node.target).split(".")[1] if str(node.target).startswith(("aten.", "tessera.")) else ""
        if name in ("sym_size",) or all(self._values.get(one) is None for one in tensors if one not in self._constants):
            return None  # computes with sizes or ids, which layers do not take
        if name in _ACTIVATIONS:
            return self._made("activation", self._of(node), self._of(node).width, {"kind": name})
        if name in _UNCHANGED:
            return self._of(node)
        if name in _SHAPED:
            return self._shaped(node)
        translate = getattr(self, f"_op_{name}", None)
        return translate(node) if translate is not None else self._no_layer(node)

    def _folded(self, node: torch.fx.Node) -> Any:
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: self._constants[one])
        with torch.no_grad():
            out = node.target(*arguments[0], **arguments[1])  # type: ignore[operator]
        if isinstance(out, Tensor):
            self._constants[node] = out
        return out

    def _shaped(self, node: torch.fx.Node) -> Any:
        """Translates a change of shape that keeps the values of each sample."""
        value = self._values.get(node.args[0])  # type: ignore[arg-type]
        if isinstance(value, _Length):
            return value  # a division broadcasts it anyway
        of = self._of(node)
        shape = node.meta["val"].shape
        flat = len(shape) == 1
        same = len(shape) in (1, 2) and of.width == (1 if flat else shape[1])
        if not same or str(shape[0]) != str(self._batch):
            self._no_layer(node, f", whose result {list(shape)} is not [samples, {of.width}], as its input is,")
        return replace(of, flat=flat)

    def _op_linear(self, node: torch.fx.Node) -> Columns:
        return self._linear(node, self._of(node), node.args[1], _argument(node, 2, "bias"))

    def _op_addmm(self, node: torch.fx.Node) -> Columns:
        weight = self._constant(node.args[2])
        return self._linear(node, self._of(node, 1), None if weight is None else weight.t(), node.args[0], node.args[2])

    def _op_matmul(self, node: torch.fx.Node) -> Columns:
        weight = self._constant(node.args[1])
        return self._linear(node, self._of(node), None if weight is None else weight.t(), None, node.args[1])

    _op_mm = _op_matmul

    def _linear(self, node: torch.fx.Node, of: Columns, weight: Any, bias: Any, owner: Any = None) -> Columns:
        named = owner or weight
        weight = weight if isinstance(weight, Tensor) else self._constant(weight)
        bias = None if bias is None else self._constant(bias)
        if weight is None or weight.dim() != 2 or of.flat:
            return self._no_layer(node, ", whose matrix is no parameter,")
        path = self._targets.get(named, "") if isinstance(named, torch.fx.Node) else ""
        base = path[: -len(".weight")] if path.endswith(".weight") else path
        weight = weight.double()
        if of.shift is not None:
            moved = weight @ of.shift.double()
            bias = moved if bias is None else bias.double() + moved
        if of.scale is not None:
            weight = weight * of.scale
        width = weight.shape[0]
        plain = replace(of, scale=None, shift=None)
        out = self._made("linear", plain, width, {"width": width, "bias": bias is not None}, base)
        self.parameters[f"{out.parts[0][0]}.weight"] = weight.float()
        if bias is not None:
            self.parameters[f"{out.parts[0][0]}.bias"] = bias.float()
        return out

    def _op_leaky_relu(self, node: torch.fx.Node) -> Columns:
        options = {"kind": "leaky_relu", "slope": float(_argument(node, 1, "negative_slope", 0.01))}
        return self._made("activation", self._of(node), self._of(node).width, options)

    def _op_elu(self, node: torch.fx.Node) -> Columns:
        if any(_argument(node, i, name, 1) != 1 for i, name in ((1, "alpha"), (2, "scale"), (3, "input_scale"))):
            self._no_layer(node, ", whose alpha and scales are not 1,")
        return self._made("activation", self._of(node), self._of(node).width, {"kind": "elu"})

    def _op_gelu(self, node: torch.fx.Node) -> Columns:
        if node.kwargs.get("approximate", "none") != "none":
            self._no_layer(node, ", which is approximated,")
        return self._made("activation", self._of(node), self._of(node).width, {"kind": "gelu"})

    def _op_softplus(self, node: torch.fx.Node) -> Columns:
        if _argument(node, 1, "beta", 1) != 1 or _argument(node, 2, "threshold", 20) < 20:
            self._no_layer(node, ", whose beta is not 1 or whose threshold is below 20,")
        return self._made("activation", self._of(node), self._of(node).width, {"kind": "softplus"})

    def _op_prelu(self, node: torch.fx.Node) -> Columns:
        slope = self._constant(node.args[1])
        if slope is None or slope.numel() != 1:
            self._no_layer(node, ", with a slope for each value,")
        out = self._made("activation", self._of(node), self._of(node).width, {"kind": "prelu"})
        self.parameters[f"{out.parts[0][0]}.weight"] = slope.reshape(1)  # type: ignore[union-attr]
        return out

    def _line(self, of: Columns, at: List[float], to: List[float]) -> Columns:
        one = Columns([(self._name(of), of.width)], flat=of.flat)
        return self._made("piecewise", one, of.width, {"at": at, "values": to})

    def _op_clamp(self, node: torch.fx.Node) -> Any:
        low, high = _argument(node, 1, "min"), _argument(node, 2, "max")
        value = self._values.get(node.args[0])  # type: ignore[arg-type]
        if isinstance(value, _Length) and isinstance(low, (int, float)) and high is None:
            return replace(value, eps=float(low))
        if not (isinstance(low, (int, float)) and isinstance(high, (int, float)) and low < high):
            self._no_layer(node, ", without two bounds,")
        return self._line(self._of(node), [float(low), float(high)], [float(low), float(high)])

    _op_hardtanh = _op_clamp_min = _op_clamp

    def _op_relu6(self, node: torch.fx.Node) -> Columns:
        return self._line(self._of(node), [0.0, 6.0], [0.0, 6.0])

    def _op_hardsigmoid(self, node: torch.fx.Node) -> Columns:
        return self._line(self._of(node), [-3.0, 3.0], [0.0, 1.0])

    def _axis(self, node: torch.fx.Node, axis: Any, of: Columns) -> None:
        axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
        if axis not in (1, -1) or of.flat:
            self._no_layer(node, f" along dimension {axis}")

    def _op_softmax(self, node: torch.fx.Node) -> Columns:
        self._axis(node, node.args[1], self._of(node))
        return self._made("softmax", self._of(node), self._of(node).width)

    _op__softmax = _op_softmax

    def _norm(self, kind: str, node: torch.fx.Node, options: Any, parameters: Dict[str, Any]) -> Columns:
        of = self._of(node)
        path = self._targets.get(parameters["weight"], "") if isinstance(parameters["weight"], torch.fx.Node) else ""
        out = self._made(kind, of, of.width, options, path[: -len(".weight")] if path.endswith(".weight") else "")
        for name, given in parameters.items():
            value = self._constant(given)
            if value is None:
                value = torch.ones(of.width) if name == "weight" else torch.zeros(of.width)
            if value.numel() != of.width or of.flat:
                self._no_layer(node)
            self.parameters[f"{out.parts[0][0]}.{name}"] = value.reshape(-1)
        return out

    def _op_layer_norm(self, node: torch.fx.Node) -> Columns:
        if list(node.args[1]) != [self._of(node).width]:  # type: ignore[arg-type]
            self._no_layer(node)
        eps = float(_argument(node, 4, "eps", 1e-5))
        weight, bias = _argument(node, 2, "weight"), _argument(node, 3, "bias")
        return self._norm("layer_norm", node, {"eps": eps}, {"weight": weight, "bias": bias})

    def _op__native_batch_norm_legit_no_training(self, node: torch.fx.Node) -> List[Columns]:
        weight, bias, mean, var, momentum, eps = node.args[1:7]
        out = self._norm("batch_norm", node, {"eps": float(eps), "momentum": float(momentum)},  # type: ignore[arg-type]
                         {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var})  # fmt: skip
        self.parameters[f"{out.parts[0][0]}.num_batches_tracked"] = torch.tensor(0)
        return [out]

    # ---- arithmetic

    def _combined(self, node: torch.fx.Node, kind: str, a: Columns, b: Columns) -> Columns:
        if a.width != b.width or a.flat != b.flat:
            self._no_layer(node, f", of {a.width} and {b.width} values,")
        inputs = [self._name(one) for one in (a, b)]
        return Columns([(self.layer(kind, inputs, a.width).inputs[0], a.width)], flat=a.flat)

    def _op_mul(self, node: torch.fx.Node) -> Columns:
        for one, other in ((0, 1), (1, 0)):
            by = self._constant(node.args[one])
            if by is not None:
                return self._scaled(node, self._of(node, other), scale=by)
        a, b = self._of(node), self._of(node, 1)
        for one, all_of in ((a, b), (b, a)):
            if one.width == 1 and all_of.width > 1 and not one.flat:
                inputs = [self._name(one), self._name(all_of)]
                made = self.layer("mixture", inputs, all_of.width, {"softmax": False})
                return Columns([(made.inputs[0], all_of.width)])
        return self._combined(node, "product", a, b)

    def _sum(self, node: torch.fx.Node, sign: float) -> Columns:
        factor = sign * float(node.kwargs.get("alpha", 1))  # type: ignore[arg-type]
        more = self._constant(node.args[1])
        if more is not None:
            return self._scaled(node, self._of(node), shift=more.double() * factor)
        b = self._of(node, 1)
        b = b if factor == 1 else self._scaled(node, b, scale=factor)
        to = self._constant(node.args[0])
        return self._scaled(node, b, shift=to) if to is not None else self._combined(node, "sum", self._of(node), b)

    def _op_add(self, node: torch.fx.Node) -> Columns:
        return self._sum(node, 1.0)

    def _op_sub(self, node: torch.fx.Node) -> Columns:
        return self._sum(node, -1.0)

    def _op_rsub(self, node: torch.fx.Node) -> Columns:
        less = self._scaled(node, self._of(node), scale=-float(_argument(node, 2, "alpha", 1)))
        more = self._constant(node.args[1])
        return self._no_layer(node) if more is None else self._scaled(node, less, shift=more)

    def _op_neg(self, node: torch.fx.Node) -> Columns:
        return self._scaled(node, self._of(node), scale=-1.0)

    def _op_div(self, node: torch.fx.Node) -> Columns:
        of, by = self._of(node), self._constant(node.args[1])
        if by is not None and not node.kwargs:
            return self._scaled(node, of, scale=1 / by.double())
        length = self._values.get(node.args[1])  # type: ignore[arg-type]
        if isinstance(length, _Length) and length.of is of and not node.kwargs:
            return self._made("l2_norm", of, of.width, {"eps": length.eps or 1e-30})
        return self._no_layer(node, ", except by a constant or by the vector's length,")

    def _op_pow(self, node: torch.fx.Node) -> Columns:
        if node.args[1] != 2:
            self._no_layer(node, ", except with the exponent 2,")
        return self._combined(node, "product", self._of(node), self._of(node))

    def _op_linalg_vector_norm(self, node: torch.fx.Node) -> _Length:
        if _argument(node, 1, "ord", 2) != 2 or not _argument(node, 3, "keepdim", False):
            self._no_layer(node)
        self._axis(node, _argument(node, 2, "dim"), self._of(node))
        return _Length(self._of(node))

    def _op_sum(self, node: torch.fx.Node) -> Columns:
        """Translates the sum of a sample's values into a sum of columns."""
        of = self._plain(self._of(node))
        self._axis(node, _argument(node, 1, "dim"), of)
        flat = not _argument(node, 2, "keepdim", False)
        if of.width == 1:
            return replace(of, flat=flat)
        cut = self._made("split_columns", of, 1, {"widths": [1] * of.width}).parts[0][0]
        inputs = [cut] + [f"{cut}:{k}" for k in range(1, of.width)]
        return Columns([(self.layer("sum", inputs, 1).inputs[0], 1)], flat=flat)

    def _op_mean(self, node: torch.fx.Node) -> Columns:
        return self._scaled(node, self._op_sum(node), scale=1 / self._of(node).width)

    # ---- columns

    def _cut(self, of: Columns, first: int, width: int) -> Columns:
        out: List[Tuple[str, int]] = []
        begin = 0
        for name, whole in of.parts:
            start, end = max(0, first - begin), min(whole, first + width - begin)
            begin += whole
            if start >= end:
                continue
            if end - start == whole:
                out.append((name, whole))
                continue
            if name in self._activated:  # move the sigmoid to the end, where an output needs it
                before, options = self._activated[name]
                out += self._made("activation", self._cut(before, start, end - start), end - start, options).parts
                continue
            widths = [w for w in (start, end - start, whole - end) if w]
            cut = self.layer("split_columns", [name], widths[0], {"widths": widths}, "columns").inputs[0]
            out.append((f"{cut}:1" if start else cut, end - start))
        part = slice(first, first + width)
        return Columns(out, None if of.scale is None else of.scale[part], None if of.shift is None else of.shift[part])

    def _op_cat(self, node: torch.fx.Node) -> Columns:
        values = []
        for one in node.args[0]:  # type: ignore[union-attr]
            value = self._values.get(one)  # type: ignore[arg-type]
            if not isinstance(value, Columns):
                return self._no_layer(node)
            self._axis(node, _argument(node, 1, "dim", 0), value)
            values.append(value)
        constants = [torch.cat([given(v) for v in values]) for given in (_scale_of, _shift_of)]
        none = all(v.scale is None and v.shift is None for v in values)
        parts = [part for v in values for part in v.parts]
        return Columns(parts, None if none else constants[0], None if none else constants[1])

    def _op_slice(self, node: torch.fx.Node) -> Columns:
        of = self._of(node)
        first, last = _argument(node, 2, "start") or 0, _argument(node, 3, "end")
        whole = first == 0 and (last is None or last > 1 << 62)
        if _argument(node, 4, "step", 1) != 1:
            self._no_layer(node, " with steps")
        if whole:
            return of
        self._axis(node, _argument(node, 1, "dim", 0), of)
        first, last, _ = slice(first, last).indices(of.width)
        return self._cut(of, first, last - first)

    def _op_select(self, node: torch.fx.Node) -> Columns:
        of = self._of(node)
        self._axis(node, node.args[1], of)
        return replace(self._cut(of, int(node.args[2]) % of.width, 1), flat=True)  # type: ignore[arg-type]

    def _op_split_with_sizes(self, node: torch.fx.Node) -> List[Columns]:
        of, sizes = self._of(node), list(node.args[1])  # type: ignore[arg-type]
        self._axis(node, _argument(node, 2, "dim", 0), of)
        begins = [sum(sizes[:k]) for k in range(len(sizes))]
        return [self._cut(of, begin, size) for begin, size in zip(begins, sizes)]

    def _op_split(self, node: torch.fx.Node) -> List[Columns]:
        of, size = self._of(node), int(node.args[1])  # type: ignore[arg-type]
        self._axis(node, _argument(node, 2, "dim", 0), of)
        return [self._cut(of, k, min(size, of.width - k)) for k in range(0, of.width, size)]

    # ---- modules for which the program names a layer

    def _op_layer(self, node: torch.fx.Node) -> Columns:
        given, path, width = node.args
        layer, module = self.own[str(path)], self.model.get_submodule(str(path))
        inputs = [name for one in given for name in self.taken(one, str(path)).inputs]  # type: ignore[union-attr]
        out = self.layer(layer.type, inputs, layer.width, layer.options, str(path))
        values = dict([*module.named_parameters(), *module.named_buffers()])
        for theirs, name in layer.parameters.items():
            if name not in values:
                raise KeyError(f"{path} has no parameter {name}; there are {', '.join(values)}")
            self.parameters[f"{out.inputs[0]}.{theirs}"] = values[name]
        return Columns([(out.inputs[0], layer.width)])


def _scale_of(value: Columns) -> Tensor:
    return torch.ones(value.width, dtype=torch.float64) if value.scale is None else value.scale.double()


def _shift_of(value: Columns) -> Tensor:
    return torch.zeros(value.width, dtype=torch.float64) if value.shift is None else value.shift.double()
