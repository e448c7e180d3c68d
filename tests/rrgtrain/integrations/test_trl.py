"""The service called as TRL calls reward functions."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch.nn.functional import pad

from rrgtrain.errors import RewardError, UserError
from rrgtrain.integrations.from_trainers import read_settings, reference_of
from rrgtrain.integrations.trl import SharedPrefix
from rrgtrain.integrations.trl_alarm import SamplerAlarm
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards import RewardService
from rrgtrain.schema import EditSettings, RewardSettings
from tests.rrgpolicy.model.families import backbone, build, prompt

COMPLETIONS = ["Cardiomegaly. Edema.", "Lungs are clear.", ""]
REFERENCES = ["Edema.", "Clear.", "Edema."]


def call(function, **more):
    """The keywords that TRL 1.16's GRPOTrainer passes."""
    texts = more.pop("completions", COMPLETIONS)
    return function(
        prompts=["p"] * len(texts),
        completions=texts,
        completion_ids=[[1, 2]] * len(texts),
        **{"report": REFERENCES, "id": ["a", "b", "c"], **more},
    )


def test_rewards_are_the_total_as_floats() -> None:
    service = RewardService(RewardSettings())
    function = trl_reward(service, name="clinical")
    found = call(function)
    assert function.__name__ == "clinical"
    assert found == service(COMPLETIONS, REFERENCES)["total"].tolist()
    assert all(type(value) is float for value in found) and len(set(found)) > 1


def test_conversations_are_read() -> None:
    function = trl_reward(RewardService(RewardSettings()))
    plain = [[{"role": "assistant", "content": text}] for text in COMPLETIONS]
    parts = [
        [{"role": "assistant", "content": [{"type": "text", "text": text}]}] for text in COMPLETIONS
    ]
    assert call(function, completions=plain) == call(function) == call(function, completions=parts)
    with pytest.raises(TypeError, match="a completion is int"):
        call(function, completions=[1, 2, 3])


def test_terms_are_logged_and_the_schedule_follows_the_trainer() -> None:
    logged: dict[str, float] = {}
    service = RewardService(
        RewardSettings(terms={"label_f1": 1.0, "bleu2": 1.0}, starts={"bleu2": 0.8})
    )
    function = trl_reward(service)

    def at(step: int) -> list[float]:
        state = SimpleNamespace(global_step=step, max_steps=10)
        return call(function, trainer_state=state, log_metric=logged.__setitem__)

    early, late = at(7), at(8)
    scores = service(COMPLETIONS, REFERENCES)
    assert early == scores["label_f1"].tolist()
    assert late == scores["total"].tolist() != early
    assert logged == {
        "rrgtrain/label_f1": pytest.approx(scores["label_f1"].mean()),
        "rrgtrain/bleu2": pytest.approx(scores["bleu2"].mean()),
    }


def test_failures_are_raised() -> None:
    with pytest.raises(ValueError, match="no column 'report', it has findings"):
        trl_reward(RewardService(RewardSettings()))(completions=["x"], findings=["y"])
    inverse = trl_reward(RewardService(RewardSettings(terms={"inverse_frequency": 1.0})))
    with pytest.raises(RewardError, match="reward term inverse_frequency failed: there are no tra"):
        call(inverse)


@pytest.mark.parametrize(
    ("completion", "told"),
    [
        (["Edema."], "a message is 'Edema.'; wanted a dict with role and content"),
        ([{"role": "assistant", "text": "Edema."}], "a message is {.*wanted a dict with role"),
        ([{"role": "assistant", "content": 3}], "a message's content is 3; wanted text or a list"),
        ([{"role": "assistant", "content": ["Edema."]}], "content is .*; wanted text or a list"),
        ([], "^a completion is an empty list; wanted"),
        *(
            ([{"role": "assistant", "content": [part]}], "^a part of a message is .*; wanted its ")
            for part in (
                *({"type": "text", **text} for text in ({}, {"text": None}, {"text": 5})),
                *(
                    {"text": "Edema.", **kind}
                    for kind in ({}, {"type": ["text"]}, {"type": "words"})
                ),
            )
        ),
    ],
)
def test_a_message_of_another_form_is_no_empty_report(completion: object, told: str) -> None:
    function = trl_reward(RewardService(RewardSettings(terms={"label_f1": 1.0})))
    with pytest.raises(TypeError, match=told):
        function(completions=[completion], report=["Edema."])
    silent = [{"role": "assistant", "content": None}]
    assert function(completions=[silent], report=["Edema."]) == [0.0]


