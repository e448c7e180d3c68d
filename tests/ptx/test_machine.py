"""Divergence, barriers, bounds, alignment, races, atomics and exchanges on hand-written PTX."""

from __future__ import annotations

import pytest
import torch

from tests.ptx.handmade import execute
from tests.ptx.parse import PtxError


def lanes(values: object = 0, count: int = 32) -> torch.Tensor:
    return torch.full((count,), int(values), dtype=torch.int32)  # type: ignore[call-overload]


# %d9: where the thread's element of the first tensor lies; %d8: of the second.
OWN = "mad.wide.u32 %d9, %r0, 4, %d0;"
BOTH = f"{OWN} mad.wide.u32 %d8, %r0, 4, %d1;"
# %r1: the thread's word of `table`; %r2: its mirror's.
TABLE = "mov.u32 %r3, table; mad.lo.u32 %r1, %r0, 4, %r3; sub.u32 %r2, 63, %r0;"
MIRROR = f"{TABLE} mad.lo.u32 %r2, %r2, 4, %r3;"


def fails(kind: str, body: str, *tensors: torch.Tensor, block: int = 32, grid: int = 1) -> str:
    with pytest.raises(PtxError) as caught:
        execute(body, *tensors, block=block, grid=grid)
    assert caught.value.kind == kind, caught.value
    assert "kernel handmade, line" in str(caught.value)
    return str(caught.value)


def test_branches_part_and_meet() -> None:
    out = lanes()
    execute(
        f"""{OWN} and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0;
        mov.u32 %r2, 0; mov.u32 %r3, 0;
        @%p0 bra EVEN;
        LOOP: add.u32 %r2, %r2, %r0; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r0;
        @%p1 bra LOOP;
        bra.uni MEET;
        EVEN: mov.u32 %r2, 7;
        MEET: shfl.sync.idx.b32 %r4, %r2, 1, 31, -1; add.u32 %r2, %r2, %r4;
        st.global.u32 [%d9], %r2;""",
        out,
    )
    assert out.tolist() == [1 + (k * k if k % 2 else 7) for k in range(32)]


def test_lanes_meet_after_what_stands_at_the_end_of_the_text() -> None:
    """A loop that lanes leave at different times, and a rare path behind the place of meeting."""
    out = lanes()
    execute(
        f"""{OWN} mov.u32 %r2, 0; bra HEAD;
        AFTER: shfl.sync.bfly.b32 %r4, %r2, 1, 31, -1; bra STORE;
        HEAD: setp.ge.u32 %p0, %r2, %r0; @%p0 bra AFTER;
        setp.eq.u32 %p1, %r2, 5; @%p1 bra RARE;
        BACK: add.u32 %r2, %r2, 1; bra HEAD;
        STORE: st.global.u32 [%d9], %r4; ret;
        RARE: add.u32 %r2, %r2, 1; bra BACK;""",
        out,
    )
    ends = [k if k < 6 else max(k, 7) for k in range(32)]
    assert out.tolist() == [ends[k ^ 1] for k in range(32)]


def test_an_exit_and_a_predicate_leave_the_others() -> None:
    out = lanes(5)
    execute(
        f"""{OWN} setp.gt.u32 %p0, %r0, 20; @%p0 exit; mov.u32 %r1, 1;
        setp.lt.u32 %p1, %r0, 4; @%p1 mov.u32 %r1, 2; @!%p1 add.u32 %r1, %r1, %r0;
        st.global.u32 [%d9], %r1;""",
        out,
    )
    assert out.tolist() == [2] * 4 + [1 + k for k in range(4, 21)] + [5] * 11


def test_blocks_threads_and_special_registers() -> None:
    out = lanes(-1, 3 * 40)
    execute(
        """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
        mad.wide.u32 %d9, %r3, 4, %d0; mov.u32 %r4, %laneid; mov.u32 %r5, %nctaid.x;
        mad.lo.u32 %r4, %r5, 100, %r4; st.global.u32 [%d9], %r4;""",
        out, block=40, grid=3,
    )  # fmt: skip
    assert out.tolist() == [300 + k % 40 % 32 for k in range(120)]


EXCHANGE = (
    MIRROR + " st.shared.u32 [%r1], %r0; {} ld.shared.u32 %r4, [%r2]; st.global.u32 [%d9], %r4;"
)


def test_a_barrier_hands_shared_memory_over() -> None:
    out = lanes(0, 64)
    execute(OWN + EXCHANGE.format("bar.sync 0;"), out, block=64)
    assert out.tolist() == list(range(63, -1, -1))


def test_a_missing_barrier_is_a_race() -> None:
    text = fails("race", OWN + EXCHANGE.format(""), lanes(0, 64), block=64)
    assert "no barrier between" in text


