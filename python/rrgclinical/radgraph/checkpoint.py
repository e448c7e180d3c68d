"""Load weights.th into the network; refuse missing and unknown tensors.

The archive also holds heads for coreference and events, which the graph never reads, and heads of
the datasets that it was not asked for. They are let pass without being loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel

from rrgclinical.common.errors import UserError
from rrgclinical.hub import reach_hub
from rrgclinical.inference import faults_of
from rrgclinical.radgraph.archive import SOURCE, Archive
from rrgclinical.radgraph.network import Head, RadGraphNetwork

_ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
_WIDTH = "_endpoint_span_extractor._span_width_embedding.weight"
_UNREAD = ("_coref.", "_events.")
# Older transformers saved this buffer: 0, 1, 2, ... and no weight.
_BUFFER = "embeddings.position_ids"


def load_network(archive: Archive, encoder: str | Path, download: bool) -> RadGraphNetwork:
    """The network in fp32 on the CPU, in evaluation mode, without parameter gradients.

    Args:
        archive: what `read_archive` found.
        encoder: folder or hub name of the encoder's config.json; its weights are the archive's.
        download: whether a hub name may be downloaded; else it must lie in the local cache.

    Raises:
        UserError: no such encoder, or keys or shapes that differ.
    """
    if download:
        reach_hub()
    try:
        config = AutoConfig.from_pretrained(str(encoder), local_files_only=not download)
    except (OSError, ValueError, KeyError) as error:
        raise missing_encoder(str(encoder), error) from error
    # Random initial weights must not move the generator of the run that loads it.
    with torch.random.fork_rng(devices=[]):
        body = AutoModel.from_config(config, dtype=torch.float32)
        network = RadGraphNetwork(
            body,
            config.hidden_size,
            archive.shape,
            entity_labels=len(archive.ner),
            relation_labels=len(archive.relations),
        )
    keys = _official_keys(network, archive.model_type)
    _check(archive, {official: own for own, official in keys.items()}, network)
    network.load_state_dict({own: archive.state[official] for own, official in keys.items()})
    return network.eval().requires_grad_(False)


def missing_encoder(name: str, error: Exception) -> UserError:
    """Make the error for a `name` that is no encoder."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return UserError(
        f"radgraph: no encoder {name} ({reason}): pass encoder=, a folder with config.json and "
        f"the tokenizer of the model that config.json of the archive names, or run "
        f"`hf download {name}` once"
    )


def _official_keys(network: RadGraphNetwork, dataset: str) -> dict[str, str]:
    """Our name of every tensor -> its name in weights.th."""
    keys = {f"encoder.{key}": _ENCODER + key for key in network.encoder.state_dict()}
    keys["span_width.weight"] = _WIDTH
    for own, official in _heads(network, dataset):
        keys.update({f"{own}.{part}": f"{official}.{part}" for part in ("weight", "bias")})
    return keys


def _heads(network: RadGraphNetwork, dataset: str) -> Iterator[tuple[str, str]]:
    ner = f"_ner._ner_scorers.{dataset}__ner_labels"
    pruner = f"_relation._mention_pruners.{dataset}__relation_labels._scorer"
    pair = f"_relation._relation_feedforwards.{dataset}__relation_labels"
    yield from _layers("ner", network.ner, f"{ner}.0._module", f"{ner}.1._module")
    yield from _layers("pruner", network.pruner, f"{pruner}.0._module", f"{pruner}.1._module")
    yield from _layers(
        "pair", network.pair, pair, f"_relation._relation_scorers.{dataset}__relation_labels"
    )


def _layers(own: str, head: Head, layers: str, out: str) -> Iterator[tuple[str, str]]:
    yield f"{own}.first", f"{layers}._linear_layers.0"
    for layer in range(len(head.rest)):
        yield f"{own}.rest.{layer}", f"{layers}._linear_layers.{layer + 1}"
    yield f"{own}.out", out


def _check(archive: Archive, own_names: dict[str, str], network: RadGraphNetwork) -> None:
    shapes = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    others = {name for name, _ in archive.sizes} - {archive.model_type}
    unread = _UNREAD + tuple(
        f"{head}.{dataset}__{kind}_labels."
        for dataset in others
        for head, kind in (
            ("_ner._ner_scorers", "ner"),
            ("_relation._mention_pruners", "relation"),
            ("_relation._relation_feedforwards", "relation"),
            ("_relation._relation_scorers", "relation"),
        )
    )
    of_official = {official: shapes[own] for official, own in own_names.items()}
    extra = [
        key
        for key in archive.state
        if key not in own_names and not key.startswith(unread) and key != _ENCODER + _BUFFER
    ]
    if faults := faults_of(archive.state, of_official, extra):
        raise UserError(f"weights.th of {archive.place} {faults}; wanted {SOURCE}")
