"""A whole run on two nodes of two ranks: one process's losses, also when it is stopped between."""

from __future__ import annotations

from pathlib import Path

from tests.rrgtrain.dist.test_scale_runs import RUN, close
from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.runs import At, command


def test_a_run_of_two_nodes_stops_goes_on_and_ends_where_one_process_ends(tmp_path: Path) -> None:
    alone, nodes = tmp_path / "alone", tmp_path / "nodes"
    for home in (alone, nodes):
        home.mkdir()
    done = command(*RUN, cwd=alone)
    assert done.status == 0, done.err
    # the last rank of the second node: all stop, two steps done
    at = At("rrgtrain.train.update:accumulate_gradients", 2)
    stopped = on_nodes(*RUN, "scale.mode=fsdp2", cwd=nodes, at=at)
    assert [d.status for d in stopped] == [75] * 4, [d.err for d in stopped]
    assert "stopped by SIGTERM after 2 steps of editgrpo" in stopped[0].last
    assert "torchrun --nnodes 2 ... --nproc-per-node 2 -m rrgtrain rl --resume" in stopped[0].last
    assert [d.err for d in stopped[1:3]] == [""] * 2
    assert stopped[3].err == "rrgtrain: SIGTERM: finishing the step\n"
    ended = on_nodes("rl", "--resume", "run", cwd=nodes)
    assert [d.status for d in ended] == [0] * 4, [d.err for d in ended]
    close(alone / "run", nodes / "run")
