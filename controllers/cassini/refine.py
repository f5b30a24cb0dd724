"""Time-shifts refined by what a link still marked while its jobs kept to those given (beyond the paper).

The circle knows profiles, each measured while its job was alone. Marks that are left after the shift show what it does
not know: where an Up phase is longer beside another job than alone, or begins late. They are read by slot of the
unified circle, and split in two:

- what the circle foresees: marks per packet of excess times the excess of the slot. They are fitted to the measurement,
  and are one per packet where the circle has no excess at all;
- the residue, which is put down to the pairs of jobs that meet in the slot. A job's phases keep their share
  wherever it is rotated to: they cost again what they cost, in proportion to the demand of the other job they meet.

The sum of both, in marks per round, is the cost of rotations; at those given it is about the measured marks, without
those in slots in which no two jobs meet, which no rotation can mend. Minimised is the cost summed over all links that
are given, one job at a time and over all its rotations, from the shifts given downhill. So by this cost the result
is never worse; and where nothing was marked nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from controllers.cassini.compatibility import excess_bps
from controllers.cassini.decision import TIE, Decision, moved
from controllers.cassini.profile import Floats

LEAST_GAIN = 0.01  # of the measured cost: less is not worth a change
MOST_ROUNDS = 20  # over all jobs; each lowers the cost, and in practice three are enough


@dataclass(frozen=True)
class Marks:
    """What a link marked while its jobs were held to their time-shifts, by slot of its unified circle.

    Both are of shape (slots,): packets marked in each slot, summed over all rounds, and how long it was watched in s.
    """

    packets: Floats
    watched_s: Floats

    def per_round(self, slot_s: float) -> Floats:
        """Return the mean marks in each slot of one round; none in a slot that was never watched."""
        return np.divide(self.packets * slot_s, self.watched_s, out=np.zeros_like(self.packets), where=self.seen)

    @property
    def seen(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Which slots were watched."""
        return self.watched_s > 0


@dataclass(frozen=True)
class Refined:
    """The decisions with refined time-shifts, and the cost in marks per round of those given and of the refined."""

    decisions: tuple[Decision, ...]
    given_marks: float
    refined_marks: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self) | {"decisions": [decision.to_dict() for decision in self.decisions]}


def refine(
    decisions: Sequence[Decision], marks: Mapping[str, Marks], packet_bytes: float, late: float = 0.0
) -> Refined:
    """Return the decisions with the time-shifts that the measured marks (by link) make cheapest.

    A link of which there are no marks to go by costs nothing, wherever its jobs are. A job has one time-shift on all
    links; the first job by name of a link stays where it is if it is first on all its links. packet_bytes: of a full
    packet. late: how far workers may be behind their ticks, as a share of their iteration.
    Raises ValueError where marks are not of a circle's shape.
    """
    measured = [one for one in decisions if one.link in marks]
    costs = [_cost(one, marks[one.link], packet_bytes, late) for one in measured]
    shifts_s = {job: shift_s for one in decisions for job, shift_s in one.shifts_s.items()}
    given = sum(cost(shifts_s) for cost in costs)
    best, chosen = given, dict(shifts_s)
    free = {job for one in measured for job in one.shifts_s if job != min(one.shifts_s)}
    for _ in range(MOST_ROUNDS):
        before = best
        for job in sorted(free):
            best, chosen = _move(job, chosen, best, measured, costs)
        if best == before:
            break
    if best > (1 - LEAST_GAIN) * given:
        best, chosen = given, shifts_s
    return Refined(tuple(moved(one, chosen, TIE) if chosen != shifts_s else one for one in decisions), given, best)


