"""Several data sets in one run: passes by hand, one id space, a resume, sub-groups by source."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from rrgclinical.scorecard import first_rows, read_card
from rrgdata.catalogue import Catalogue, ReadSettings
from rrgdata.load import open_studies
from rrgdata.study import ImageRef, Study
from rrgtrain.config import load_config
from rrgtrain.errors import UserError
from rrgtrain.run.data import split_of
from rrgtrain.state.remembered import as_trained, to_remember, write_remembered
from tests.rrgtrain.common import phantoms, recipe
from tests.rrgtrain.runs import TINY_RUN, At, command, differences

MIX = {
    "a": "{source: iu_xray, weight: 2.5, limit: {val: 1}}",
    "b": "{source: iu_xray, weight: 0.5, images: none, limit: {train: 6, test: 2}}",
    "far": "{source: iu_xray, weight: 0}",
}


def words(**changed: str) -> list[str]:
    of = ", ".join(f"{name}: {part}" for name, part in {**MIX, **changed}.items())
    return ["data.source=mix", f"data.root={phantoms()}", f"data.mix={{{of}}}"]


def opened(out: Path, *overrides: str) -> dict[str, list[Study]]:
    with pytest.warns(UserWarning, match=r"11 studies of far, out of domain, left out: train 8"):
        return open_studies(recipe(*overrides).data, out)


def sources(studies: list[Study]) -> dict[str, int]:
    return dict(Counter(study.id.partition("/")[0] for study in studies))


def test_one_list_of_several_sources(tmp_path) -> None:
    train = (studies := opened(tmp_path, *words()))["train"]
    assert sources(train) == {"a": 20, "b": 3} and len({s.id for s in train}) == 23
    times = Counter(s.id.partition("~")[0][-1] for s in train if s.id[0] == "a")
    assert times == {i: 3 - int(i) % 2 for i in "01234567"}, "two passes and every second one"
    assert [s.id[-1] for s in train if s.id[0] == "b"] == ["0", "2", "4"]
    assert all(bool(s.images) == (s.id[0] == "a") for s in train), "a source's own setting"
    assert all(s.patient.startswith(f"{s.id.partition('/')[0]}/") for s in train if s.patient)
    held = [sources(studies[split]) for split in ("val", "test")]
    assert held == [{"a": 1, "b": 3}, {"a": 4, "b": 2, "far": 4}]
    assert sources(opened(tmp_path, *words(), "data.limit=8")["train"]) == {"a": 7, "b": 1}
    assert opened(tmp_path, *words()) == studies
    assert not any(s.images for s in opened(tmp_path, *words(), "data.images=none")["train"])


def test_a_film_that_two_sources_have_in_two_splits_is_told(tmp_path, monkeypatch) -> None:
    def load(source: str, place: Path, settings: ReadSettings) -> Catalogue:
        of, film = Catalogue(), (ImageRef(Path("film.png"), "frontal"),)
        for i in ("1", "1~2", "1~~2"):
            of.add(Study(i, "train" if place.name == "a" else "test", "Clear.", None, film), i)
        return of

    monkeypatch.setattr("rrgdata.load.load_studies", load)
    parts = "a: {source: iu_xray, root: a, weight: 2}, b: {source: iu_xray, root: b, weight: 0}"
    mixed = recipe("data.source=mix", f"data.root={phantoms()}", f"data.mix={{{parts}}}").data
    with pytest.warns(UserWarning, match="3 images are in several splits"):
        train = open_studies(mixed, tmp_path)["train"]
    assert len({study.id for study in train}) == 6, "an id may end as that of a second pass does"


def test_images_that_one_source_alone_has_are_counted(tmp_path) -> None:
    one = [*words(a="{source: iu_xray, images: all}"), "data.images=none"]
    assert any(s.images for s in opened(tmp_path, *one)["train"])
    assert recipe(*one).data.most_images is None and not recipe(*one).data.one_image
    assert recipe(*words(), "data.images=none").data.most_images == 0


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"a": "{weight: -1}"}, "data.mix.a.weight is -1.0; wanted a value >= 0"),
        ({"a": "{weigth: 3}"}, "unknown key 'data.mix.a.weigth'; did you mean data.mix.a.weight?"),
        ({"a": "3"}, "data.mix.a is a section, not a value"),
        ({"a": "{limit: {val: few}}"}, "data.mix.a.limit.val is 'few'"),
        ({"a": "{images: al}"}, "data.mix.a.images is 'al'; wanted one of all, frontal, none"),
        ({"a": "{}"}, "data.mix.a: source '' is unknown"),
        ({"a": "{source: iu_xray, root: no}"}, "data.mix.a: "),
        ({"b": "{source: iu_xray, limit: {train: 0}}"}, "data.mix.b has no train study; set data."),
        ({"far": "{source: iu_xray, weight: 0, limit: {test: 0}}"}, "far has no test study; leave"),
        ({"f/r": "{source: iu_xray}"}, "data.mix has the name 'f/r'; write one without /"),
        ({"' '": "{source: iu_xray}"}, "data.mix has the name ' '; write one without /"),
        ({"a": "{source: iu_xray, weight: 0.06}"}, "a.weight=0.06 makes 0 of 8 training studies"),
        ({"a": "{source: iu_xray, weight: 1e12}"}, "8,000,000,000,000 of 8 training studies"),
        (dict.fromkeys(MIX, MIX["far"]), "use other data or, in data.mix, a weight above 0"),
    ],
)
def test_a_mix_that_is_none_is_one_line(tmp_path, changed, line) -> None:
    with pytest.raises(UserError, match=rf"\A[^\n]*{re.escape(line)}[^\n]*\Z"):
        split_of(open_studies(recipe(*words(**changed)).data, tmp_path), "train")


def test_a_mix_and_its_source_go_together(tmp_path) -> None:
    for overrides in (words()[:2], [*words(), "data.source=iu_xray"]):
        with pytest.raises(UserError, match=r"has data.mix=\[.*\]; set both or none"):
            open_studies(recipe(*overrides).data, tmp_path)


def test_a_checkpoint_remembers_its_mix_but_chooses_no_code(tmp_path) -> None:
    mixed = recipe(*words())
    write_remembered(tmp_path, to_remember(mixed, tmp_path))

    def load(kept, *own):
        return load_config(type(mixed), None, [*own], defaults=kept)

    assert as_trained(str(tmp_path), load).data.mix == mixed.data.mix
    values = json.loads((file := tmp_path / "rrgtrain.json").read_text())
    whole = values["data.mix"]["b"] | {"source": "theirs:load"}
    for part, *own in (whole,), ({"source": "theirs:load"},), (whole, "data.mix.b.weight=2"):
        file.write_text(json.dumps({**values, "data.mix": {"b": part}}))
        with pytest.raises(UserError, match=r"names code, data.mix="):
            as_trained(str(tmp_path), lambda kept, own=own: load(kept, *own))


def test_a_mix_resumes_to_the_bit_and_its_card_shows_each_source(tmp_path, capsys) -> None:
    mixed = [*TINY_RUN, *words(b="{source: iu_xray, weight: 0.5, limit: {train: 6, test: 2}}")]
    command("sft", "--out", "whole", *mixed, cwd=tmp_path, status=0)
    at = At("rrgtrain.train.sft:sft_loss", 3)
    command("sft", "--out", "run", *mixed, cwd=tmp_path, at=at, status=75)
    command("sft", "--resume", "run", cwd=tmp_path, status=0)
    assert differences(tmp_path / "whole", tmp_path / "run") == []
    card = read_card(tmp_path / "run" / "metrics.json")
    sizes = {group.name: group.n for group in card.groups}
    assert sizes["all"] == 10 and (sizes["in domain"], sizes["out of domain"]) == (6, 4)
    assert [sizes[f"source {name}"] for name in MIX] == [4, 2, 4]
    system = card.systems[0]
    assert first_rows(card)[0][1:3] == [f"{system}, in domain", f"{system}, out of domain"]
    assert "r2gen (iu_xray)" in card.settings.tokenization, "that of all its sources"
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"{system}, out of domain" in page and "source far: studies of far" in page
