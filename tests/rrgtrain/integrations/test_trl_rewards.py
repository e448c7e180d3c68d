"""The service called as TRL calls reward functions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rrgtrain.errors import RewardError
from rrgtrain.integrations.trl_rewards import trl_reward
from rrgtrain.rewards import RewardService
from rrgtrain.schema import RewardSettings

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
    ],
)
def test_a_message_of_another_form_is_no_empty_report(completion: object, told: str) -> None:
    function = trl_reward(RewardService(RewardSettings(terms={"label_f1": 1.0})))
    with pytest.raises(TypeError, match=told):
        function(completions=[completion], report=["Edema."])
    silent = [{"role": "assistant", "content": None}]
    assert function(completions=[silent], report=["Edema."]) == [0.0]


@pytest.mark.parametrize(
    "part",
    [
        {"text": "Edema."},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "text", "text": 5},
        {"type": ["text"], "text": "Edema."},
        {"type": "words", "text": "Edema."},
    ],
    ids=repr,
)
def test_text_that_cannot_be_read_is_no_empty_report(part) -> None:
    function = trl_reward(RewardService(RewardSettings()))
    with pytest.raises(TypeError, match="^a part of a message is .*; wanted its type text"):
        call(function, completions=[[{"role": "assistant", "content": [part]}]], report=["Edema."])
    with pytest.raises(TypeError, match="^a completion is an empty list; wanted"):
        call(function, completions=[[]], report=["Edema."])


def test_a_part_without_text_adds_nothing() -> None:
    function = trl_reward(RewardService(RewardSettings()))
    parts = [
        {"type": "image"},
        {"type": "image", "text": None},
        {"type": "output_text", "text": "Edema."},
    ]
    told = call(function, completions=[[{"role": "a", "content": parts}]], report=["Edema."])
    assert told == call(function, completions=["Edema."], report=["Edema."])


@pytest.mark.parametrize(
    "state",
    [
        SimpleNamespace(max_steps=float("nan"), global_step=1),
        SimpleNamespace(max_steps=10, global_step=float("nan")),
        SimpleNamespace(max_steps="10", global_step=1),
        SimpleNamespace(max_steps=10, global_step=None),
        SimpleNamespace(max_steps=10),
        {"max_steps": 10, "global_step": 5},
    ],
    ids=repr,
)
def test_a_state_without_numbers_is_no_end_of_the_run(state) -> None:
    with pytest.raises(ValueError, match="^trainer_state has max_steps .*; wanted the numbers"):
        call(trl_reward(RewardService(RewardSettings())), trainer_state=state)
