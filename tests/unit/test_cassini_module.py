"""The module: what placements reach, which one is taken, and what loops cost."""

from __future__ import annotations

import itertools
import json
import math
import random as randomness
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cassini_circle import square

from controllers.cassini import module
from controllers.cassini.affinity import SharedLink
from controllers.cassini.decision import decide
from controllers.cassini.module import Evaluation, Placement, Settings, choose, decisions
from controllers.cassini.profile import Profile

RATE_BPS = 1e9
EXACT = Settings(angles=4, tie=0.0, gap=0.0, budget=None, knot_budget=None)
SOME = settings(deadline=None, max_examples=40)


@st.composite
def placements(draw: st.DrawFn, jobs: int = 4, links: int = 4, periods: tuple[int, ...] = (4, 6, 8, 12)) -> Placement:
    """A few jobs whose iterations take some milliseconds, on a few links, at random."""
    level = st.sampled_from([0.0, 0.0, 0.5 * RATE_BPS, RATE_BPS])
    profiles = []
    for job in "badc"[:jobs]:
        period = draw(st.sampled_from(periods))
        profiles.append(Profile(job, period * 1e-3, tuple(draw(st.lists(level, min_size=period, max_size=period)))))
    shared = [draw(st.permutations(profiles))[: draw(st.integers(2, 3))] for _ in range(draw(st.integers(1, links)))]
    return Placement("p", tuple(SharedLink(f"l{at}", RATE_BPS, tuple(there)) for at, there in enumerate(shared)))


def score_at(link: SharedLink, shifts_ms: dict[str, int]) -> float:
    """The score of a link, straight from its definition, for profiles with an angle for each millisecond."""
    perimeter = math.lcm(*(len(profile.demand_bps) for profile in link.profiles))
    demands = (np.resize(np.roll(profile.demand_bps, shifts_ms[profile.job]), perimeter) for profile in link.profiles)
    return 1 - float(np.maximum(0, sum(demands) - RATE_BPS).mean()) / RATE_BPS


def brute(placement: Placement) -> float:
    """The highest mean score of any time-shifts in whole milliseconds."""
    sending = [link for link in placement.links if sum(any(at.demand_bps) for at in link.profiles) >= 2]
    periods = {at.job: len(at.demand_bps) for link in sending for at in link.profiles if any(at.demand_bps)}
    every = itertools.product(*(range(period) for period in periods.values()))
    silent = dict.fromkeys("abcd", 0)
    return max(
        float(np.mean([score_at(link, silent | dict(zip(periods, shifts, strict=True))) for link in sending]))
        for shifts in every
    ) if sending else 1.0  # fmt: skip


def in_ms(evaluation: Evaluation) -> dict[str, int]:
    return dict.fromkeys("abcd", 0) | {job: round(at * 1e3) for job, at in evaluation.shifts_s.items()}


@SOME
@given(placements(periods=(4,)))
def test_loops_included_brute_force_agrees(placement: Placement) -> None:
    best = choose([placement], settings=EXACT).best
    assert best.score == pytest.approx(brute(placement), abs=1e-9)


@settings(deadline=None, max_examples=10)
@given(placements(jobs=3, periods=(4, 6, 8)))
def test_brute_force_agrees_on_unequal_iterations(placement: Placement) -> None:
    cut = Settings(angles=12, tie=0.0, gap=0.0, budget=None, knot_budget=None)
    assert choose([placement], settings=cut).best.score >= brute(placement) - 1e-9


@SOME
@given(placements())
def test_what_always_holds(placement: Placement) -> None:
    best = choose([placement], settings=Settings(angles=8)).best
    assert best.score_unshifted - 1e-9 <= best.score <= best.score_best + 1e-9 <= 1 + 2e-9
    for link in best.links:
        assert link.score <= link.best + 1e-9 <= link.bound + 2e-9
    for job in best.jobs:
        assert 0 <= job.time_shift_s < job.quantised_s
        assert job.quantised_s >= job.period_s - 1e-6
        assert job.slack_s >= 0
        if job.job == job.reference:
            assert job.time_shift_s == 0
    if not best.looped:
        assert best.score == pytest.approx(best.score_best, abs=1e-3)  # the tie


