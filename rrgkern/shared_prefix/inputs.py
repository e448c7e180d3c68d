"""The arguments of a decoding step behind shared prompts, and their checks."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from rrgkern.checks import check_tensors


class DecodeStep(NamedTuple):
    """Hold a new token of each of N rows, and what is stored before it.

    The rows belong to B prompts. A token sees its prompt, its row's places before `place`, and
    itself. D and E are the widths of a key and a value; query heads are a multiple of key heads. No
    gradient.
    """

    query: Tensor
    """[N, heads, D]."""
    key: Tensor
    """[N, key heads, D] of the new tokens, like `value`."""
    value: Tensor
    """[N, key heads, E]."""
    prompt_keys: Tensor
    """[B, key heads, P, D], P >= 1, padded in front where prompts are shorter."""
    prompt_values: Tensor
    """[B, key heads, P, E]."""
    own_keys: Tensor
    """[N, key heads, room, D]; the new keys are written to it at `place`."""
    own_values: Tensor
    """[N, key heads, room, E], likewise."""
    place: Tensor
    """int64 [1], below room; not read by the host."""
    members: Tensor | None = None
    """int64 [B, width]: rows of each prompt, at least one, -1 behind them. None: N / B each."""
    mask: Tensor | None = None
    """[N, P + room], bool (True: visible) or added to scores; equal for a prompt's rows. It hides
    padding, and the places behind `place`; the new token sees itself whatever it says."""
    sinks: Tensor | None = None
    """[heads]: a score beside the others that has no value, as in gpt-oss."""
    scale: float = 1.0
    """A score is query · key * scale."""
    softcap: float | None = None
    """Scores become softcap * tanh(score / softcap)."""
    window: int | None = None
    """Places that a token sees at most, itself included. A `mask` must hold it too: the window
    then says where reading begins."""

    def check(self) -> None:
        """Raise TypeError or ValueError for tensors that do not fit together."""
        numbers = ("scale", "softcap", "window")
        tensors = {name: x for name, x in self._asdict().items() if name not in numbers}
        check_tensors(optional={name: tensors.pop(name) for name in ("members", "mask", "sinks")})
        check_tensors(**tensors)
        rows, heads, width = self.query.shape
        prompts, key_heads, length, depth = self.prompt_values.shape
        room = self.own_keys.shape[2]
        shapes = {
            "key": (rows, key_heads, width),
            "value": (rows, key_heads, depth),
            "prompt_keys": (prompts, key_heads, length, width),
            "own_keys": (rows, key_heads, room, width),
            "own_values": (rows, key_heads, room, depth),
            "place": (1,),
        }
        if self.mask is not None:
            shapes["mask"] = (rows, length + room)
        if self.sinks is not None:
            shapes["sinks"] = (heads,)
        for name, shape in shapes.items():
            actual = tuple(getattr(self, name).shape)
            if actual != shape:
                raise ValueError(f"{name} is {list(actual)}, wanted {list(shape)}")
        if heads % key_heads or (self.members is None and rows % prompts):
            raise ValueError(
                f"{heads} heads of {key_heads}, {rows} rows of {prompts} prompts: give multiples, "
                "or `members`"
            )
