"""A backend of torch.distributed over Tessera's transports: ``init_process_group("tessera")``.

It is a Python class derived from ``torch.distributed.ProcessGroup``, so it works with any PyTorch without a compiler. A
collective is done when its call returns; it returns a work object for callers that wait.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import socket
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from .._runtime import ProcessGroup
from ._point_to_point import PointToPoint

NAME = "tessera"
_LONGEST_S = 24 * 3600.0

# The types that transports reduce, and for each other type the one in which it is reduced.
_PLAIN = {torch.float32, torch.float64, torch.int32, torch.int64}
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.int32,
          torch.uint8: torch.int32, torch.int8: torch.int32, torch.int16: torch.int32}  # fmt: skip
_FOLDS = {"product": torch.mul, "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}
_OF_BITS = _FOLDS.keys() - {"product"}


def _operation(op: Any) -> str:
    if op == dist.ReduceOp.SUM:
        return "sum"
    for name in ("sum", "avg", "max", "min", *_FOLDS):
        if op == getattr(dist.ReduceOp, name.upper()):
            return name
    kinds = dist.ReduceOp.RedOpType.__members__.items()
    named = next((name for name, kind in kinds if op == kind), op)
    raise NotImplementedError(f"the reduction {named} has no counterpart in the backend {NAME}")


def _checked(tensor: Tensor) -> Tensor:
    if tensor.is_cpu and tensor.layout is torch.strided:
        return tensor.detach() if tensor.requires_grad else tensor
    raise ValueError(
        f"a {tensor.layout} tensor on {tensor.device} is not taken: the backend {NAME} has dense tensors on the cpu"
    )


def _bytes(tensor: Tensor) -> np.ndarray:
    """Returns the memory of a contiguous tensor of any type as bytes."""
    flat = tensor.as_strided((tensor.numel(),), (1,))  # view() refuses some strides of a tensor with one element
    return flat.view(torch.uint8).numpy()


def _sent(tensor: Tensor) -> np.ndarray:
    return _bytes(_checked(tensor).contiguous())


def _received(tensor: Tensor, fill: Callable[[np.ndarray], Any]) -> None:
    """Calls ``fill`` with an array for a tensor's bytes, which it writes."""
    tensor = _checked(tensor)
    memory = tensor if tensor.is_contiguous() else torch.empty_like(tensor, memory_format=torch.contiguous_format)
    fill(_bytes(memory))
    if memory is not tensor:
        tensor.copy_(memory)


def _done(result: Any) -> Any:
    future: torch.futures.Future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


