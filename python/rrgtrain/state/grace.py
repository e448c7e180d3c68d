"""Decide whether a run that a signal stops has the time for a checkpoint."""

from __future__ import annotations

from rrgtrain.state.write import Bandwidth


def refusal(grace: float, waited: float, wanted: int, bandwidth: Bandwidth | None) -> str:
    """Say why `wanted` bytes are not written, "" where they fit.

    They fit where no write was measured yet. grace: seconds from the signal to the kill. waited:
    those that are over.
    """
    if bandwidth is None or bandwidth.seconds <= 0 or bandwidth.bytes <= 0:
        return ""
    rate, left = bandwidth.bytes / bandwidth.seconds, max(0.0, grace - waited)
    if wanted / rate <= left:
        return ""
    return (
        f"no checkpoint was written: {wanted / 2**20:.1f} MiB at {rate / 2**20:.1f} MiB/s, the "
        f"speed of the last one, take {wanted / rate:.1f} s, and {left:.1f} s of "
        f"state.grace={grace:g} were left"
    )
