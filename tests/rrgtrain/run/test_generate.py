"""Reports of a folder of images: every kind of file, a stop at any moment, another checkpoint."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rrgdata.sources.folder import frontal_alone, read_folder, with_context
from rrgtrain.cli import main
from rrgtrain.errors import UserError
from rrgtrain.run import generate
from rrgtrain.state.remembered import FILE
from tests.rrgdata.images.test_dicom import write
from tests.rrgpolicy.model.common import text_directory, tiny_policy
from tests.rrgtrain.runs import At, command

SMALL = ["policy.prompt=short", "eval.max_new_tokens=6", "eval.batch=2"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    tiny_policy().save(directory)
    return directory


def pixels(seed: int, size: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (size, size), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images of four kinds, and two files that are none."""
    root = tmp_path / "films"
    (root / "b").mkdir(parents=True)
    Image.fromarray(pixels(0)).save(root / "a.png")
    Image.fromarray(pixels(1)).save(root / "b" / "b.JPEG")
    off = {"WindowCenter": -9000, "WindowWidth": 10}
    write(root / "b" / "c.dcm", pixels(2).astype(np.uint16), Modality="DX", **off)
    write(root / "b" / "IM0001", pixels(3).astype(np.uint16), Modality="DX")
    Image.fromarray(pixels(4)).save(root / "d.tif")
    (root / "notes.txt").write_text("no image")
    (root / "._a.png").write_bytes(b"of another file system")
    return root


@pytest.fixture
def broken(folder: Path) -> Path:
    """The folder with a broken image."""
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:200])
    return folder


IDS = ["a.png", "b/IM0001", "b/b.JPEG", "b/c.dcm", "d.tif"]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_reports_of_all_kinds_of_files_and_the_broken_one_by_name(
    checkpoint, folder, broken, tmp_path, capsys
):
    out = tmp_path / "new" / "reports.jsonl"
    words = ["generate", str(checkpoint), str(folder), "--out", str(out), *SMALL]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("for research only") == 1
    assert err.count("1 of the DICOM files have a window or value table that shows nothing") == 1
    assert "left out below" in err and "1 .txt" in err and "1 .png" in err
    assert "1 of 6 studies have no report" in err.splitlines()[-1]
    written = rows(out)
    assert [row["id"] for row in written] == IDS
    (image,) = written[0]["images"]
    content = (folder / "a.png").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert image == {"path": "a.png", "size": len(content), "sha256": digest}
    assert len({row["report"] for row in written}) > 1, "it looks at the images"
    assert all(row["checkpoint"] == str(checkpoint.resolve()) for row in written)
    assert written[0]["settings"]["policy.prompt"] == "short" and "text" not in written[0]
    assert not any(row["finished"] for row in written)
    errors = out.with_name("reports.jsonl.errors.jsonl")
    (error,) = rows(errors)
    assert error["id"] == "broken.png" and "truncated" in error["error"]

    # the mended image alone is written by the next call, and nothing by the one after
    before = out.read_bytes()
    Image.fromarray(pixels(9)).save(folder / "broken.png")
    assert main(words) == 0
    assert "(1 written, 6 studies)" in capsys.readouterr().out and not errors.exists()
    assert out.read_bytes().startswith(before) and rows(out)[-1]["id"] == "broken.png"
    after = out.read_bytes()
    assert main(words) == 0 and out.read_bytes() == after
    assert sorted(path.name for path in out.parent.iterdir()) == ["reports.jsonl"]


