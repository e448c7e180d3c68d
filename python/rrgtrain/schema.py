"""What a recipe can say, with the default of everything.

Every field has a default that works on two CPU cores; a recipe writes only what differs.
`metadata` carries the allowed choices and bounds, which `config.load_config` enforces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, get_type_hints

from rrgphantom import PhantomConfig


def one_of(default: str, *choices: str, gone: dict[str, str] | None = None) -> Any:
    """A field that holds one of these words; `gone`: words of old, and what to use now."""
    return field(default=default, metadata={"choices": [default, *choices], "gone": gone or {}})


def at_least(default: Any, minimum: float, maximum: float | None = None) -> Any:
    """A number with bounds, both included."""
    bounds = {"min": minimum} if maximum is None else {"min": minimum, "max": maximum}
    return field(default=default, metadata=bounds)


def _phantom() -> type:
    """The recipe's view of `PhantomConfig`: the same fields and defaults, open to overrides."""
    hints = get_type_hints(PhantomConfig)
    made = [(f.name, hints[f.name], field(default=f.default)) for f in fields(PhantomConfig)]
    return make_dataclass("Phantom", made)


Phantom = _phantom()


@dataclass
class Data:
    """Where studies come from; `limit` keeps the first of each split.

    `splits` joins some: `{train: train+val}` trains on both, and nothing is left to choose by but
    the training studies. `max_images` leaves out studies with more, `each_image` makes every image
    a sample of its own with the report of its study (MRG-R1). `longest_text`: characters of a
    report or section beyond which a study is refused, since one of megabytes takes all memory.

    Of the training studies, reinforcement learning sees all; with `subset` those that a file of
    `rrgtrain select` names, with `agreeing` those whose report says what their labels say (positive
    or uncertain against neither, read by `reward.labeller`), with `balanced` that many, so that the
    14 labels are as even as they can be (OraPO).
    """

    source: str = one_of("phantom", "iu_xray", "nih")
    root: str | None = None
    images: str = one_of("all", "frontal", "none")
    splits: dict[str, str] = field(default_factory=dict)
    max_images: int | None = at_least(None, 1)
    each_image: bool = False
    longest_text: int | None = at_least(20_000, 1)
    limit: int | None = None
    subset: str | None = None
    balanced: int | None = None
    agreeing: bool = False
    phantom: Phantom = field(default_factory=Phantom)  # type: ignore[valid-type]


@dataclass
class Lora:
    """An adapter in place of the whole model; `rank` 0 is none. Dropout is that of its inputs."""

    rank: int = at_least(0, 0)
    alpha: float = at_least(256.0, 0.0)
    dropout: float = at_least(0.05, 0.0, 0.999)


@dataclass
class Policy:
    """`path` is a checkpoint directory or a hub name, of a Qwen2.5-VL or, for data without images,
    of a Qwen2; `tiny` builds a Qwen2.5-VL from the data.

    `prompt` is a wording, `short`, `editgrpo`, or `think`, which asks for <think> and <report>
    blocks (MRG-R1); anything else is a file with placeholders (`policy/template.py`). `min_pixels`
    and `max_pixels` bound the area of an image, null as the checkpoint says.
    `vision_cache_mib`: embeddings of images that are kept while the vision tower is frozen.
    `dtype` is that of the computation; what trains is kept in fp32 beside it.
    `attn`: how a shared prefix is attended (`policy/README.md`). `vision_attn`: the vision tower's
    attention; `auto` is flash-attn where it is installed and can run.
    """

    path: str = "tiny"
    width: int = at_least(128, 16)
    layers: int = at_least(3, 1)
    vision_layers: int = at_least(3, 1)
    vocabulary: int = at_least(640, 300)
    warmup_steps: int = at_least(200, 0)
    warmup_lr: float = at_least(1e-3, 0.0)
    seed: int = at_least(0, 0, 2**63 - 1)
    freeze_vision: bool = False
    vision_cache_mib: int = at_least(1024, 0)
    gradient_checkpointing: bool = False
    prompt: str = "short"
    lora: Lora = field(default_factory=Lora)
    min_pixels: int | None = None
    max_pixels: int | None = None
    dtype: str = one_of("float32", "bfloat16")
    device: str = one_of("auto", "cpu", "cuda")
    attn: str = one_of("auto", "blocks", "flex", "dense")
    vision_attn: str = one_of("auto", "sdpa", "flash_attention_2")


