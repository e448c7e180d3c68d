"""A whole run on two nodes of two ranks, one of which is killed: it goes on as one process's."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from tests.rrgtrain.nodes import on_nodes
from tests.rrgtrain.run.test_scale_runs import RUN, close
from tests.rrgtrain.runs import At, finished


def test_a_killed_rank_is_named_on_both_nodes_and_the_run_ends_where_one_process_ends(
    tmp_path: Path,
) -> None:
    # the last rank, on the second node; rank 0 learns of it through torchrun's store
    at = At("rrgtrain.train.batch:Batch.of_all_ranks", 3, "SIGKILL")
    lost = on_nodes(*RUN, "scale.mode=fsdp2", cwd=tmp_path, at=at)
    assert [d.status for d in lost] == [75, 75, 75, -9], [d.err for d in lost]
    host = re.escape(socket.gethostname())
    wanted = (
        # torchrun may have taken it away before anybody has read how it ended
        rf"rrgtrain: another rank is gone \(rank 3, process \d+ on {host}, (?:killed by SIGKILL, "
        r"as the kernel does where memory runs out|ended)\) after 2 steps of editgrpo; .* "
        r"go on with: "
        r"torchrun --nnodes 2 \.\.\. --nproc-per-node 2 -m rrgtrain rl --resume run"
    )
    assert re.fullmatch(wanted, lost[0].last), lost[0].err
    said = [line for d in lost for line in d.err.splitlines() if "is gone" in line]
    assert said == [lost[0].last], "one rank tells it"
    assert not any("Traceback" in d.err for d in lost)
    ended = on_nodes("rl", "--resume", "run", cwd=tmp_path)
    assert [d.status for d in ended] == [0] * 4, [d.err for d in ended]
    close(finished(*RUN)[0], tmp_path / "run")