def test_killed_at_any_line_it_goes_on_to_the_same_file(checkpoint, folder, tmp_path):
    draw = ["generate.temperature=1.5", "generate.top_p=0.9"]
    words = ["generate", str(checkpoint), str(folder), *SMALL, *draw]
    command(*words, "--out", "whole.jsonl", cwd=tmp_path, status=0)
    killed = At("rrgtrain.train.written:RowFile.add", 4, "SIGKILL")
    assert command(*words, "--out", "cut.jsonl", cwd=tmp_path, at=killed).status == -9
    cut = tmp_path / "cut.jsonl"
    assert [row["id"] for row in rows(cut)] == IDS[:3]
    # in the middle of a line, and of what may be two bytes of one letter
    with cut.open("ab") as file:
        file.write('{"id": "b/c.dcm", "report": "é'.encode()[:-1])
    stopped = At("rrgtrain.train.written:RowFile.add", 2, "SIGTERM")
    done = command(*words, "--out", "cut.jsonl", cwd=tmp_path, at=stopped)
    assert done.status == 75 and "give the same command again to go on" in done.last
    assert command(*words, "--out", "cut.jsonl", cwd=tmp_path).status == 0
    assert cut.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert len({row["report"] for row in rows(cut)}) == 5


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["generate", *words]) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_file_of_something_else_is_left_as_it_is(checkpoint, folder, tmp_path, capsys):
    out = tmp_path / "reports.jsonl"
    words = [str(folder), "--out", str(out), *SMALL]
    assert main(["generate", str(checkpoint), *words]) == 0
    before = out.read_bytes()

    line = refused(capsys, str(checkpoint), *words, "eval.max_new_tokens=7")
    assert "reports.jsonl:1 was written with eval.max_new_tokens=6, now it is 7" in line
    assert "study=file" in refused(capsys, str(checkpoint), *words, "--study", "folder")
    other = tmp_path / "other"
    policy = tiny_policy()
    policy.model.get_input_embeddings().weight.data[0] += 1e-3
    policy.save(other)
    assert "checkpoint=" in refused(capsys, str(other), *words)
    moved = Path(checkpoint).parent / "moved"
    checkpoint.rename(moved)
    other.rename(checkpoint)
    try:
        assert "digest=" in refused(capsys, str(checkpoint), *words), "the same name, other weights"
    finally:
        checkpoint.rename(other)
        moved.rename(checkpoint)
    with out.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another process" in refused(capsys, str(checkpoint), *words)
    assert out.read_bytes() == before

    for text in ("id,report\n", '{"id": "a"}\n', "a letter without end"):
        out.write_text(text)
        assert "reports.jsonl:1 is no line of" in refused(capsys, str(checkpoint), *words)
        assert out.read_text() == text


def test_what_cannot_be_is_one_line_and_leaves_nothing(checkpoint, folder, tmp_path, capsys):
    out = tmp_path / "reports.jsonl"
    words = ["--out", str(out), *SMALL]
    assert "typo does not exist" in refused(capsys, str(checkpoint), str(tmp_path / "typo"), *words)
    (tmp_path / "empty").mkdir()
    assert "no image below" in refused(capsys, str(checkpoint), str(tmp_path / "empty"), *words)
    assert "reads text alone" in refused(capsys, str(text_directory()), str(folder), *words)
    assert "CHECKPOINT is tiny" in refused(capsys, "tiny", str(folder), *words)
    assert "--out" in refused(capsys, str(checkpoint), str(folder), "--out", str(folder), *SMALL)
    assert not out.exists()


def test_a_policy_trained_without_images_is_shown_none(
    checkpoint, folder, broken, tmp_path, capsys
):
    """Of no concern are its data set, models of the reward and an image that cannot be read."""
    own, out = tmp_path / "trained", tmp_path / "reports.jsonl"
    tiny_policy().save(own)
    trained = {"data.source": "table", "data.root": "/mine.csv", "data.images": "none"}
    (own / FILE).write_text(json.dumps(trained))
    lacking = ["reward.labeller=chexbert", "reward.extractor=radgraph"]
    words = ["generate", str(own), str(folder), "--out", str(out), *SMALL, *lacking]
    assert main(words) == 0
    err = capsys.readouterr().err
    assert f"as {own} was trained: data.images=none\n" in err and "mine.csv" not in err
    assert "the policy sees no image" in err
    assert len(rows(out)) == 6 and len({row["report"] for row in rows(out)}) == 1
    assert all(row["images"][0]["sha256"] for row in rows(out))
    assert "was written with data.images=none" in refused(capsys, *words[1:], "data.images=all")
    text = [str(text_directory()), str(folder), "data.images=none", *SMALL]
    assert main(["generate", *text, "--out", str(tmp_path / "text.jsonl")]) == 0


