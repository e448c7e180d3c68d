"""Steps of `paper/editgrpo` on random weights: `python bench/gpu_step.py`, on a GPU.

Writes a checkpoint of Qwen2.5-VL-3B's shape in the official layout, its weights random and its
tokenizer learned from two reports, and trains it as the recipe says: images, edits, bf16 over fp32
masters in FSDP2, FlexAttention on a GPU, rollouts by transformers. The reward is of `rules`, since
the clinical models' files are not at hand, and prompts and reports are as few and short as the
options say. Appends a row with the median seconds of each phase, the peak of memory and the gap
between sampler and trainer, beside the state that `rrgtrain plan` counts of it, to
bench/results/<device>.jsonl or the folder named by OUT.

    python bench/gpu_step.py --unsaved     ends before the checkpoint: 8 GiB of disk, not 60
    python bench/gpu_step.py --layers 8    8 of the 36 decoder layers
    python bench/gpu_step.py --tiny        the same way at the size of the demo's model, on a CPU
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "python")]

from transformers import AutoConfig, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration  # noqa: E402

from bench import rows  # noqa: E402
from rrgpolicy.model.tiny import build_tiny  # noqa: E402
from rrgpolicy.settings import PolicySettings  # noqa: E402
from rrgtrain.config import load_config  # noqa: E402
from rrgtrain.plan import Setup, machine_of, plan_stage  # noqa: E402
from rrgtrain.schema import Recipe  # noqa: E402

TEXTS = [
    "The heart is enlarged. There is a small left pleural effusion. No pneumothorax.",
    "Lungs are clear. No pleural effusion or pneumothorax. Heart size is normal.",
]
RECIPE = "paper/editgrpo"
LAYERS = 36
# Of the official config.json, where it differs from the class's defaults.
TEXT = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128000,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    "initializer_range": 0.02,
}
VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 2048,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "initializer_range": 0.02,
}


def real_size(tiny: Qwen2_5_VLConfig, layers: int) -> Qwen2_5_VLConfig:
    """Configure Qwen2.5-VL-3B of `layers` decoder layers with the special tokens of `tiny`."""
    sizes = tiny.to_dict()
    for part, values in (("text_config", TEXT), ("vision_config", VISION)):
        sizes[part] |= values
    sizes["text_config"]["num_hidden_layers"] = layers
    # One entry a layer, which the class makes anew.
    sizes["text_config"].pop("layer_types", None)
    return Qwen2_5_VLConfig(**sizes)


def checkpoint(directory: Path, layers: int | None, device: str) -> Path:
    """Write random weights, tokenizer and image processor; returns `directory`.

    layers: of the decoder at real size; None for the demo's model.
    """
    build_tiny(PolicySettings(), TEXTS, directory)
    if layers is None:
        return directory
    config = real_size(AutoConfig.from_pretrained(directory), layers)
    torch.manual_seed(0)
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16)
        model = Qwen2_5_VLForConditionalGeneration(config)
        torch.set_default_dtype(torch.float32)
    model.save_pretrained(directory)
    del model
    # for the training, a process of its own
    torch.cuda.empty_cache()
    return directory


def settings(options: argparse.Namespace) -> list[str]:
    """Return the recipe's settings that differ from the paper's."""
    # One more where the last is not waited for: a validation and a checkpoint follow it.
    steps = options.steps + options.unsaved
    words = [
        "data.source=phantom",
        f"data.phantom.train={steps * options.prompts}",
        "data.phantom.val=4",
        "data.phantom.test=4",
        f"rl.steps={steps}",
        f"rl.eval_every={steps}",
        f"rl.prompts={options.prompts}",
        f"rl.max_new_tokens={options.tokens}",
        f"eval.max_new_tokens={options.tokens}",
        "reward.labeller=rules",
        "reward.extractor=rules",
        "reward.terms={entity_f1: 1.0, label_f1: 1.0}",
        "scale.mode=fsdp2",
        "checkpoint.keep=1",
        f"checkpoint.steps={steps}",
        "checkpoint.seconds=1e6",
    ]
    if options.tiny:
        words += ["policy.min_pixels=3136", "policy.max_pixels=12544"]
    return words


def train(policy: Path, out: Path, options: argparse.Namespace) -> int:
    """Run the recipe in a process of its own; returns its exit status.

    With `options.unsaved` it is killed once its steps are done, which is no error.
    """
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    command = [sys.executable, *torchrun, "-m", "rrgtrain", "rl", RECIPE, *settings(options)]
    paths = [str(ROOT), str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Triton's interpreter, which the tests set, would serve this process in place of csrc.
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = inherited | {"PYTHONPATH": os.pathsep.join(paths)}
    command += ["--from", str(policy), "--out", str(out)]
    process = psutil.Popen(command, cwd=ROOT, env=environment)
    while options.unsaved and process.poll() is None:
        if len(updates(out)) >= options.steps:
            # torchrun's workers lead sessions of their own.
            everyone = [process, *process.children(recursive=True)]
            for each in everyone:
                each.kill()
            psutil.wait_procs(everyone)
            return 0
        time.sleep(0.2)
    return int(process.wait())


def updates(run: Path) -> list[dict[str, float]]:
    """Read the rows of metrics that are of an RL step."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in rows if "seconds/update" in row]