@dataclass
class Sft:
    """Cross-entropy on the findings; stops at `patience` validations without `min_delta`, which
    is in units of `eval.best_by`.

    With `drops`, the first so many of those plateaus do not stop it: the best weights come back
    and the learning rate is multiplied by `drop_factor`.

    `choose`: the checkpoint that is kept, the best by `eval.best_by` or the validation before the
    last one that brought `min_delta` (EditGRPO starts RL from the epoch before convergence).
    `train: vision` freezes the language model (DEER). `template` is what the policy learns to
    write: `{report}` and, if it asks for them, `{findings}`, the positive labels by name: the
    study's own, or those that `reward.labeller` reads in its report.
    """

    steps: int = at_least(400, 1)
    batch: int = at_least(32, 1)
    lr: float = at_least(1e-3, 0.0)
    weight_decay: float = at_least(0.01, 0.0)
    warmup: int = at_least(20, 0)
    clip: float = at_least(1.0, 0.0)
    schedule: str = one_of("constant", "cosine")
    eval_every: int = at_least(50, 1)
    patience: int = at_least(4, 1)
    min_delta: float = at_least(0.003, 0.0)
    drops: int = at_least(0, 0)
    drop_factor: float = at_least(0.25, 0.0)
    choose: str = one_of("best", "before_convergence")
    wall_seconds: float | None = None
    train: str = one_of("all", "vision")
    template: str = "{report}"
    token_budget: int | None = at_least(None, 1)


@dataclass
class Rl:
    """`prompts` groups of `group` members a step; `beta` weighs the KL to the reference.

    `reference`: the frozen policy that KL and OraPO's preference compare with. `start` is the one
    that this training starts from, `base` what that was before fine-tuning, the adapter off where
    that is it; anything else names a checkpoint. A second model takes its place in memory.

    A batch of rollouts is gone through `epochs` times, `minibatch` groups an update (null: all).
    """

    algorithm: str = "editgrpo"
    steps: int = at_least(100, 1)
    prompts: int = at_least(8, 1)
    group: int = at_least(10, 2)
    lr: float = at_least(1e-4, 0.0)
    weight_decay: float = at_least(0.01, 0.0)
    warmup: int = at_least(0, 0)
    clip: float = at_least(1.0, 0.0)
    schedule: str = one_of("constant", "cosine")
    optimizer: str = one_of("adamw", "adamw_8bit")
    beta1: float = at_least(0.9, 0.0, 0.9999999)
    beta2: float = at_least(0.999, 0.0, 0.9999999)
    surrogate: str = one_of("clip", "cispo", "sapo", "reinforce")
    ratio_level: str = one_of("token", "sequence", "sequence_token")
    eps_low: float = at_least(0.2, 0.0)
    eps_high: float = at_least(0.2, 0.0)
    aggregation: str = one_of("dr_grpo", "grpo", "bnpo", "dapo", "sum")
    std: str = one_of("none", "population", "sample")
    beta: float = at_least(0.01, 0.0)
    kl: str = one_of("k3", "k1", "k2")
    reference: str = "start"
    temperature: float = at_least(1.0, 1e-3)
    top_p: float = at_least(1.0, 1e-6, 1.0)
    max_new_tokens: int = at_least(128, 1)
    epochs: int = at_least(1, 1)
    minibatch: int | None = at_least(None, 1)
    token_budget: int = at_least(16384, 1)
    eval_every: int = at_least(25, 1)