def test_a_policy_of_frontal_images_is_shown_no_lateral_one(folder, tmp_path, capsys):
    own, out = tmp_path / "trained", tmp_path / "reports.jsonl"
    tiny_policy().save(own)
    (own / FILE).write_text('{"policy.prompt": "short", "data.images": "frontal"}')
    for name, view in (("c.dcm", "PA"), ("IM0001", "LL")):
        image = pixels(2).astype(np.uint16)
        write(folder / "b" / name, image, Modality="DX", ViewPosition=view)
    words = ["generate", str(own), str(folder), "--out", str(out), *SMALL]
    assert main([*words, "--study=folder"]) == 0
    err = capsys.readouterr().err
    assert f"as {own} was trained: data.images=frontal\n" in err
    assert "1 lateral images are left out, 3 that tell no view are shown" in err
    shown = [[image["path"] for image in row["images"]] for row in rows(out)]
    assert shown == [["a.png", "d.tif"], ["b/b.JPEG", "b/c.dcm"]]
    assert "was written with data.images=frontal" in refused(
        capsys, *words[1:], "--study=folder", "data.images=all"
    )
    lateral = read_folder(folder / "b").studies[:1]
    with pytest.raises(UserError, match=r"b is lateral; say data\.images=all to show them"):
        frontal_alone(lateral, folder / "b")