@SOME
@given(placements(periods=(4, 8)))
def test_scores_are_those_of_the_shifts_and_a_whole_iteration_changes_nothing(placement: Placement) -> None:
    best = choose([placement], settings=EXACT).best
    links = {link.link: link for link in placement.links}
    for link in best.links:
        for name in link.links:
            assert score_at(links[name], in_ms(best)) == pytest.approx(link.score)
            later = {job: at + 8 for job, at in in_ms(best).items()}
            assert score_at(links[name], later) == pytest.approx(link.score)


@SOME
@given(placements(), st.randoms(use_true_random=False))
def test_the_order_of_links_and_of_jobs_does_not_matter(placement: Placement, random: randomness.Random) -> None:
    mixed = [
        SharedLink(link.link, link.capacity_bps, tuple(random.sample(link.profiles, len(link.profiles))))
        for link in random.sample(placement.links, len(placement.links))
    ]
    coarse = Settings(angles=8)
    assert choose([placement], settings=coarse) == choose([Placement("p", tuple(mixed))], settings=coarse)


@SOME
@given(placements(jobs=4, links=5, periods=(10,)))
def test_pairs_on_links_outside_loops_keep_their_distance(placement: Placement) -> None:
    """Theorem 1 on what the module returns: a link that is a knot of its own reaches its optimum."""
    best = choose([placement], settings=EXACT).best
    sizes = [link.knot for link in best.links]
    for link in best.links:
        if sizes.count(link.knot) == 1:
            assert link.score == pytest.approx(link.best, abs=1e-9)


def test_a_single_link_is_decided_as_before() -> None:
    profiles = (square("b", 0.255, 0.141), square("a", 0.240, 0.141))
    placement = Placement("p", (SharedLink("l", RATE_BPS, profiles),))
    chosen = choose([placement]).best
    alone = decide("l", (profiles[1], profiles[0]), RATE_BPS)
    assert chosen.shifts_s == pytest.approx(alone.shifts_s)
    assert chosen.score == pytest.approx(alone.score)
    [decision] = decisions(placement, chosen)
    assert [job.rotation_slots for job in decision.jobs] == [job.rotation_slots for job in alone.jobs]
    assert decision.statement == alone.statement


def loop_of(widths: list[int], links: list[str]) -> Placement:
    """Jobs of 20 ms that send at line rate for so many of them, on links named by their jobs."""
    profiles = {
        job: Profile(job, 0.020, (RATE_BPS,) * width + (0.0,) * (20 - width))
        for job, width in zip("abcdef", widths, strict=False)
    }
    shared = (SharedLink(name, RATE_BPS, tuple(profiles[job] for job in name)) for name in links)
    return Placement("loop", tuple(shared))


def test_a_triangle_that_fits_loses_nothing() -> None:
    best = choose([loop_of([6, 6, 6], ["ab", "bc", "ca"])]).best
    assert best.looped
    assert best.score == pytest.approx(1)
    assert min(job.slack_s for job in best.jobs) > 0


def test_a_triangle_that_cannot_fit_loses_what_it_must() -> None:
    """Each pair alone fits on its link; all three do not fit in 20 ms, and 4 of 30 ms collide somewhere."""
    placement = loop_of([10, 10, 4], ["ab", "bc", "ca"])
    best = choose([placement], settings=Settings(angles=20, tie=0.0)).best
    assert best.score_best == pytest.approx(1)
    assert best.score == pytest.approx(1 - 4 / 20 / 3)


def test_a_merged_link_weighs_as_much_as_its_links() -> None:
    placement = loop_of([12, 12, 6], ["ab", "bc"])
    twin = SharedLink("twin", RATE_BPS, placement.links[0].profiles)
    best = choose([Placement("p", (*placement.links, twin))]).best
    assert [link.links for link in best.links] == [("ab", "twin"), ("bc",)]
    assert best.score == pytest.approx((2 * (1 - 4 / 20) + 1) / 3)


