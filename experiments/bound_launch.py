"""Launch a Triton kernel by what Triton compiled for arguments like these.

Not beneath the rooms yet: with this, `python -m bench.launches` counted 276 us of the host for a
loss of logits in place of 310 to 330, on a busy machine. No GPU has run it, and it calls what
Triton keeps to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from triton import knobs
from triton.runtime import JITFunction, driver


class Bound:
    """Launch a kernel by what Triton compiled for arguments like these.

    Triton's own way binds, specialises and looks at each argument, option and setting at every
    launch, and takes longer than most kernels of these rooms run. Here a launch is found by all
    that Triton specialises by: dtypes, absent tensors, addresses and integers divisible by 16, the
    integer 1, the width of integers, constants, options and the device. What Triton's settings are
    is read where such arguments come for the first time.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._compiled: dict[tuple[Any, ...], Any] = {}
        # For each parameter: its number, and its address or divisibility, are in the key.
        self._specialised = [
            (not p.do_not_specialize, not (p.do_not_specialize or p.do_not_specialize_on_alignment))
            for p in getattr(kernel, "params", ())
        ]

    def __call__(self, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Launch on the current device and stream; constants and options are named."""
        launch: Callable[..., Any] = self._kernel[grid]
        if not isinstance(self._kernel, JITFunction) or _watched():
            launch(*arguments, **constants)
            return
        key = self.key(arguments, constants)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = launch(*arguments, **constants)
            if compiled is not None:  # tests record launches instead
                self._compiled[key] = compiled
            return
        stream = driver.active.get_current_stream(driver.active.get_current_device())
        names = self._kernel.arg_names[len(arguments) :]
        compiled.run(
            *(*grid, 1, 1)[:3],
            *(stream, compiled.function, compiled.packed_metadata, None, None, None),
            *arguments,
            *[constants[name] for name in names],
        )

    def key(self, arguments: tuple[Any, ...], constants: dict[str, Any]) -> tuple[Any, ...]:
        """Equal where Triton launches one compiled kernel for both; the first is a tensor."""
        traits = map(_trait, arguments, self._specialised)
        return (arguments[0].device, *constants.values(), *traits)


def _trait(value: Any, specialised: tuple[bool, bool]) -> Any:
    """What Triton specialises a kernel by in one argument."""
    by_value, by_alignment = specialised
    if isinstance(value, Tensor):
        return value.dtype, by_alignment and value.data_ptr() % 16 == 0
    if type(value) is int:
        narrow, one = -(1 << 31) <= value < 1 << 31, by_value and value == 1
        return narrow, value < 1 << 63, one, by_alignment and value % 16 == 0
    return type(value)


def _watched() -> bool:
    """True where a profiler has hooked into launches, which Triton calls then."""
    hooks = knobs.runtime
    return bool(hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls)
