"""Building, saving and loading a policy, and what a user is told when that fails."""

from __future__ import annotations

import json
import shutil
import types
from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
import transformers

from rrgclinical import hub
from rrgclinical.common.errors import UserError
from rrgpolicy.model import load
from rrgpolicy.model.load import load_policy
from rrgpolicy.model.policy import add_lora, training_only
from rrgpolicy.model.prompt import encode_prompt
from rrgpolicy.model.tiny import SPECIAL_TOKENS, build_tiny
from rrgpolicy.settings import LoraSettings
from tests.rrgpolicy.model.common import CONFIG, REPORTS, prompt, study, tiny_directory, tiny_policy


def test_tiny_is_an_ordinary_checkpoint() -> None:
    policy = load_policy(tiny_directory())
    assert {"config.json", "tokenizer.json", "preprocessor_config.json"} <= {
        p.name for p in tiny_directory().iterdir()
    }
    assert len(policy.tokenizer) == policy.config.text_config.vocab_size <= CONFIG.vocabulary
    assert policy.backbone.lm_head.weight is policy.language_model.embed_tokens.weight
    for token in SPECIAL_TOKENS:
        assert len(policy.tokenizer(token)["input_ids"]) == 1, token
    names = [policy.tokenizer.convert_ids_to_tokens(i) for i in policy.eos_ids]
    assert names == ["<|im_end|>", "<|endoftext|>"]
    assert policy.end_of_turn == policy.eos_ids[0]
    assert policy.tokenizer.convert_ids_to_tokens(policy.pad_id) == "<|endoftext|>"
    assert not policy.model.training


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    def weights(seed: int, name: str) -> dict[str, torch.Tensor]:
        torch.rand(1)  # the global generator has no say, and is left alone
        state = torch.get_rng_state()
        directory = build_tiny(replace(CONFIG, seed=seed), REPORTS, tmp_path / name)
        assert torch.equal(state, torch.get_rng_state())
        return load_policy(directory).model.state_dict()

    first, again, other = weights(1, "a"), weights(1, "b"), weights(2, "c")
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not all(torch.equal(first[k], other[k]) for k in first)


def test_a_template_that_writes_the_date_is_warned_of(tmp_path: Path) -> None:
    """A run resumed on another day would read other prompts."""
    shutil.copytree(tiny_directory(), tmp_path / "dated")
    template = tmp_path / "dated" / "chat_template.jinja"
    template.write_text("{{ strftime_now('%d %b %Y') }}" + template.read_text())
    with pytest.warns(UserWarning, match=r"dated: its chat template may write today's date"):
        load_policy(tmp_path / "dated")


def test_save_and_load_give_the_same_policy(tmp_path: Path) -> None:
    policy = tiny_policy()
    again = load_policy(policy.save(tmp_path / "saved"))
    ours, theirs = policy.model.state_dict(), again.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)
    p, q = prompt(policy, "a", 2), prompt(again, "a", 2)
    assert torch.equal(p.input_ids, q.input_ids)
    assert torch.equal(p.pixel_values, q.pixel_values)
    assert again.eos_ids == policy.eos_ids


def test_weights_go_straight_to_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    class Asked(Exception):
        pass

    def from_pretrained(*args: object, **options: object) -> None:
        seen.append(options["device_map"])
        raise Asked

    monkeypatch.setattr(
        transformers.Qwen2_5_VLForConditionalGeneration, "from_pretrained", from_pretrained
    )
    monkeypatch.setattr(load, "require_dtype", lambda device, dtype: None)
    for device in ("cuda:1", "cpu"):
        with pytest.raises(UserError, match="Asked"):
            load_policy(tiny_directory(), device=device, vision_attn="sdpa")
    assert seen == [{"": torch.device("cuda:1")}, None], "eight whole models fill a node's memory"


def test_an_adapter_is_loaded_onto_its_base(tmp_path: Path) -> None:
    policy = load_policy(tiny_directory())
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "qkv"], init_lora_weights=False)
    policy.model = peft.get_peft_model(policy.model, config)
    again = load_policy(policy.save(tmp_path / "adapter"))
    ids = policy.codec.encode(REPORTS[0])[None]
    with torch.no_grad():
        logits = policy.model(ids).logits
        assert torch.equal(logits, again.model(ids).logits)
        assert not torch.equal(logits, load_policy(tiny_directory()).model(ids).logits)
    trained = {n for n, p in again.model.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in n for n in trained)


def test_an_adapter_scales_images_as_it_was_trained(tmp_path: Path) -> None:
    """Else its base's bounds would: a policy trained at one size and evaluated at another."""
    policy = load_policy(tiny_directory())
    policy.images.bound(None, 50176)
    add_lora(policy, LoraSettings(rank=2), 0)
    saved = policy.save(tmp_path / "adapter")
    assert load_policy(saved).image_processor.size["longest_edge"] == 50176
    (saved / "preprocessor_config.json").unlink()
    assert load_policy(saved).image_processor.size["longest_edge"] == 112**2


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []

    def head(url: str, timeout: float) -> None:
        heads.append(url)
        raise OSError("no route\nto host")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "get_session", lambda: types.SimpleNamespace(head=head))
    hub.reach_hub.cache_clear()
    with pytest.warns(UserWarning, match=r"does not answer \(no route\): files come from"):
        hub.reach_hub()
    for name in ("nobody/nothing", "nobody/else"):
        with pytest.raises(UserError, match=f"cannot load {name}: .* cached files"):
            load_policy(name)
    assert len(heads) == 1
    hub.reach_hub.cache_clear()