# SharedPrefix refuses a class in which no trainer would call it.
class Trainer:
    def _get_per_token_logps_and_entropies(self) -> str:
        return "the trainer's own"


class Renamed:
    def _token_logps(self) -> None: ...


def test_it_stands_before_the_trainer() -> None:
    class Mine(SharedPrefix, Trainer): ...

    class Further(Mine): ...

    for kind in (Mine, Further):
        found = kind._get_per_token_logps_and_entropies
        assert found is SharedPrefix._get_per_token_logps_and_entropies


@pytest.mark.parametrize("bases", [(Trainer, SharedPrefix), (SharedPrefix, Renamed)])
def test_where_nothing_would_call_it_the_class_is_refused(bases: tuple[type, ...]) -> None:
    with pytest.raises(TypeError, match=r"nothing would call it; write class Mine\(SharedPrefix"):
        type("Mine", bases, {})


# A sampler that draws from another distribution is not compared, which is told once.
PLAIN = {"temperature": 0.9, "top_p": 0.95, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}


@pytest.mark.parametrize("own", [{"top_k": 20}, {"generation_kwargs": {"top_k": 20}}], ids=str)
def test_it_is_told_once_and_nothing_is_computed(own, capsys):
    trainer = SimpleNamespace(
        args=SimpleNamespace(**{"generation_kwargs": None} | PLAIN | own),
        accelerator=SimpleNamespace(is_main_process=True),
    )
    alarm = SamplerAlarm(trainer)
    for _ in range(2):
        trainer._buffered_inputs = [{"sampling_per_token_logps": torch.zeros(1, 1)}]
        alarm.on_pre_optimizer_step()
    assert capsys.readouterr().err == (
        "rrgtrain: sampler and trainer are not compared: top_k=20 changes the sampler's log-probs "
        "alone; leave it out to compare them\n"
    )


# TRL's rows with other families' arguments reach the model whole.
class Rows:
    """The part of GRPOTrainer that the mixin stands in for."""

    temperature = 1.0
    accelerator = SimpleNamespace(
        num_processes=1, unwrap_model=lambda model: model, autocast=nullcontext
    )

    def _get_per_token_logps_and_entropies(self) -> None: ...


class SharedRows(SharedPrefix, Rows):
    """Rows, shared."""


def test_token_types_and_pixels_of_each_row_are_its_own() -> None:
    model = build("gemma3")
    of = backbone(model)
    prompts = [prompt(of, "gemma3", images, 9, images) for images in (2, 0, 1)]
    of_row, completion = [0, 1, 0, 2], torch.randint(3, 80, (4, 5))
    longest = max(len(p.input_ids) for p in prompts)

    def left(values: torch.Tensor) -> torch.Tensor:
        return pad(values, (longest - len(values), 0))

    ids = torch.stack([left(prompts[k].input_ids) for k in of_row])
    mask = torch.stack([left(torch.ones_like(prompts[k].input_ids)) for k in of_row])
    types = torch.stack([left(prompts[k].per_token["token_type_ids"][0]) for k in of_row])
    pixels = [prompts[k].images["pixel_values"] for k in of_row if prompts[k].images]
    counts = [len(prompts[k].images.get("pixel_values", ())) for k in of_row]
    arguments: dict[str, Any] = {
        "input_ids": torch.cat([ids, completion], 1),
        "attention_mask": torch.cat([mask, torch.ones_like(completion)], 1),
        "token_type_ids": torch.cat([types, torch.zeros_like(completion)], 1),
        "pixel_values": torch.cat(pixels),
    }
    found, _, _ = SharedRows()._get_per_token_logps_and_entropies(
        model, logits_to_keep=5, num_images=counts, **arguments
    )
    for r, k in enumerate(of_row):
        row = torch.cat([prompts[k].input_ids, completion[r]])[None]
        kinds = pad(prompts[k].per_token["token_type_ids"], (0, 5))
        logits = model(input_ids=row, token_type_ids=kinds, **prompts[k].images).logits[0, -6:-1]
        own = logits.log_softmax(-1).gather(1, completion[r][:, None])[:, 0]
        assert (found[r] - own).abs().max() < 1e-6
    with pytest.raises(ValueError, match="pixel_values without num_images"):
        SharedRows()._get_per_token_logps_and_entropies(model, logits_to_keep=5, **arguments)


