"""The exceptions of the trainer that a user is meant to read."""

from __future__ import annotations

from rrgclinical.common.errors import Stopped, UserError

__all__ = ["NotFinite", "RewardError", "RewardNotFinite", "Stopped", "UserError"]


class RewardError(UserError):
    """A reward term failed. The line names the term and the cause.

    Nothing is scored in its place: a loop that catches this saves what it needs to resume, and
    stops. `__cause__` is the term's own exception.
    """


class NotFinite(UserError):
    """A loss, gradient, log-probability or reward that is NaN or infinite; no weight has changed.

    A loop with a run directory saves the batch before it stops.
    """


class RewardNotFinite(RewardError, NotFinite):
    """A reward term gave NaN or an infinity."""