@dataclass
class Rollout:
    """What samples. `vllm` runs in the trainer's process, `vllm_server` at `url` (`vllm serve`).

    `memory`: the share of the device's memory that vLLM in process may take. `max_model_len`:
    prompt and report together. `wait`: seconds for which a server that is gone is asked again.
    `correction`: with an engine of its own kernels, each token (`level: token`) or report is
    weighed by policy over sampler, held at `cap` (`truncate`) or left out beyond it (`mask`).
    `max_gap`: mean |trainer - sampler log-prob| in nats a token beyond which a step stops the run;
    null is what rounding explains in `policy.dtype` (bfloat16 0.1, float16 0.02, float32 0.001).
    """

    engine: str = one_of("transformers", "vllm", "vllm_server")
    url: str = "http://localhost:8000"
    memory: float = at_least(0.4, 0.01, 0.99)
    max_model_len: int = at_least(4096, 16)
    wait: float = at_least(300.0, 0.0)
    correction: str = one_of("truncate", "mask", "none")
    level: str = one_of("token", "sequence")
    cap: float = at_least(3.0, 1.0)
    max_gap: float | None = at_least(None, 1e-6)


@dataclass
class Edit:
    """EditGRPO's post-rollout edit.

    `level: paragraph` puts the whole reference into each group and edits nothing. `match: exact`
    knows only entities of equal text. `extractor` null is `reward.extractor`.
    """

    tau: float = at_least(0.6, -1.0, 1.0)
    tau_replace: float | None = None
    max_edits: int | None = 1
    rule: str = one_of("paper", "released")
    conflict_requires_spurious: bool = True
    level: str = one_of("sentence", "paragraph")
    match: str = one_of("cosine", "exact")
    extractor: str | None = None


@dataclass
class TokenWeights:
    """DiTPO's factor of each token's advantage; `labeller` null is `reward.labeller`.

    `labeller: distilled` learns a small CheXbert from the training reports in `distil_steps`.
    `alpha` scales TF-IDF, `beta` the saliency. `uncertain=false` takes the gradient of the
    positive logits alone, as eq. 9 is printed.
    """

    kind: str = one_of("saliency", "tfidf", "both")
    alpha: float = at_least(4.0, 0.0)
    beta: float = at_least(1.0, 0.0)
    uncertain: bool = True
    labeller: str | None = None
    distil_steps: int = at_least(400, 1)


@dataclass
class Oracle:
    """OraPO's reference report: w = clip(low + (high - low) * zero_rate**sharpness, low, high).

    `momentum` smooths the zero-reward rate from step to step, that of each prompt or, with
    `smooth: batch`, that of the whole batch: a prompt that is seen once is never smoothed. `tau` is
    DPO's temperature, which the paper does not print: with log-probabilities per token, the 0.1
    that is usual for sums leaves the oracle nearly without effect. `loss: sft` puts the oracle's
    cross-entropy in the place of the preference loss.

    `log_ratio` logs the norm of the oracle's gradient over that of the rest of the loss, as they
    enter it (w and 1 - w included), at each update. That takes a second forward and backward of
    the policy and a copy of the gradients.
    """

    loss: str = one_of("dpo", "sft")
    low: float = at_least(0.05, 0.0, 1.0)
    high: float = at_least(0.15, 0.0, 1.0)
    sharpness: float = at_least(2.0, 0.0)
    momentum: float = at_least(0.5, 0.0, 1.0)
    smooth: str = one_of("prompt", "batch")
    tau: float = at_least(1.0, 1e-6)
    length_normalized: bool = True
    log_ratio: bool = True


@dataclass
class Select:
    """Which share of the training studies `rrgtrain select` draws, and how.

    `diversity` is DDSampling (DEER): `samples` reports of each study by nucleus sampling, studies
    ranked by how much the labels of those differ. `random` draws without looking.

    `weight`: that of a rank, `log_rank` 1 / ln(rank + 1) as eq. 5 has it, `rank` 1 / rank,
    or the `top` share. Eq. 5 is nearly flat: of 270,790 studies with 35.5 % zero-variance groups a
    fifth drawn by a perfect ranking has 33.2 %.
    """

    method: str = one_of("diversity", "random")
    weight: str = one_of("log_rank", "rank", "top")
    share: float = at_least(0.2, 1e-6, 1.0)
    samples: int = at_least(10, 2)
    top_p: float = at_least(0.95, 1e-6, 1.0)
    temperature: float = at_least(1.0, 1e-3)
    batch: int = at_least(32, 1)


