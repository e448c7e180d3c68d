"""The report page: self-contained, safe against what reports may hold, whole when parts lack."""

from __future__ import annotations

import base64
import hashlib
import io
import math
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

from PIL import Image

from rrgclinical import OBSERVATIONS
from rrgreport import EditSample, Metric, RunSummary, Sample, System, WeightSample, write_report
from rrgreport.cases import _severity, write_study
from rrgreport.results import finding_bars

EVIL = '</p><script>alert("x")</script><img src=x onerror=alert(1)>{{ 7*7 }} & "quoted"'


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text, self.scripts = "", ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "img", "input"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            self.scripts += data
        else:
            self.text += data


VIEWS = {"1 of 2": "frontal", "2 of 2": "lateral"}


def summary(name: str = "EditGRPO") -> RunSummary:
    return RunSummary(
        "Demo",
        {
            "SFT": System(
                {"micro_f1": Metric(0.5, 0.4, 0.6), "bleu_4": Metric(0.2)}, {"Edema": 0.25}
            ),
            name: System(
                {"micro_f1": Metric(0.75), "bleu_4": Metric(0.1), "zero_variance": Metric(0.2)},
                {"Edema": 0.5, "Fracture": math.nan},
                phases={"rollout": 3.0, "update": 1.0},
                seconds=4.0,
            ),
        },
        notes=["Phantom data."],
    )


