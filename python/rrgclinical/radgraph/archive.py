"""The official archive: config.json, vocabulary/, weights.th, packed or unpacked.

The package extracts it into a cache and trusts what it finds. Here it is read where it lies, a
packed one into memory, and what another model would need is refused by name.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from rrgclinical import hub
from rrgclinical.common import json_reader
from rrgclinical.common.errors import UserError, unreadable
from rrgclinical.common.files import open_gzip
from rrgclinical.inference import load_tensors
from rrgclinical.radgraph.words import MODEL_TYPES

SOURCE = (
    f"one of {', '.join(name + '.tar.gz' for name in MODEL_TYPES)} of the Hugging Face repository "
    f"{hub.SCORERS}"
)
OFFLINE = "the extractor `rules` needs no file"
Labels = dict[tuple[str, str], tuple[str, ...]]

_FILES = ("config.json", "weights.th")
_VOCABULARY = re.compile(r"vocabulary/(.+)__(ner|relation)_labels\.txt")
_LINE = re.compile("\r?\n")

# What tarfile raises for bytes that are no archive.
_BROKEN = (tarfile.TarError, zlib.error, OSError, EOFError)


@dataclass(frozen=True)
class Shape:
    """Sizes in config.json; hidden: widths of the feed-forward layers."""

    encoder: str
    segment: int
    max_span_width: int
    width_rows: int
    width_features: int
    hidden: tuple[int, ...]
    spans_per_word: float


@dataclass(frozen=True)
class Archive:
    """Content of an archive for one of its datasets.

    ner[0] is "", the label of a span that is no entity; `relations` has no such entry.
    sizes: of every label list in vocabulary/, by (dataset, "ner" or "relation"): the weights hold
    heads for each, and one dataset is read.
    """

    place: str
    model_type: str
    shape: Shape
    ner: tuple[str, ...]
    relations: tuple[str, ...]
    sizes: dict[tuple[str, str], int]
    state: dict[str, Tensor]


def read_archive(weights: str | Path | None, model_type: str | None) -> Archive:
    """The archive at `weights`.

    Args:
        weights: a .tar.gz, a folder with its content, or "hub" for the official repository.
        model_type: which of `MODEL_TYPES`; None takes what a local archive holds, and
            radgraph-xl, the package's default, from the hub.

    Raises:
        UserError: no path, no such file, or something else in it.
    """
    if model_type is not None and model_type not in MODEL_TYPES:
        raise UserError(f"radgraph: model_type {model_type!r}; choose {', '.join(MODEL_TYPES)}")
    if weights is None:
        raise UserError(f"radgraph: no weights given; pass the path of {SOURCE}: {OFFLINE}")
    if weights == "hub":
        path = hub.download(hub.SCORERS, f"{model_type or 'radgraph-xl'}.tar.gz", OFFLINE)
    else:
        path = Path(weights).expanduser()
    if not path.exists():
        raise UserError(f"radgraph: no file or folder {path}; wanted {SOURCE}: {OFFLINE}")
    files: dict[str, Path | bytes]
    if path.is_dir():
        own = [*(path / name for name in _FILES), *path.glob("vocabulary/*_labels.txt")]
        files = {file.relative_to(path).as_posix(): file for file in own if file.is_file()}
    else:
        files = _tar(path)
    if absent := [name for name in _FILES if name not in files]:
        raise UserError(f"{path} lacks {' and '.join(absent)}; wanted {SOURCE}")
    labels = {
        (match[1], match[2]): _labels(_bytes(content))
        for name, content in files.items()
        if (match := _VOCABULARY.fullmatch(name))
    }
    name = _choose(path, model_type, labels)
    ner, relations = labels[name, "ner"], labels[name, "relation"]
    if not ner or ner[0] != "" or not relations:
        raise UserError(
            f"{path}: the first of the {name} entity labels is {next(iter(ner), None)!r}, not the "
            f"empty label, or it has no relation labels; wanted {SOURCE}"
        )
    return Archive(
        place=str(path),
        model_type=name,
        shape=_shape(path, _bytes(files["config.json"])),
        ner=ner,
        relations=relations,
        sizes={namespace: len(entries) for namespace, entries in labels.items()},
        state=_state(path, files["weights.th"]),
    )


def unpack(place: str | Path, folder: Path) -> None:
    """The archive at `place` as files in `folder`, weights of an unpacked one by reference."""
    path = Path(place)
    if path.is_dir():
        files = [*(path / name for name in _FILES), *path.glob("vocabulary/*.txt")]
        for file in files:
            target = folder / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.resolve())
        return
    with open_gzip(path) as inflated, tarfile.open(fileobj=inflated, mode="r:") as tar:
        tar.extractall(folder, filter="data")


def _tar(path: Path) -> dict[str, Path | bytes]:
    files: dict[str, Path | bytes] = {}
    try:
        with open_gzip(path) as inflated, tarfile.open(fileobj=inflated, mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in _FILES or _VOCABULARY.fullmatch(name):
                    content = tar.extractfile(member)
                    if content is not None:
                        files[name] = content.read()
    except _BROKEN as error:
        raise UserError(f"{path} is no .tar.gz ({unreadable(error)}); wanted {SOURCE}") from error
    return files


def _bytes(content: Path | bytes) -> bytes:
    return content.read_bytes() if isinstance(content, Path) else content


def _labels(content: bytes) -> tuple[str, ...]:
    """AllenNLP's vocabulary file: a label a line, the first of them empty for entities."""
    lines = _LINE.split(content.decode("utf-8"))
    return tuple(lines[:-1] if lines and lines[-1] == "" else lines)


