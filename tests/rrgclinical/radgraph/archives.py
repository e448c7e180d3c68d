"""Archives with random weights in the official layout, tiny or of base size.

Nothing here knows a finding: entities of these weights mean nothing clinically.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import AutoModel, BertConfig, ModernBertConfig, PretrainedConfig

from tests.rrgclinical.chexbert.tiny import CONFIG, VOCABULARY, WORDS
from tests.rrgclinical.radgraph import reference

FIRST_NER = ["", "OBS-DP", "ANAT-DP", "OBS-DA", "OBS-U"]
XL_NER = [
    "",
    "Observation::definitely present",
    "Anatomy::definitely present",
    "Observation::definitely absent",
    "Observation::uncertain",
    "Observation::measurement::definitely present",
    "Anatomy::uncertain",
]
RELATIONS = ["modify", "located_at", "suggestive_of"]
HIDDEN, LAYERS, FEATURES, SPAN = 24, 2, 6, 8
SEGMENT = 64

TINY = BertConfig.from_dict(CONFIG.to_dict() | {"max_position_embeddings": SEGMENT})


def write_encoder(folder: Path, config: PretrainedConfig) -> Path:
    """config.json and tokenizer: word pieces for BERT, byte-level BPE for ModernBERT."""
    folder.mkdir(parents=True, exist_ok=True)
    if config.model_type == "bert":
        words = [f"[unused{row}]" for row in range(len(VOCABULARY), config.vocab_size)]
        text = "\n".join([*VOCABULARY, *words]) + "\n"
        (folder / "vocab.txt").write_text(text, encoding="utf-8")
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    else:
        config.vocab_size = _write_bpe(folder / "tokenizer.json")
        names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        settings = dict(zip(names, VOCABULARY[:5], strict=True))
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config.save_pretrained(folder)
    return folder


def byte_level(
    texts: Sequence[str], specials: list[str], unknown: str, *, space: bool
) -> Tokenizer:
    """Byte-level BPE learnt from `texts`; `space`: with one before the first word."""
    tokenizer = Tokenizer(models.BPE(unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _write_bpe(path: Path) -> int:
    specials = VOCABULARY[:5]
    tokenizer = byte_level(random_reports(200, seed=9), specials, "[UNK]", space=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(name, specials.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.save(str(path))
    return tokenizer.get_vocab_size()


def config_json(encoder: str, segment: int, hidden: int, features: int) -> dict:
    """The settings of the official training template that the loaders read."""
    bert = {"model_name": encoder, "max_length": segment}
    return {
        "dataset_reader": {
            "type": "dygie",
            "max_span_width": SPAN,
            "token_indexers": {"bert": {"type": "pretrained_transformer_mismatched", **bert}},
        },
        "model": {
            "type": "dygie",
            "embedder": {
                "token_embedders": {"bert": {"type": "pretrained_transformer_mismatched", **bert}}
            },
            "initializer": {},
            "module_initializer": {},
            "feature_size": features,
            "max_span_width": SPAN,
            "target_task": "relation",
            "feedforward_params": {"num_layers": LAYERS, "hidden_dims": hidden, "dropout": 0.4},
            "loss_weights": {"ner": 0.2, "relation": 1.0, "coref": 0.0, "events": 0.0},
            "modules": {
                "coref": {"spans_per_word": 0.3, "max_antecedents": 100, "coref_prop": 0},
                "ner": {},
                "relation": {"spans_per_word": 0.5},
                "events": {
                    "trigger_spans_per_word": 0.3,
                    "argument_spans_per_word": 0.8,
                    "loss_weights": {"trigger": 1.0, "arguments": 1.0},
                },
            },
        },
    }


def random_state(
    encoder: PretrainedConfig, dataset: str, hidden: int, features: int, seed: int, spread: float
) -> dict[str, Tensor]:
    """Every tensor of weights.th. spread: standard deviation of the encoder's weights."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, std: float) -> Tensor:
        return torch.randn(shape, generator=generator) * std

    prefix = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
    state = {
        prefix + name: value.clone() if "norm" in name.lower() else normal(*value.shape, std=spread)
        for name, value in AutoModel.from_config(encoder).state_dict().items()
    }
    width = encoder.hidden_size
    span = 2 * width + features
    entities = len(FIRST_NER if dataset == "radgraph" else XL_NER) - 1

    def linear(name: str, rows: int, columns: int) -> None:
        state[f"{name}.weight"] = normal(rows, columns, std=columns**-0.5)
        state[f"{name}.bias"] = normal(rows, std=0.1)

    def stack(name: str, columns: int) -> None:
        for layer in range(LAYERS):
            linear(f"{name}._linear_layers.{layer}", hidden, columns if layer == 0 else hidden)

    state["_endpoint_span_extractor._span_width_embedding.weight"] = normal(SPAN, features, std=1)
    ner = f"_ner._ner_scorers.{dataset}__ner_labels"
    stack(f"{ner}.0._module", span)
    linear(f"{ner}.1._module", entities, hidden)
    state["_coref._distance_embedding.weight"] = normal(10, features, std=1)
    stack("_coref._antecedent_feedforward._module", 3 * span + features)
    stack("_coref._mention_pruner._scorer.0._module", span)
    linear("_coref._mention_pruner._scorer.1._module", 1, hidden)
    linear("_coref._antecedent_scorer._module", 1, hidden)
    linear("_coref._f_network._linear_layers.0", span, 2 * span)
    pruner = f"_relation._mention_pruners.{dataset}__relation_labels._scorer"
    stack(f"{pruner}.0._module", span)
    linear(f"{pruner}.1._module", 1, hidden)
    stack(f"_relation._relation_feedforwards.{dataset}__relation_labels", 3 * span)
    linear(f"_relation._relation_scorers.{dataset}__relation_labels", len(RELATIONS), hidden)
    state["_events._distance_embedding.weight"] = normal(10, features, std=1)
    return state


