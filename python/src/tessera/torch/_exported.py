"""Turns a model into layers by a graph that torch.export makes from an example. All operators of its forward need a
counterpart."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, List, Mapping, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import _ops
from ._adopt import AdoptedEmbedding
from ._embeddings import Embeddings
from ._keyed import KeyedTensor
from ._matrices import MatrixOperators
from ._operators import Columns
from ._pack import Layer


class _Rows:
    """The inputs of the graph that stand for the collections' outputs, while torch.export runs."""

    given: List[Tensor]


class _Features:
    """Replaces an argument that only lookups use, so that the graph does not depend on the example's ids."""

    def __getattr__(self, name: str) -> Any:
        if name in _VIEWS:
            return lambda *_, **__: self
        raise NotImplementedError(
            f"the model reads .{name} of an argument that is no float tensor [samples, width]: a packed model only "
            "looks features up, with the ids that it is given"
        )


_VIEWS = ("view", "reshape", "flatten", "squeeze", "unsqueeze", "long", "int", "to", "contiguous", "clone", "detach")


def _leaves(example: Sequence[Any]) -> Tuple[List[Any], Any]:
    return pytree.tree_flatten(tuple(example), is_leaf=lambda one: not isinstance(one, (dict, list, tuple)))


class _Wrapped(nn.Module):
    """Calls the model. Its inputs are the outputs of the collections, and then the dense arguments of the model."""

    def __init__(self, model: nn.Module, example: Sequence[Any], rows: _Rows) -> None:
        super().__init__()
        self.model, self._rows = model, rows
        leaves, self._spec = _leaves(example)
        plain = (int, float, bool, str, type(None))
        self._others = [one if isinstance(one, plain) or _is_dense(one) else _Features() for one in leaves]

    def forward(self, *inputs: Tensor) -> Any:
        dense = [isinstance(one, Tensor) for one in self._others]
        self._rows.given = list(inputs[: len(inputs) - sum(dense)])
        left = iter(inputs[len(inputs) - sum(dense) :])
        leaves = [next(left) if is_dense else other for is_dense, other in zip(dense, self._others)]
        return self.model(*pytree.tree_unflatten(leaves, self._spec))


