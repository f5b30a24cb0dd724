"""What a job sends and when: the data every other module of this room works on."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from testbed.errors import InputError
from workloads.training.schedule import sent_bytes

LONGEST_S = 86_400.0
LARGEST_BUCKET_BYTES = 1 << 40


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


@dataclass(frozen=True)
class JobPlan:
    """One data-parallel job.

    `hosts` and `fabric_ips` are in rank order; rank r sends to rank (r + 1) mod n. `forward_s` is the time
    without traffic (Down), `backward_s` the compute time of the backward pass, in which buckets become
    ready. The order of `buckets` is their order on the wire, so `after` may only name earlier ones. `note`
    says for the manifest where the sizes come from.

    Raises `testbed.errors.InputError` for anything that cannot be run.
    """

    name: str
    hosts: tuple[str, ...]
    fabric_ips: tuple[str, ...]
    dscp: int
    forward_s: float
    backward_s: float
    buckets: tuple[Bucket, ...]
    iterations: int
    congestion_control: str
    note: str = ""

    def __post_init__(self) -> None:
        self._check_places()
        self._check_times()
        for index, bucket in enumerate(self.buckets):
            self._check_bucket(index, bucket)

    @property
    def workers(self) -> int:
        """Number of ranks."""
        return len(self.hosts)

    @property
    def total_bytes(self) -> int:
        """Bytes that are all-reduced per iteration: the sum of the bucket sizes."""
        return sum(bucket.size_bytes for bucket in self.buckets)

    def sent_bytes(self, rank: int) -> int:
        """Bytes that `rank` sends to the next worker in one iteration, to the byte."""
        return sum(sent_bytes(bucket.size_bytes, rank, self.workers) for bucket in self.buckets)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobPlan:
        """The plan in `data`, as `to_dict` made it, be it through JSON or not.

        InputError names what is wrong.
        """
        where = f"job {data.get('name', '(no name)')}"
        keys = _checked_keys(cls, data, where)
        buckets = []
        for index, item in enumerate(_sequence(keys["buckets"], f"{where}, buckets")):
            here = f"{where}, buckets[{index}]"
            if not isinstance(item, Mapping):
                raise InputError(here, "is not a table")
            parts = _checked_keys(Bucket, item, here)
            parts["after"] = _sequence(parts.get("after", ()), f"{here}.after")
            buckets.append(Bucket(**parts))
        keys["buckets"] = tuple(buckets)
        for key in ("hosts", "fabric_ips"):
            keys[key] = _sequence(keys[key], f"{where}, {key}")
        return cls(**keys)

    def _fail(self, key: str, what: str, mend: str = "") -> InputError:
        return InputError(f"job {self.name}, {key}", what, mend)

    def _check_places(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name.split() != [self.name]:
            raise InputError("job", f"name {self.name!r} is not a word", "use letters, digits and dashes")
        if len(self.hosts) < 2:
            raise self._fail("hosts", f"{len(self.hosts)} workers", "a ring needs at least two")
        if not all(isinstance(host, str) for host in self.hosts) or len(set(self.hosts)) != len(self.hosts):
            raise self._fail("hosts", f"{list(self.hosts)} are not names of different hosts")
        for ip in self.fabric_ips:
            try:
                ipaddress.IPv4Address(ip)
            except ValueError as error:
                raise self._fail("fabric_ips", str(error), "give IPv4 addresses") from None
        if len(set(self.fabric_ips)) != len(self.fabric_ips) or len(self.fabric_ips) != len(self.hosts):
            raise self._fail("fabric_ips", f"{list(self.fabric_ips)}", "give one address per host, in rank order")
        if not _whole(self.dscp) or not 0 <= self.dscp <= 63:
            raise self._fail("dscp", f"{self.dscp!r}", "a DSCP is a whole number from 0 to 63")
        if not isinstance(self.congestion_control, str) or not self.congestion_control:
            raise self._fail("congestion_control", f"{self.congestion_control!r}", "name one, such as dctcp")

    def _check_times(self) -> None:
        for key in ("forward_s", "backward_s"):
            if not _time(getattr(self, key)):
                raise self._fail(key, f"{getattr(self, key)!r}", f"give seconds from 0 to {LONGEST_S:.0f}")
        if not _whole(self.iterations) or self.iterations < 1:
            raise self._fail("iterations", f"{self.iterations!r}", "give a whole number from 1 on")
        if not self.buckets:
            raise self._fail("buckets", "there are none", "a job without traffic needs no network")

    def _check_bucket(self, index: int, bucket: Bucket) -> None:
        here = f"buckets[{index}]"
        if not _whole(bucket.size_bytes) or not 1 <= bucket.size_bytes <= LARGEST_BUCKET_BYTES:
            mend = f"give whole bytes from 1 to {LARGEST_BUCKET_BYTES}"
            raise self._fail(f"{here}.size_bytes", f"{bucket.size_bytes!r}", mend)
        if not _time(bucket.ready_s) or bucket.ready_s > self.backward_s:
            mend = f"a bucket is ready within the backward pass, from 0 to {self.backward_s} s"
            raise self._fail(f"{here}.ready_s", f"{bucket.ready_s!r}", mend)
        if not all(_whole(other) and 0 <= other < index for other in bucket.after):
            raise self._fail(f"{here}.after", f"{list(bucket.after)}", "name buckets that come earlier in the list")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_S


def _sequence(value: object, where: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InputError(where, f"{value!r} is not a list")
    return tuple(value)


def _checked_keys(cls: type, data: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = {field.name for field in fields(cls)}
    unknown = sorted(str(key) for key in data if key not in known)
    if unknown:
        raise InputError(where, f"unknown keys {', '.join(unknown)}", f"known are {', '.join(sorted(known))}")
    optional = {"note", "after"}
    missing = sorted(known - optional - set(data))
    if missing:
        raise InputError(where, f"keys missing: {', '.join(missing)}")
    return dict(data)