def planned(options: argparse.Namespace) -> dict[str, float]:
    """Return the state that `rrgtrain plan` counts of these settings, in MiB.

    Of the whole model on a card that a plan knows; else nothing.
    """
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    card = next((name for name in ("h100", "h200", "l40s") if name.upper() in device), None)
    if options.tiny or options.layers != LAYERS or card is None:
        return {}
    recipe = load_config(Recipe, RECIPE, settings(options))
    plan = plan_stage(Setup.of(recipe, machine_of(card)), "rl")
    return {"plan/state_mib": plan.peak[1] / 2**20}


def summary(steps: list[dict[str, float]]) -> dict[str, float]:
    """Summarise phases, gaps and peak memory over all steps but the first.

    Medians of seconds by phase and by gap, and the largest peak."""
    later = steps[1:] or steps
    names = {name for row in later for name in row}
    kept = sorted(n for n in names if n.startswith(("seconds/", "speed/")) or "gap" in n)
    found = {n: statistics.median(row[n] for row in later if n in row) for n in kept}
    return found | {"peak_mib": max(row["memory/peak_mib"] for row in steps), "steps": len(steps)}


def main(arguments: list[str]) -> int:
    """Write the checkpoint, train, append the row; returns the exit status."""
    parser = argparse.ArgumentParser(prog="gpu_step.py", description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="the demo's model, on any machine")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the decoder")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=8, help="of a step; the paper has 32")
    parser.add_argument("--unsaved", action="store_true", help="end before the checkpoint")
    parser.add_argument("--tokens", type=int, default=150, help="of a report, at most")
    options = parser.parse_args(arguments)
    cuda = torch.cuda.is_available()
    if not cuda and not options.tiny:
        print("no GPU here: three billion parameters need a CUDA device; rehearse with --tiny")
        return 2
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        device = "cuda" if cuda else "cpu"
        layers = None if options.tiny else options.layers
        policy = checkpoint(Path(folder) / "policy", layers, device)
        print(f"checkpoint written, {time.monotonic() - begin:.0f} s", flush=True)
        status = train(policy, Path(folder) / "run", options)
        written = updates(Path(folder) / "run")
    if status or not written:
        print(f"rrgtrain ended with {status}")
        return 1
    case = "tiny" if options.tiny else "Qwen2.5-VL-3B, random"
    row = {"room": "update_step", "case": case, "provider": RECIPE}
    row |= {"layers": layers, "prompts": options.prompts, "tokens": options.tokens}
    row |= summary(written) | planned(options)
    # Random weights seldom end a report: nearly every rollout takes all its token steps.
    row["token_step_ms"] = 1e3 * row["seconds/rollout"] / options.tokens
    rows.append(torch.device(device), row | {"versions": rows.versions(("transformers",))})
    print("\n".join(f"{name:<32} {value}" for name, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
