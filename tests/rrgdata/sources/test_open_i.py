"""Open-i's own archives: XML reports, images by three names, splits, damage and entities."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.rrgdata.common import broken, by_id, catalogue_of, refused

SOURCE = "open_i"
found = partial(catalogue_of, SOURCE)


REPORT = """<?xml version="1.0" encoding="utf-8"?>
<eCitation>
   <meta type="rr"/>
   <uId id="CXR{n}"/>
   <MedlineCitation><Article><Abstract>
      <AbstractText Label="COMPARISON">None.</AbstractText>
      <AbstractText Label="INDICATION">Positive TB test</AbstractText>
      <AbstractText Label="FINDINGS">{findings}</AbstractText>
      <AbstractText Label="IMPRESSION">Impression {n}.</AbstractText>
   </Abstract></Article></MedlineCitation>
   <MeSH><major>normal</major></MeSH>
   {images}
</eCitation>
"""
IMAGES = {1: ["CXR1_1_IM-0001-3001", "CXR1_1_IM-0001-4001"], 2: ["CXR2_IM-0652-1001"], 3: []}
DICOM = {
    "CXR1_1_IM-0001-3001": "1/1_IM-0001-3001.dcm",
    "CXR1_1_IM-0001-4001": "1/1_IM-0001-4001.dcm",
    "CXR2_IM-0652-1001": "2/2_IM-0652-1001.dcm",
}
FOLDERS = {
    "NLMCXR_png": lambda name: f"{name}.png",
    "NLMCXR_dcm": DICOM.get,
    "images/images_normalized": lambda name: DICOM[name].split("/")[1] + ".png",
    ".": lambda name: f"{name}.png",
}


def report(n, images, findings=None):
    parents = [f'<parentImage id="{name}"><figureId>F1</figureId></parentImage>' for name in images]
    text = f"Findings {n}." if findings is None else findings
    return REPORT.format(n=n, findings=text, images="".join(parents))


def write(root, reports="ecgen-radiology", images="NLMCXR_png", texts=None):
    (root / reports).mkdir(parents=True, exist_ok=True)
    for n, names in IMAGES.items():
        (root / reports / f"{n}.xml").write_text((texts or {}).get(n) or report(n, names))
        for name in names if images else ():
            image = root / images / FOLDERS[images](name)
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(b"x")
    return root


def views(root):
    rows = "1,1_IM-0001-4001.dcm.png,Lateral\n1,1_IM-0001-3001.dcm.png,Frontal\n"
    (root / "indiana_projections.csv").write_text("uid,filename,projection\n" + rows)
    return root


@pytest.mark.parametrize("images", FOLDERS)
@pytest.mark.parametrize("reports", ["ecgen-radiology", "NLMCXR_reports/ecgen-radiology"])
def test_reports_and_images_in_each_layout(tmp_path, reports, images):
    catalogue = found(write(tmp_path, reports, images))
    studies = by_id(catalogue)
    names = [FOLDERS[images](name).split("/")[-1] for name in IMAGES[1]]
    assert [i.path.name for i in studies["CXR1"].images] == names
    assert all(i.path.is_file() and i.view == "" for s in studies.values() for i in s.images)
    assert studies["CXR1"].report == "Findings 1." and studies["CXR1"].labels is None
    assert (studies["CXR2"].indication, studies["CXR2"].comparison) == ("Positive TB test", "None.")
    assert set(studies) == {"CXR1", "CXR2"} and not catalogue.broken
    assert dict(catalogue.left_out) == {"without an image": 1}


def test_kaggles_table_tells_the_views(tmp_path):
    write(tmp_path)
    refused(SOURCE, tmp_path, "which images are frontal", images="frontal")
    refused(SOURCE, tmp_path, "data.prior=last is for data.source=chexpert_plus", prior="last")
    studies = by_id(found(views(tmp_path)))
    assert [i.view for i in studies["CXR1"].images] == ["frontal", "lateral"]
    assert [i.view for i in studies["CXR2"].images] == [""]
    frontal = found(tmp_path, images="frontal")
    assert [len(s.images) for s in by_id(frontal).values()] == [1]
    assert dict(frontal.left_out) == {"without a frontal image": 2}
    (tmp_path / "indiana_projections.csv").write_text("uid,filename,projection\n1,a.png,Oblique\n")
    broken(found(tmp_path), "indiana_projections.csv: row 2", "wanted Frontal or Lateral")


def test_the_split_is_the_same_each_time_and_of_the_stated_shares(tmp_path):
    folder = tmp_path / "ecgen-radiology"
    folder.mkdir()
    for n in range(500):
        (folder / f"{n}.xml").write_text(report(n, []))
    first, again = (found(tmp_path, images="none").studies for _ in range(2))
    assert first == again
    shares = {split: len(studies) / 500 for split, studies in first.items()}
    assert shares == pytest.approx({"train": 0.7, "val": 0.1, "test": 0.2}, abs=0.05)
    (folder / "0.xml").unlink()
    rest = found(tmp_path, images="none").studies
    assert {s: [x for x in studies if x.id != "CXR0"] for s, studies in first.items()} == rest


def test_r2gens_split_is_taken_where_it_lies_beside(tmp_path):
    entries = {"train": [], "val": [{"id": "CXR2_IM-0652"}], "test": [{"id": "CXR1_IM-0001"}]}
    (write(tmp_path) / "annotation.json").write_text(json.dumps(entries))
    catalogue = found(tmp_path)
    assert {s.id: s.split for s in by_id(catalogue).values()} == {"CXR2": "val", "CXR1": "test"}
    assert dict(catalogue.left_out) == {"not in annotation.json": 1}
    entries["train"] = [{"id": "CXR9_IM-0001"}, {"id": "CXR8_IM-0001"}]
    (tmp_path / "annotation.json").write_text(json.dumps(entries))
    (tmp_path / "ecgen-radiology/8.xml").write_text("<eCitation>")
    catalogue = found(tmp_path)
    assert catalogue.left_out["of annotation.json that have no report here"] == 1
    assert catalogue.left_out_of["of annotation.json that have no report here"] == {"train": 1}


def test_sections_that_are_wanted(tmp_path):
    write(tmp_path, texts={2: report(2, IMAGES[2], findings="")})
    findings = found(tmp_path)
    assert findings.left_out["without a findings section"] == 1 and set(by_id(findings)) == {"CXR1"}
    both = by_id(found(tmp_path, sections="both"))
    assert (
        both["CXR1"].report == "Findings 1. Impression 1."
        and both["CXR2"].report == "Impression 2."
    )


ENTITY = '<!DOCTYPE e [<!ENTITY b "Clear.">]>'


@pytest.mark.parametrize("kind", [ENTITY, "<!DOCTYPE e>", '<!DOCTYPE e SYSTEM "none.dtd">'])
def test_entities_are_neither_expanded_nor_fetched(tmp_path, kind):
    text = report(2, IMAGES[2], findings="&b;" if "ENTITY" in kind else "Findings 2.")
    write(tmp_path, texts={2: text.replace("<eCitation>", f"{kind}<eCitation>")})
    broken(found(tmp_path), "2.xml", "has a document type")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (report(2, IMAGES[2])[:-20], "is not plain XML"),
        (report(2, IMAGES[2]).replace("utf-8", "klingon"), "is not plain XML"),
        ("\n", "is not plain XML"),
        (report(2, IMAGES[2]).replace('<uId id="CXR2"/>', ""), "has no <uId"),
        (report(2, ["CXR2_IM-0652-9999"]), "image 'CXR2_IM-0652-9999', not found"),
        (report(2, ["../../secret"]), "image '../../secret', not found"),
        (report(1, IMAGES[2]), "repeats the id 'CXR1'"),
    ],
)
def test_a_damaged_report_is_broken_and_the_others_are_read(tmp_path, text, why):
    broken(found(write(tmp_path, texts={2: text})), "2.xml", why)


def test_no_reports_or_no_images_are_refused(tmp_path):
    refused(SOURCE, tmp_path, "ecgen-radiology has no XML files", "NLMCXR_reports.tgz")
    write(tmp_path, images=None)
    deep = tmp_path / "elsewhere/CXR2_IM-0652-1001.png"
    deep.parent.mkdir()
    deep.write_bytes(b"x")
    refused(SOURCE, tmp_path, "has no images such as NLMCXR_png", "data.images=none")
    assert len(by_id(found(tmp_path, images="none"))) == 3
