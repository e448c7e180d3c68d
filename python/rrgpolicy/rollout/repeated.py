"""Repeat a step of decoding as a CUDA graph.

It is one launch in place of some thousands: a decoder layer is about 70, which Python takes longer
to make than a GPU to run.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from rrgclinical.common.errors import cause_line


class RepeatedStep:
    """Call a function, tensor to tensor, as a graph once its buffers stay.

    The first call after `forget` runs as it is, which loads its kernels; the second is captured.
    The function must read and write the same memory each time and must not wait for the device.
    One that a capture refuses is called as it is from then on, and that is said. What a call
    returns is overwritten by the next. It is not held: a circle of references would keep the
    buffers that it reads until Python looks for circles.
    """

    def __init__(self) -> None:
        self._calls, self._refused = 0, False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._taken = self._returned = torch.empty(0)

    def forget(self) -> None:
        """Let go of the graph, since buffers have changed."""
        self._calls, self._graph = 0, None

    def __call__(self, compute: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
        self._calls += 1
        if self._calls == 1 or self._refused:
            return compute(tensor)
        if self._graph is None:
            try:
                self._graph = self._captured(compute, tensor)
            except RuntimeError as error:
                self._refused = True
                line = f"a step of decoding cannot be a CUDA graph ({cause_line(error)})"
                warnings.warn(f"{line}: it is launched from Python, slower", stacklevel=2)
                return compute(tensor)
        self._taken.copy_(tensor)
        self._graph.replay()
        return self._returned

    def _captured(
        self, compute: Callable[[Tensor], Tensor], tensor: Tensor
    ) -> torch.cuda.CUDAGraph:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(tensor.device)
        self._taken = tensor.clone()
        stream.wait_stream(torch.cuda.current_stream())
        collects = gc.isenabled()
        # A tensor of a graph that is collected meanwhile would be freed within the capture.
        gc.disable()
        try:
            with torch.cuda.stream(stream):
                # other threads read images onto the device
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self._returned = compute(self._taken)
                finally:
                    graph.capture_end()
        finally:
            if collects:
                gc.enable()
        torch.cuda.current_stream().wait_stream(stream)
        return graph
