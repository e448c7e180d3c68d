"""Opens DICOM files, old exports without a preamble too, and reads whose chest they show.

Modalities are the defined terms of DICOM PS3.3 C.7.3.1.1.1; DR is none of them, but vendors write
it for DX. RG, film and screen, is refused as any other modality: its digitised films have another
contrast, and the systems here were made for CR and DX. Body parts are those of PS3.16 Annex L, as
sites spell them: in several languages, and run together with the view.
"""

from __future__ import annotations

import io
import re
import struct
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pydicom
from pydicom import uid
from pydicom.charset import python_encoding
from pydicom.dataset import Dataset
from pydicom.valuerep import VR

from rrgclinical.common.errors import UserError
from rrgclinical.common.files import require_end
from rrgdata.images.in_flight import LARGEST

INFLATED = 2 * LARGEST + (1 << 24)
"""Bytes of a file by itself: the largest image at 16 bits, a header."""
HEADER = 1 << 24
"""Bytes of a larger file beside the pixels that its header promises."""
READS = 200_000
"""Reads of a file by pydicom: one to three an element, an item, a fragment of compressed pixels."""
VALUE = 1 << 20
"""Bytes of a value in the groups that are looked at: eight tables of 16 bits."""
GROUPS = (0x0002, 0x0008, 0x0018, 0x0020, 0x0028, 0x2050)
"""Groups whose values are looked at; private ones, overlays and thumbnails are in others."""
AT_ONCE = 1 << 14
"""Bytes of a read from which on no room is made for what the file has not."""
MODALITIES = ("CR", "DX", "DR")
CHEST = (
    "CHEST|THORAX|THORACIC|LUNGS?|CXR|TORAX|TORACICA|PECHO|PULMON|PULMONES|POITRINE|THORACIQUE|"
    "POUMONS?|BRUST|BRUSTKORB|LUNGEN?|TORACE|POLMON[EI]|PEITO|PULMAO|PULMOES|BORSTKAS|LONGEN|"
    "BROSTKORG|LUNGOR|BRYSTKASSE|TORAKS|GOGUS|AKCIGER|HRUDNIK|PLICE|KLATKA|PLUCA|NGUC|"
    "ΘΩΡΑΞ|ΘΩΡΑΚ[ΑΟ]Σ|ГРУДЬ|ГРУДНАЯ|ЛЕГКИЕ|ОГК"
)
"""Words that make a body part the chest, capitals without accents: "Port Chest", "TÓRAX"."""
CHEST_SIGNS = ("胸部", "胸片", "肺", "흉부", "폐")
BESIDE = (
    "PA|AP|LAT|LATERAL|LL|RL|FRONTAL|FRONT|VIEWS?|PROJ|PORTABLE|PORT|P|MOBILE|BEDSIDE|ERECT|"
    "UPRIGHT|STANDING|SUPINE|SITTING|XRAY|XR|CR|DX|DR|RX|RTG|ROUTINE|ADULT|PEDS?|CHILD|T|DI|DE|"
    "AND|UND|ET|AUFNAHME"
)
"""Words that stand glued to the chest's: "PORTABLECHEST", "CHESTPA"."""
ELSEWHERE = ("ABD", "PELV", "NECK", "SPINE", "VERTEB", "COLUM", "RACHI", "WIRBEL")
"""Parts of words for more than the chest, or for its spine: CHESTABDOMEN, NECKCHEST."""

_GLUED = re.compile(rf"(?:{BESIDE})*(?:(?:{CHEST})(?:{BESIDE})*)+")
_MAGIC = b"DICM"
_VRS = {str(kind) for kind in VR}
_LONGEST_FIRST = 1024
"""Bytes of a first element with implicit VR: a group length, a character set or a UID."""


def begins_as_dicom(head: bytes) -> bool:
    """Tell whether a file's first 132 bytes are those of DICOM, even without preamble."""
    return head[128:132] == _MAGIC or head[:4] == _MAGIC or _begins_bare(head)


