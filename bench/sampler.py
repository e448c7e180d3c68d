"""Count what a token of sampling costs, layer by layer, for models of five families.

    python -m bench.sampler [FAMILY...] [--compile] [--json]

Models are tiny and random. A token is the difference between longer and shorter reports, a layer
that between deeper and shallower models. An operator is a kernel on a GPU, unless a graph is
compiled: views and allocations are not counted, and attention is one. Host reads wait for the
device. Kernels are those in the code that inductor writes of the step for an H100, its products of
one input merged, attention being one (`bench.inductor_code`); no GPU is asked. FAMILY+lora has a
LoRA on all products of its layers, in fp32 beside bf16. Experts are computed as transformers loads
them, by `grouped_mm`, but Llama 4's, which know one way alone. Seconds are of processor time (one
thread, OMP_NUM_THREADS=1), in turns over the families and, with --compile, over steps that are
compiled and those that are not; compiling takes minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from bench.inductor_code import step_kernels
from rrgkern.shared_prefix.reference import DecodeStep, decode_reference
from rrgpolicy.model.fewer_kernels import CompiledStep
from rrgpolicy.model.policy import Policy
from rrgpolicy.rollout import SamplingRequest, TransformersEngine, generate
from tests.rrgpolicy.model.families import SORTS, backbone, build, prompt

FAMILIES = ("qwen2_5_vl", "qwen2_5_vl+lora", "qwen3_vl", "gemma3", "lfm2_vl", "qwen3_5")
LORA = LoraConfig(r=8, target_modules=r".*language_model.*(self_attn|mlp)\.\w+_proj")
GROUP = 5
TEXTS = (40, 25)  # tokens of the prompts' text
SHORT, LONG = 9, 33  # tokens of a report: their difference is three times eight
ROUNDS = 5

# They give another view of memory, or memory.
VIEWS = """
view reshape expand slice select unsqueeze squeeze transpose t permute detach alias as_strided split
split_with_sizes unbind _unsafe_view unfold chunk narrow diagonal _reshape_alias lift_fresh real
imag view_as_complex view_as_real resolve_conj empty empty_like empty_strided new_empty
new_empty_strided promote_types _local_scalar_dense
"""
FREE = set(VIEWS.split())
# In a capture transformers makes each mask without asking the host if it could be left out.
CAPTURING = "transformers.utils.import_utils.is_cuda_stream_capturing"
# What a CPU computes in place of the attention's operator.
REFERENCE = "rrgkern.shared_prefix.api.decode_reference"
# Operators and methods of tensors that give the host a value.
OPERATORS_THAT_READ = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2"}
METHODS_THAT_READ = {"tolist", "cpu", "numpy"}


class Operators(TorchDispatchMode):
    """Count operators that do work, and those by which the host reads a value."""

    def __init__(self) -> None:
        super().__init__()
        self.work = self.reads = 0
        self._methods = Methods(self)

    def __enter__(self) -> Operators:
        self._methods.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._methods.__exit__(*error)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = op._schema.name.partition("::")[2]
        self.work += name not in FREE
        self.reads += name in OPERATORS_THAT_READ
        return op(*args, **(kwargs or {}))

    def attend(self, step: DecodeStep) -> Tensor:
        """Attend by many operators of a CPU, which stand for one of a GPU."""
        self.work += 1
        with _disable_current_modes():
            return decode_reference(step)


class Methods(TorchFunctionMode):
    """Count methods that read a whole tensor, which on a CPU is no operator."""

    def __init__(self, operators: Operators) -> None:
        super().__init__()
        self._operators = operators

    def __torch_function__(self, of: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._operators.reads += getattr(of, "__name__", "") in METHODS_THAT_READ
        return of(*args, **(kwargs or {}))


@contextmanager
def as_on_a_gpu() -> Iterator[Operators]:
    """Run captured steps, whose host waits for the device once in several tokens."""
    a_read = sys.modules[generate.__module__].TOKENS_A_READ
    reads = mock.patch.dict(a_read, {False: a_read[True]})
    operators = Operators()
    attention = mock.patch(REFERENCE, operators.attend)
    with mock.patch(CAPTURING, return_value=True), reads, attention, operators:
        yield operators


def policy_of(name: str, layers: int, dtype: torch.dtype = torch.bfloat16) -> Policy:
    """Make a policy of random weights whose reports never end by themselves."""
    name, _, adapter = name.partition("+")
    sizes: dict[str, Any] = {"num_hidden_layers": layers}
    if kinds := SORTS[name].text.get("layer_types"):
        sizes["layer_types"] = (kinds * layers)[:layers]
    model = build(name, dtype, **sizes)
    if any("expert" in part for part, _ in model.named_modules()):
        model.set_experts_implementation("grouped_mm")  # as transformers loads them
    plain = backbone(get_peft_model(model, LORA).eval() if adapter else model)
    return Policy(
        model=plain.model,
        device=plain.device,
        pad_id=0,
        sharing=SORTS[name].ways[0],
        tokenizer=SimpleNamespace(added_tokens_decoder={}),
        image_processor=None,
        eos_ids=(-1,),
        end_of_turn=-1,
    )


def request_of(policy: Policy, name: str, tokens: int, **options: Any) -> SamplingRequest:
    kind = name.partition("+")[0]
    prompts = [prompt(policy, kind, 1, text, seed) for seed, text in enumerate(TEXTS)]
    seeds = [[100 * b + member for member in range(GROUP)] for b in range(len(prompts))]
    return SamplingRequest(prompts, group=GROUP, max_new_tokens=tokens, seeds=seeds, **options)


def counted(policy: Policy, name: str, **options: Any) -> tuple[float, float]:
    """Count operators and host reads a token."""
    totals = []
    for tokens in (SHORT, LONG):
        request = request_of(policy, name, tokens, **options)
        with as_on_a_gpu() as operators:
            generate(policy, request)
        totals.append((operators.work, operators.reads))
    (work, reads), (more_work, more_reads) = totals
    return (more_work - work) / (LONG - SHORT), (more_reads - reads) / (LONG - SHORT)


@dataclass
class Row:
    """A token of one family; `outside` are the operators outside the layers, the draw included."""

    family: str
    operators_a_layer: float
    outside_greedy: float
    outside_temperature: float
    outside_top_p: float
    host_reads: float
    kernels_a_layer: float | None = None
    kernels_outside_greedy: float | None = None
    kernels_outside_top_p: float | None = None
    seconds: float = 0.0
    compiled_seconds: float | None = None
    compile_seconds: float | None = None


def row_of(name: str) -> Row:
    """Count the operators of a family's token, in bf16 as on a GPU."""
    shallow, deep = policy_of(name, 4), policy_of(name, 8)
    around, reads, layer = [], 0.0, 0.0
    for options in ({"greedy": True}, {"temperature": 0.9}, {"temperature": 0.9, "top_p": 0.9}):
        few, reads = counted(shallow, name, **options)
        if not around:
            layer = (counted(deep, name, **options)[0] - few) / 4
        around.append(few - 4 * layer)
    return Row(name, layer, *around, reads)


