"""Schedulers of the user's: found in a file by their names, refused in words, and run by nobody but the user."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_world import World

from controllers.placement.cluster import Cluster, Rules
from controllers.placement.state import Job, Server, Timing
from testbed import cluster, plugins, scenario
from testbed.errors import InputError
from testbed.report.cluster.summary import ordered
from testbed.study import points

FILE = '''
from dataclasses import dataclass
from controllers.placement.random import Random
from controllers.placement.state import Candidate, Proposal

@dataclass(frozen=True)
class First:
    """Whoever comes first gets the first servers."""
    name: str = "first"

    def propose(self, state, *, candidates=10, seed=0):
        placed = {job.name: job.placement for job in state.jobs if job.placement}
        free = [one.name for one in state.servers if one.name not in sum(placed.values(), ())]
        for job in state.jobs:
            if job.name not in placed and job.workers <= len(free):
                placed[job.name], free = tuple(free[:job.workers]), free[job.workers:]
        return Proposal(self.name, state.now_s, (Candidate(placed),))

class NoScheduler:
    name = "none"

class Demanding:
    name = "demanding"
    def __init__(self, more): ...
    def propose(self, state, *, candidates=10, seed=0): ...
'''
SCENARIO = """
name = "mine"
title = "Mine"
[fabric]
topology = "dumbbell"
scale = 200
[cluster]
arrivals = "snapshot"
arms = ["own-first", "own-first+cassini", "random"]
[[cluster.kind]]
name = "vgg16"
model = "vgg16"
workers = 2
iterations = [2, 3]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(SCENARIO)
    path = tmp_path / "my_scheduler.py"
    path.write_text(FILE)
    return path


def test_a_scheduler_of_the_users_runs_a_cluster(file: Path) -> None:
    assert sorted(plugins.schedulers(file)) == ["demanding", "first"]
    servers = tuple(Server(f"h{at}", "tor1") for at in range(1, 5))
    times = tuple(Timing(2, span, 1.0) for span in ("rack", "cluster"))
    jobs = [Job(f"j{at}", "vgg16", 0.0, 2, 5, 5, times) for at in range(3)]
    life = Cluster(servers, jobs, plugins.scheduler(file, "own-first+cassini"), Rules(10.0))
    world = World(life, servers, {job.name: job for job in jobs}).play()
    assert [run.placement for run in world.runs][:2] == [("h1", "h2"), ("h3", "h4")]
    assert len(world.runs) == 3


def test_a_scenario_with_it_needs_the_file_and_only_the_user_names_it(file: Path) -> None:
    loaded = scenario.load(str(file.parent / "mine.toml"))
    with pytest.raises(InputError, match="own-first is a scheduler of your own"):
        cluster.build(loaded, "mine.toml", file.parent)
    made = cluster.build(loaded, "mine.toml", file.parent, file)
    assert made.plugin == file
    study = points.load(str(file.parent / "mine.toml")).with_plugin(file)
    assert [point.plugin for point in study.points] == [file]
    with pytest.raises(InputError, match="no arm of two-jobs is called own-"):
        points.load("two-jobs").with_plugin(file)


@pytest.mark.parametrize(
    ("text", "arm", "said"),
    [
        (FILE, "own-second", "has no scheduler named 'second'.*demanding"),
        (FILE, "own-none", "has no scheduler named 'none'"),
        (FILE, "own-demanding", "demanding cannot be made: TypeError"),
        ("import nothing_of_the_kind", "own-first", "cannot be run: ModuleNotFoundError"),
        ("class broken", "own-first", "cannot be run: SyntaxError"),
        ("", "own-first", "give a class a `name`"),
    ],
)
def test_a_file_that_is_none_is_refused_in_words(tmp_path: Path, text: str, arm: str, said: str) -> None:
    path = tmp_path / "plugin.py"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        plugins.scheduler(path, arm)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("missing.py", "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(InputError, match="is no Python file"):
            plugins.schedulers(tmp_path / name)


@pytest.mark.parametrize("arm", ["own-", "own-X", "own-a/b", "mine", "own-first+pollux", "own-a b"])
def test_other_names_of_arms_are_refused(file: Path, arm: str) -> None:
    with pytest.raises(InputError, match="cluster"):
        scenario.load(str(file.parent / "mine.toml"), (f'cluster.arms=["{arm}"]',))


def test_arms_of_the_users_stand_before_the_ideal() -> None:
    assert ordered(["ideal", "own-b", "random", "own-a", "themis"]) == ["themis", "random", "own-b", "own-a", "ideal"]
