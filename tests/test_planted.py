"""The list of planted faults fits the tree, and the command tells a dead one from a live one."""

from __future__ import annotations

from tests import planted
from tests.house.tools import named_tests
from tests.planted import ROOT, Fault


def test_every_fault_can_be_planted():
    faults = planted.listed()
    known = named_tests(ROOT)
    assert len(faults) >= 50
    for fault in faults:
        text = (ROOT / fault.file).read_text(encoding="utf-8")
        assert text.count(fault.old) == 1, f"{fault.name}: its old text stands there not once"
        path = fault.test.split("::")[0]
        assert any(name == path or name.startswith(f"{path}/") for name in known), fault.test


def test_a_fault_dies_and_a_harmless_change_lives(tmp_path):
    (tmp_path / "rrgkern").mkdir()
    (tmp_path / "rrgkern" / "sums.py").write_text("def plus(a, b):\n    return a + b\n")
    (tmp_path / "test_sums.py").write_text(
        "from rrgkern.sums import plus\n\ndef test_plus(): assert plus(2, 3) == 5\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    fault = Fault("rrgkern/sums.py", "a + b", "a - b", "test_sums.py")
    assert planted.plant(tmp_path, fault)[0] == planted.RED
    assert planted.plant(tmp_path, fault._replace(new="b + a"))[0] == 0
    assert planted.plant(tmp_path, fault._replace(test="test_gone.py"))[0] not in (0, planted.RED)
    assert (tmp_path / "rrgkern" / "sums.py").read_text() == "def plus(a, b):\n    return a + b\n"