def count_kernels(row: Row) -> None:
    """Set the kernels of a layer and of what is outside; it takes minutes."""
    name = row.family
    shallow, deep = policy_of(name, 4), policy_of(name, 8)
    of_few, of_more, of_top_p = (
        step_kernels(policy, request_of(policy, name, 3, **options))
        for policy, options in (
            (shallow, {"greedy": True}),
            (deep, {"greedy": True}),
            (shallow, {"temperature": 0.9, "top_p": 0.9}),
        )
    )
    layers = row.kernels_a_layer = (of_more - of_few) / 4
    row.kernels_outside_greedy, row.kernels_outside_top_p = (
        n - 4 * layers for n in (of_few, of_top_p)
    )


def time_tokens(rows: Sequence[Row], *, compiles: bool = False) -> None:
    """Set the seconds a token, fp32 and 4 layers, families and ways in turns."""
    policies = {row.family: policy_of(row.family, 4, torch.float32) for row in rows}
    engines: dict[tuple[str, str], TransformersEngine] = {}
    compiled = {name: TransformersEngine(CompiledStep()) for name in policies if compiles}
    for name in policies:
        engines[name, "off"] = TransformersEngine()
        engines |= {(name, "on"): compiled[name]} if compiles else {}
    differences: dict[tuple[str, str], list[float]] = {key: [] for key in engines}
    for (name, _), engine in engines.items():  # what is compiled is so before anything is timed
        engine.generate(policies[name], request_of(policies[name], name, LONG, greedy=True))
    for _ in range(ROUNDS):
        for (name, way), engine in engines.items():
            seconds = []
            for tokens in (SHORT, LONG):
                request = request_of(policies[name], name, tokens, greedy=True)
                begin = time.process_time()
                engine.generate(policies[name], request)
                seconds.append(time.process_time() - begin)
            differences[name, way].append((seconds[1] - seconds[0]) / (LONG - SHORT))
    for row in rows:
        row.seconds = statistics.median(differences[row.family, "off"])
        if compiles:
            row.compiled_seconds = statistics.median(differences[row.family, "on"])
            row.compile_seconds = getattr(compiled[row.family].compiled, "seconds", None)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.sampler", description=__doc__.splitlines()[0])
    parser.add_argument(
        "families", nargs="*", metavar="FAMILY[+lora]", help=f"of {', '.join(SORTS)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a family")
    parser.add_argument("--compile", action="store_true", help="time compiled steps too (minutes)")
    options = parser.parse_args(words)
    if strangers := {name for name in options.families if name.removesuffix("+lora") not in SORTS}:
        parser.error(f"no family {', '.join(sorted(strangers))}: choose of {', '.join(SORTS)}")
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", message=".*writes other reports with a cache.*")
    rows = [row_of(name) for name in options.families or FAMILIES]
    time_tokens(rows, compiles=options.compile)
    for row in rows:
        count_kernels(row)
        if options.json:
            print(json.dumps(asdict(row)))
        else:
            shown = {k: v for k, v in asdict(row).items() if v is not None}
            print("  ".join(f"{k} {v:.4g}" if k != "family" else v for k, v in shown.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
