"""What a job computes, what it sends and when: the data every other module of this room works on."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from testbed.errors import InputError
from workloads.training.operations import (
    COMPUTE,
    LONGEST_S,
    MisfitError,
    Op,
    brief,
    faults,
    is_time,
    is_whole,
    rehearse,
    traffic,
)
from workloads.training.schedule import RECEIVE

__all__ = ["Bucket", "Conduct", "JobPlan", "Op", "data_parallel"]

MOST_JITTER = 0.33  # three standard deviations must leave some compute


@dataclass(frozen=True)
class Conduct:
    """How a worker departs from its plan.

    `jitter`: relative standard deviation of its compute durations, drawn for each iteration (normal, cut at three
    deviations). `slow`: factor on all its compute. `late_s`: how much later than the job it first starts.
    """

    jitter: float = 0.0
    slow: float = 1.0
    late_s: float = 0.0


@dataclass(frozen=True)
class JobPlan:
    """One job, of whatever strategy.

    `hosts` and `fabric_ips` are in rank order; a host stands there once for each of its accelerators in the job.
    `groups` are lists of ranks that collectives run among, in ring order. `programs` are the operations of one
    iteration (`operations.Op`): one program per rank, or a single one that all follow. `conduct` is empty, or has one
    entry per rank; its jitter is drawn from `seed`. `note` says for the manifest where the sizes come from.

    Raises `testbed.errors.InputError` for anything that cannot be run.
    """

    name: str
    hosts: tuple[str, ...]
    fabric_ips: tuple[str, ...]
    dscp: int
    iterations: int
    congestion_control: str
    groups: tuple[tuple[int, ...], ...]
    programs: tuple[tuple[Op, ...], ...]
    conduct: tuple[Conduct, ...] = ()
    seed: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        self._check_places()
        self._check_groups()
        self._check_conduct()
        self._check_programs()

    @property
    def workers(self) -> int:
        """Number of ranks."""
        return len(self.hosts)

    @property
    def compute_s(self) -> float:
        """How long an iteration lasts if communication takes no time (and nobody is late, slow or unsteady)."""
        return max(max(ends, default=0.0) for ends in self._ends)

    @property
    def down_s(self) -> float:
        """How long an iteration computes before its first byte is sent, likewise."""
        first = []
        for rank in range(self.workers):
            program, ends = self.program(rank), self._ends[rank]
            sending = (op for op in program if op.kind not in (COMPUTE, RECEIVE))
            begin = next(sending, None)
            if begin is not None:
                first.append(max((ends[other] for other in begin.after), default=0.0))
        return min(first)

    @cached_property
    def _ends(self) -> list[list[float]]:
        return rehearse(self.groups, [self.program(rank) for rank in range(self.workers)])

    @cached_property
    def _traffic(self) -> dict[tuple[int, int], int]:
        return traffic(self.groups, [self.program(rank) for rank in range(self.workers)])

    def program(self, rank: int) -> tuple[Op, ...]:
        """The operations of `rank`."""
        return self.programs[rank] if len(self.programs) > 1 else self.programs[0]

    def traffic(self) -> dict[tuple[int, int], int]:
        """(source rank, destination rank) -> bytes per iteration, to the byte; pairs without any are left out."""
        return dict(self._traffic)

    def connections(self) -> list[tuple[int, int]]:
        """(source rank, destination rank) of all traffic, sorted; between ranks of one host it crosses no link."""
        return list(self._traffic)

    def sent_bytes(self, rank: int) -> int:
        """Bytes that `rank` sends in one iteration, to the byte."""
        return sum(size_bytes for (source, _), size_bytes in self._traffic.items() if source == rank)

    @property
    def total_bytes(self) -> int:
        """Bytes that all ranks together send in one iteration."""
        return sum(self._traffic.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `from_dict` is its inverse. Operations have no keys at their defaults."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["programs"] = tuple(tuple(brief(op) for op in program) for program in self.programs)
        data["conduct"] = tuple(asdict(each) for each in self.conduct)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobPlan:
        """The plan in `data`, as `to_dict` made it, be it through JSON or not.

        InputError names what is wrong.
        """
        where = f"job {data.get('name', '(no name)')}"
        keys = _checked_keys(cls, data, where, {"conduct", "seed", "note"})
        for key in ("hosts", "fabric_ips", "groups", "programs", "conduct"):
            keys[key] = _sequence(keys.get(key, ()), f"{where}, {key}")
        keys["groups"] = tuple(
            _sequence(group, f"{where}, groups[{index}]") for index, group in enumerate(keys["groups"])
        )
        keys["programs"] = tuple(
            _program(program, f"{where}, programs[{index}]") for index, program in enumerate(keys["programs"])
        )
        conduct = []
        for index, each in enumerate(keys["conduct"]):
            conduct.append(Conduct(**_checked_keys(Conduct, each, f"{where}, conduct[{index}]", _names(Conduct))))
        keys["conduct"] = tuple(conduct)
        return cls(**keys)

    def _fail(self, key: str, what: str, mend: str = "") -> InputError:
        return InputError(f"job {self.name}, {key}", what, mend)

    def _check_places(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name.split() != [self.name]:
            raise InputError("job", f"name {self.name!r} is not a word", "use letters, digits and dashes")
        if len(self.hosts) < 2:
            raise self._fail("hosts", f"{len(self.hosts)} workers", "a job on the network needs at least two")
        if not all(isinstance(host, str) and host for host in self.hosts):
            raise self._fail("hosts", f"{list(self.hosts)} are not names of hosts")
        for ip in self.fabric_ips:
            try:
                ipaddress.IPv4Address(ip)
            except ValueError as error:
                raise self._fail("fabric_ips", str(error), "give IPv4 addresses") from None
        pairs = set(zip(self.hosts, self.fabric_ips, strict=False))
        if len(self.fabric_ips) != len(self.hosts) or not len(pairs) == len(set(self.hosts)) == len(
            set(self.fabric_ips)
        ):
            mend = "give the host's one address for every worker, in rank order"
            raise self._fail("fabric_ips", f"{list(self.fabric_ips)}", mend)
        if not is_whole(self.dscp) or not 0 <= self.dscp <= 63:
            raise self._fail("dscp", f"{self.dscp!r}", "a DSCP is a whole number from 0 to 63")
        if not isinstance(self.congestion_control, str) or not self.congestion_control:
            raise self._fail("congestion_control", f"{self.congestion_control!r}", "name one, such as dctcp")
        if not is_whole(self.iterations) or self.iterations < 1:
            raise self._fail("iterations", f"{self.iterations!r}", "give a whole number from 1 on")
        if not is_whole(self.seed):
            raise self._fail("seed", f"{self.seed!r}", "give a whole number")

    def _check_groups(self) -> None:
        for index, group in enumerate(self.groups):
            known = all(is_whole(rank) and 0 <= rank < self.workers for rank in group)
            if not known or len(set(group)) != len(group) or len(group) < 2:
                mend = f"give two or more different ranks from 0 to {self.workers - 1}"
                raise self._fail(f"groups[{index}]", f"{list(group)}", mend)

    def _check_conduct(self) -> None:
        if len(self.conduct) not in (0, self.workers):
            raise self._fail("conduct", f"{len(self.conduct)} entries", f"give one for each of {self.workers} workers")
        for rank, each in enumerate(self.conduct):
            for key, value, fine, mend in (
                ("jitter", each.jitter, 0 <= each.jitter <= MOST_JITTER, f"give a number from 0 to {MOST_JITTER}"),
                ("slow", each.slow, 0 < each.slow <= 1000, "give a factor above 0, up to 1000"),
                ("late_s", each.late_s, 0 <= each.late_s <= LONGEST_S, f"give seconds from 0 to {LONGEST_S:.0f}"),
            ):
                if not fine:
                    raise self._fail(f"conduct[{rank}].{key}", f"{value!r}", mend)

    def _check_programs(self) -> None:
        if len(self.programs) not in (1, self.workers):
            mend = f"give one that all follow, or one for each of {self.workers} workers"
            raise self._fail("programs", f"there are {len(self.programs)}", mend)
        for rank in range(self.workers):
            for index, op in enumerate(self.program(rank)):
                where = f"programs[{rank if len(self.programs) > 1 else 0}][{index}]"
                for key, (what, mend) in faults(op, index, rank, self.workers, self.groups).items():
                    raise self._fail(f"{where}.{key}", what, mend)
        try:
            fits = self._ends
        except MisfitError as error:
            raise self._fail("programs", str(error), "every worker must find its peers ready in the end") from None
        if not self._traffic:
            raise self._fail("programs", "nothing is sent", "a job without traffic needs no network")
        if max(max(ends, default=0.0) for ends in fits) > LONGEST_S:
            raise self._fail("programs", "an iteration lasts longer than a day")


@dataclass(frozen=True)
class Bucket:
    """Gradients that are all-reduced together.

    `size_bytes`: the buffer that is reduced, per worker (what a worker sends is 2(n-1)/n of it).
    `ready_s`: when its last gradient exists, seconds after the backward pass began.
    `after`: indices of the buckets that must be all-reduced before this one may start.
    """

    size_bytes: int
    ready_s: float
    after: tuple[int, ...] = ()


def data_parallel(
    name: str,
    hosts: Sequence[str],
    fabric_ips: Sequence[str],
    dscp: int,
    forward_s: float,
    backward_s: float,
    buckets: Sequence[Bucket],
    iterations: int,
    congestion_control: str,
    note: str = "",
) -> JobPlan:
    """A data-parallel job: the forward pass, then a backward pass cut where buckets become ready.

    The order of `buckets` is their order on the wire, so `after` may only name earlier ones. All ranks follow the same
    program: "compute" of the forward pass, then for each bucket "compute" of its piece of the backward pass and its
    "all-reduce", then the rest of the backward pass. Raises InputError, as JobPlan does.
    """

    def refused(key: str, what: str, mend: str = "") -> InputError:
        return InputError(f"job {name}, {key}", what, mend)

    for key, value in (("forward_s", forward_s), ("backward_s", backward_s)):
        if not is_time(value):
            raise refused(key, f"{value!r}", f"give seconds from 0 to {LONGEST_S:.0f}")
    if not buckets:
        raise refused("buckets", "there are none", "a job without traffic needs no network")
    program = [Op(COMPUTE, forward_s)]
    clock_s = 0.0
    for index, bucket in enumerate(buckets):
        here = f"buckets[{index}]"
        if not is_time(bucket.ready_s) or bucket.ready_s > backward_s:
            mend = f"a bucket is ready within the backward pass, from 0 to {backward_s} s"
            raise refused(f"{here}.ready_s", f"{bucket.ready_s!r}", mend)
        if not all(is_whole(other) and 0 <= other < index for other in bucket.after):
            raise refused(f"{here}.after", f"{list(bucket.after)}", "name buckets that come earlier in the list")
        if not is_whole(bucket.size_bytes) or bucket.size_bytes < 1:
            raise refused(f"{here}.size_bytes", f"{bucket.size_bytes!r}", "give whole bytes from 1 on")
        program.append(Op(COMPUTE, max(0.0, bucket.ready_s - clock_s)))
        clock_s = max(clock_s, bucket.ready_s)
        program.append(Op("all-reduce", size_bytes=bucket.size_bytes, group=0, after=(len(program) - 1,)))
    if backward_s > clock_s:
        program.append(Op(COMPUTE, backward_s - clock_s))
    ring = tuple(range(len(hosts)))
    return JobPlan(
        name=name, hosts=tuple(hosts), fabric_ips=tuple(fabric_ips), dscp=dscp, iterations=iterations,
        congestion_control=congestion_control, groups=(ring,), programs=(tuple(program),), note=note,
    )  # fmt: skip


def _program(value: object, where: str) -> tuple[Op, ...]:
    ops = []
    for index, item in enumerate(_sequence(value, where)):
        here = f"{where}[{index}]"
        parts = _checked_keys(Op, item, here, _names(Op) - {"kind"})
        parts["after"] = _sequence(parts.get("after", ()), f"{here}.after")
        ops.append(Op(**parts))
    return tuple(ops)


def _names(cls: type) -> set[str]:
    return {field.name for field in fields(cls)}


def _sequence(value: object, where: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InputError(where, f"{value!r} is not a list")
    return tuple(value)


def _checked_keys(cls: type, data: object, where: str, optional: set[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InputError(where, "is not a table")
    known = _names(cls)
    unknown = sorted(str(key) for key in data if key not in known)
    if unknown:
        raise InputError(where, f"unknown keys {', '.join(unknown)}", f"known are {', '.join(sorted(known))}")
    missing = sorted(known - optional - set(data))
    if missing:
        raise InputError(where, f"keys missing: {', '.join(missing)}")
    return dict(data)
