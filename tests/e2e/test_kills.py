"""Something of a run is killed: nothing is left, the run is not valid and says why, and the next one works."""

from __future__ import annotations

import pytest

from benchmarks import kills

pytestmark = pytest.mark.e2e


def test_whatever_is_killed_the_run_is_not_valid_and_the_next_one_is() -> None:
    kinds = ("launcher", "guest", "agent", "ovsdb-server", "sampler")
    counts = kills.campaign_of_kills(len(kinds), seed=3, kinds=kinds)
    assert {kind for kind, _ in counts} == {*kinds, "no kill"}
    assert [became for _, became in counts if "WRONG" in became] == []
    assert counts["no kill", "valid"] == 2