def test_a_barrier_of_the_warp_orders_a_warp_and_no_block() -> None:
    within = TABLE + " xor.b32 %r2, %r0, 1; mad.lo.u32 %r2, %r2, 4, %r3; st.shared.u32 [%r1], %r0;"
    use = "ld.shared.u32 %r4, [%r2]; st.global.u32 [%d9], %r4;"
    out = lanes(0, 64)
    execute(f"{OWN} {within} bar.warp.sync -1; {use}", out, block=64)
    assert out.tolist() == [k ^ 1 for k in range(64)]
    fails("race", f"{OWN} {within} {use}", lanes(0, 64), block=64)
    fails("race", OWN + EXCHANGE.format("bar.warp.sync -1;"), lanes(0, 64), block=64)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ld.shared.u32 %r4, [table];", "st.shared.u32 [%r5], %r0;"),
        ("ld.shared.u32 %r4, [table];", "st.shared.u32 [%r7], %r0;"),
        ("st.shared.u32 [%r5], %r0;", "ld.shared.u32 %r4, [table];"),
        ("st.shared.u32 [%r5], %r0;", "st.shared.u32 [%r6], %r0;"),
        ("st.shared.u32 [%r5], %r0;", "atom.shared.add.u32 %r4, [%r6], 1;"),
    ],
)
def test_reads_and_writes_of_two_threads_race(first: str, second: str) -> None:
    """Thread 0 touches word 0 in the one, or all threads; thread 5 or 31 in the other."""
    setup = """mov.u32 %r3, table; sub.u32 %r7, 31, %r0;
    mad.lo.u32 %r7, %r7, 4, %r3; mad.lo.u32 %r5, %r0, 4, %r3; sub.u32 %r6, %r0, 5;
    and.b32 %r6, %r6, 31; mad.lo.u32 %r6, %r6, 4, %r3; st.shared.u32 [%r5], 0; bar.sync 0;"""
    fails("race", f"{setup} {first} {second}")
    execute(f"{setup} {first} bar.sync 0; {second}")


def test_two_lanes_that_write_one_place_at_once_race() -> None:
    fails("race", "st.global.u32 [%d0], %r0;", lanes())
    execute("st.global.u32 [%d0], 7;", lanes())


def test_writes_of_one_value_do_not_race() -> None:
    body = "setp.{}.u32 %p0, %r0, 9; @%p0 st.shared.u32 [table], {};"
    execute(body.format("eq", 7) + body.format("gt", 7))
    fails("race", body.format("eq", 7) + body.format("gt", 8))


def test_blocks_race_whatever_the_barriers() -> None:
    body = "setp.eq.u32 %p0, %r0, 0; mov.u32 %r1, %ctaid.x; {} bar.sync 0; {}"
    fails("race", body.format("@%p0 st.global.u32 [%d0], %r1;", ""), lanes(), grid=2)
    fails("race", body.format("@%p0 st.global.u32 [%d0], %r1;", ""), lanes(), grid=80)
    own = "setp.eq.and.u32 %p1, %r1, 0, %p0; @%p1 st.global.u32 [%d0], 1;"
    fails("race", body.format(own, "ld.global.u32 %r2, [%d0];"), lanes(), grid=2)
    execute(body.format(own, "@%p1 ld.global.u32 %r2, [%d0];"), lanes(), grid=2)
    out = lanes()
    execute(body.format("@%p0 red.global.add.u32 [%d0], 3;", ""), out, grid=80)
    assert out[0] == 240


def test_reading_what_nobody_wrote() -> None:
    fails("uninitialised", f"{TABLE} ld.shared.u32 %r4, [%r1];")


@pytest.mark.parametrize("count", [31, 32])
def test_a_wrong_bound(count: int) -> None:
    body = f"{OWN} setp.ge.u32 %p0, %r0, 31; @%p0 exit; st.global.u32 [%d9+4], %r0;"
    if count == 32:
        execute(body, lanes(0, count))
    else:
        text = fails("bounds", body, lanes(0, count))
        assert "write of 4 bytes" in text and "thread 30 of block 0" in text


def test_bounds_of_shared_and_local_memory() -> None:
    fails("bounds", "st.shared.u32 [table+1024], %r0;")
    fails("bounds", "mov.u64 %d1, 12345; ld.global.u32 %r1, [%d1+3];")
    body = ".local .align 4 .b8 depot[8]; mov.u64 %d1, depot; cvta.local.u64 %d1, %d1;"
    out = lanes()
    execute(f"{body} st.u32 [%d1+4], %r0; ld.local.u32 %r2, [depot+4]; {OWN} "
            "st.global.u32 [%d9], %r2;", out)  # fmt: skip
    assert out.tolist() == list(range(32))
    fails("bounds", f"{body} st.u32 [%d1+8], %r0;")
    two = ".shared .align 4 .b8 one[4]; .shared .align 4 .b8 other[4];"
    execute(
        f"{two} setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [one], 1;@%p0 st.shared.u32 [other], 2;"
    )
    fails("bounds", f"{two} st.shared.u32 [one+4], %r0;")


