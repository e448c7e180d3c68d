"""The plan of the house: doors, limits, and every exception by name.

The rules in `rules.py` read these tables. Exceptions go as they are mended; limits only fall.
"""

from __future__ import annotations

# The packages that are weighed; which may import which, and the floors of each, are contracts of
# pyproject.toml, where ruff limits arguments too.
PACKAGES = ("rrgkern", "rrgclinical", "rrgdata", "rrgpolicy", "rrgreport", "rrgtrain")

# Folders of rrgkern and csrc that serve several rooms, or the build, and are no room themselves.
SHARED = {"triton_lib"}
SHARED_CSRC = {"common", "build_info"}
# What a room of rrgkern shows to the other rooms, beside its `__init__`: files and inner rooms.
KERNEL_DOORS = {"api", "spec", "inputs", "reference", "op", "online_softmax", "head"}
# Served from hidden states: the tiles of each device, which the linear losses sweep too.
KERNEL_DOORS |= {"csrc_launch", "from_hidden", "triton_tile", "from_logits", "linear"}
# What the rooms of the other packages show to other rooms and to experiments, beside their
# `__init__`, and what the API pages of docs name. A file that only tests import is none.
DOORS = {
    "rrgclinical.chexbert": "checkpoint distilled pieces",
    "rrgclinical.metrics": "registry",
    "rrgclinical.radgraph": "archive extractor graph words",
    "rrgclinical.rules": "assertion concepts cues details sentences",
    "rrgtrain.algorithms": "base ditpo group",
    "rrgclinical.scorecard": "implementations judge",
    "rrgclinical.serving": "app batcher",
    "rrgclinical.common": (
        "arguments errors fields files host json_reader nothing plain_yaml progress "
        "resolve rtf shown spreadsheets stop stopwatch streams table unfinished"
    ),
    "rrgpolicy.model": (
        "adapters attention backbone codec families fewer_kernels forward load own_forward policy "
        "probe prompt shared_prefix template tiny whole"
    ),
    "rrgpolicy.ranks": "gathered layout nodes ranks rng sharding",
    "rrgpolicy.rollout": "engines policy_sampler",
    "rrgdata.images": "check dicom in_flight read",
    "rrgdata.phantom": "write",
    "rrgdata.sources": "folder source",
    "rrgtrain.commands": "command started",
    "rrgtrain.integrations": (
        "trl trl_alarm trl_rewards trl_steps verl verl_alarm verl_edits verl_loss verl_rewards"
    ),
    "rrgtrain.log": "logs",
    "rrgtrain.rewards": "batch service term_models",
    "rrgtrain.run": (
        "checked choose data export generate init model_check outcome room scorecards "
        "select_studies session stages stress"
    ),
    "rrgtrain.schema": "keys",
    "rrgtrain.select": "draws",
    "rrgtrain.state": ("checkpointer identity null_checkpointer remembered rundir store tree"),
    "rrgtrain.train": (
        "evaluate loader optim reference rl rl_run sft step_log step_record target_text written"
    ),
}
# Imports of an inner file all the same: (who, what).
INNER: set[tuple[str, str]] = set()

# Inner files that the tests of their own room open, and no others: kernels and references whose
# source is mutated, that are compiled ahead or walked with made-up addresses; parts that a test
# replaces; and functions without a door that have a test of their own, file beside file.
OPENED = {
    "rrgclinical.rules": "extractor lexicon plain trie",
    "rrgclinical.severity": "context",
    "rrgkern.advantages": "triton_advantages",
    "rrgkern.edit_plan": "released splicing",
    "rrgkern.logps": "triton_from_logits",
    "rrgkern.policy_loss": (
        "triton_policy_loss from_logits.triton_launch linear.autograd "
        "linear.forward linear.gradients linear.rows linear.triton_kernels terms"
    ),
    "rrgkern.preference_loss": "triton_preference_loss",
    "rrgkern.shared_prefix": "attention flex triton_decode",
    "rrgtrain.algorithms": "by_finding orapo",
    "rrgpolicy.model": "cache packed_windows",
    "rrgpolicy.rollout": "cache transformers_engine vllm_prompts",
    "rrgdata.phantom": "case draw phrases text",
    "rrgdata.sources": "tables",
    "rrgtrain.integrations": "from_trainers",
    "rrgtrain.rewards": "spending",
    "rrgtrain.train": "batch best gradients resample sample",
}

# Folders in tests/ that are not called as the room they test.
TESTS_OF = {"rrgclinical.official": "oracle"}

# Modules that parse JSON themselves: the reader, what reads back what this process or its store has
# made, and workers that run beside another package and import nothing of ours.
OWN_JSON = {
    *("rrgclinical.common.json_reader", "rrgclinical.official.worker"),
    "rrgkern.policy_loss.spec",
    *("rrgclinical.cached", "rrgclinical.radgraph.annotator"),
    *("rrgdata.images.check", "rrgdata.file_memory"),
    *("rrgpolicy.model.tiny", "rrgtrain.train.written", "rrgtrain.train.best"),
}

# Public class names that a package has twice.
SAME_NAME: set[str] = set()

