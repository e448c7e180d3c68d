"""States the sizes that were published of data sets, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """Sizes by split, or by several, as "train+val" or "all": studies and images, None unknown."""

    sizes: Mapping[str, tuple[int | None, int | None]]
    counted: str
    """The studies that were counted, and by whom."""
    url: str


PUBLISHED = {
    "chexpert_plus": Published(
        {"all": (187_711, 223_228), "val": (200, 234)},
        "all studies, with or without findings (Chambon et al.; val: CheXpert, arXiv 1901.07031)",
        "https://arxiv.org/abs/2405.19538",
    ),
    "iu_xray": Published(
        {"train": (2_069, None), "val": (296, None), "test": (590, None)},
        "entries of R2Gen's annotation of IU X-Ray",
        "https://github.com/cuhksz-nlp/R2Gen",
    ),
    "mimic_cxr": Published(
        {"train": (222_758, 368_960), "val": (1_808, 2_991), "test": (3_269, 5_159)},
        "all studies of the official split, with or without findings (R2Gen, table 1)",
        "https://arxiv.org/abs/2010.16056",
    ),
    "nih": Published(
        {"train+val": (86_524, 86_524), "test": (25_596, 25_596), "all": (112_120, 112_120)},
        "lines of train_val_list.txt, test_list.txt and Data_Entry_2017.csv, one image each",
        "https://nihcc.app.box.com/v/ChestXray-NIHCC",
    ),
    "open_i": Published(
        {"all": (3_955, 7_470)},
        "all studies, with or without findings (Demner-Fushman et al., JAMIA 2016); no split",
        "https://openi.nlm.nih.gov/faq",
    ),
    "padchest_gr": Published(
        {"train+val": (3_640, None), "test": (915, None), "all": (4_555, None)},
        "all studies (Castro et al.); train+val and test by EditGRPO, table 3",
        "https://arxiv.org/abs/2411.05085",
    ),
    "r2gen_mimic": Published(
        {"train": (270_790, 270_790), "val": (2_130, 2_130), "test": (3_858, 3_858)},
        "entries of R2Gen's annotation of MIMIC-CXR, an image each",
        "https://github.com/cuhksz-nlp/R2Gen/issues/1",
    ),
    "rexgradient": Published(
        {"train": (140_000, 238_968), "val": (10_000, 17_007), "test": (10_000, 17_029)},
        "all studies of the dataset card",
        "https://huggingface.co/datasets/rajpurkarlab/ReXGradient-160K",
    ),
}
"""Published sizes by source."""