def test_an_unaligned_vector() -> None:
    out = lanes(3, 128)
    body = "mad.wide.u32 %d9, %r0, 16, %d0; ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%d9+{}];"
    execute(body.format(0), out)
    fails("alignment", f"setp.lt.u32 %p0, %r0, 9; @!%p0 exit; {body.format(4)}", out)


def test_vectors_bytes_and_generic_addresses() -> None:
    out = torch.arange(128, dtype=torch.uint8)
    execute(
        """mad.wide.u32 %d9, %r0, 4, %d0; ld.global.v2.u16 {%h1, %h2}, [%d9];
        st.global.v2.u16 [%d9], {%h2, %h1}; ld.s8 %r1, [%d9+3]; neg.s32 %r1, %r1;
        st.global.u8 [%d9], %r1;""",
        out,
    )
    assert out.view(32, 4)[5].tolist() == [256 - 21, 23, 20, 21]


def test_atomics_count_in_order() -> None:
    out, before = lanes(), lanes()
    execute(f"{BOTH} atom.global.add.u32 %r1, [%d0], 2; st.global.u32 [%d8], %r1;", out, before)
    assert out[0] == 64 and sorted(before.tolist()) == list(range(0, 64, 2))
    out = lanes(7)
    execute("atom.global.cas.b32 %r1, [%d0], 7, 9; atom.global.max.s32 %r1, [%d0], -5;", out)
    assert out[0] == 9


SHUFFLES = {
    "shfl.sync.up.b32 %r1, %r0, 3, 0, -1": [max(k - 3, k if k < 3 else 0) for k in range(32)],
    "shfl.sync.down.b32 %r1, %r0, 3, 31, -1": [k + 3 if k < 29 else k for k in range(32)],
    "shfl.sync.bfly.b32 %r1, %r0, 6, 31, -1": [k ^ 6 for k in range(32)],
    "shfl.sync.idx.b32 %r1, %r0, 2, 6175, -1": [k // 8 * 8 + 2 for k in range(32)],
    "redux.sync.add.s32 %r1, %r0, -1": [496] * 32,
    "redux.sync.max.s32 %r1, %r0, -1": [31] * 32,
    "vote.sync.ballot.b32 %r1, %p0, -1": [0x3FF] * 32,
}


@pytest.mark.parametrize("instruction", SHUFFLES)
def test_lanes_exchange(instruction: str) -> None:
    out = lanes()
    execute(f"{OWN} setp.lt.u32 %p0, %r0, 10; {instruction}; st.global.u32 [%d9], %r1;", out)
    assert out.tolist() == SHUFFLES[instruction]


def test_the_predicate_of_a_shuffle_and_votes() -> None:
    out = lanes()
    execute(
        f"""{OWN} shfl.sync.down.b32 %r1|%p1, %r0, 3, 31, -1; vote.sync.any.pred %p2, %p1, -1;
        vote.sync.all.pred %p3, %p1, -1; selp.u32 %r2, 1, 0, %p1; @%p2 add.u32 %r2, %r2, 2;
        @%p3 add.u32 %r2, %r2, 4; st.global.u32 [%d9], %r2;""",
        out,
    )
    assert out.tolist() == [3] * 29 + [2] * 3


def test_a_shuffle_of_a_part_of_the_lanes() -> None:
    part = "setp.lt.u32 %p0, %r0, 16; @!%p0 exit;"
    execute(f"{part} shfl.sync.bfly.b32 %r1, %r0, 1, 31, 65535;")
    half = "setp.lt.u32 %p0, %r0, 16; @%p0 bra A; bra B; A:"
    fails("lanes", f"{half} shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; B: bar.sync 0;")


def test_a_matrix_is_dealt_out() -> None:
    """Lane i gets elements 2 (i % 4) and the next of row i / 4; rows lie in reverse order here."""
    out = lanes()
    execute(
        f"""{OWN} {TABLE} st.shared.u32 [%r1], %r0; bar.sync 0; sub.u32 %r5, 7, %r0;
        and.b32 %r5, %r5, 7; mad.lo.u32 %r5, %r5, 16, %r3;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r6}}, [%r5]; st.global.u32 [%d9], %r6;""",
        out,
    )
    assert out.tolist() == [4 * (7 - k // 4) + k % 4 for k in range(32)]


def test_a_matrix_is_put_together() -> None:
    """The word of lane i is the word i % 4 of row i / 4."""
    out = lanes()
    execute(
        f"""{OWN} {TABLE} and.b32 %r5, %r0, 7; mad.lo.u32 %r5, %r5, 16, %r3;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {{%r0}}; bar.sync 0;
        ld.shared.u32 %r6, [%r1]; st.global.u32 [%d9], %r6;""",
        out,
    )
    assert out.tolist() == list(range(32))


def test_a_part_of_a_warp_at_a_barrier() -> None:
    fails("barrier", "setp.lt.u32 %p0, %r0, 16; @%p0 bra B; bar.sync 0; B: bar.sync 0;")