def test_mean_and_tail_may_choose_differently() -> None:
    even = [loop_of([12, 12, 12], [name]) for name in ("ab", "bc")]
    steady = Placement("steady", tuple(link for placement in even for link in placement.links))  # 0.8 and 0.8
    uneven = loop_of([14, 14, 4, 4], ["ab", "cd", "bc"])  # 0.6, 1 and 1
    assert choose([steady, uneven]).best.placement == "loop"
    tail = choose([steady, uneven], aggregate="tail")
    assert tail.best.placement == "steady"
    assert [evaluation.score for evaluation in tail.ranking] == pytest.approx([0.8, 0.6])
    assert tail.ranking[1].jobs == ()


def test_of_equally_good_candidates_the_first_is_taken() -> None:
    one, two = loop_of([6, 6], ["ab"]), Placement("nothing shared", ())
    assert choose([one, two]).best.placement == "loop"
    assert choose([two, one]).best.placement == "nothing shared"
    with pytest.raises(ValueError, match="no placement"):
        choose([])


def test_a_job_has_one_iteration_time_on_all_its_links() -> None:
    jobs = [square("a", 0.0901, 0.05), square("b", 0.1303, 0.05), square("c", 0.1709, 0.05)]
    links = (SharedLink("x", RATE_BPS, tuple(jobs[:2])), SharedLink("y", RATE_BPS, tuple(jobs[1:])))
    best = choose([Placement("p", links)]).best
    quantised = [round(job.quantised_s * 1e3) for job in best.jobs]
    assert math.lcm(*quantised) <= 10_000
    assert best.score == pytest.approx(best.score_best, abs=1e-3)


def test_solved_elsewhere_it_is_the_same() -> None:
    candidates = [loop_of([7, 8, 9, 5], ["ab", "bc", "cd", "da"]), loop_of([7, 8, 9, 5], ["abc", "bcd"])]
    with ThreadPoolExecutor(2) as executor:
        assert choose(candidates, executor=executor) == choose(candidates)


def test_as_json() -> None:
    choice = choose([loop_of([7, 8, 9], ["ab", "bc"])])
    raw = json.loads(json.dumps(choice.to_dict()))
    assert raw["ranking"][0]["jobs"][1]["time_shift_s"] == choice.best.jobs[1].time_shift_s


def test_knots_too_large_for_common_slots_keep_those_of_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shifts then go to the nearest slot of each link; no link may come out better than its optimum."""
    monkeypatch.setattr(module, "COMMON_CELLS", 0)
    periods = [0.030, 0.045, 0.060, 0.035]
    profiles = [square(job, period, 0.6 * period, angles=60) for job, period in zip("abcd", periods, strict=True)]
    links = [
        SharedLink(f"{one.job}{other.job}", RATE_BPS, (one, other))
        for one, other in itertools.combinations(profiles, 2)
    ]
    best = choose([Placement("p", tuple(links))], settings=Settings(angles=30)).best
    assert best.score_unshifted < best.score <= best.score_best + 1e-9


def random_loop(seed: int) -> Placement:
    rng = np.random.default_rng(seed)
    widths = rng.integers(3, 12, 5).tolist()
    names = ["".join(sorted(rng.choice(list("abcde"), int(rng.integers(2, 4)), replace=False))) for _ in range(6)]
    return loop_of(widths, sorted(set(names)))


def test_what_loops_cost() -> None:
    """Random knots of 5 jobs: the usual budget finds what a search without limit does, and most loops cost little."""
    usual, exact = Settings(angles=20, tie=0.0), Settings(angles=20, tie=0.0, gap=0.0, knot_budget=None)
    evaluations = [choose([random_loop(seed)], settings=usual).best for seed in range(6)]
    limits = [choose([random_loop(seed)], settings=exact).best for seed in range(6)]
    assert all(evaluation.looped for evaluation in evaluations)
    for found, limit in zip(evaluations, limits, strict=True):
        assert found.score >= limit.score - 0.01
    lost = [limit.score_best - limit.score for limit in limits]
    gained = [limit.score - limit.score_unshifted for limit in limits]
    assert np.mean(lost) < 0.25 * np.mean(gained)
