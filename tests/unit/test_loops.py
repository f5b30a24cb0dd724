"""A ring in the affinity graph: broken along a tree, decided jointly, and what each of them reaches."""

from __future__ import annotations

import pytest

from controllers.cassini.affinity import SharedLink
from controllers.cassini.module import Placement, choose
from controllers.cassini.profile import Profile
from testbed.loops import along_a_tree

CAPACITY_BPS = 1e9


def job(name: str, share: float) -> Profile:
    """A job that sends at line rate in the last `share` of an iteration of 300 ms."""
    quiet = round(72 * (1 - share))
    return Profile(name, 0.3, (0.0,) * quiet + (CAPACITY_BPS,) * (72 - quiet))


def ring(share: float) -> list[SharedLink]:
    a, b, c = (job(name, share) for name in "abc")
    return [
        SharedLink(name, CAPACITY_BPS, pair) for name, pair in (("one", (a, b)), ("two", (b, c)), ("three", (c, a)))
    ]


def test_a_tree_has_one_shift_for_each_job_and_suits_the_links_it_takes() -> None:
    found = along_a_tree(ring(1 / 3), angles=72)
    assert [decision.link for decision in found] == ["one", "three", "two"]
    shifts = [{job.job: job.time_shift_s for job in decision.jobs} for decision in found]
    assert len({(name, shift) for of in shifts for name, shift in of.items()}) == 3
    assert sorted(round(decision.score, 6) for decision in found)[1:] == [1.0, 1.0]


def test_what_is_left_out_is_what_deciding_jointly_gains() -> None:
    """Three thirds fit round the ring exactly, if each pair is not put as far apart as it might be."""
    broken = along_a_tree(ring(1 / 3), angles=72)
    joint = choose([Placement("ring", tuple(ring(1 / 3)))]).best
    assert joint.looped
    assert joint.score == pytest.approx(1, abs=1e-6)
    assert sum(decision.score for decision in broken) / 3 < joint.score - 0.05


def test_without_a_loop_nothing_is_left_out() -> None:
    found = along_a_tree(ring(0.5)[:2], angles=72)
    assert [round(decision.score, 6) for decision in found] == [1.0, 1.0]
