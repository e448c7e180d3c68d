"""Time the edit plans of one step of EditGRPO.

320 sampled reports of six sentences and 20 entities.

The published code is measured where EDITGRPO_CODE names a checkout of taokz/EditGRPO at 5decc57:
what its server and its client do with one report once the entities and their embeddings stand.
Neither its models nor HTTP are timed.
"""

from __future__ import annotations

import ast
import functools
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.harness import Bench
from rrgkern import EditScript, SentenceEntities, edit_plan
from rrgkern.edit_plan.inputs import EditOptions
from rrgkern.edit_plan.reference import edit_plan_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CONCEPTS = 30

CODE = os.environ.get("EDITGRPO_CODE")
KINDS = {1: "ABNORMALITY", 0: "NON-ABNORMALITY", -1: "ANATOMY"}

bench = Bench("edit_plan", baseline="rrgkern")
Theirs = list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]


@bench.provider("rrgkern")
def ours(
    x: SentenceEntities, y: SentenceEntities, seeds: Tensor, max_edits: int, theirs: Theirs
) -> EditScript:
    return edit_plan(x, y, seeds=seeds, max_edits=max_edits or None)


@bench.provider("reference")
def reference(
    x: SentenceEntities, y: SentenceEntities, seeds: Tensor, max_edits: int, theirs: Theirs
) -> Any:
    width = max_edits or int((x.sentence_offsets.diff() + y.sentence_offsets.diff()).max())
    return edit_plan_reference(x, y, seeds, EditOptions(0.6, 0.6, max_edits, width, True))


if CODE:

    @bench.provider("published code", device="cpu")
    def published(
        x: SentenceEntities, y: SentenceEntities, seeds: Tensor, max_edits: int, theirs: Theirs
    ) -> list[str]:
        server, client = published_code()
        texts = []
        for text, mine, reference in theirs:
            # It writes into the entities, hence the copies.
            mine, reference = ([dict(entity) for entity in side] for side in (mine, reference))
            grouped: dict[str, list[dict[str, Any]]] = {}
            for entity in reference:
                grouped.setdefault(entity["sentence"], []).append(entity)
            found = server["compare_entities_for_edits"](
                mine,
                reference,
                server["PROCESSED_AFFINITY_MATRIX"],
                server["DEFAULT_NEG_CLASS"],
                server["DEFAULT_NEG_WEIGHT"],
                server["DEFAULT_SIMILARITY_THRESHOLD"],
                "cpu",
            )
            names = ("contradictions", "false_positives", "false_negatives")
            analysis = dict(zip(names, found, strict=True))
            analysis["ref_entities_grouped_by_sentence"] = grouped
            texts.append(
                client["process_text_with_server_analysis"](
                    text, analysis, num_operations=1, similarity_threshold=0.6
                )[0]
            )
        return texts


@functools.cache
def published_code() -> tuple[dict[str, Any], dict[str, Any]]:
    """The functions and constants of the server's and the client's file, without what they start.

    Importing the server would load its models and open a port: of its top level only definitions,
    imports of torch and the standard library, and assignments of upper-case names are run.
    """
    modules = []
    for name in ("flask_server/RaTEscore_extractor.py", "verl/utils/RaTEscore_extractor.py"):
        tree = ast.parse(Path(CODE, name).read_text())
        tree.body = [node for node in tree.body if harmless(node)]
        modules.append({"__name__": name})
        exec(compile(tree, name, "exec"), modules[-1])
    return modules[0], modules[1]


def harmless(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return not node.decorator_list and "RateScoreModels" not in ast.unparse(node.args)
    if isinstance(node, ast.Import):
        return all(alias.name in ("torch", "re", "copy", "random") for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module == "typing"
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).isupper()


def as_published(x: SentenceEntities, y: SentenceEntities) -> Theirs:
    """The pairs as text and as the dictionaries that the server makes of a report."""
    sides = []
    for z in (x, y):
        texts, entities = [], []
        bounds = zip(z.sentence_offsets.tolist(), z.entity_offsets.tolist(), strict=True)
        for (a, e), (b, f) in pairwise(bounds):
            sentences = [f"This is sentence {key}." for key in z.sentence_key[a:b].tolist()]
            texts.append(" ".join(sentences))
            rows = zip(z.entity_sentence[e:f].tolist(), z.presence[e:f].tolist(),
                       z.key[e:f].tolist(), z.embedding[e:f].cpu(), strict=True)  # fmt: skip
            entities.append(
                [
                    {"text_span": str(key), "type": KINDS[presence], "embedding": embedding,
                     "sentence": sentences[sentence]}
                    for sentence, presence, key, embedding in rows
                ]
            )  # fmt: skip
        sides.append((texts, entities))
    return list(zip(sides[0][0], sides[0][1], sides[1][1], strict=True))


def reports(count: int, sentences: int, entities: int, width: int, seed: int) -> SentenceEntities:
    """Random findings: concepts at random directions, a third of the texts shared."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(CONCEPTS, width, generator=torch.Generator().manual_seed(0))
    concept = torch.randint(0, CONCEPTS, (count * entities,), generator=generator)
    presence = torch.randint(-1, 2, concept.shape, generator=generator, dtype=torch.int8)
    fields = (
        torch.arange(count + 1) * sentences,
        torch.randint(0, 3 * sentences, (count * sentences,), generator=generator),
        torch.arange(count + 1) * entities,
        torch.randint(0, sentences, concept.shape, generator=generator),
        presence,
        concept * 3 + presence,
        torch.nn.functional.normalize(directions, dim=1)[concept],
    )
    return SentenceEntities(*(field.to(DEVICE) for field in fields))


@pytest.mark.parametrize("max_edits", [1, 0], ids=["one", "fixed-point"])
def test_edit_plan(benchmark, max_edits):
    count, sentences, entities, width = 320, 6, 20, 768

    def make_inputs(seed: int) -> tuple[Any, ...]:
        x, y = (reports(count, sentences, entities, width, 2 * seed + k) for k in range(2))
        theirs = as_published(x, y) if CODE else []
        return x, y, torch.arange(count, device=DEVICE), max_edits, theirs

    pairs = count * (2 * entities) * (2 * entities + 1) // 2
    bench.compare(
        benchmark,
        make_inputs,
        shape={"reports": count, "sentences": sentences, "entities": entities, "width": width},
        dtype=torch.float32,
        case="one edit" if max_edits else "to the fixed point",
        bytes_moved=2 * count * entities * width * 4,
        flops=2 * width * pairs,
        rounds=5,
    )