def _begins_bare(head: bytes) -> bool:
    """Tell whether bytes begin with an element of group 2 or 8, as each data set does."""
    if len(head) < 8:
        return False
    for order, groups in (("<", (2, 8)), (">", (8,))):
        group, _, kind = struct.unpack(f"{order}HH2s", head[:6])
        explicit = kind.decode("latin-1") in _VRS
        implicit = order == "<" and struct.unpack("<L", head[4:8])[0] <= _LONGEST_FIRST
        if group in groups and (explicit or implicit):
            return True
    return False


def open_dicom(file: Path, **options: Any) -> Dataset:
    """Read a DICOM file, its transfer syntax filled in where none is told.

    options: as of `pydicom.dcmread`.

    Raises UserError, which does not name the file, for another kind of file; whatever pydicom
    meets passes through.
    """
    require_end(file)
    with file.open("rb") as stream:
        head = stream.read(132)
    if not begins_as_dicom(head):
        raise UserError("not DICOM, though named so; rename or replace it")
    cut = head[:4] == _MAGIC
    bare = not cut and head[128:] != _MAGIC
    if cut and is_long(file):
        raise _too_long(file, INFLATED)
    source: Any = io.BytesIO(bytes(128) + file.read_bytes()) if cut else io.FileIO(file)
    # what lies before the pixels is bounded alone, where only that is asked for
    most = INFLATED if options.get("stop_before_pixels") else None
    dataset = _read(source, most, force=bare, **options)
    if bare and "SOPClassUID" not in dataset and "PixelData" not in dataset and not options:
        raise UserError(
            "not DICOM, though it begins so (no preamble, SOPClassUID or PixelData); replace it"
        )
    _check_kind(dataset)
    _fill_in_syntax(dataset)
    return dataset


def is_long(file: Path) -> bool:
    """Tell whether a file has more bytes than the largest image of 16 bits."""
    return file.stat().st_size > INFLATED


def check_length(file: Path, header: Dataset) -> None:
    """Raise UserError for a file that is longer than its header promises, by HEADER bytes."""
    bits = min(int(header.BitsAllocated), 64)
    pixels = int(header.Rows) * int(header.Columns) * int(header.SamplesPerPixel)
    most = pixels * bits // 8 + HEADER
    if file.stat().st_size > max(most, INFLATED):
        raise _too_long(file, most)


def _too_long(file: Path, most: int) -> UserError:
    return UserError(
        f"the file has {file.stat().st_size} bytes; wanted at most {most}, for the pixels that its "
        "header can promise; copy or export it again"
    )


def _read(source: Any, most: int | None, **options: Any) -> Dataset:
    with _Source(source, most) as stream:
        try:
            return pydicom.dcmread(stream, **options)
        except OSError:
            # pydicom makes one of whatever ends a sequence
            if stream.fault:
                raise UserError(stream.fault) from None
            raise


class _Source(io.BufferedReader):
    """Bound what pydicom reads: bytes, long values, and parts, each of which takes a read."""

    name = ""

    def __init__(self, raw: Any, most: int | None) -> None:
        super().__init__(raw)
        self.fault = ""
        self._left, self._reads = most, 0
        self._element, self._value = b"", 0
        self._size = self.seek(0, io.SEEK_END)
        self.seek(0)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            # pydicom asks for all the rest where that is deflated, and inflates it without a bound
            raise UserError("a deflated data set is not read; re-export it as uncompressed DICOM")
        if size > AT_ONCE:
            size = min(size, max(0, self._size - self.tell()))
        self._reads += 1
        # bytes since the last 8, with which elements and items begin
        self._value = 0 if size == 8 else self._value + size
        if self._left is not None:
            self._left -= size
        if fault := self._find_fault():
            # kept as words: an error would hold the frames that hold this
            self.fault = f"{fault}; export it again as one plain radiograph"
            raise UserError(self.fault)
        part = super().read(size)
        if size == 8:
            self._element = part
        return part

    def _find_fault(self) -> str:
        if self._reads > READS:
            return (
                f"the elements, items and fragments of the DICOM take more than {READS} reads, as "
                "no radiograph's do"
            )
        if self._left is not None and self._left < 0:
            return f"the DICOM has more than {INFLATED} bytes before its pixels"
        if self._value > VALUE:
            for order in "<>":
                group, number = struct.unpack(f"{order}HH", self._element[:4].ljust(4, b"\0"))
                if group in GROUPS:
                    return (
                        f"more than {VALUE} bytes are in element ({group:04X},{number:04X}), or "
                        "behind it; wanted fewer"
                    )
        return ""