# Settings and samples of other trainers: whatever is wrong is one line, and nothing is guessed.
@pytest.mark.parametrize(
    ("written", "line"),
    [
        (["label_f1"], "^place is ['label_f1']; wanted its keys"),
        ([], "^place is []; wanted its keys"),
        (False, "^place is False; wanted its keys"),
        ({1: 2}, "^place has the key 1; wanted names"),
        ({"term": {}}, "^place: unknown key 'term'; did you mean terms?"),
        ({"terms": "label_f1"}, "^place: terms is 'label_f1' (str); wanted a mapping"),
        ({"terms": {"match": True}}, "^place: terms is {'match': True} (dict); wanted a mapping"),
        ({"terms": {"match": math.nan}}, "^place: terms.match is nan; wanted a finite number"),
        ({"terms": {"match": "???"}}, "^place: Missing mandatory value: match"),
        ({"terms": {"match": "${nowhere}"}}, "^place: Interpolation key 'nowhere' not found"),
        ({"options": {"chexbert": {"weights": Path("/w")}}}, "^place: Object of type PosixPath"),
        ({"cache_texts": 1.5}, "^place: cache_texts is 1.5 (float); wanted a whole number"),
    ],
    ids=repr,
)
def test_settings_that_cannot_be_are_one_line(written, line) -> None:
    pattern = "^" + re.escape(line.removeprefix("^"))
    config = OmegaConf.create({"here": written})
    for form in (config.here, written):
        if form is written and ("???" in repr(written) or "${" in repr(written)):
            continue  # OmegaConf's, and no setting of a plain mapping
        with pytest.raises(UserError, match=pattern) as caught:
            read_settings(RewardSettings, form, "place")
        assert "\n" not in str(caught.value)


def test_settings_are_those_of_a_recipe() -> None:
    assert read_settings(RewardSettings, None, "place") == RewardSettings()
    assert read_settings(RewardSettings, {}, "place") == RewardSettings()
    # of the terms only those that are named
    for form in ({"terms": {"match": 1}}, OmegaConf.create({"terms": {"match": 1}})):
        assert read_settings(RewardSettings, form, "place").terms == {"match": 1.0}
    assert read_settings(EditSettings, {"tau": 0.5}, "place") == EditSettings(tau=0.5)


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        ({}, "a sample has fields: none; wanted"),
        ({"reward_model": "Edema."}, "a sample has reward_model='Edema.'; wanted"),
        ({"reward_model": {"ground_truth": ["No."]}}, "a sample has reward_model={.*}; wanted"),
        ({"reward_model": {"ground_truth": None}}, "a sample has reward_model={.*}; wanted"),
    ],
    ids=repr,
)
def test_a_sample_without_a_reference_is_one_line(sample, line) -> None:
    with pytest.raises(UserError, match=f"^{line} reward_model.ground_truth, the text of its ref"):
        reference_of(sample)
    assert reference_of({"reward_model": {"ground_truth": ""}}) == ""
