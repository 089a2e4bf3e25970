"""Training loops that read a batch ahead, with TorchRec's names."""

from __future__ import annotations

import abc
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Generic, Iterator, Optional, Tuple, TypeVar

import torch
from torch import nn

from ._counterpart import lacks, refuse, usual

_OF_GPUS = ("pipeline_postproc", "enable_inplace_copy_batch", "async_inplace_copy", "free_features_storage_early",
            "clear_data_dist_inputs", "enqueue_batch_after_forward")  # fmt: skip
_USUAL = {**usual("context_type dmp_collection_sync_interval_batches"), "apply_jit": False}
_STAGES = ("start_sparse_data_dist", "wait_sparse_data_dist", "clear_sparse_data_dist_inputs", "copy_batch_to_gpu",
           "inplace_copy_batch_to_gpu", "enqueue_batch", "dequeue_batch", "fill_pipeline", "register_backward_hook",
           "sync_embeddings", "attach", "detach", "reset")  # fmt: skip

In = TypeVar("In")
Out = TypeVar("Out")


class Multistreamable(abc.ABC):
    """A base of batches in TorchRec's programs."""

    @abc.abstractmethod
    def record_stream(self, stream: Any) -> None:
        """Calls ``record_stream`` of tensors on a GPU; on the CPU nobody calls it."""


class Pipelineable(Multistreamable):
    """A batch that a pipeline copies to its device."""

    @abc.abstractmethod
    def to(self, device: torch.device, non_blocking: bool) -> Pipelineable:
        """A copy on a device; on the CPU nobody calls it."""


@lacks(*_STAGES, instead="progress(dataloader_iter) does all of a step")
class TrainPipelineBase(Generic[In, Out]):
    """Each ``progress(dataloader_iter)`` makes a training step: zero_grad, forward, backward, optimizer.

    The model returns ``(losses, output)``. The pipeline adds up the losses, and ``progress`` returns the output. It
    raises ``StopIteration`` after the last batch. custom_model_fwd: called instead of the model. device: "cpu"."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: Any = "cpu",
        custom_model_fwd: Optional[Callable[[In], Tuple[torch.Tensor, Out]]] = None,
        **theirs: Any,
    ) -> None:
        """theirs: TorchRec's other arguments. Arguments about how batches get to a GPU have no effect."""
        refuse(type(self).__name__, {k: v for k, v in theirs.items() if k not in _OF_GPUS}, _USUAL)
        if torch.device(device).type != "cpu":
            raise NotImplementedError(f"a pipeline on {device} has no counterpart in tessera.torch: only the cpu has")
        self._model, self._optimizer = model, optimizer
        self._forward = custom_model_fwd or model

    def _next(self, dataloader_iter: Iterator[In]) -> In:
        return next(dataloader_iter)

    def progress(self, dataloader_iter: Iterator[In]) -> Out:
        """Makes a step with the next batch, and returns the model's output. Raises ``StopIteration`` if there is no
        batch."""
        batch = self._next(dataloader_iter)
        training = self._model.training
        if training:
            self._optimizer.zero_grad()
        losses, output = self._forward(batch)
        if training:
            torch.sum(losses, dim=0).backward()
            self._optimizer.step()
        return output


class TrainPipelineSparseDist(TrainPipelineBase[In, Out]):
    """Makes the same steps with the same results. A thread reads and collates the next batch meanwhile.

    TorchRec also starts a batch's exchange of ids early; here it is part of the step. Batches that were read are always
    trained, as with execute_all_batches=True. Use it from one thread at a time, with one iterator after the other."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: Any = "cpu",
        execute_all_batches: bool = True,
        apply_jit: bool = False,
        context_type: Optional[type] = None,
        pipeline_postproc: bool = False,
        custom_model_fwd: Optional[Callable[[In], Tuple[torch.Tensor, Out]]] = None,
        **theirs: Any,
    ) -> None:
        theirs.update(apply_jit=apply_jit, context_type=context_type)
        super().__init__(model, optimizer, device, custom_model_fwd, **theirs)
        if not execute_all_batches:
            raise NotImplementedError("execute_all_batches=False has no counterpart in tessera.torch: all are trained")
        self._reader = ThreadPoolExecutor(1, "tessera-batches")
        self._source: Optional[Iterator[In]] = None
        self._ahead: Optional[Future[In]] = None

    def _next(self, dataloader_iter: Iterator[In]) -> In:
        if self._ahead is None or self._source is not dataloader_iter:
            self._source, self._ahead = dataloader_iter, self._reader.submit(next, dataloader_iter)
        batch = self._ahead.result()  # also raises the reader's StopIteration
        self._ahead = self._reader.submit(next, dataloader_iter)
        return batch


class EvalPipelineSparseDist(TrainPipelineSparseDist[In, Out]):
    """Does only the forward, without gradients."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: Any = "cpu",
        apply_jit: bool = False,
        **theirs: Any,
    ) -> None:
        super().__init__(model, optimizer, device, apply_jit=apply_jit, **theirs)

    def progress(self, dataloader_iter: Iterator[In]) -> Out:
        """Returns the model's output for the next batch. Raises ``StopIteration`` if there is none."""
        with torch.no_grad():
            return self._forward(self._next(dataloader_iter))[1]