def _choose(path: Path, model_type: str | None, labels: Labels) -> str:
    """The dataset to read, whose name is the model type."""
    models = sorted({name for name, _ in labels})
    whole = [name for name in MODEL_TYPES if {(name, "ner"), (name, "relation")} <= labels.keys()]
    if model_type in whole:
        return model_type
    held = ", ".join(models) or "no label lists"
    if model_type is not None or len(whole) != 1:
        names = model_type or "one of " + ", ".join(MODEL_TYPES)
        raise UserError(f"{path} is an archive of {held}, wanted {names}; see {SOURCE}")
    return whole[0]


def _shape(path: Path, content: bytes) -> Shape:
    try:
        config = json_reader.parse(content, dict)
        reader, model = config["dataset_reader"], config["model"]
        indexer = reader["token_indexers"]["bert"]
        embedder = model["embedder"]["token_embedders"]["bert"]
        layers, widths = (model["feedforward_params"][k] for k in ("num_layers", "hidden_dims"))
        hidden = tuple(widths) if isinstance(widths, list) else (widths,) * layers
        propagation = model["modules"]["coref"].get("coref_prop", 0)
        shape = Shape(
            encoder=str(embedder["model_name"]),
            segment=int(indexer["max_length"]),
            max_span_width=int(reader["max_span_width"]),
            width_rows=int(model["max_span_width"]),
            width_features=int(model["feature_size"]),
            hidden=tuple(map(int, hidden)),
            spans_per_word=float(model["modules"]["relation"]["spans_per_word"]),
        )
        tasks = {task: model["loss_weights"][task] for task in ("ner", "relation")}
        agree = (embedder["max_length"], embedder["model_name"]) == (
            indexer["max_length"],
            indexer["model_name"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"config.json of {path} is not that of a RadGraph model ({type(error).__name__}: "
            f"{error}); wanted {SOURCE}"
        ) from error
    if propagation or not all(tasks.values()) or not agree or len(hidden) != layers:
        raise UserError(
            f"config.json of {path} describes another model (coref_prop {propagation}, loss "
            f"weights {tasks}, {layers} layers of {list(hidden)}); wanted {SOURCE}"
        )
    if not shape.hidden or not 1 <= shape.max_span_width <= shape.width_rows or shape.segment < 3:
        raise UserError(
            f"config.json of {path}: max_span_width {shape.max_span_width} of {shape.width_rows}, "
            f"max_length {shape.segment}; wanted {SOURCE}"
        )
    return shape


def _state(path: Path, content: Path | bytes) -> dict[str, Tensor]:
    source = content if isinstance(content, Path) else io.BytesIO(content)
    state = load_tensors(source, f"weights.th of {path}", SOURCE)
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise UserError(f"weights.th of {path} is no dictionary of tensors; wanted {SOURCE}")
    return state
