"""Runs in the oracle environment: the three packages behind a line of JSON each way.

Started by `process.Worker`, never imported: it knows the packages and the standard library, and
nothing of this project. A request is {"call": name, "arguments": {...}}, its answer {"result": ...}
or {"error": "..."}, one line each, on the standard input and output of the process. What a
package prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

LOADED: list[Any] = []


def keep(scorer: Any) -> int:
    """The number by which later calls name it."""
    LOADED.append(scorer)
    return len(LOADED) - 1


def chexbert_load(checkpoint: str) -> int:
    """The package reads `checkpoint` from its cache folder, which the environment points at."""
    import torch
    from f1chexbert import F1CheXbert

    scorer = F1CheXbert(device="cpu")
    # It loads with strict=False: what is absent stays random without a word.
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)["model_state_dict"]
    held = {name.replace("module.", "") for name in state}
    names = scorer.model.state_dict().keys()
    if differ := sorted((held ^ names) - {"bert.embeddings.position_ids"}):
        raise ValueError(f"the checkpoint differs in {len(differ)} keys, {differ[0]} first")
    return keep(scorer)


def chexbert_labels(model: int, reports: list[str]) -> list[list[Any]]:
    """Blank "", positive 1, negative 0, uncertain -1."""
    scorer = LOADED[model]
    return [scorer.get_label(report.strip(), mode="classification") for report in reports]


def chexbert_ids(model: int, reports: list[str]) -> list[list[int]]:
    """List the piece ids that its encoder reads."""
    import pandas
    from f1chexbert.f1chexbert import tokenize

    series = pandas.Series([report.strip() for report in reports], dtype=object)
    return tokenize(series, LOADED[model].tokenizer)


def chexbert_f1(model: int, candidates: list[str], references: list[str]) -> list[Any]:
    """Accuracy over five, the same per report, the report over 14, the report over five."""
    accuracy, each, fourteen, five = LOADED[model](hyps=candidates, refs=references)
    return [accuracy, each, fourteen, five]


def radgraph_load(model_type: str, cache: str) -> int:
    """The unpacked archive lies in the folder `cache`/`model_type`."""
    from radgraph import F1RadGraph

    scorer = F1RadGraph(reward_level="all", model_type=model_type, model_cache_dir=cache, cuda=-1)
    return keep(scorer)


def radgraph_annotate(model: int, reports: list[str]) -> list[dict[str, Any]]:
    """Its annotation of every report."""
    graphs = LOADED[model].radgraph(reports)
    return [graphs[str(row)] for row in range(len(reports))]


def radgraph_f1(model: int, candidates: list[str], references: list[str]) -> list[list[float]]:
    """Simple, partial and complete of each pair."""
    _, levels, _, _ = LOADED[model](hyps=candidates, refs=references)
    return [list(row) for row in zip(*levels, strict=True)]


def radgraph_rewards(pairs: list[list[dict[str, Any]]], lower: bool) -> list[list[float]]:
    """F1 of given annotations; `lower` is what the repository's newer code does first."""
    from radgraph.rewards import compute_reward

    for annotation in (one for pair in pairs for one in pair) if lower else ():
        for entity in annotation["entities"].values():
            entity["tokens"] = entity["tokens"].lower()
    return [list(compute_reward(one, other, "all")) for one, other in pairs]


def ratescore_load(
    ner: str, embedder: str, affinity: str, neg_weight: float | None, batch_size: int
) -> int:
    """`ner` and `embedder` are folders."""
    from RaTEScore import RaTEScore

    scorer = RaTEScore(
        bert_model=ner,
        eval_model=embedder,
        use_gpu=False,
        affinity_matrix=affinity,
        batch_size=batch_size,
    )
    if neg_weight is not None:
        scorer.affinity_matrix["NEG", "WEIGHT"] = neg_weight
    return keep(scorer)


def ratescore_sentences(reports: list[str]) -> list[list[str]]:
    """List the sentences that it reads of each report."""
    from RaTEScore.utils import sentence_split

    return [sentence_split([report])[0] for report in reports]


def ratescore_entities(model: int, reports: list[str]) -> list[list[list[str]]]:
    """(text, type) of every entity. Report by report: the package leaves out one without a
    sentence, and stops at a list of such.
    """
    from RaTEScore.score import run_ner

    scorer = LOADED[model]
    entities: list[list[list[str]]] = []
    for report, sentences in zip(reports, ratescore_sentences(reports), strict=True):
        if not sentences:
            entities.append([])
            continue
        listed = run_ner(
            [report],
            scorer.idx2label,
            scorer.tokenizer,
            scorer.model,
            scorer.device,
            scorer.batch_size,
        )
        entities.append([list(pair) for pair in listed[0]])
    return entities


def ratescore_scores(model: int, candidates: list[str], references: list[str]) -> list[float]:
    """As the package is called: a shorter list where a report has no sentence."""
    return LOADED[model].compute_score(candidates, references)


def ratescore_aligned(
    model: int, candidates: list[str], references: list[str]
) -> list[float | None]:
    """Score pair by pair; None where a report has no sentence and no score."""
    scorer = LOADED[model]
    read = (ratescore_sentences(candidates), ratescore_sentences(references))
    pairs = zip(candidates, references, *read, strict=True)
    return [
        scorer.compute_score([one], [other])[0] if ours and theirs else None
        for one, other, ours, theirs in pairs
    ]


CALLS = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and name.startswith(("chexbert_", "radgraph_", "ratescore_"))
}


def plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as those of Python."""
    return value.tolist()


def serve() -> None:
    """Answer until the input ends, whatever warns the process that asks."""
    for number in (
        *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGXCPU, signal.SIGALRM),
    ):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = {"result": CALLS[request["call"]](**request["arguments"])}
        except Exception as error:  # whatever it is, the caller raises it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=plain), file=answers, flush=True)


if __name__ == "__main__":
    serve()