def test_generation_keeps_to_determinism(checkpoint, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    asked: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    words = ["generate", str(checkpoint), str(folder), "--out", str(tmp_path / "a.jsonl"), *SMALL]
    assert main([*words, "deterministic=true"]) == 0 and asked == [True]


def test_what_the_checkpoint_remembers_holds_and_blocks_are_cut(folder, tmp_path, monkeypatch):
    """As in an evaluation the report is the block; the whole text is kept beside it."""
    own = tmp_path / "trained"
    tiny_policy().save(own)
    (own / FILE).write_text('{"policy.prompt": "short", "reward.blocks": "think_report"}')
    texts = iter(["<think>x</think><report> Clear. </report>", *["no block"] * 99])
    monkeypatch.setattr("rrgpolicy.model.codec.ReportCodec.decode", lambda *_: next(texts))
    out = tmp_path / "reports.jsonl"
    words = ["generate", str(own), str(folder), "--out", str(out), "eval.max_new_tokens=4"]
    assert main(words) == 0
    first, second, *_ = rows(out)
    assert first["settings"]["policy.prompt"] == "short"
    assert first["report"] == "Clear." and first["text"].startswith("<think>")
    assert second["report"] == "" and second["text"] == "no block"


def test_images_of_one_folder_are_one_study_with_its_context(folder: Path, tmp_path: Path) -> None:
    found = read_folder(folder, "folder")
    assert [(s.id, len(s.images)) for s in found.studies] == [(".", 2), ("b", 3)]
    assert {image.view for s in found.studies for image in s.images} == {""}
    table = tmp_path / "context.csv"
    table.write_text("\ufeffpath,indication,age\nb/c.dcm,Cough,61\n", encoding="utf-8")
    studies, told = with_context(found, table)
    assert told == 1 and [s.indication for s in studies] == ["", "Cough"]
    by_id = read_folder(folder)
    table.write_text(f"id;comparison\nd.tif;none\n{folder.absolute() / 'a.png'};2019\n")
    studies, told = with_context(by_id, table)
    # a cell that says none is empty, as in the tables that are trained on
    assert told == 2 and [s.comparison for s in studies if s.comparison] == ["2019"]
    for text, words in (
        ("name,indication\na,b\n", "the columns are name, indication; wanted id or path"),
        ("id,indication\nx.png,b\n", "context.csv: row 2: 'x.png' is no study or image"),
        ("id,indication\na.png,b\na.png,c\n", "context.csv: row 3: a second row for 'a.png'"),
        ("id,indication\na.png,Cough, fever\n", "context.csv: row 2 has 3 cells; wanted 2 as in"),
    ):
        table.write_text(text)
        with pytest.raises(UserError, match=r"context\.csv") as caught:
            with_context(by_id, table)
        assert words in str(caught.value)


def test_the_context_is_in_the_prompt_and_another_one_is_refused(
    checkpoint, folder, tmp_path, capsys
):
    table, out = tmp_path / "context.csv", tmp_path / "a.jsonl"
    table.write_text("id,indication\nd.tif,Cough and fever for three days\n")
    words = [str(checkpoint), str(folder), *SMALL, "eval.max_new_tokens=20"]
    assert main(["generate", *words, "--out", str(out), "--context", str(table)]) == 0
    assert "tells of 1 of 5 studies" in capsys.readouterr().err
    assert main(["generate", *words, "--out", str(tmp_path / "b.jsonl")]) == 0
    pairs = zip(rows(out), rows(tmp_path / "b.jsonl"), strict=True)
    assert [a["id"] for a, b in pairs if a["report"] != b["report"]] == ["d.tif"]
    table.write_text("id,indication\nd.tif,None\n")
    line = refused(capsys, *words, "--out", str(out), "--context", str(table))
    assert "was written with context=" in line


def test_other_images_under_the_same_names_are_refused(
    checkpoint, folder, broken, tmp_path, capsys
):
    out = tmp_path / "r.jsonl"
    words = [str(checkpoint), str(folder), "--out", str(out), *SMALL, "--study", "folder"]
    assert "1 of 2 studies have no report" in refused(capsys, *words)
    errors = tmp_path / "r.jsonl.errors.jsonl"
    assert errors.exists()
    (folder / "broken.png").unlink()
    assert main(["generate", *words]) == 0
    before, image = out.read_bytes(), folder / "a.png"

    kept = image.read_bytes()
    Image.fromarray(255 - pixels(0)).save(image)
    line = refused(capsys, *words)
    assert "1 reports in" in line and "a.png is another image" in line and "--out" in line
    image.unlink()
    assert "a.png is gone" in refused(capsys, *words)
    image.write_bytes(kept)
    (folder / "b" / "e.png").write_bytes(kept)
    assert "b/e.png is new" in refused(capsys, *words)
    (folder / "b" / "e.png").unlink()

    errors.write_text('{"id": "of an earlier call", "error": ""}\n')
    capsys.readouterr()
    assert main(["generate", *words]) == 0
    assert not errors.exists() and "no longer" not in capsys.readouterr().err
    (folder / "b").rename(tmp_path / "elsewhere")
    assert main(["generate", *words]) == 0
    assert capsys.readouterr().err.count("1 reports of studies that are no longer there") == 1
    assert out.read_bytes() == before


def test_what_stands_in_the_way_is_told_and_stays(
    checkpoint, folder, tmp_path, monkeypatch, capsys
):
    table, deep = tmp_path / "context.csv", tmp_path / "new" / "deep" / "a.jsonl"
    words = [str(checkpoint), str(folder), *SMALL, "--out"]
    table.write_text("id,indication\na.png,Co\0ugh\n")
    line = refused(capsys, *words, str(deep), "--context", str(table))
    assert "context.csv: row 2: indication has a NUL or no Unicode" in line

    def unloadable(*_: object, **__: object) -> None:
        raise UserError("no weights")

    with monkeypatch.context() as patch:
        patch.setattr(generate, "load_for", unloadable)
        assert "no weights" in refused(capsys, *words, str(deep))
    assert not (tmp_path / "new").exists()  # it holds reports, or is not made
    notes = tmp_path / "a.jsonl.errors.jsonl"
    notes.write_text("notes of one's own\n")
    line = refused(capsys, *words, str(tmp_path / "a.jsonl"))
    assert "a.jsonl.errors.jsonl is there, and not of an earlier call" in line
    assert notes.read_text() == "notes of one's own\n" and not (tmp_path / "a.jsonl").exists()

    # each was waited for: nobody writes into the pipe
    for name in ("pipe.png", "pipe.dcm"):
        os.mkfifo(folder / name)
    for images in ("all", "none"):
        line = refused(capsys, *words, str(tmp_path / f"{images}.jsonl"), f"data.images={images}")
        assert "2 of 7 studies have no report" in line
    assert (tmp_path / "none.jsonl.errors.jsonl").read_text().count("is a pipe or a device") == 2


def test_names_that_are_a_uid_are_images(folder: Path) -> None:
    (folder / "b" / "c.dcm").rename(folder / "b" / "1.2.840.113619.2.5")
    (folder / "b" / "v1.0").write_text("no image")
    ids = [study.id for study in read_folder(folder).studies]
    assert "b/1.2.840.113619.2.5" in ids and "b/v1.0" not in ids
