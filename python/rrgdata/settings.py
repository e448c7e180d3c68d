"""Declares the settings of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from rrgclinical.common.fields import SETTINGS
from rrgdata.phantom import PhantomConfig
from rrgdata.sources import every_source

if TYPE_CHECKING:
    Layout = str
else:
    Layout = Literal[("phantom", "mix", *every_source())]


@dataclass(config=SETTINGS)
class SplitLimits:
    """Keep so many studies of each split, from its beginning; null keeps all."""

    train: int | None = Field(default=None, ge=0)
    """Number of training studies."""
    val: int | None = Field(default=None, ge=0)
    """Number of validation studies."""
    test: int | None = Field(default=None, ge=0)
    """Number of test studies."""


@dataclass(config=SETTINGS)
class MixedSource:
    """Name a source of a mix; what is null is the run's own."""

    source: str = ""
    """Data set, as `data.source`, but for phantoms and mixes."""
    root: str = ""
    """Directory or file of the data set, below `data.root` where it is relative."""
    weight: float = Field(default=1.0, ge=0.0)
    """Passes over the training studies in an epoch: of 2 each comes twice, of 0.5 every second one.
    Of 0 the source is out of domain: its test studies alone are read."""
    limit: SplitLimits = Field(default_factory=SplitLimits)
    images: Literal["all", "frontal", "none"] | None = None
    """Views that are read."""
    sections: Literal["findings", "impression", "both"] | None = None
    """Text that is the report."""
    prior: Literal["none", "last"] | None = None
    """Images of an earlier study."""
    reports: str | None = None
    """Directory of the report texts."""
    columns: dict[str, str] | None = None
    """Columns of a table of your own."""


@dataclass(config=SETTINGS)
class DataSettings:
    """Choose the studies, and which of them are trained on."""

    source: Layout | Annotated[str, Field(pattern=":")] = "phantom"
    """Data set, by the layout of its files (`rrgdata/README.md`), procedural phantoms, a mix of
    several, or a loader of your own as `package.module:function`."""
    root: str | None = None
    """Directory of the data set, or the file of a table; null only for phantoms, which are then
    drawn into the run's own directory."""
    mix: dict[str, MixedSource] = Field(default_factory=dict)
    """Sources of `data.source=mix` by a name of yours, with which, and `/`, ids begin."""
    reports: str | None = None
    """Directory of the report texts where they are not beneath `data.root`: MIMIC-CXR's, when it is
    downloaded apart from MIMIC-CXR-JPG."""
    images: Literal["all", "frontal", "none"] = "all"
    """Views that are read: all, the frontal ones, or none for reports alone."""
    sections: Literal["findings", "impression", "both"] = "findings"
    """Text that is the report where a data set keeps the sections apart; both puts the findings
    first. Studies without it are left out and counted."""
    prior: Literal["none", "last"] = "none"
    """Images of an earlier study that are added to each study, where the data set tells of them:
    none, or those of the patient's latest one before."""
    boxes: bool = False
    """Write the boxes of a finding before its sentence's full stop, `Left effusion [55 40 98 80].`:
    left, top, right, bottom in percent of the image. PadChest-GR has them, phantoms with
    `data.phantom.boxes`, and a table whose reports are written so."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Columns of your own table, by content: `{report: findings_text, images: png}`; the contents
    are in `rrgdata/README.md`."""
    body_parts: list[str] = Field(default_factory=list)
    """Further values of a DICOM header's BodyPartExamined that pass, as `[BUST, RIPPEN]`, beside
    those that name the chest; case, accents and separators do not count."""
    skip: bool = False
    """Leave broken studies out, listed in the run's `left_out.jsonl`; otherwise they stop it. An
    image is known to be broken from `rrgtrain data check`, or from the sample of 256 that a run
    decodes first; any other stops the run when it is read, which can then be resumed: without the
    study, the later batches are drawn anew."""
    splits: dict[str, str] = Field(default_factory=dict)
    """Splits made of others: `{train: train+val}` trains on both, and a checkpoint can then be
    chosen by training studies alone."""
    max_images: int | None = Field(default=None, ge=1)
    """Largest number of images of a study; studies with more are left out, null keeps all."""
    each_image: bool = False
    """Make every image a sample of its own with the report of its study (MRG-R1)."""
    longest_text: int | None = Field(default=20_000, ge=1)
    """Characters of a report or section beyond which a study is refused, since a text of megabytes
    takes all memory; null refuses none."""
    limit: int | None = Field(default=None, ge=1)
    """Number of studies kept of each split, from its beginning; null keeps all."""
    subset: str | None = None
    """File of `rrgtrain select`: reinforcement learning trains on the studies that it names."""
    balanced: int | None = Field(default=None, ge=1)
    """Number of training studies for reinforcement learning, chosen so that the 14 labels are as
    even as they can be (OraPO); null takes all."""
    agreeing: bool = False
    """Keep for reinforcement learning the training studies whose report says what their labels say:
    positive or uncertain against neither, read by `reward.labeller`."""
    workers: int = Field(default=0, ge=0)
    """Processes that read images ahead of their use, for each process of the trainer; 0 reads them
    in the trainer's own."""
    read_ahead: int = Field(default=32, ge=1)
    """Studies whose images the workers read ahead; one with three images of EditGRPO's size takes
    27 MB."""
    cache_mib: int = Field(default=256, ge=0)
    """Mebibytes of encoded images that a process keeps, those it meets first."""
    phantom: PhantomConfig = Field(default_factory=PhantomConfig)
    """Procedural radiographs with reports and labels, for `data.source=phantom`."""

    @property
    def most_images(self) -> int | None:
        """Tell how many images a study of any source has at most; None: no limit."""
        views = [part.images or self.images for part in self.mix.values()] or [self.images]
        if set(views) == {"none"}:
            return 0
        return 1 if self.each_image else self.max_images

    @property
    def one_image(self) -> bool:
        return self.most_images in (0, 1)