def write_archive(
    folder: Path,
    dataset: str = "radgraph-xl",
    *,
    encoder: PretrainedConfig = TINY,
    hidden: int = HIDDEN,
    features: int = FEATURES,
    seed: int = 0,
    spread: float = 0.3,
    change: Callable[[dict[str, Tensor]], None] | None = None,
) -> Path:
    """An unpacked archive in `folder`/archive, its encoder in `folder`/encoder.

    Heads are calibrated on random reports: about one span in twelve is an entity and one pair in
    eight has a relation, so that every label, and none, wins somewhere. `change` edits the state.
    """
    place, body = folder / "archive", write_encoder(folder / "encoder", encoder)
    (place / "vocabulary").mkdir(parents=True)
    segment = encoder.max_position_embeddings
    config = config_json(str(body), segment, hidden, features)
    (place / "config.json").write_text(json.dumps(config))
    labels = {"ner": FIRST_NER if dataset == "radgraph" else XL_NER, "relation": RELATIONS}
    for kind, names in labels.items():
        file = place / "vocabulary" / f"{dataset}__{kind}_labels.txt"
        file.write_text("".join(f"{name}\n" for name in names))
    (place / "vocabulary" / "non_padded_namespaces.txt").write_text("*tags\n*labels\n")
    state = random_state(encoder, dataset, hidden, features, seed, spread)
    reference.calibrate(state, body, dataset, random_reports(12, seed=1))
    if change:
        change(state)
    torch.save(state, place / "weights.th")
    return place


def tiny_modern() -> ModernBertConfig:
    """vocab_size is set when its tokenizer is written."""
    return ModernBertConfig(
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=SEGMENT,
        local_attention=16,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        cls_token_id=2,
        sep_token_id=3,
    )


def pack(place: Path, to: Path) -> Path:
    """The unpacked archive as the .tar.gz that the hub serves."""
    with tarfile.open(to, "w:gz") as tar:
        for file in sorted(place.rglob("*")):
            tar.add(file, arcname=str(file.relative_to(place)), recursive=False)
    return to


# Reports for parity: random ones, and ones that break tokenizers.
_MARKS = [".", ",", ". ", ":", "/", "-", "%", "%.", ").", "(", "50%,", "1.5", "cm", "\n", "Dr."]
_NAMES = ["cardiomegaly", "Unchanged", "effusions", "LEFT", "xyzzy", "___", "Pneumonia"]

ADVERSARIAL = [
    "",
    "heart",
    "Heart.",
    ".",
    "no effusion",
    "lungs clear).",
    "50%. (25%) 3%, 'ok.' \"quoted\"",
    'line\\none \\f form \\u2122 mark \\"said\\"',
    "Heart\x0bnormal\x1csize\x85small\u2028lungs\u3000clear\xa0mild",
    "no\r\neffusion\n\n\nthe   heart",
    "  leading and trailing  \n",
    "cafe\u0301 na\u00efve CAFÉ \u0130s \ufb01ne stra\u00dfe \u039f\u03a3",
    "soft\u00adhyphen zero\u200bwidth \ufeffbom \ufffd",
    "\u200b \u200b \u200b heart \u200b",
    "lungs clear 😀 👩🏽‍⚕️ 心臓 한글",
    "[SEP] [CLS] [PAD] [MASK] [UNK] lungs[SEP]clear",
    "a" * 100 + " " + "a" * 101,
    "1.5-cm (mild) 50% effusion!? and/or /. /? 2/3",
    "cardiomegaly " * 31 + "effusions",
    "the heart is normal; no effusion. " * 12,
    "NO EFFUSION. NO EFFUSION.",
    "no effusion. No Effusion. nO eFFUSION",
]

# Around one, two and three rows of 64 pieces, special tokens or none.
ADVERSARIAL += [
    "heart " * n for n in (60, 61, 62, 63, 64, 65, 66, 123, 124, 125, 127, 128, 129, 187)
]


def random_reports(count: int, seed: int = 0, longest: int = 50) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    words = [*WORDS, *_MARKS, *_NAMES]
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    picks = [torch.randint(len(words), (n,), generator=generator).tolist() for n in lengths]
    return [" ".join(words[i] for i in pick) for pick in picks]
