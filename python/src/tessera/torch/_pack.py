"""Packs PyTorch models: the dense part becomes a graph of layers that the library computes without PyTorch."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

import torch
import torch.fx
from torch import Tensor, nn
from torch.nn import functional

from .._pack import pack as _pack
from ._adopt import AdoptedEmbedding
from ._embeddings import Embeddings
from ._parallel import DistributedModelParallel


@dataclass
class Layer:
    """The replacement for a custom module: a layer of docs/layers.md with its options, which takes the module's
    arguments. width: number of output values. parameters: the layer's names for parameters of the module."""

    type: str
    width: int
    options: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


class _Tracer(torch.fx.Tracer):
    def __init__(self, layers: Mapping[str, Layer]) -> None:
        super().__init__()
        self._layers = layers

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = isinstance(m, Embeddings) or module_qualified_name in self._layers
        return own or super().is_leaf_module(m, module_qualified_name)


@dataclass
class _Value:
    """Concatenated inputs of a layer. width: the sum of the known widths. dense: the number of inputs that are the
    dense values, whose width is not known yet."""

    inputs: List[str]
    width: int
    dense: int = 0


@dataclass
class _Keyed:
    """The output of a collection."""

    module: Embeddings
    path: str


@dataclass
class _Sequence:
    """Rows of a feature, one for each id: an input for layers that take a sequence."""

    input: str
    width: int
    pools_itself: bool = False  # the rows are one tensor, which the model may add up


class _Input:
    """An argument of the model: dense values or features, depending on its use."""


# Modules without parameters, and the options of the layers for them.
_ACTIVATIONS: Dict[type, Callable[[Any], Dict[str, Any]]] = {
    nn.ReLU: lambda m: {"kind": "relu"},
    nn.Sigmoid: lambda m: {"kind": "sigmoid"},
    nn.Tanh: lambda m: {"kind": "tanh"},
    nn.SiLU: lambda m: {"kind": "silu"},
    nn.LeakyReLU: lambda m: {"kind": "leaky_relu", "slope": m.negative_slope},
    nn.GELU: lambda m: {"kind": "gelu"},
    nn.PReLU: lambda m: {"kind": "prelu"},
    nn.ELU: lambda m: {"kind": "elu"},
    nn.SELU: lambda m: {"kind": "selu"},
    nn.Softplus: lambda m: {"kind": "softplus"},
    nn.Mish: lambda m: {"kind": "mish"},
}
_FUNCTIONS = {
    torch.relu: "relu", functional.relu: "relu", "relu": "relu", torch.sigmoid: "sigmoid", "sigmoid": "sigmoid",
    functional.sigmoid: "sigmoid", torch.tanh: "tanh", "tanh": "tanh", functional.tanh: "tanh",
    functional.silu: "silu",
}  # fmt: skip
_SUMS, _PRODUCTS = (operator.add, torch.add, "add"), (operator.mul, torch.mul, "mul")
_POOLINGS = {"sum": "sum_pooling", torch.sum: "sum_pooling", "mean": "mean_pooling", torch.mean: "mean_pooling",
             "amax": "max_pooling", torch.amax: "max_pooling",
             "squeeze": "sum_pooling", torch.squeeze: "sum_pooling"}  # squeeze: each sample has one row  # fmt: skip
_SHAPES = ("flatten", "squeeze", torch.flatten, torch.squeeze)  # change no values


