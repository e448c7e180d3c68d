#!/bin/sh
# Of 2,000 reports 1,500 are the normal template, so that their embeddings are equal, and 500 are all different. An HNSW
# index at its defaults, by faiss 1.15.1, hnswlib 0.8.0 and usearch 2.26.6, does not find a different report when it is
# asked for its own embedding: the links of the graph go from copy to copy. Guess: 95 % are found. Seen: none to one of
# ten. Without the copies, one template kept, nearly all are. So: a retrieval of similar reports, or of hard negatives,
# by HNSW answers with the normal template whatever is asked. Drop equal reports before the index is built, or use a flat one.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" faiss-cpu==1.15.1 hnswlib==0.8.0 usearch==2.26.6 numpy==2.4.6
PYTHONPATH="$site" OMP_NUM_THREADS=1 python3 - <<'PY'
import faiss
import hnswlib
import numpy as np
from usearch.index import Index

generator = np.random.default_rng(0)
template = generator.normal(size=64)
others = template + 1.5 * generator.normal(size=(500, 64))
unit = [rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (template[None], others)]


def by_faiss(rows, queries):
    index = faiss.IndexHNSWFlat(64, 32)
    index.add(rows)
    return index.search(queries, 1)[1][:, 0]


def by_hnswlib(rows, queries):
    index = hnswlib.Index("l2", 64)
    index.init_index(len(rows))
    index.add_items(rows, np.arange(len(rows)), num_threads=1)
    return index.knn_query(queries, 1, num_threads=1)[0][:, 0]


def by_usearch(rows, queries):
    index = Index(ndim=64, metric="l2sq", dtype="f32")
    index.add(np.arange(len(rows)), rows, threads=1)
    return index.search(queries, 1, threads=1).keys[:, 0]


def flat(rows, queries):
    index = faiss.IndexFlatL2(64)
    index.add(rows)
    return index.search(queries, 1)[1][:, 0]


for copies in (1500, 1):
    order = generator.permutation(copies + 500)
    rows = np.concatenate([np.repeat(unit[0], copies, 0), unit[1]]).astype(np.float32)[order]
    different = np.flatnonzero(order >= copies)
    for search in (by_faiss, by_hnswlib, by_usearch, flat):
        share = (search(rows, rows[different]) == different).mean()
        print(f"{copies} equal reports and 500 others, {search.__name__}: {share:.1%} of the others are their own nearest")
        assert share == 1 if search is flat else share < 0.2 if copies > 1 else share > 0.6
PY
