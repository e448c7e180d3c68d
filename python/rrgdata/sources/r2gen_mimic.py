"""Studies of R2Gen's MIMIC-CXR: an `annotation.json` in which every entry is one image.

    annotation.json   {"train": [{"id", "report", "image_path": [one], "study_id", "subject_id",
                      "split"}, ...], "val": [...], "test": [...]}
    images/<path>     or files/<path> (MIMIC-CXR-JPG's own folder), or <path> beside the annotation

An entry's id is its image's; a study of three images is three entries with one report. No entry
says which view its image shows, laterals are among them, so every view is "". The list an entry
stands in is its split. The report is R2Gen's, its line wraps joined as R2Gen's tokenizer does;
R2Gen's cleaning and its cut at 100 tokens belong to the text metrics (`rrgclinical`).

Layout: cuhksz-nlp/R2Gen, modules/datasets.py (MimiccxrSingleImageDataset) and
modules/tokenizers.py.
"""

from __future__ import annotations

from functools import partial

from rrgdata.sources.iu_xray import names_subjects, read_entries
from rrgdata.sources.source import Published, Source

SOURCE = Source(
    name="r2gen_mimic",
    load=partial(read_entries, layout="MIMIC-CXR", folders=("images", "files"), one_image=True),
    holds=names_subjects,
    terms="PhysioNet's credentialed access; what is made of the data falls under it too",
    published=Published(
        {"train": (270_790, 270_790), "val": (2_130, 2_130), "test": (3_858, 3_858)},
        "entries of R2Gen's annotation of MIMIC-CXR, an image each",
        "https://github.com/cuhksz-nlp/R2Gen/issues/1",
    ),
)
