"""Draw the timeline of one reinforcement-learning step from stated rates.

    python bench/step_model.py                              # paper/editgrpo on 1, 8 and 64 GPUs
    python bench/step_model.py rollout.engine=vllm --gpus 8 --wake-seconds 1

Simulated, on any machine: FLOPs and bytes are those of `rrgtrain plan`. Each rate is an option
whose help says where it is from; most are unmeasured. Images of the next step are read while this
one computes (`data.workers`), and the rewards' models read references while reports are sampled;
everything else waits for what comes before it.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    ROOT = Path(__file__).parents[1]
    sys.path[:0] = [str(ROOT), str(ROOT / "python")]

from rrgtrain.config import load_config
from rrgtrain.plan import Rates, Setup, machine_of, plan_stage, source_of
from rrgtrain.schema import Recipe

SERIAL = ("weights", "sampling", "edits", "rewards", "update", "record")
WIDTH = 60


@dataclass(frozen=True)
class Bar:
    """One phase of a step: where it begins and how long it takes, in seconds."""

    name: str
    begin: float
    seconds: float
    hidden: bool = False
    """It runs beside the others; a step waits only for what lies beyond them."""


@dataclass(frozen=True)
class Timeline:
    """The bars of one step on `gpus`, and its length in seconds."""

    gpus: int
    bars: tuple[Bar, ...]
    seconds: float

    def of(self, name: str) -> float:
        """Return the seconds of a phase."""
        return sum(bar.seconds for bar in self.bars if bar.name == name)


def timeline(recipe: Recipe, gpus: int, gpu: str, rates: Rates) -> Timeline:
    """Lay the phases of a step out, on the rank with most groups."""
    setup = Setup.of(recipe, machine_of(gpu), gpus, rates=rates)
    plan = plan_stage(setup, "rl")
    ahead = recipe.data.workers > 0
    bars = [Bar("images", 0.0, plan.seconds["images"], hidden=ahead)]
    at = 0.0 if ahead else plan.seconds["images"]
    read = plan.work.step.groups / rates.reward_reports
    for name in SERIAL:
        if name == "sampling":
            bars.append(Bar("references", at, read, hidden=True))
        if name == "rewards":  # what sampling has not covered of the references
            at = max(at, next(b.begin + b.seconds for b in bars if b.name == "references"))
        bars.append(Bar(name, at, plan.seconds.get(name, 0.0)))
        at += plan.seconds.get(name, 0.0)
    return Timeline(gpus, tuple(bars), max(at, bars[0].seconds))


def table(lines: Sequence[Timeline]) -> str:
    """Print a row a phase and a column a number of GPUs, in seconds."""
    names = [bar.name for bar in lines[0].bars]
    head = ["seconds of a step", *(f"{line.gpus} GPU" for line in lines)]
    rows = [[name, *(f"{line.of(name):.2f}" for line in lines)] for name in names]
    rows.append(["in all", *(f"{line.seconds:.2f}" for line in lines)])
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in [head, *rows]
    )


def gantt(line: Timeline) -> str:
    """Draw a step in text; what runs beside the others is drawn with dots."""
    scale = WIDTH / max(line.seconds, 1e-9)
    drawn = [f"{line.gpus} GPU, {line.seconds:.2f} s a step"]
    for bar in line.bars:
        begin = round(bar.begin * scale)
        length = max(1, round(bar.seconds * scale)) if bar.seconds else 0
        mark = "." if bar.hidden else "#"
        drawn.append(f"  {bar.name:<10} |{' ' * begin}{mark * length}")
    return "\n".join(drawn)


def parser() -> argparse.ArgumentParser:
    """Build the options: one a rate, with its meaning and its source."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--recipe", default="paper/editgrpo")
    options.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    options.add_argument("--gpu", default="h100")
    options.add_argument("overrides", nargs="*", metavar="key=value")
    for field in dataclasses.fields(Rates):
        name = field.name.replace("_", "-")
        options.add_argument(
            f"--{name}", type=float, default=field.default, help=source_of(field.name)
        )
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Print the table and the drawings of all numbers of GPUs."""
    options = parser().parse_args(words)
    names = [field.name for field in dataclasses.fields(Rates)]
    rates = Rates(**{name: getattr(options, name) for name in names})
    recipe = load_config(Recipe, options.recipe, options.overrides)
    lines = [timeline(recipe, count, options.gpu, rates) for count in options.gpus]
    print(f"{options.recipe} on {options.gpu}, simulated; rates:")
    for name in names:
        rate = getattr(rates, name)
        source = source_of(name) if rate == getattr(Rates(), name) else "given"
        print(f"  {name} {rate:g}: {source}")
    print(f"\n{table(lines)}\n")
    print("\n\n".join(gantt(line) for line in lines))


if __name__ == "__main__":
    main()
