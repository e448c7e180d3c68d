"""A decoding step behind shared prompts equals each row's own attention, in every variant."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from rrgkern.dispatch import interpreting, served_by
from rrgkern.ops import flatten
from rrgkern.shared_prefix import DecodeStep, shared_prefix_decode, triton_decode
from rrgkern.shared_prefix.op import shared_prefix_decode_op
from tests.rrgkern.device import DEVICE

PROMPTS, WIDTH, KEY_HEADS, LENGTH, ROOM = 2, 3, 2, 70, 40
PADDING = 9  # before the second prompt

# name -> dtype, options; rows have left where there are members
VARIANTS: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "plain": (torch.float32, {"mask": None, "members": None}),
    "all options": (torch.float32, {"sinks": True, "softcap": 1.5, "window": 60}),
    "mask that is added": (torch.float32, {"mask": torch.float32, "members": None}),
    "window alone": (torch.float32, {"mask": None, "window": 20, "sinks": True}),
    "window into the prompt": (torch.bfloat16, {"mask": None, "window": 60}),
    "first token": (torch.float32, {"place": 0, "window": 50}),
    "bf16": (torch.bfloat16, {"sinks": True}),
    "fp16, all rows": (torch.float16, {"members": None, "repeats": 2}),
    "two tiles": (torch.bfloat16, {"repeats": 60, "softcap": 2.0}),
}


def step_of(dtype: torch.dtype, **options: Any) -> DecodeStep:
    """A step at a place within the second block of a row, values wider than keys."""
    place, repeats = options.pop("place", 33), options.pop("repeats", 3)
    kind, members = options.pop("mask", torch.bool), options.pop("members", True)
    window = options.get("window")
    rows, width, depth = PROMPTS * WIDTH - bool(members), 20, 32
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)

    if options.pop("sinks", False):
        options["sinks"] = random(KEY_HEADS * repeats)
    mask = torch.ones(rows, LENGTH + ROOM, dtype=torch.bool)
    mask[-WIDTH:, :PADDING] = False
    mask[:, LENGTH + place + 1 :] = False
    if window:
        mask[:, : max(LENGTH + place + 1 - window, 0)] = False
    hidden = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    return DecodeStep(
        random(rows, KEY_HEADS * repeats, width),
        random(rows, KEY_HEADS, width),
        random(rows, KEY_HEADS, depth),
        random(PROMPTS, KEY_HEADS, LENGTH, width),
        random(PROMPTS, KEY_HEADS, LENGTH, depth),
        random(rows, KEY_HEADS, ROOM, width),
        random(rows, KEY_HEADS, ROOM, depth),
        torch.tensor([place], device=DEVICE),
        members=torch.tensor([[0, 1, -1], [2, 3, 4]], device=DEVICE) if members else None,
        mask=None if kind is None else (mask if kind is torch.bool else hidden).to(DEVICE),
        scale=0.3,
        **options,
    )


def truth(step: DecodeStep) -> Tensor:
    """Each row's attention alone, over its prompt, its own places and itself, in fp64."""
    place, rows = int(step.place), len(step.query)
    prompt_of = [0, 0, 1, 1, 1] if step.members is not None else [0, 0, 0, 1, 1, 1]
    out = []
    for row in range(rows):
        keys, values = (
            torch.cat([prompts[prompt_of[row]], own[row, :, :place], new[row][:, None]], 1).double()
            for prompts, own, new in (
                (step.prompt_keys, step.own_keys, step.key),
                (step.prompt_values, step.own_values, step.value),
            )
        )
        query = step.query[row].double().unflatten(0, (KEY_HEADS, -1))
        scores = query @ keys.transpose(1, 2) * step.scale
        if step.softcap is not None:
            scores = step.softcap * (scores / step.softcap).tanh()
        count = scores.shape[-1]
        if step.window is not None:
            scores[..., : max(count - step.window, 0)] = -torch.inf
        if step.mask is not None:
            mask = step.mask[row, :count]
            scores = scores.masked_fill(mask < 0 if mask.is_floating_point() else ~mask, -torch.inf)
        if step.sinks is not None:
            sinks = step.sinks.double().view(KEY_HEADS, -1, 1)
            scores = torch.cat([scores, sinks], -1)
        out.append((scores.softmax(-1)[..., :count] @ values).flatten(0, 1))
    return torch.stack(out)