def own_address(towards: str, port: int) -> str:
    """Returns this host's address on the route to ``towards``, without sending anything."""
    family, kind, _, _, where = socket.getaddrinfo(towards, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        return probe.getsockname()[0]


def _meet(store: Any, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    """Makes a process group of the ranks of a PyTorch store. Rank 0 chooses a free port and puts its address there."""
    if rank == 0:
        address = own_address(os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", 29500)))
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        store.set("tessera", json.dumps([address, port, secrets.token_hex(16)]))
    address, port, token = json.loads(store.get("tessera"))
    local = {}
    everybody = size == int(os.environ.get("WORLD_SIZE", 0)) and rank == int(os.environ.get("RANK", -1))
    if everybody and "LOCAL_RANK" in os.environ:  # the launcher's values are about a group of all processes
        local["local_rank"] = int(os.environ["LOCAL_RANK"])
        local["local_world_size"] = int(os.environ.get("LOCAL_WORLD_SIZE", 0))
    seconds = min(timeout.total_seconds(), _LONGEST_S)
    return ProcessGroup(
        rank=rank, world_size=size, master_addr=address, master_port=port, token=token, timeout_s=seconds, **local
    )


class TesseraProcessGroup(dist.ProcessGroup):
    """The process group of ``init_process_group("tessera")`` and ``new_group()``, with PyTorch's arguments."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._name = rank, size, ""
        self.group = _meet(store, rank, size, timeout)
        self._messages = PointToPoint(store, lambda of, end, within: _meet(of, end, 2, within), rank, timeout)

    def getBackendName(self) -> str:
        """The name of the backend."""
        return NAME

    def getRank(self) -> int:
        """This rank."""
        return self._rank

    def getSize(self) -> int:
        """The number of ranks."""
        return self._size

    def _get_backend(self, device: Any) -> TesseraProcessGroup:
        """Returns the backend for a device: this object is the group and its backend. PyTorch also asks about other
        devices, for which it raises ``RuntimeError``."""
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"the backend {NAME} has tensors on the cpu, and none on {device}")
        return self

    @property
    def _device_types(self) -> List[torch.device]:
        """Returns the CPU, or an empty list until PyTorch has made the group: 2.15 would look for a C++ backend."""
        return [torch.device("cpu")] if self in dist.distributed_c10d._world.pg_map else []

    supports_splitting = False  # split_group() then refuses; programs use new_group()

    # Device meshes look groups up by name. PyTorch keeps the name in the backend of a group, which is this object.
    @property
    def group_name(self) -> str:
        """The name under which PyTorch finds the group."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def abort(self) -> None:
        """Ends the group. Calls in which other ranks wait raise an error."""
        reason = f"rank {self._rank} has aborted its process group"
        self.group.abort(reason)
        self._messages.abort(reason)

    def shutdown(self) -> None:
        """Closes the group's connections."""
        self._messages.close()
        self.group.close()

    # ---- reductions

    def _reduced(self, tensor: Tensor, op: Any, exchange: Callable[[np.ndarray, str], Tensor]) -> Tensor:
        """Calls ``exchange`` with the tensor in a type that the transports reduce. Returns the result in the tensor's
        own type."""
        kind = _operation(op)
        taken = tensor.dtype in _PLAIN or tensor.dtype in _WIDER
        if not taken or (kind in _OF_BITS and tensor.is_floating_point()):
            raise NotImplementedError(f"the backend {NAME} has no {kind} of {tensor.dtype}")
        wide = tensor.to(_WIDER.get(tensor.dtype, tensor.dtype)).contiguous()
        out = exchange(wide.numpy(), "sum" if kind == "avg" else kind)
        return (out / self._size if kind == "avg" else out).to(tensor.dtype)

    def _all_reduce(self, tensor: Tensor, op: Any) -> None:
        if tensor.layout is torch.sparse_coo and tensor.is_cpu and _operation(op) in ("sum", "avg"):
            return self._add_sparse(tensor, _operation(op) == "avg")
        tensor = _checked(tensor)
        if tensor.dtype in _PLAIN and op == dist.ReduceOp.SUM and tensor.is_contiguous():  # DDP does this
            return self.group.all_reduce(tensor.numpy())

        def exchange(array: np.ndarray, kind: str) -> Tensor:
            if kind in _FOLDS:
                return functools.reduce(_FOLDS[kind], torch.from_numpy(self.group.all_gather(array)))
            self.group.all_reduce(array, kind)
            return torch.from_numpy(array)

        out = self._reduced(tensor, op, exchange)
        if out.data_ptr() != tensor.data_ptr():
            tensor.copy_(out)

    def _add_sparse(self, tensor: Tensor, mean: bool) -> None:
        """Sums or averages a sparse tensor over all ranks, in place: a gradient of ``nn.Embedding(sparse=True)``."""
        own = tensor.coalesce()
        counts = self.group.all_gather(np.array([own._nnz()])).reshape(-1).tolist()

        def everybodys(part: Tensor) -> Tensor:
            longest = part.new_zeros(max(counts), *part.shape[1:])
            longest[: len(part)] = part
            out = part.new_empty(self._size, *longest.shape)
            self.all_gather_single(out, longest)
            return torch.cat([theirs[:count] for theirs, count in zip(out, counts)])

        where, values = everybodys(own.indices().t()), everybodys(own.values())
        of_all = torch.sparse_coo_tensor(where.t(), values, own.shape, check_invariants=False).coalesce()
        tensor.copy_(of_all / self._size if mean else of_all)

    def allreduce(self, tensors: List[Tensor], opts: Any = None) -> Any:
        """Reduces each tensor over all ranks, in place."""
        for tensor in tensors:
            self._all_reduce(tensor, dist.ReduceOp.SUM if opts is None else opts.reduceOp)
        return _done(tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: List[Tensor], opts: Any) -> Any:
        """Reduces each tensor into the root's, in place."""
        for tensor in tensors:
            of_all = tensor if self._rank == opts.rootRank else _checked(tensor).clone()
            self._all_reduce(of_all, opts.reduceOp)
        return _done(tensors)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        """Writes this rank's part of the reduced input."""
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp

        def exchange(array: np.ndarray, kind: str) -> Tensor:
            pieces = array.reshape(self._size, -1)
            if kind in _FOLDS:
                return functools.reduce(_FOLDS[kind], torch.from_numpy(self.group.all_gather(pieces))[:, self._rank])
            return torch.from_numpy(self.group.reduce_scatter(pieces, kind))

        _checked(output).copy_(self._reduced(_checked(input), op, exchange).reshape(output.shape))
        return _done(output)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any = None) -> Any:
        """Writes this rank's part of each reduced list of tensors."""
        for output, pieces in zip(outputs, inputs):
            self.reduce_scatter_single(output, torch.stack([_checked(piece) for piece in pieces]), opts)
        return _done(outputs)

    def reduce_scatter_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any = None) -> Any:
        """Does ``reduce_scatter_single`` for several tensors."""
        for output, input in zip(outputs, inputs):
            self.reduce_scatter_single(output, input, opts)
        return _done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- copies

    def broadcast(self, tensors: List[Tensor], opts: Any = None) -> Any:
        """Copies the root's tensors to all ranks."""
        for tensor in tensors:
            root = 0 if opts is None else opts.rootRank
            memory = _checked(tensor).contiguous()
            self.group.broadcast(_bytes(memory), root)
            if memory.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(memory)
        return _done(tensors)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        """Writes all ranks' inputs one after the other to one output."""
        if output.dtype != input.dtype or output.numel() != self._size * input.numel():
            raise ValueError(
                f"all_gather: the output has {output.numel()} values of {output.dtype}, but must have "
                f"{self._size * input.numel()} of {input.dtype}: the input's, once for each rank"
            )
        _received(output, lambda memory: self.group.all_gather(_sent(input), memory))
        return _done(output)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any = None) -> Any:
        """Does ``all_gather_single`` for several tensors."""
        for output, input in zip(outputs, inputs):
            self.all_gather_single(output, input)
        return _done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any = None) -> Any:
        """Writes all ranks' inputs, with a tensor for each rank."""
        for pieces, input in zip(outputs, inputs):
            everybodys = input.new_empty((self._size, *input.shape))
            self.all_gather_single(everybodys, input)
            for piece, theirs in zip(pieces, everybodys):
                _checked(piece).copy_(theirs)
        return _done(outputs)

    def allgather_coalesced(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any = None) -> Any:
        """Does ``allgather`` for several tensors."""
        for r, input in enumerate(inputs):
            self.allgather([[of_rank[r] for of_rank in outputs]], [input])
        return _done(outputs)

    # ---- exchanges

    def _exchange(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Sends inputs[r] to rank r, and receives outputs[r] from it. Tensors may have any length, also 0."""
        own, into = inputs[self._rank], outputs[self._rank]
        if own.numel() != into.numel() or own.dtype != into.dtype:  # raised before anything is sent
            raise ValueError(
                f"rank {self._rank} has {own.numel()} values of {own.dtype} for itself, and room for {into.numel()} of "
                f"{into.dtype}: the two must agree"
            )
        memory = [_sent(piece) for piece in inputs]
        counts = [_checked(piece).numel() * piece.element_size() for piece in outputs]
        got = self.group.all_to_all(np.concatenate(memory), [piece.size for piece in memory], counts)
        at = 0
        for piece, count in zip(outputs, counts):
            received = got[at : at + count]
            _received(piece, lambda to, of=received: np.copyto(to, of))
            at += count

    def _nothing(self, like: Tensor) -> List[Tensor]:
        return [like.new_empty(0)] * self._size

    def alltoall(self, outputs: List[Tensor], inputs: List[Tensor], opts: Any = None) -> Any:
        """Sends ``inputs[r]`` to rank r, and receives ``outputs[r]`` from it."""
        self._exchange(outputs, inputs)
        return _done(outputs)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: List[int], input_splits: List[int], opts: Any = None
    ) -> Any:
        """Does ``alltoall`` with the parts of one tensor. Without splits, the parts are equal."""
        def pieces(tensor: Tensor, splits: List[int]) -> Sequence[Tensor]:
            if not splits and len(tensor) % self._size:
                raise ValueError(f"all_to_all: {len(tensor)} rows cannot be split evenly among {self._size} ranks")
            return torch.split(tensor, list(splits)) if splits else torch.tensor_split(tensor, self._size)

        self._exchange(pieces(output, output_splits), pieces(input, input_splits))
        return _done(output)

    alltoall_base = all_to_all_single

    def gather(self, outputs: List[List[Tensor]], inputs: List[Tensor], opts: Any) -> Any:
        """Writes all ranks' inputs on the root."""
        for i, input in enumerate(inputs):
            to: List[Tensor] = self._nothing(input)
            to[opts.rootRank] = input
            self._exchange(outputs[i] if self._rank == opts.rootRank else self._nothing(input), to)
        return _done(outputs)

    def scatter(self, outputs: List[Tensor], inputs: List[List[Tensor]], opts: Any) -> Any:
        """Sends one of the root's inputs to each rank."""
        for i, output in enumerate(outputs):
            of: List[Tensor] = self._nothing(output)
            of[opts.rootRank] = output
            self._exchange(of, inputs[i] if self._rank == opts.rootRank else self._nothing(output))
        return _done(outputs)

    def barrier(self, opts: Any = None) -> Any:
        """Waits until all ranks have called it."""
        self.group.barrier()
        return _done([])

    def monitored_barrier(self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
        """Does the same as ``barrier``, whose error already names late or dead ranks. It uses the group's own
        timeout."""
        self.group.barrier()

    # ---- messages

    def send(self, tensors: List[Tensor], to: int, tag: int = 0) -> Any:
        """Sends a tensor. For a large tensor it ends when the other rank receives."""
        return self._messages.send(_sent(tensors[0]), to, tag, tensors)

    def recv(self, tensors: List[Tensor], of: int, tag: int = 0) -> Any:
        """Receives the other rank's message into the tensor."""
        tensor = _checked(tensors[0])
        memory = tensor if tensor.is_contiguous() else torch.empty_like(tensor, memory_format=torch.contiguous_format)

        def done() -> None:
            if memory is not tensor:
                tensor.copy_(memory)

        return self._messages.receive(_bytes(memory), of, tag, tensors, done)

    def recv_anysource(self, *args: Any) -> Any:
        """Raises ``NotImplementedError``, because the backend needs the rank of a message."""
        raise NotImplementedError(f"recv from any rank has no counterpart in the backend {NAME}: name the rank by src")


def register() -> None:
    """Registers ``init_process_group("tessera")``. ``import tessera.torch`` calls it."""
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, TesseraProcessGroup, devices=["cpu"])