FILE_LINES = 400
# Longer files, and how long they may be.
LONG_FILES = {"bench/update_step.py": 465, "csrc/edit_plan/edit_plan.h": 474}
# What the tree may weigh (`weight.weights`). They only fall: `python -m tests.house --caps` lowers
# them.
CAPS: dict[str, float] = {
    "rrgkern": 13_480,
    "rrgclinical": 19_510,
    "rrgdata": 8_294,
    "rrgpolicy": 9_149,
    "rrgreport": 2_557,
    "rrgtrain": 17_612,
    "csrc": 5_759,
    "packages and csrc": 76_361,
    "tests": 71_932,
    "files but findings": 1_160,
    "Makefile targets": 18,
    "docs pages": 24,
    "refusals, % of packages": 5.5,
    "before step 1": 11_279,
}

FIRST_LINE_WORDS = 15
RIDDLES = {"What", "Which", "Whether", "Of", "How", "Where"}

# Top-level names whose files and modules may be of the past or made up for a test; the links of
# docs are checked when the site is built.
NAMES_ELSEWHERE = {"CHANGELOG.md", "docs", "tests"}
# What looks like a file or module of the tree and is none: an example's, a file in a checkpoint, a
# group of entry points.
NOT_OURS = {"rescue.py", "rrgtrain.json", "rrgtrain.engines"}

# Targets of the Makefile that `.ci/run` does not make, and why. `make test` has the short form of
# those that assert something.
NOT_IN_CI = {
    "help": "prints the targets",
    "install": "asserts nothing; every target sets up what it needs",
    "demo": "tests/test_docs.py and tests/rrgtrain/test_cli.py run it at the size of a test",
    "docs": "tests/test_docs.py builds the site, strict as here",
    "bench": "times, on a quiet machine; tests/bench and tests/test_bench.py run the code",
    "gpu": "needs a GPU; `make gates` goes the same way on a CPU",
    "findings": "installs other packages; what changes in them is no fault of a change here",
    "slow": "hours; `.ci/run` makes ptx-short of it, and has a short form of each other",
    "night": "what `.ci/run` makes by day where .ci/due says so",
    "clean": "removes what was built",
}

# Names that say how a value came and not what it is, and how many locals of a file still have one.
VAGUE = {"found", "wanted", "seen", "told", "given", "kept", "known", "asked"}
VAGUE_LOCALS = {
    "python/rrgclinical/rules": (
        "assertion 4 headings 2 labeller 1 lookaround 1 "
        "mention 1 scopes 1 sentences 1 statement 1 told_apart 1 trie 5"
    ),
    "python/rrgpolicy": "vllm_worker 1",
    "python/rrgpolicy/model": ("load 3 packed_windows 1 prompt 2 whole 5"),
    "python/rrgpolicy/ranks": "gathered 1 nodes 2 sharding 2",
    "python/rrgpolicy/rollout": "engine 1 vllm_engine 2 vllm_prompts 3 vllm_server 3 weights 4",
    "python/rrgtrain": "config 6 recipe_files 2",
    "python/rrgtrain/algorithms": "base 2 ditpo 1",
    "python/rrgtrain/commands": "show 3 started 1",
    "python/rrgtrain/integrations": "trl 1",
    "python/rrgtrain/rewards": "service 2 terms 9",
    "python/rrgtrain/run": ("data 3 generate 2 init 2 room 1 scorecards 2 session 1 stages 6"),
    "python/rrgtrain/state": ("checkpointer 3 remembered 4 rundir 1 store 4 write 4"),
    "python/rrgtrain/train": (
        "batch 6 best 2 evaluate 1 gradients 1 loader 1 optim 1 reference 4 "
        "resample 2 rl_run 1 target_text 1"
    ),
    "rrgkern": "dispatch 1 ops 1",
    "rrgkern/edit_plan": "api 2 reference 3",
    "rrgkern/entity_match": "api 1",
    "rrgkern/logps": "op 1",
    "rrgkern/policy_loss": "inputs 2",
    "rrgkern/policy_loss/linear": "autograd 2 cpu_kernels 2 forward 3 op 7 triton_kernels 1",
    "rrgkern/token_weights": "reference 3",
    "rrgkern/triton_lib": "softmax_row 2",
}

# Violations that a rule still allows, by its name. A limit may only fall.
LIMITS: dict[str, int] = {"rooms_take_their_section": 35}


def is_open(target: str) -> bool:
    """Tell whether other rooms, tests and benches may import the module of this dotted name."""
    package, room, inner = target.split(".", 2)
    if package == "rrgkern":
        return room in SHARED or inner.split(".")[-1] in KERNEL_DOORS
    return inner in ("__main__", *DOORS.get(f"{package}.{room}", "").split())


def opens_its_own(source: str, target: str) -> bool:
    """Tell whether module `source` is a test of the room of `target`, which is in OPENED."""
    package, room, inner = target.split(".", 2)
    name = TESTS_OF.get(f"{package}.{room}", room)
    own = source.startswith((f"tests.{package}.{name}.", f"tests.{package}.test_{name}"))
    return own and inner in OPENED.get(f"{package}.{room}", "").split()
