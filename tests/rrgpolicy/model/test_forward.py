"""Log-probs and gradients over shared prefixes equal those of one member at a time.

The other side is transformers' own, in fp64; one test repeats it in fp32.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken

from rrgclinical.common.errors import UserError
from rrgdata.study import ImageRef, Study
from rrgpolicy.model.forward import hidden_states
from rrgpolicy.model.load import Policy
from rrgpolicy.model.prompt import encode_prompt, prompt_text
from rrgpolicy.settings import PROMPT_STYLES
from tests.rrgkern.shared_prefix.test_flex import uncompiled
from tests.rrgpolicy.model.common import REPORTS, prompt, study, tiny_policy
from tests.rrgpolicy.model.equality import Group, assert_equal, gradients, unshared


def shared(policy: Policy, groups: list[Group], **options: object) -> torch.Tensor:
    hidden, batch = hidden_states(
        policy, [p for p, _ in groups], [members for _, members in groups], **options
    )
    weight, bias, _ = policy.head()
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return logits.log_softmax(-1).gather(1, batch.targets[:, None]).squeeze(1)


def assert_equal_computation(policy: Policy, groups: list[Group], **options: object) -> None:
    assert_equal(policy.model, shared(policy, groups, **options), unshared(policy.model, groups))


def exact_policy(**options: object) -> Policy:
    return tiny_policy(dtype=torch.float64, **options)


def groups_for(policy: Policy, views: list[int], members: int = 3) -> list[Group]:
    """Groups of unequal prompts and reports; the second group has one member fewer."""
    made = []
    for b, count in enumerate(views):
        p = prompt(policy, "s" * (b + 1), count, indication="dyspnea" * b, comparison="none")
        reports = [REPORTS[(b + m) % 4][: 20 + 17 * m] for m in range(members - b % 2)]
        made.append((p, [policy.codec.encode(text) for text in reports]))
    return made


@pytest.mark.parametrize("attn", ["blocks", "dense"])
@pytest.mark.parametrize("views", [[1], [3], [0], [1, 3, 0, 2]], ids=str)
def test_equals_the_unshared_computation(views: list[int], attn: str) -> None:
    policy = exact_policy(attn=attn)
    assert_equal_computation(policy, groups_for(policy, views))


@pytest.mark.parametrize("attn", ["blocks", "dense"])
def test_equals_it_with_several_groups_per_row(attn: str) -> None:
    policy = exact_policy(attn=attn)
    groups = groups_for(policy, [1, 2, 0, 1])
    total = sum(len(p.input_ids) + sum(map(len, members)) for p, members in groups)
    prompts, members = zip(*groups, strict=True)
    _, batch = hidden_states(policy, prompts, members, token_budget=total)
    assert batch.input_ids.shape == (1, total)
    assert_equal_computation(policy, groups, token_budget=total)
    assert_equal_computation(policy, groups, token_budget=total // 2)


def test_equals_it_by_flex_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    uncompiled(monkeypatch)
    policy = exact_policy(attn="flex")
    groups = groups_for(policy, [1, 3, 0])
    _, batch = hidden_states(policy, *zip(*groups, strict=True))
    assert batch.input_ids.shape[0] == 1 and batch.input_ids.shape[1] % 128 == 0
    assert_equal_computation(policy, groups)


def test_groups_share_one_row_unless_a_dense_mask_would_span_it() -> None:
    policy = tiny_policy()
    groups = groups_for(policy, [1, 2, 0])
    prompts, members = zip(*groups, strict=True)
    total = sum(len(p.input_ids) + sum(map(len, own)) for p, own in groups)
    assert hidden_states(policy, prompts, members)[1].input_ids.shape == (1, total)
    policy.attn = "dense"
    assert hidden_states(policy, prompts, members)[1].input_ids.shape[0] == 3


def test_the_gradients_of_a_shared_place_are_summed_by_gather_rows() -> None:
    policy = tiny_policy()
    hidden, batch = hidden_states(policy, *zip(*groups_for(policy, [1, 2]), strict=True))
    assert len(batch.gather.unique()) < len(batch.gather)
    assert type(hidden.grad_fn).__name__ == "_GatherRowsBackward"


def test_a_member_sees_its_own_group_only() -> None:
    """Changing one member, or another prompt's pictures, changes no bit elsewhere."""
    policy = tiny_policy()
    groups = groups_for(policy, [1, 1])
    before = shared(policy, groups, token_budget=4096).detach()
    changed = [m.clone() for m in groups[0][1]]
    changed[1] = changed[1].flip(0)
    lengths = [len(m) for _, members in groups for m in members]
    other = shared(policy, [(groups[0][0], changed), groups[1]], token_budget=4096).detach()
    old, new = before.split(lengths), other.split(lengths)
    for s in (0, 2, 3, 4):
        assert torch.equal(old[s], new[s])
    assert not torch.equal(old[1], new[1])