def _move(
    job: str,
    shifts_s: dict[str, float],
    least: float,
    decisions: Sequence[Decision],
    costs: Sequence[Callable[[Mapping[str, float]], float]],
) -> tuple[float, dict[str, float]]:
    """Return the cost and the shifts with one job moved to where all is cheapest; of equal places to the nearest."""
    own = [(one, cost) for one, cost in zip(decisions, costs, strict=True) if job in one.shifts_s]
    finest = min((one for one, _ in own), key=lambda one: one.slot_s)
    slots = next(len(of.demand_bps) for of in finest.jobs if of.job == job)
    here_s = shifts_s[job]
    elsewhere = least - sum(cost(shifts_s) for _, cost in own)
    found = least, shifts_s
    for slot in sorted(range(1, slots), key=lambda slot: min(slot, slots - slot)):
        tried = shifts_s | {job: (here_s + slot * finest.slot_s) % (slots * finest.slot_s)}
        total = elsewhere + sum(cost(tried) for _, cost in own)
        if total < found[0] - 1e-9 * max(1.0, least):
            found = total, tried
    return found


def _cost(decision: Decision, marks: Marks, packet_bytes: float, late: float) -> Callable[[Mapping[str, float]], float]:
    """Return the cost of time-shifts on one link in marks per round."""
    slots, seen = decision.slots, marks.seen
    if marks.packets.shape != (slots,) or marks.watched_s.shape != (slots,):
        raise ValueError(f"{decision.link}: marks of {marks.packets.shape} slots, the circle has {slots}")
    demands = [np.array(job.demand_bps) / decision.capacity_bps for job in decision.jobs]
    given = [job.rotation_slots for job in decision.jobs]

    def excess(rotations: Sequence[int]) -> Floats:
        """Packets beyond what the link can carry, in each slot of a round."""
        demand = np.array([_turned(*of, slots) for of in zip(demands, rotations, strict=True)]).sum(axis=0)
        return excess_bps(demand, 1.0) * decision.slot_s * decision.capacity_bps / 8 / packet_bytes

    measured, foreseen = marks.per_round(decision.slot_s), excess(given)
    # Least squares, to which one packet of excess is added that was marked once: nothing can be fitted to no excess.
    per_packet = (1 + float((measured * foreseen)[seen].sum())) / (1 + float((foreseen[seen] ** 2).sum()))
    residue = np.where(seen, np.maximum(0.0, measured - per_packet * foreseen), 0.0)
    wide = [_widened(demand, round(late * len(demand))) for demand in demands]
    risks = _risks(wide, given, residue, seen)

    def cost(shifts_s: Mapping[str, float]) -> float:
        if not measured.any():
            return 0.0
        rotations = [round(shifts_s[job.job] / decision.slot_s) for job in decision.jobs]
        total = per_packet * float(excess(rotations).sum())
        for (one, other), risk in risks.items():
            total += float(_turned(risk, rotations[one], slots) @ _turned(wide[other], rotations[other], slots)) / 2
        return total

    return cost


def _risks(
    wide: Sequence[Floats], given: Sequence[int], residue: Floats, seen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> dict[tuple[int, int], Floats]:
    """Return for each ordered pair the marks in each phase of the first per unit of the second's demand there."""
    slots, jobs = len(residue), range(len(wide))
    at = [_turned(wide[job], given[job], slots) for job in jobs]
    meeting = {pair: at[pair[0]] * at[pair[1]] for pair in combinations(jobs, 2)}
    together = sum(meeting.values(), np.zeros(slots))
    risks = {}
    for pair, met in meeting.items():
        share = residue * np.divide(met, together, out=np.zeros(slots), where=together > 0)
        for one, other in (pair, pair[::-1]):
            length = len(wide[one])
            phase = (np.arange(slots) - given[one]) % length
            marked = np.bincount(phase, share, length)
            demanded = np.bincount(phase, np.where(seen, at[other], 0.0), length)
            risks[one, other] = np.divide(marked, demanded, out=np.zeros(length), where=demanded > 0)
    return risks


def _turned(own: Floats, rotation: int, slots: int) -> Floats:
    """Return round the circle what a job has in each slot of one iteration, delayed by its rotation."""
    return np.tile(np.roll(own, rotation % len(own)), slots // len(own))


def _widened(demand: Floats, late: int) -> Floats:
    """Return the demand of a job of which nobody knows by how many slots, up to `late`, it is behind."""
    return np.asarray(np.array([np.roll(demand, behind) for behind in range(late + 1)]).mean(axis=0))