def _check_kind(dataset: Dataset) -> None:
    """Refuse long PixelData of another kind than bytes: pydicom makes objects of its parts."""
    pixels = dataset.get_item("PixelData") if "PixelData" in dataset else None
    if pixels is not None and pixels.VR not in (None, "OB", "OW", "UN"):
        size = len(pixels.value or b"")
        if size > VALUE:
            raise UserError(
                f"the {size} bytes of PixelData are {pixels.VR}; wanted OB or OW; export the file "
                "again"
            )


def _fill_in_syntax(dataset: Dataset) -> None:
    """Name the transfer syntax by which pydicom has read a file that names none."""
    if dataset.file_meta.get("TransferSyntaxUID"):
        return
    if "PixelData" in dataset and dataset["PixelData"].is_undefined_length:
        raise UserError(
            "the header lacks TransferSyntaxUID, and the pixels are compressed by an unknown "
            "method; re-export it as uncompressed DICOM or PNG"
        )
    implicit, little = dataset.original_encoding
    plain = uid.ImplicitVRLittleEndian if implicit else uid.ExplicitVRLittleEndian
    dataset.file_meta.TransferSyntaxUID = plain if little else uid.ExplicitVRBigEndian


def check_chest(dataset: Dataset, body_parts: Collection[str] = ()) -> tuple[str, str]:
    """Return modality and body part of a header; UserError for others than a chest's.

    body_parts: further values that pass (`data.body_parts`).
    """
    modality = _one_line(str(dataset.get("Modality") or "")).upper()
    if modality and modality not in MODALITIES:
        raise UserError(f"the modality is {modality}; wanted {', '.join(MODALITIES)}, or none")
    readings = _readings(dataset)
    accepted = {_letters(part) for part in body_parts}
    if readings and not any(_letters(r) in accepted or is_chest(r) for r in readings):
        raise UserError(
            f"the body part is {readings[0].upper()}; wanted the chest (CHEST, THORAX, ... in "
            f"several languages), or none; data.body_parts=[{_letters(readings[0])}] accepts it"
        )
    return modality, readings[0].upper() if readings else ""


def is_chest(body_part: str) -> bool:
    """Tell whether a body part is the chest; case, accents and separators do not count."""
    plain = _plain(body_part)
    words, joined = re.findall(r"[^\W\d_]+", plain), _letters(body_part)
    if any(part in joined for part in ELSEWHERE):
        return False
    signed = any(_plain(sign) in joined for sign in CHEST_SIGNS)
    return signed or any(_GLUED.fullmatch(word) for word in [*words, joined])


def _plain(text: str) -> str:
    """Capitals without accents."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c)).upper()


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", _plain(text))


def _readings(dataset: Dataset) -> list[str]:
    """Decode BodyPartExamined by the character sets that it may be in, the likeliest first.

    The standard allows it no accents, so pydicom reads them as Latin-1, whatever the header says.
    """
    element = dataset.get_item("BodyPartExamined")
    value = b"" if element is None else element.value or b""
    if not isinstance(value, bytes):
        return [text] if _letters(text := _one_line(str(value))) else []
    named = dataset.get("SpecificCharacterSet") or ""
    terms = [named] if isinstance(named, str) else list(named)
    codecs = [str(python_encoding.get(term, "utf-8")) for term in terms if term]
    # escape sequences and GB18030 read as UTF-8 too, or as Latin-1; UTF-8 as Latin-1
    unlike_utf8 = [codec for codec in codecs if codec not in ("iso8859", "latin_1", "utf8")]
    readings = []
    for codec in dict.fromkeys([*unlike_utf8, "utf-8", *codecs, "latin-1"]):
        try:
            readings.append(_one_line(value.decode(codec)))
        except UnicodeDecodeError:
            continue
    return [text for text in dict.fromkeys(readings) if _letters(text)]


def _one_line(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:64]