def test_groups_without_members_and_empty_batches() -> None:
    policy = tiny_policy()
    p = prompt(policy, "a", 1)
    hidden, batch = hidden_states(policy, [p], [[]])
    assert hidden.shape == (0, 64)
    assert batch.offsets.tolist() == [0]
    mixed = [(p, []), *groups_for(policy, [1])]
    torch.testing.assert_close(shared(policy, mixed), shared(policy, mixed[1:]), rtol=0, atol=1e-5)


def test_a_model_that_would_ignore_the_layout_is_refused() -> None:
    policy = tiny_policy()
    policy.model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="attention is 'sdpa', wanted 'rrgpolicy'"):
        shared(policy, groups_for(policy, [1]))


def test_bfloat16_is_as_close_as_transformers_own() -> None:
    """Log-probs, and the gradient of each parameter, against fp32 of the same weights."""
    policy, exact = tiny_policy(dtype=torch.bfloat16), tiny_policy()
    groups = groups_for(policy, [1, 2])
    exact.model.load_state_dict(policy.model.state_dict())
    truth, ours, theirs = (
        unshared(exact.model, groups),
        shared(policy, groups),
        unshared(policy.model, groups),
    )
    assert (ours - truth).abs().mean() <= 2 * (theirs - truth).abs().mean()
    true, left, right = (
        gradients(model, logps)
        for model, logps in ((exact.model, truth), (policy.model, ours), (policy.model, theirs))
    )
    assert left.keys() == right.keys() == true.keys()
    for name, gradient in true.items():
        mine, other = (float((g[name].float() - gradient).norm()) for g in (left, right))
        # The prompt's gradient is summed over members before it is rounded, not after.
        assert mine <= 2 * other + 1e-6 * float(gradient.norm()), name


POLICY = tiny_policy()


@pytest.mark.parametrize("style", PROMPT_STYLES)
def test_text_names_views_and_sections_and_leaves_empty_ones_out(style: str) -> None:
    text = prompt_text(study("a", 3, indication="fever", technique="AP\nportable")[0], style=style)
    assert "INDICATION: fever" in text
    assert "TECHNIQUE: AP portable" in text
    assert "COMPARISON" not in text
    current, prior = text.split("prior", 1)
    assert "frontal" in current
    assert "lateral" in current
    assert "frontal" in prior
    assert "prior frontal" not in prompt_text(study("a", 2)[0], style=style)
    alone = prompt_text(study("a", 0, indication="fever")[0], style=style)
    assert "frontal" not in alone
    assert "fever" in alone


def of_views(*views: str) -> Study:
    """With images of these views; one that begins with a "p" is a prior."""
    refs = tuple(ImageRef(Path("x.png"), v.strip("p"), v.startswith("p")) for v in views)
    return Study("a", "train", "Normal.", None, refs)