class _Graph:
    """Makes the layers of a traced model."""

    def __init__(self, model: nn.Module, layers: Mapping[str, Layer]) -> None:
        self.model, self.own = model, layers
        self.layers: List[Dict[str, Any]] = []
        self.parameters: Dict[str, Tensor] = {}
        self.dense_width: Optional[int] = None
        self.heads: List[Dict[str, Any]] = []
        self.collections: Dict[str, Embeddings] = {}
        self._values: Dict[torch.fx.Node, Any] = {}
        self._dense_node: Optional[torch.fx.Node] = None

    # Errors add this sentence about another way to make the graph.
    _more = ", and example=(dense, features) lets torch.export make the graph, which takes more operators"

    def refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"{what} has no counterpart among the layers of a packed model: layers={{PATH: tessera.torch.Layer(...)}} "
            f"may name one for a module{self._more}"
        )

    def trace(self) -> None:
        try:
            nodes = _Tracer(self.own).trace(self.model).nodes
        except Exception as error:
            raise NotImplementedError(
                "the model cannot be traced by torch.fx, so there is no graph of it to pack: example=(dense, features) "
                f"lets torch.export trace it: {error}"
            ) from error
        for node in nodes:
            self._values[node] = self._value(node)
        if self.dense_width is None and any(isinstance(v, _Value) and v.dense for v in self._values.values()):
            self.refuse("a model whose dense values meet no Linear layer")

    def _value(self, node: torch.fx.Node) -> Any:
        if node.op == "placeholder":
            return _Input()
        if node.op == "output":
            return self._output(node.args[0])
        if node.op == "call_module":
            return self._module(node)
        if node.op in ("call_function", "call_method"):
            return self._call(node)
        self.refuse(f"{node.target}, which the model reads")

    def taken(self, node: Any, by: str) -> _Value:
        """Returns the input that the layer named ``by`` takes from the node."""
        value = self._values.get(node) if isinstance(node, torch.fx.Node) else None
        if isinstance(value, _Input):
            if self._dense_node is not None:
                self.refuse(f'a second input of dense values, "{node.target}" beside "{self._dense_node.target}",')
            self._dense_node = node
            value = self._values[node] = _Value(["dense"], 0, 1)
        if isinstance(value, _Sequence):
            self.refuse(f"{by} of the sequence {value.input}, which is not pooled,")
        if not isinstance(value, _Value):
            self.refuse(f"what {by} is given")
        return value

    def layer(
        self, kind: str, inputs: List[str], width: int, options: Any = None, name: str = "", dense: int = 0
    ) -> _Value:
        used = {layer["name"] for layer in self.layers} | {"dense", "pooled"}
        for part in self.collections.values():
            used |= {config.name for config in part._configs}
            used |= {feature for config in part._configs for feature in config.feature_names}
        wanted = base = name.replace(".", "_") or kind
        number = 1
        while wanted in used:
            number += 1
            wanted = f"{base}_{number}"
        self.layers.append({"name": wanted, "type": kind, "inputs": list(inputs), "options": dict(options or {})})
        return _Value([wanted], width, dense)

    def _known(self, value: _Value, width: int, by: str) -> None:
        """Notes that the layer ``by`` takes ``width`` values. This determines the width of the dense values."""
        if value.dense:
            found, rest = divmod(width - value.width, value.dense)
            if rest or found <= 0 or self.dense_width not in (None, found):
                raise ValueError(f"{by} takes {width} values, and the dense ones are {self.dense_width or 'others'}")
            self.dense_width = found
        elif value.width != width:
            raise ValueError(f"{by} takes {width} values, and is given {value.width}")

    # ---- modules

    def _module(self, node: torch.fx.Node) -> Any:
        path, module = str(node.target), self.model.get_submodule(str(node.target))
        if isinstance(module, Embeddings):
            out = self._tables(path, module)
            if path in self.own and isinstance(out, _Sequence):
                return self.layer(self.own[path].type, [out.input], out.width, self.own[path].options)
            return out
        if path in self.own:
            return self._of_ones_own(path, module, node)
        if isinstance(module, (nn.Identity, nn.Dropout)):
            return self.taken(node.args[0], path)
        of = self.taken(node.args[0], path)
        if isinstance(module, nn.Linear):
            self._known(of, module.in_features, path)
            options = {"width": module.out_features, "bias": module.bias is not None}
            return self._with_parameters("linear", of, module.out_features, options, path, module)
        if isinstance(module, nn.PReLU) and module.weight.numel() != 1:
            self.refuse(f"{path}, a PReLU with a slope for each value,")
        if isinstance(module, nn.GELU) and module.approximate != "none":
            self.refuse(f"{path}, a GELU that is approximated,")
        if isinstance(module, nn.ELU) and module.alpha != 1:
            self.refuse(f"{path}, an ELU whose alpha is not 1,")
        if isinstance(module, nn.Softplus) and (module.beta != 1 or module.threshold < 20):
            self.refuse(f"{path}, a Softplus whose beta is not 1 or whose threshold is below 20,")
        if type(module) in _ACTIVATIONS:
            return self._with_parameters("activation", of, of.width, _ACTIVATIONS[type(module)](module), path, module)
        if isinstance(module, nn.Softmax) and module.dim in (1, -1):
            return self.layer("softmax", of.inputs, of.width, {}, path, of.dense)
        if isinstance(module, nn.LayerNorm) and module.elementwise_affine and module.bias is not None:
            self._known(of, module.normalized_shape[-1], path)
            return self._with_parameters("layer_norm", of, of.width, {"eps": module.eps}, path, module)
        if isinstance(module, nn.BatchNorm1d) and module.affine and module.track_running_stats:
            self._known(of, module.num_features, path)
            options = {"eps": module.eps, "momentum": module.momentum}
            return self._with_parameters("batch_norm", of, of.width, options, path, module)
        self.refuse(f"{path}, a {type(module).__name__},")

    def _with_parameters(
        self, kind: str, of: _Value, width: int, options: Dict[str, Any], path: str, module: nn.Module
    ) -> _Value:
        out = self.layer(kind, of.inputs, width, options, path, 0 if kind == "linear" else of.dense)
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            self.parameters[f"{out.inputs[0]}.{name}"] = value
        return out

    def _of_ones_own(self, path: str, module: nn.Module, node: torch.fx.Node) -> _Value:
        layer = self.own[path]
        inputs: List[str] = []
        for argument in node.args:
            value = self._values.get(argument) if isinstance(argument, torch.fx.Node) else None
            inputs += [value.input] if isinstance(value, _Sequence) else self.taken(argument, path).inputs
        out = self.layer(layer.type, inputs, layer.width, layer.options, path)
        values = dict([*module.named_parameters(), *module.named_buffers()])
        for theirs, name in layer.parameters.items():
            if name not in values:
                raise KeyError(f"{path} has no parameter {name}; there are {', '.join(values)}")
            self.parameters[f"{out.inputs[0]}.{theirs}"] = values[name]
        return out

    # ---- tables

    def _tables(self, path: str, module: Embeddings) -> Any:
        module.settle()
        self.collections[path] = module
        if isinstance(module, AdoptedEmbedding):
            return _Sequence(module._configs[0].name, module._configs[0].embedding_dim, True)
        return _Keyed(module, path) if type(module).__name__ != "AdoptedEmbeddingBag" else self._all_of(module)

    def _all_of(self, module: Embeddings) -> _Value:
        return _Value([config.name for config in module._configs], module.core.width)

    def _one_of(self, keyed: _Keyed, key: str) -> Union[_Value, _Sequence]:
        having = [c for c in keyed.module._configs if key in (c.feature_names or [c.name])]
        names = {c.name for part in self.collections.values() for c in part._configs}
        if len(having) != 1 or (len(having[0].feature_names) > 1 and key in names):
            self.refuse(f'the output "{key}" of {keyed.path}, which is none of one feature and one table,')
        one = having[0]
        name = one.name if len(one.feature_names) < 2 else key
        if keyed.module.kind == "sequences":
            return _Sequence(name, one.embedding_dim)
        return _Value([name], one.embedding_dim)

    # ---- functions and methods

    def _call(self, node: torch.fx.Node) -> Any:
        target, first = node.target, node.args[0] if node.args else None
        of = self._values.get(first) if isinstance(first, torch.fx.Node) else None
        if isinstance(of, _Sequence):
            return self._pooled(node, of)
        if isinstance(of, _Keyed):
            if target == "values" and of.module.kind == "bags":
                return self._all_of(of.module)
            if target is operator.getitem and isinstance(node.args[1], str):
                return self._one_of(of, node.args[1])
            self.refuse(f"{getattr(target, '__name__', target)}() of a collection's output")
        if target in (torch.cat, torch.concat, torch.hstack):
            return self._concatenated(node)
        if target in _FUNCTIONS:
            value = self.taken(first, str(target))
            return self.layer("activation", value.inputs, value.width, {"kind": _FUNCTIONS[target]}, dense=value.dense)
        if target in (functional.dropout, "contiguous", "float", "detach"):
            return self.taken(first, str(target))
        if target in _SHAPES:
            value = self.taken(first, str(target))
            if value.width != 1 and target in ("squeeze", torch.squeeze):
                self.refuse("squeeze() of what is wider than one value")
            return value
        if target in (*_SUMS, *_PRODUCTS) and len(node.args) == 2 and not node.kwargs:
            a, b = (self.taken(argument, str(target)) for argument in node.args)
            if a.dense or b.dense or a.width != b.width:
                self.refuse("a sum or product of values of different widths")
            inputs = [self._single(value) for value in (a, b)]
            return self.layer("sum" if target in _SUMS else "product", inputs, a.width)
        self.refuse(f"{getattr(target, '__name__', target)}()")

    def _pooled(self, node: torch.fx.Node, of: _Sequence) -> _Value:
        """Translates the pooling of an adopted nn.Embedding's rows [samples, ids, dim] over the ids."""
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        dim = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
        if not of.pools_itself or node.target not in _POOLINGS or dim not in (1, -2) or node.kwargs.get("keepdim"):
            name = getattr(node.target, "__name__", node.target)
            self.refuse(f"{name}() of the sequence {of.input}, of which a module of one's own may be a layer,")
        return self.layer(_POOLINGS[node.target], [of.input], of.width)

    def _single(self, value: _Value) -> str:
        return value.inputs[0] if len(value.inputs) == 1 else self.layer("concat", value.inputs, value.width).inputs[0]

    def _concatenated(self, node: torch.fx.Node) -> _Value:
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 1 if node.target is torch.hstack else 0)
        if dim not in (1, -1):
            self.refuse(f"cat() along dimension {dim}")
        parts = [self.taken(part, "cat") for part in node.args[0]]
        inputs = [name for part in parts for name in part.inputs]
        return _Value(inputs, sum(part.width for part in parts), sum(part.dense for part in parts))

    # ---- outputs

    def _output(self, result: Any) -> None:
        named: List[Tuple[str, Any]] = [("score", result)]
        if isinstance(result, Mapping):
            named = list(result.items())
        elif isinstance(result, (tuple, list)):
            named = [(f"score_{i}" if i else "score", one) for i, one in enumerate(result)]
        for name, one in named:
            value = self.taken(one, "the output")
            last = next((layer for layer in self.layers if [layer["name"]] == value.inputs), None)
            if last and last["type"] == "activation" and last["options"].get("kind") == "sigmoid":
                value = _Value(last["inputs"], value.width)  # a head is a logit: its sigmoid is the score
                if not any(last["name"] in layer["inputs"] for layer in self.layers):
                    self.layers.remove(last)
            self.heads.append({"name": name, "input": self._single(value)})


