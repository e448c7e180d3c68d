#!/bin/sh
# networkx 3.6.1: `graph_edit_distance` compares shapes alone. The graph of "no effusion, left" and that of "edema, right",
# each node and edge with a label, are at distance 0, and isomorphic: neither names nor labels take part.
# Guess: above 0. Seen: below. Its page: without `node_match` the attributes of nodes are not considered.
# So: a graph measure of reports written in one line (entities, relations, distance) rewards any report of as many
# findings. Give `node_match` and `edge_match`, and put the words into the attributes.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" networkx==3.6.1 scipy==1.17.1 numpy==2.4.6
PYTHONPATH="$site" python3 - <<'EOF'
import networkx as nx


def graph(entity, state, relation, place):
    g = nx.DiGraph()
    g.add_node(entity, word=entity, label=state)
    g.add_node(place, word=place, label="ANAT-DP")
    g.add_edge(entity, place, label=relation)
    return g


a = graph("effusion", "OBS-DA", "located_at", "left")
b = graph("edema", "OBS-DP", "modify", "right")


def same(x, y):
    return x == y


blind = nx.graph_edit_distance(a, b)
seeing = nx.graph_edit_distance(a, b, node_match=same, edge_match=same)
print(f"distance {blind}, with labels {seeing}; isomorphic {nx.is_isomorphic(a, b)}")
assert blind == 0 and nx.is_isomorphic(a, b)
assert seeing == 3 and not nx.is_isomorphic(a, b, node_match=same)
EOF