@pytest.mark.parametrize(
    ("views", "long", "short"),
    [
        (("",), "given the current image.", "image"),
        (("", ""), "given the current 2 images.", "image image"),
        (("", "p"), "the current image and the prior image.", "image; prior image"),
        (("frontal", ""), "current frontal image and 1 of unnamed view.", "frontal image"),
    ],
)
def test_a_view_that_is_not_known_is_not_named(views, long, short):
    text = prompt_text(of_views(*views))
    assert long in text
    assert ("frontal" in text) == ("frontal" in views)
    assert prompt_text(of_views(*views), style="short") == short


def test_no_text_of_a_study_reads_as_a_special_token_of_any_tokenizer() -> None:
    """Of other families too, single characters and tokens that take blanks along among them."""
    policy = tiny_policy()
    tokenizer = policy.tokenizer
    for token in ("<start_of_image>", "[IMG]", "</s>", "<image>", "\u2605", "<unused1>"):
        tokenizer.add_special_tokens({"extra_special_tokens": [token]}, False)
    tokenizer.add_special_tokens({"mask_token": AddedToken("<mask>", lstrip=True, rstrip=True)})
    del policy.special_ids  # read at load
    special = sorted(policy.special_ids)
    names = tokenizer.convert_ids_to_tokens(special)
    assert {"[IMG]", "\u2605", "<mask>", "<|image_pad|>"} < {*names}

    def counted(**sections: str) -> list[int]:
        ids = prompt(policy, "a", 1, **sections).input_ids.tolist()
        return [ids.count(token) for token in special]

    plain = counted(indication="fever", technique="AP", comparison="none")
    for name in names:
        nested = f"{name[: len(name) // 2]}{name}{name[len(name) // 2 :]}"
        for said in (name, f"a {name} b", f"{name}{name}", nested, "".join(names)):
            sections = {"indication": said, "technique": f"AP {said}", "comparison": said}
            assert counted(**sections) == plain, said
    assert "a [ IMG]< /s> b" in prompt(policy, "a", 1, indication="a [IMG]</s> b").text


@pytest.mark.parametrize("views", [0, 1, 2, 3])
def test_encoding_agrees_with_transformers(views: int) -> None:
    p = prompt(POLICY, "a", views, indication="fever")
    count = int(p.mm_token_type_ids.sum())
    if views == 0:
        assert p.pixel_values is None
        assert p.image_grid_thw is None
        assert torch.equal(p.positions, torch.arange(len(p.input_ids)).expand(3, -1))
        return
    # 112 x 112 pixels are 4 x 4 tokens; 84 x 168 shrink to 56 x 140, 2 x 5.
    assert p.image_grid_thw.tolist() == [[1, 8, 8], [1, 4, 10], [1, 8, 8]][:views]
    assert count == [16, 26, 42][views - 1]
    assert p.pixel_values.shape[0] == 4 * count
    begin, place = int(p.mm_token_type_ids.argmax()), torch.arange(16)
    own = torch.stack([0 * place, place // 4, place % 4])  # time, row and column
    assert torch.equal(p.positions[:, begin : begin + 16] - begin, own)
    assert p.positions[:, begin + 16].tolist() == [begin + 4] * 3
    decoded = POLICY.tokenizer.decode(p.input_ids)
    assert decoded.startswith("<|im_start|>user\n<|vision_start|><|image_pad|>")
    assert decoded.endswith("INDICATION: fever<|im_end|>\n<|im_start|>assistant\n")


def test_bad_studies_are_told() -> None:
    one, pictures = study("a", 2)
    with pytest.raises(UserError, match="study a: 1 pictures for 2 images"):
        encode_prompt(POLICY, one, pictures[:1])
    with pytest.raises(
        UserError, match="policy.prompt=long is no file and no wording; use one of short"
    ):
        prompt_text(one, style="long")
    blind = tiny_policy()
    blind.tokenizer.chat_template = "{{ messages[0].content[-1].text }}"
    with pytest.raises(UserError, match="placed 0 of 2 images"):
        encode_prompt(blind, one, pictures)