class Exported(MatrixOperators):
    """The layers of an exported model."""

    def __init__(self, model: nn.Module, layers: Mapping[str, Layer], example: Sequence[Any]) -> None:
        super().__init__(model, layers)
        self._example = example
        self._row_inputs: List[Columns] = []

    def trace(self) -> None:
        """Exports the module, and makes layers of the graph's nodes."""
        program = self._export()
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        user = iter([*self._row_inputs, *self._dense_inputs()])
        for node in program.graph.nodes:
            if node.op != "placeholder":
                if node.op == "call_function":
                    self._values[node] = self._operator(node)
                continue
            spec = specs[node.name]
            if spec.kind.name == "USER_INPUT":
                self._values[node] = next(user)
                shape = getattr(node.meta.get("val"), "shape", ())
                if isinstance(self._values[node], Columns):
                    self._batch = shape[0]
                    if str(shape[0]).isdigit():  # torch.export has made it a constant
                        raise NotImplementedError(
                            f"the model computes with the number of samples of the example, {shape[0]}, so its graph "
                            "is not that of other batches: take sizes from the tensor that is reshaped, or -1"
                        )
            elif spec.target is not None:
                name = str(spec.target)
                held = program.state_dict.get(name, program.constants.get(name))
                if isinstance(held, Tensor):
                    self._constants[node] = held.detach()
                    self._targets[node] = name[len("model.") :] if name.startswith("model.") else name
        nodes = {node.name: node for node in program.graph.nodes}
        outputs = [nodes[str(name)] for name in program.graph_signature.user_outputs]
        self._output(pytree.tree_unflatten(outputs, program.call_spec.out_spec))
        self._leave_out_unused()

    def _leave_out_unused(self) -> None:
        used = {head["input"].split(":")[0] for head in self.heads}
        for layer in reversed(self.layers):  # layers come after their inputs
            if layer["name"] in used:
                used |= {name.split(":")[0] for name in layer["inputs"]}
        self.layers = [layer for layer in self.layers if layer["name"] in used]
        self.parameters = {key: value for key, value in self.parameters.items() if key.split(".")[0] in used}

    def _export(self) -> Any:
        dim = getattr(torch.export, "Dim", None)
        if not hasattr(dim, "AUTO"):
            raise NotImplementedError(f"example= needs PyTorch 2.6 or later, and this is {torch.__version__}")
        dense = [one.detach().clone() for one in _leaves(self._example)[0] if _is_dense(one)]  # no views
        samples = dense[0].shape[0] if dense else 3
        if samples < 2:
            raise ValueError("example: there must be 2 samples or more, so that their number is not taken for a size")
        inputs = _Rows()
        wrapped = _Wrapped(self.model, self._example, inputs)
        rows: List[Tensor] = []
        training = [module for module in self.model.modules() if module.training]
        with contextlib.ExitStack() as stack:
            self._replace_modules(stack, inputs, rows, samples)
            for module in training:
                module.training = False
                stack.callback(setattr, module, "training", True)
            shapes = (tuple({0: dim.AUTO} for _ in (*rows, *dense)),)
            try:
                with torch.no_grad():
                    program = torch.export.export(wrapped, (*rows, *dense), dynamic_shapes=shapes, strict=False)
                    program = program.run_decompositions({})  # without operators that write in place
            except NotImplementedError:
                raise
            except Exception as error:
                raise NotImplementedError(f"torch.export cannot trace the model: {error}") from error
        return program

    def _replace_modules(self, stack: contextlib.ExitStack, given: _Rows, rows: List[Tensor], samples: int) -> None:
        """Lets collections return inputs of the graph instead of looking up, and modules of ``layers`` call the
        operator tessera::layer."""

        def replaced(module: nn.Module, forward: Callable[..., Any]) -> None:
            module.__dict__["forward"] = forward
            stack.callback(module.__dict__.pop, "forward")

        for path, module in self.model.named_modules():
            if isinstance(module, Embeddings):
                module.settle()
                self.collections[path] = module
                inputs = self._inputs_of(path, module)
                first, widths = len(rows), [one.width for one in inputs]
                rows.extend(torch.randn(samples, width) for width in widths)
                self._row_inputs += inputs
                replaced(module, self._lookup(given, module, slice(first, len(rows)), widths))
            elif path in self.own:
                replaced(module, self._as_operator(path, self.own[path]))

    def _inputs_of(self, path: str, module: Embeddings) -> List[Columns]:
        if path in self.own and isinstance(module, AdoptedEmbedding):
            config = module._configs[0]
            layer = self.own[path]
            made = self.layer(layer.type, [config.name], config.embedding_dim, layer.options)
            return [Columns([(made.inputs[0], config.embedding_dim)])]
        if module.kind == "sequences":
            self.refuse(f"{path}, whose sequences torch.export does not see pooled,")
        out = []
        for config, feature, name in module.outputs_in_order():
            if "@" in name:
                self.refuse(f'the output "{name}" of {path}, of a feature that two tables have,')
            out.append(Columns([(config.name if len(config.feature_names) < 2 else feature, config.embedding_dim)]))
        return out

    @staticmethod
    def _lookup(given: _Rows, module: Embeddings, part: slice, widths: List[int]) -> Callable[..., Any]:
        names = list(module._names)
        keyed = type(module).__name__ not in ("AdoptedEmbeddingBag", "AdoptedEmbedding")

        def forward(*args: Any, **kwargs: Any) -> Any:
            rows = given.given[part]
            values = rows[0] if len(rows) == 1 else torch.cat(rows, 1)
            return KeyedTensor(names, widths, values) if keyed else values

        return forward

    @staticmethod
    def _as_operator(path: str, layer: Layer) -> Callable[..., Any]:
        def forward(*inputs: Tensor) -> Tensor:
            return torch.ops.tessera.layer(list(inputs), path, layer.width)

        _ops.define_layer()
        return forward

    def _dense_inputs(self) -> List[Columns]:
        """Returns the columns of the dense values for each float tensor among the model's arguments, in order."""
        widths = [one.shape[1] for one in _leaves(self._example)[0] if _is_dense(one)]
        self.dense_width = sum(widths) or None
        if len(widths) < 2:
            return [Columns([("dense", width)]) for width in widths]
        cut = self.layer("split_columns", ["dense"], widths[0], {"widths": widths}, "dense_columns").inputs[0]
        return [Columns([(f"{cut}:{k}" if k else cut, width)]) for k, width in enumerate(widths)]


def _is_dense(given: Any) -> bool:
    return isinstance(given, Tensor) and given.is_floating_point() and given.dim() == 2