def render(tmp_path: Path, *args: object, config: str = "") -> Page:
    if config:
        (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    path = write_report(tmp_path, *args)  # type: ignore[arg-type]
    assert path == tmp_path / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def test_whole_page(tmp_path) -> None:
    image = Image.linear_gradient("L")
    labels = [0] * 14
    labels[OBSERVATIONS.index("Edema")] = 3
    samples = [
        Sample(
            "s1",
            [image, image],
            "No pneumothorax. The heart is enlarged.",
            {"EditGRPO": "No pneumothorax.", "SFT": "There is a pneumothorax."},
            "cough",
            ["frontal", "lateral"],
            labels,
        ),
        EditSample("s1", "A. B.", "A. C.", [("b", "B.", "C.")], "C.", 0.25, 0.75, step=3),
    ]
    rows = [
        {"phase": "editgrpo", "step": i, "time": 0.0, "reward/total": i, "zero_variance": 0.5}
        for i in range(3)
    ]
    page = render(tmp_path, summary(), rows, samples, config="seed: 0\n")
    text = " ".join(page.text.split())
    assert (
        "0.750 with EditGRPO, against 0.500 (0.400 to 0.600) with SFT: a difference of +0.250"
        in text
    )
    assert page.text.index("Clinical") < page.text.index("Text overlap")
    assert page.text.index("micro-F1-14") < page.text.index("BLEU-4")
    assert (
        "Edema (uncertain)" in page.text and "seed: 0" in page.text and "Phantom data." in page.text
    )
    marks = Counter(
        value for tag, name, value in page.attributes if (tag, name) == ("mark", "class")
    )
    # One of each in the legend.
    assert marks == {"correct": 2, "partly": 1, "spurious": 2, "missing": 1 + 1 + 2, "source": 1}
    assert page.tags["del"] == page.tags["ins"] == 2
    assert "reward 0.250 → 0.750 +0.500" in " ".join(page.text.split())
    alts = [value for tag, name, value in page.attributes if (tag, name) == ("img", "alt")]
    films = [f"Radiograph {n} of study s1, {view}" for n, view in VIEWS.items()]
    assert alts == [films[0], *films], "the first on the first screen too"
    charts = [v for tag, name, v in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(charts) == page.tags["svg"] == 2 and all("last values" in v for v in charts)
    bars = [value for tag, name, value in page.attributes if (tag, name) == ("div", "style")]
    assert bars[:4] == ["width:25.00%", "width:50.00%", "width:0.00%", "width:0.00%"]
    # In the order of the systems, not of the sample's outputs.
    panels = page.text[page.text.index("Unmarked") :]
    assert panels.index("SFT") < panels.index("EditGRPO")


def test_what_a_hurried_reader_must_not_misread(tmp_path) -> None:
    """An F1 of one study, 0.000 of a finding that nobody has, a score that sounds like illness."""
    whole = summary()
    for system in whole.systems.values():
        system.per_finding |= {"Edema": 1.0, "Fracture": 0.0}
        system.positives = {"Edema": 1, "Fracture": 0}
    bars = dict(finding_bars(whole))
    assert [text for *_, text in bars["Edema (1)"]] == ["1.000", "1.000"]
    assert [text for *_, text in bars["Fracture (0)"]] == ["–", "–"]
    empty = {part: [] for part in ("right", "differs", "missed", "invented", "contradicted")}
    note = {"score": 1.0, "style": 1, "denials": {"said": 0, "of": 0}, **empty}
    assert _severity(note)[0] == "Severity score 1.00, 1 is best"
    page = tmp_path / "show.html"
    write_study(page, Sample("s1", [], "", {"A": "Clear."}), ["for research only"])
    text = Page(page.read_text(encoding="utf-8")).text
    assert text.index("for research only") < text.index("Clear.")


def test_images_are_inline_and_nothing_is_fetched(tmp_path) -> None:
    page = render(tmp_path, summary(), [], [Sample("s", [Image.new("L", (9, 9))], "r", {})])
    sources = [v for _, name, v in page.attributes if name in ("src", "href", "action", "data")]
    images = [s for s in sources if s.startswith("data:image/png;base64,")]
    assert len(images) == 2 and len({*images}) == 1
    assert [s for s in sources if s not in images] == ["#results", "#studies"]
    data = base64.b64decode(images[0].partition(",")[2])
    assert Image.open(io.BytesIO(data)).size == (9, 9)
    style = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (
        "url(" not in style
        and "@import" not in style
        and "http" not in style.replace("http-equiv", "")
    )
    assert page.tags["link"] == 0 and page.tags["script"] == 1
    digest = base64.b64encode(hashlib.sha256(page.scripts.encode()).digest()).decode()
    (policy,) = [v for tag, name, v in page.attributes if name == "content" and "src" in v]
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


def test_text_of_every_origin_is_escaped(tmp_path) -> None:
    facts = {"facts": [EVIL], "labels": {"Edema": {"verdict": "entailed", "fact": EVIL}}}
    facts = {EVIL: {**facts, "truth": [0] * len(OBSERVATIONS)}}
    film = Image.new("L", (4, 4))
    study = Sample(EVIL, [film], EVIL, {EVIL: EVIL}, EVIL, [EVIL], None, facts=facts)
    edit = EditSample(EVIL, EVIL, EVIL, [(EVIL, EVIL, EVIL)], EVIL, 0.0, 1.0)
    weights = WeightSample(EVIL, [(EVIL, 2.0)], reference=EVIL, step=4, reward=0.5, advantage=0.5)
    whole = summary(EVIL)
    whole.title = whole.command = whole.finished = whole.commit = EVIL
    whole.notes = [EVIL]
    whole.versions = {EVIL: EVIL}
    whole.systems[EVIL].metrics[EVIL] = Metric(0.5)
    whole.systems[EVIL].per_finding[EVIL] = 0.5
    whole.systems[EVIL].phases[EVIL] = 1.0
    rows = [
        {
            "phase": EVIL,
            "step": i,
            "time": 0.0,
            f"reward/{EVIL}": 0.5,
            "zero_variance": 0.5,
            f"edits/{EVIL}": 1,
        }
        for i in range(2)
    ]
    page = render(tmp_path, whole, rows, [study, edit, weights], config=EVIL)
    assert page.tags["script"] == 1 and "alert" not in page.scripts and page.tags["img"] == 2
    assert not [a for a in page.attributes if a[1].startswith("on")]
    assert "{{ 7*7 }}" in page.text and "49" not in page.text.replace("{{ 7*7 }}", "")


def test_control_characters_and_secrets_of_addresses_do_not_reach_the_page(tmp_path) -> None:
    whole = summary()
    whole.command = "rrgtrain eval reward.options.facts.endpoint=http://me:pass@h/v1?api-key=sk-1"
    study = Sample("a\x1b[2J\x00b", [], "one\x07two", {"EditGRPO": "three\x85"})
    page = render(tmp_path, whole, [], [study], config="endpoint: http://me:pass@h/v1?api-key=sk-1")
    assert "a\\x1b[2J\\x00b" in page.text and "one\\x07two" in page.text
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in page.text)
    assert page.text.count("http://***@h/v1?api-key=***") == 2
    assert "pass@" not in page.text and "sk-1" not in page.text
