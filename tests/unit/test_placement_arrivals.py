"""Arrivals from files and by seed, and the two schedulers that do not think: random and ideal."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.placement.arrivals import Arrival, Kind, dynamic, poisson, read, snapshot, write
from controllers.placement.ideal import Ideal
from controllers.placement.random import Random
from controllers.placement.state import ClusterState, Job, Server
from testbed.errors import InputError

HEADER = "arrival_s,model,workers,batch,iterations\n"
KINDS = (Kind("vgg16", (1, 12), (512, 1800), 0.255), Kind("bert", (2, 8), (8, 32), 0.4))


@given(
    st.lists(
        st.builds(
            Arrival,
            st.floats(0, 1e6),
            st.sampled_from(["vgg16", "gpt-2", "a,b"]),
            st.integers(1, 99),
            st.integers(1, 99),
            st.integers(1, 99),
        ),
        min_size=1,
    )
)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, jobs: list[Arrival]) -> None:
    path = tmp_path_factory.mktemp("arrivals") / "jobs.csv"
    write(path, jobs)
    assert read(path) == sorted(jobs, key=lambda one: one.arrival_s)


def test_comments_and_order(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("# ours\n" + HEADER + "\n5, bert ,2,8,200\n# later\n0.5,vgg16,4,512,300\n")
    assert read(path) == [Arrival(0.5, "vgg16", 4, 512, 300), Arrival(5, "bert", 2, 8, 200)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: the columns are missing"),
        ("arrival,model\n", "line 1: the columns are arrival,model"),
        (HEADER, "has no jobs"),
        (HEADER + "1,vgg16,2,3\n", "line 2: has 4 values, not 5"),
        (HEADER + "0,vgg16,1,1,1\n\nsoon,vgg16,1,1,1\n", "line 4, column arrival_s: 'soon' is no time"),
        (HEADER + "nan,vgg16,1,1,1\n", "line 2, column arrival_s"),
        (HEADER + "-1,vgg16,1,1,1\n", "line 2, column arrival_s"),
        (HEADER + "0,vgg99,1,1,1\n", "line 2, column model: 'vgg99' is no model (one of bert, vgg16)"),
        (HEADER + "0,,1,1,1\n", "line 2, column model"),
        (HEADER + "0,vgg16,0,1,1\n", "line 2, column workers: '0'"),
        (HEADER + "0,vgg16,1,1.5,1\n", "line 2, column batch: '1.5'"),
        (HEADER + "0,vgg16,1,1,²\n", "line 2, column iterations: '²'"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read(path, models=["vgg16", "bert"])
    assert said in str(caught.value)
    assert str(path) in caught.value.where


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.csv")


@pytest.mark.parametrize("load", [0.8, 1.0])
def test_poisson_arrivals_have_the_load_asked_for(load: float) -> None:
    jobs = poisson(KINDS, load=load, accelerators=24, jobs=4000, seed=1)
    iteration_s = {kind.model: kind.iteration_s for kind in KINDS}
    busy_s = sum(job.workers * job.iterations * iteration_s[job.model] for job in jobs)
    assert busy_s / (24 * jobs[-1].arrival_s) == pytest.approx(load, rel=0.06)
    assert poisson(KINDS, load=load, accelerators=24, jobs=4000, seed=1) == jobs
    assert poisson(KINDS, load=load, accelerators=24, jobs=4000, seed=2) != jobs
    gaps_s = [after.arrival_s - before.arrival_s for before, after in pairwise(jobs)]
    mean_s = sum(gaps_s) / len(gaps_s)
    assert sum(gap > mean_s for gap in gaps_s) / len(gaps_s) == pytest.approx(0.368, abs=0.03)  # 1/e: memoryless


def test_snapshot_and_dynamic() -> None:
    one, two = Arrival(3.0, "vgg16", 2, 8, 200), Arrival(1.0, "dlrm", 4, 8, 200)
    assert [job.arrival_s for job in snapshot([one, two])] == [0, 0]
    assert dynamic([one], [two], 60.0) == [replace(one, arrival_s=0.0), replace(two, arrival_s=61.0)]
    with pytest.raises(ValueError, match="not after the beginning"):
        dynamic([one], [two], 0.0)
    with pytest.raises(ValueError, match="load of 0"):
        poisson(KINDS, load=0, accelerators=24, jobs=1, seed=0)
    with pytest.raises(ValueError, match="12 workers are more than 8"):
        poisson(KINDS, load=1, accelerators=8, jobs=1, seed=0)


def state(*workers: int) -> ClusterState:
    servers = tuple(Server(f"h{index}", f"tor{index // 2}", 2) for index in range(4))
    jobs = tuple(Job(f"j{index}", "vgg16", float(index), size, 10, 10) for index, size in enumerate(workers))
    return ClusterState(0.0, servers, jobs)


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(0, 5))
def test_random_places_by_arrival_and_moves_nobody(workers: list[int], seed: int) -> None:
    before = state(*workers)
    proposal = Random().propose(before, seed=seed)
    assert proposal == Random().propose(before, seed=seed)
    left = 8
    after = before.apply(proposal, len(proposal.candidates) - 1)
    for job in after.jobs:
        assert len(job.placement) == (job.workers if job.workers <= left else 0)
        left -= len(job.placement)
    assert after.apply(Random().propose(after, seed=seed + 1)).jobs == after.jobs


def test_random_draws_differ() -> None:
    draws = [Random().propose(state(3, 3), seed=seed).candidates[0] for seed in range(8)]
    assert len({str(draw) for draw in draws}) > 4
    assert len(Random().propose(state(3, 3)).candidates) == 10


def test_ideal_gives_everyone_the_whole_cluster() -> None:
    proposal = Ideal().propose(state(2, 4, 8))
    assert proposal.copies
    placements = proposal.candidates[0].placements
    assert placements == {
        "j0": ("h0", "h0"),
        "j1": ("h0", "h0", "h1", "h1"),
        "j2": tuple(f"h{n // 2}" for n in range(8)),
    }
    with pytest.raises(ValueError, match="9 workers do not fit"):
        Ideal().propose(state(9))