def check(attend: Any, step: DecodeStep, tolerance: float) -> None:
    """Hold what `attend(step)` returns and stores to the truth, and all else to what it was."""
    right, keys, values = truth(step), step.own_keys.clone(), step.own_values.clone()
    keys[:, :, int(step.place)], values[:, :, int(step.place)] = step.key, step.value
    out = attend(step)
    assert out.dtype == step.query.dtype
    torch.testing.assert_close(out.double(), right, rtol=0, atol=tolerance)
    assert torch.equal(step.own_keys, keys) and torch.equal(step.own_values, values)


def by_operator(step: DecodeStep) -> Tensor:
    """Call the operator on any device: on a CPU it is Triton's interpreter."""
    out: Tensor = shared_prefix_decode_op(*flatten(step))
    return out


TOLERANCES = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_is_each_rows_own_attention(name: str) -> None:
    dtype, options = VARIANTS[name]
    if interpreting() or DEVICE == "cuda":
        assert served_by("rrgkern::shared_prefix_decode", DEVICE).startswith("triton")
    check(by_operator, step_of(dtype, **options), TOLERANCES[dtype])
    check(shared_prefix_decode, step_of(torch.float64, **options), 1e-12)
    check(by_operator, step_of(torch.float64, **options), 1e-12)
    ahead = step_of(torch.float64, **options)
    ahead.own_values[:, :, int(ahead.place) + 1 :] = torch.nan
    # a CPU reads no room of tokens to come
    assert DEVICE == "cuda" or shared_prefix_decode(ahead).isfinite().all()


def test_slices_of_one_product_are_read_where_they_lie() -> None:
    step = step_of(torch.float32, members=None)
    new = step.query, step.key, step.value
    parts = torch.cat([x.flatten(1) for x in new], 1).split([x[0].numel() for x in new], 1)
    split = [part.view(x.shape) for part, x in zip(parts, new, strict=True)]
    assert not split[0].is_contiguous()
    check(by_operator, DecodeStep(*split, *step[3:]), 2e-6)


def test_the_op_tells_the_truth_about_itself() -> None:
    torch.library.opcheck(shared_prefix_decode_op, flatten(step_of(torch.float32, sinks=True)))


def test_what_does_not_fit_is_refused() -> None:
    step = step_of(torch.float32, members=None)
    for wrong, told in (
        ({"key": step.key[:-1]}, r"key is \[5, 2, 20\], wanted \[6, 2, 20\]"),
        ({"mask": step.mask[:, 1:]}, r"mask is \[6, 109\], wanted \[6, 110\]"),
        ({"sinks": step.query[0, 1:, 0]}, r"sinks is \[5\], wanted \[6\]"),
        ({"query": step.query[:, :5]}, "5 heads of 2, 6 rows of 2 prompts: give multiples"),
    ):
        with pytest.raises(ValueError, match=told):
            shared_prefix_decode(step._replace(**wrong))
    with pytest.raises(TypeError, match="place is a int"):
        shared_prefix_decode(step._replace(place=3))


def starred(launch: Callable[..., Tensor]) -> Callable[[DecodeStep], Tensor]:
    return lambda step: launch(*step)


@pytest.mark.gate
def test_planted_faults_die(tmp_path: Path) -> None:
    source = Path(str(triton_decode.__file__)).read_text()
    table = yaml.safe_load(Path(__file__).parents[1].joinpath("mutants.yaml").read_text())
    survivors = []
    for k, (name, (old, new)) in enumerate(table["decoding steps"].items()):
        assert source.count(old) == 1, f"{name}: {old!r} stands {source.count(old)} times"
        path = tmp_path / f"mutant_{k}.py"  # Triton reads a kernel from its file
        path.write_text(source.replace(old, new))
        spec: Any = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        try:
            for dtype, options in VARIANTS.values():
                step = step_of(dtype, **options)
                check(starred(module.launch), step, TOLERANCES[dtype])
            survivors.append(name)
        except AssertionError:
            pass
    assert not survivors