def pack(
    model: nn.Module,
    directory: Union[str, os.PathLike],
    *,
    layers: Optional[Mapping[str, Layer]] = None,
    example: Optional[Sequence[Any]] = None,
    format: str = "int8",
    formats: Optional[Mapping[str, str]] = None,
    name: str = "",
    bounds_check: str = "fatal",
) -> List[Dict[str, Any]]:
    """Packs a trained model with collections of ``tessera.torch`` or adopted bags (docs/models.md). ``tessera serve``
    and ``tessera predict`` use the result without PyTorch. Returns how each table was stored. Collective if tables are
    sharded.

    The model's arguments are a tensor of dense values, or none, and features; torch.fx traces it. Linear, ReLU,
    Sigmoid, Tanh, SiLU, LeakyReLU, GELU, PReLU, ELU, SELU, Softplus, Mish, Softmax, LayerNorm, BatchNorm1d, Dropout,
    ``cat``, ``+``, ``*`` and a collection's ``values()`` and ``[key]`` become layers in their evaluation form. So do
    ``sum(1)``, ``mean(1)``, ``amax(1)`` and ``squeeze(1)`` of an adopted nn.Embedding's rows. ``NotImplementedError``
    names anything else. ``layers`` names the layer for a module, by its path: ``{"own": Layer("cross", 32)}``. Such a
    layer may take sequences, which are an EmbeddingCollection's ``[key]`` or an nn.Embedding's rows, as
    ``Layer("target_attention", 8)`` does. An adopted nn.Embedding with one row per sample is a ``Layer("sum_pooling",
    8)``.

    example: arguments of a call, such as ``(dense, features)``, of 2 samples or more. With it torch.export makes the
    graph, so forward may be any Python code whose operators have a counterpart. These also include slices, ``@``,
    ``-``, ``/`` and constants, clamps, sums and means of a sample's values, and normalize. Float tensors ``[samples,
    width]`` among the arguments are the dense values, side by side. Sequences need the graph of torch.fx.

    The model's outputs must be probabilities: apply a sigmoid to logits. format, formats, name and bounds_check are as
    in ``tessera.pack``."""
    inner = model._inner if isinstance(model, DistributedModelParallel) else model
    if example is None:
        graph = _Graph(inner, layers or {})
    else:
        from ._exported import Exported

        graph = Exported(inner, layers or {}, example)
    graph.trace()
    for path, part in inner.named_modules():
        if isinstance(part, Embeddings) and path not in graph.collections:
            raise ValueError(f"{path} is not looked up by the model's forward: take it out, or pack the part that does")
    values = {key: value.detach().float().contiguous().numpy() for key, value in graph.parameters.items()
              if not key.endswith("num_batches_tracked")}  # fmt: skip
    counts = {key: value.numpy() for key, value in graph.parameters.items() if key.endswith("num_batches_tracked")}
    made = {"dense_inputs": graph.dense_width or 0, "layers": graph.layers, "heads": graph.heads}
    cores = [part.core for part in graph.collections.values()]
    return _pack(
        directory, cores, made, {**values, **counts}, format=format, formats=formats, name=name,
        bounds_check=bounds_check,
    )  # fmt: skip