@dataclass
class Reward:
    """Weights of the terms; see `rewards/terms.py` for what each one measures.

    `starts`: share of the steps before which a term weighs nothing (DEER's BLEU-2 at 0.8).
    `options`: by the name of a backend, what it is built with (`options.chexbert.weights=FILE`).
    `cache`: directory where what models read in references is kept between runs.
    `blocks`: `think_report` scores only what stands in `<report>` (MRG-R1).
    """

    terms: dict[str, float] = field(
        default_factory=lambda: {"entity_f1": 1.0, "label_f1": 1.0, "match": 1.0}
    )
    labeller: str = "rules"
    extractor: str = "rules"
    against: str = one_of("report", "labels")
    margin: float = at_least(0.0, -0.999, 0.999)
    neg_weight: float = at_least(0.3612, 0.0)
    both_blank: float = at_least(0.0, 0.0, 1.0)
    fact_beta: float = at_least(2.0, 0.0)
    radgraph_level: str = one_of("partial", "simple", "complete")
    radgraph_case: str = one_of("pypi", "master")
    rate_affinity: str = one_of("long", "short")
    blocks: str = one_of("none", "think_report")
    starts: dict[str, float] = field(default_factory=dict)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    device: str = "auto"
    cache: str | None = None
    cache_texts: int = at_least(20_000, 1)


@dataclass
class Eval:
    """Greedy reports of `split`, scored; `samples` of them are kept to be read.

    `best_by` is the metric of the validation that chooses the checkpoint of a training: one of
    `label_report` (micro_f1, micro_f1_13, macro_f1, sample_f1, ...), `reward`, or `reward/TERM`. By
    default micro-F1 of the 13 findings: with No Finding among the labels a report that is normal
    whatever it is given has a micro-F1 of 0.62 on IU X-Ray, and of 0 without it.
    """

    split: str = one_of("test", "val", "train")
    limit: int | None = None
    batch: int = at_least(64, 1)
    max_new_tokens: int = at_least(128, 1)
    best_by: str = "micro_f1_13"
    bootstrap: int = at_least(1000, 1)
    samples: int = at_least(6, 0)


@dataclass
class Checkpoint:
    """What `--resume` goes on from: written after `steps` steps or `seconds`, whichever is first.

    The last `keep` stay. Their number and moments change nothing in what is learned.
    """

    steps: int = at_least(50, 1)
    seconds: float = at_least(900.0, 0.0)
    keep: int = at_least(2, 1)


@dataclass
class Scale:
    """How a run is spread over the processes of torchrun, one a GPU.

    `fsdp2`: weights, gradients and optimiser in parts, one a process; `none`: a process alone.
    `timeout`: seconds until a process that does not answer counts as lost.
    """

    mode: str = one_of("none", "fsdp2", gone={"ddp": "fsdp2"})
    timeout: float = at_least(1800.0, 1.0)


@dataclass
class Log:
    """Beside metrics.jsonl and TensorBoard: `wandb` names a project of Weights & Biases.

    `records`: each so many steps of reinforcement learning, all that the step was made of is kept
    for `rrgtrain replay`; 0 keeps none.
    """

    records: int = at_least(1, 0)
    wandb: str | None = None


@dataclass
class Recipe:
    """One experiment, from data to report.

    `deterministic` refuses every operation of PyTorch that may differ between two runs.
    """

    # numpy and PyTorch take seeds of 64 bits, and a rank adds its number to this one
    seed: int = at_least(0, 0, 2**63 - 1)
    deterministic: bool = False
    data: Data = field(default_factory=Data)
    policy: Policy = field(default_factory=Policy)
    sft: Sft = field(default_factory=Sft)
    rl: Rl = field(default_factory=Rl)
    rollout: Rollout = field(default_factory=Rollout)
    edit: Edit = field(default_factory=Edit)
    token_weights: TokenWeights = field(default_factory=TokenWeights)
    oracle: Oracle = field(default_factory=Oracle)
    select: Select = field(default_factory=Select)
    reward: Reward = field(default_factory=Reward)
    eval: Eval = field(default_factory=Eval)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    scale: Scale = field(default_factory=Scale)
    log: Log = field(default_factory=Log)