def test_a_user_reads_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The variable HF_HUB_OFFLINE was read at import; without this the hub client retries.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def told(name: str | Path, **options: object) -> str:
        with pytest.raises(UserError) as caught:
            load_policy(name, **options)  # type: ignore[arg-type]
        line = str(caught.value)
        assert "\n" not in line
        return line

    assert "no such directory" in told(tmp_path / "nowhere")
    assert "no such directory: ./here" in told("./here")
    assert told(tmp_path).endswith("holds no config.json; name a checkpoint directory")
    for name in ("rl", "sft"):
        (tmp_path / f"run/checkpoints/{name}").mkdir(parents=True)
        (tmp_path / f"run/checkpoints/{name}/adapter_config.json").write_text("{}")
    inner = f"{tmp_path}/run/checkpoints"
    assert told(tmp_path / "run").endswith(f"directory such as {inner}/rl or {inner}/sft")
    file = tmp_path / "model.bin"
    file.write_text("")
    assert "is a file" in told(file)
    assert "cannot load nobody/nothing" in told("nobody/nothing")
    assert "network" in told("nobody/nothing")

    other = tmp_path / "other"
    other.mkdir()
    for kind, names, message in (
        # of the family, but with another head: it would be loaded with a random one
        ("qwen2", ["Qwen2ForRewardModel"], "names Qwen2ForRewardModel, and a qwen2 that writes"),
        ("vit", ["ViTModel"], "a vit predicts no next token; name a lang"),
        ("mllama", ["MllamaForConditionalGeneration"], "a mllama reads images by cross-attention"),
    ):
        (other / "config.json").write_text(json.dumps({"model_type": kind, "architectures": names}))
        assert message in told(other)

    assert "policy.dtype=int8" in told(tiny_directory(), dtype="int8")
    assert "policy.attn=flash" in told(tiny_directory(), attn="flash")


# An adapter on the language model's projections, and which part of a policy a stage trains.
def trainable(policy) -> list[str]:
    return [n for n, p in policy.model.named_parameters() if p.requires_grad]


def test_the_adapter_trains_and_nothing_else_does() -> None:
    policy = tiny_policy()
    model, names = policy.model, trainable(policy)
    add_lora(policy, LoraSettings(), seed=0)
    assert policy.model is model and trainable(policy) == names, "without a rank nothing changes"
    add_lora(policy, LoraSettings(rank=4, alpha=8.0, dropout=0.0), seed=0)
    names = trainable(policy)
    assert names and all(".lora_" in n and "language_model.layers." in n for n in names)
    # four of attention and three of the MLP, two matrices each
    assert len(names) == CONFIG.layers * 7 * 2
    assert policy.vision_frozen and not policy.model.training


def test_it_begins_as_the_base_and_is_drawn_by_its_seed() -> None:
    plain, one, two, other = (tiny_policy() for _ in range(4))
    state = torch.get_rng_state()
    for policy, seed in ((one, 1), (two, 1), (other, 2)):
        add_lora(policy, LoraSettings(rank=2), seed)
    assert torch.equal(torch.get_rng_state(), state)
    ids = torch.arange(5)[None]
    with torch.no_grad():
        assert torch.equal(plain.model(input_ids=ids).logits, one.model(input_ids=ids).logits)
    a, b, c = (dict(p.model.named_parameters()) for p in (one, two, other))
    assert all(torch.equal(a[n], b[n]) for n in trainable(one))
    assert any(not torch.equal(a[n], c[n]) for n in trainable(one))


def test_a_saved_adapter_goes_on_and_another_rank_is_refused(tmp_path: Path) -> None:
    policy = tiny_policy()
    add_lora(policy, LoraSettings(rank=2), seed=0)
    loaded = load_policy(policy.save(tmp_path / "adapter"))
    before = trainable(loaded)
    add_lora(loaded, LoraSettings(rank=2), seed=5)
    assert trainable(loaded) == before
    with pytest.warns(UserWarning, match="policy.lora.alpha=8 has no effect: .* its own, 256$"):
        add_lora(loaded, LoraSettings(rank=2, alpha=8.0), seed=0)
    with pytest.raises(UserError, match="policy.lora.rank=8, but the adapter .* has rank 2; set"):
        add_lora(loaded, LoraSettings(rank=8), seed=0)


def test_a_stage_that_trains_vision_alone() -> None:
    policy = tiny_policy()
    everything = trainable(policy)
    with training_only(policy, "vision"):
        inside = trainable(policy)
        assert inside and all("visual" in n for n in inside) and len(inside) < len(everything)
    assert trainable(policy) == everything
    with pytest.raises(RuntimeError), training_only(policy, "vision"):
        raise RuntimeError
    assert trainable(policy) == everything
    with training_only(policy, "all"):
        assert trainable(policy) == everything
    policy = tiny_policy(freeze_vision=True)
    told = "sft.train=vision with a frozen vision tower"
    with pytest.raises(UserError, match=told), training_only(policy, "vision"):
        pass


def test_bounds_of_images_change_how_many_tokens_they_take() -> None:
    policy = tiny_policy()
    one, pictures = study("s", 1)
    whole = encode_prompt(policy, one, pictures).mm_token_type_ids.sum()
    assert encode_prompt(policy, one, pictures).mm_token_type_ids.sum() == whole
    policy.images.bound(28 * 28, 56 * 56)
    assert encode_prompt(policy, one, pictures).mm_token_type_ids.sum() == 4 < whole
    with pytest.raises(UserError, match="wanted 784 <= min_pixels <= max_pixels"):
        policy.images.bound(5000, 4000)
    with pytest.raises(UserError, match="policy.min_pixels=10"):
        policy.images.bound(10, 4000)
