"""Pollux: goodput, its best batch, and when a new allocation is worth its restarts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.placement.evolution import legal
from controllers.placement.goodput import Goodput
from controllers.placement.layout import Layout
from controllers.placement.pollux import Pollux, Problem
from controllers.placement.state import ClusterState, Job, Server, Timing

QUIET = Goodput(0.02, 0.002, 0.01, 0.001, 0.05, 0.002, 1.5, 50.0, 64, 4096, 256)
NOISY = replace(QUIET, noise_scale=50_000.0)


def state(goodputs: list[Goodput], servers: int = 2, each: int = 2) -> ClusterState:
    rooms = tuple(Server(f"h{index}", f"tor{index // 2}", each) for index in range(servers))
    jobs = tuple(Job(f"j{index}", "vgg16", -1000.0, 1, 10, 5, goodput=one) for index, one in enumerate(goodputs))
    return ClusterState(0.0, rooms, jobs)


def test_goodput_is_the_published_form() -> None:
    compute_s, reduce_s = 0.02 + 0.002 * 100, 0.05 + 0.002 * 2
    last_s = (compute_s**1.5 + reduce_s**1.5) ** (1 / 1.5)
    assert QUIET.iteration_s(4, 2, 100) == pytest.approx(last_s)
    assert QUIET.iteration_s(4, 2, 100, passes=3) == pytest.approx(2 * compute_s + last_s)
    assert QUIET.iteration_s(1, 1, 100) == pytest.approx(compute_s)
    assert QUIET.iteration_s(4, 1, 100) < QUIET.iteration_s(4, 2, 100)
    assert QUIET.efficiency(64) == 1
    assert QUIET.efficiency(400) == pytest.approx((50 + 64) / (50 + 400))


def test_noisier_gradients_make_a_larger_batch_the_best_one() -> None:
    quiet, noisy = QUIET.best(4, 2), NOISY.best(4, 2)
    assert quiet is not None
    assert noisy is not None
    assert quiet.total < noisy.total
    assert quiet.goodput == pytest.approx(
        QUIET.throughput(4, 2, quiet.local, quiet.passes) * QUIET.efficiency(quiet.total)
    )


@given(st.integers(1, 40), st.integers(1, 2), st.integers(1, 300), st.integers(0, 3000), st.integers(1, 300))
def test_the_batch_stays_within_its_limits(workers: int, servers: int, initial: int, more: int, local: int) -> None:
    limits = replace(NOISY, initial_batch=initial, max_batch=initial + more, max_local_batch=local)
    best = limits.best(workers, servers)
    if best is None:
        assert more == 0 or workers * local < 2 * initial + workers or workers > initial + more or more < workers
        return
    assert best.total == best.local * best.passes * workers
    assert initial <= best.total <= initial + more
    assert best.local <= local


def test_a_job_whose_efficiency_changes_is_given_more() -> None:
    before = state([QUIET, QUIET])
    running = before.apply(Pollux().propose(before))
    assert [len(job.placement) for job in running.jobs] == [2, 2]
    same = Pollux().propose(running)
    assert running.apply(same) == running  # nothing changed, so nothing is worth a restart
    fixed = replace(QUIET, noise_scale=0.0, initial_batch=4, max_batch=4)  # gains next to nothing from a second worker
    changed = replace(running, jobs=(replace(running.jobs[0], goodput=NOISY), replace(running.jobs[1], goodput=fixed)))
    after = Pollux().propose(changed)
    assert [len(job.placement) for job in changed.apply(after).jobs] == [3, 1]
    assert after.batches["j0"].total > same.batches["j0"].total
    assert changed.apply(after).jobs[0].restarts == 1


def test_a_restart_that_costs_more_than_it_gains_is_not_made() -> None:
    before = state([QUIET, QUIET])
    running = before.apply(Pollux().propose(before))
    fixed = replace(QUIET, noise_scale=0.0, initial_batch=4, max_batch=4)
    jobs = (replace(running.jobs[0], goodput=NOISY), replace(running.jobs[1], goodput=fixed))
    changed = replace(running, jobs=jobs)
    assert changed.apply(Pollux(restart_s=2000.0).propose(changed)) == changed


def test_fitness_is_the_power_mean_and_moving_costs_the_published_factor() -> None:
    one = state([QUIET, QUIET])
    running = replace(one, jobs=(replace(one.jobs[0], placement=("h0", "h0"), restarts=3), one.jobs[1]))
    problem = Problem(running, Layout(one.servers), -1.0, 30.0)
    stays, moves = np.array([[2, 0], [0, 2]]), np.array([[0, 2], [2, 0]])
    assert problem.speedups(stays) == pytest.approx([1, 1])
    factor = (1000 - 3 * 30) / (1000 + 30)
    assert problem.speedups(moves) == pytest.approx([factor, 1])
    assert problem.fitness(moves) == pytest.approx(2 / (1 / factor + 1))


def test_breeding_comes_close_to_trying_all() -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        mixed = [replace(QUIET, noise_scale=float(noise)) for noise in random.uniform(10, 20_000, size=3)]
        best, bred = Pollux().propose(state(mixed)), Pollux(exact_size=0).propose(state(mixed), seed=seed)
        assert best.exact
        assert not bred.exact
        assert best.objective is not None
        assert bred.objective is not None
        assert 0.95 * best.objective <= bred.objective <= best.objective + 1e-9


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from([QUIET, NOISY]), min_size=0, max_size=6), st.integers(1, 3), st.integers(0, 2))
def test_what_holds_of_every_candidate(goodputs: list[Goodput], each: int, seed: int) -> None:
    scheduler = Pollux(population=8, generations=5, exact_size=100)
    one = state(goodputs, servers=3, each=each)
    for _ in range(2):
        proposal = scheduler.propose(one, seed=seed)
        assert proposal == scheduler.propose(one, seed=seed)
        layout, found = Layout(one.servers), set()
        problem = Problem(one, layout, -1.0, 30.0)
        for choice in range(len(proposal.candidates)):
            after = one.apply(proposal, choice)  # raises where an accelerator is given twice
            rows = [layout.counts(job.placement) for job in after.jobs]
            matrix = np.array(rows, dtype=np.int64).reshape(-1, 3)
            assert legal(matrix, layout.capacity)
            assert problem.speedups(matrix) == pytest.approx([proposal.merit[job.name] for job in one.jobs])
            found.add(matrix.tobytes())
        assert len(found) == len(proposal.candidates)
        json.dumps(proposal.to_dict())
        one = replace(one.apply(proposal), now_s=100.0)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="needs its goodput"):
        Pollux().propose(replace(state([QUIET]), jobs=(Job("a", "vgg16", 0, 1, 1, 1),)))
    with pytest.raises(ValueError, match="exponent"):
        Pollux(power=0).propose(state([QUIET]))
    with pytest.raises(ValueError, match="gamma"):
        replace(QUIET, gamma=0.5)
    with pytest.raises(ValueError, match="batches"):
        replace(QUIET, max_batch=1)


def test_a_job_runs_with_the_numbers_of_workers_it_was_profiled_with() -> None:
    one = state([NOISY, NOISY], servers=4, each=2)
    profiled = replace(one.jobs[0], timings=(Timing(3, "cluster", 0.3),))
    made = Pollux().propose(replace(one, jobs=(profiled, one.jobs[1])))
    for candidate in made.candidates:
        assert len(candidate.placements.get(profiled.name, ())) in (0, 3)
    assert any(profiled.name in candidate.placements for candidate in made.candidates)
