"""Which form a trace has, and the job it makes.

The forms can be told apart by their contents. Text begins with the name of a parallelism; it is AICB's if there are
settings or collectives that only AICB has, or settings missing that ASTRA-sim demands, else ASTRA-sim's. What begins
otherwise is taken for Chakra's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from testbed.errors import InputError
from testbed.files import TEXT_BYTES
from workloads.traces import aicb, astrasim, replay
from workloads.training.plan import JobPlan

TraceFormat = Literal["chakra", "astra-sim", "aicb"]
FORMATS: tuple[TraceFormat, ...] = ("chakra", "astra-sim", "aicb")
READERS: dict[str, tuple[Callable[..., JobPlan], float]] = {
    "astra-sim": (astrasim.job_plan, astrasim.CLOCK_HZ),
    "aicb": (aicb.job_plan, aicb.CLOCK_HZ),
}


def job_plan(
    path: Path,
    *,
    trace_format: TraceFormat | None = None,
    clock_hz: float | None = None,
    name: str,
    hosts: Sequence[str],
    fabric_ips: Sequence[str],
    dscp: int,
    iterations: int,
    congestion_control: str = "dctcp",
    scale: float = 1.0,
) -> JobPlan:
    """The job of the trace in `path` on `hosts` (rank order). `clock_hz`: units of a text workload's times a second.

    Its bytes are divided by `scale`, its times unchanged. Raises InputError if the trace cannot be read or replayed, or
    if a Chakra trace, whose times are microseconds, is given a clock.
    """
    known = trace_format or format_of(path)
    if known == "chakra":
        if clock_hz is not None:
            raise InputError(f"job {name}, clock_hz", "the times of a Chakra trace are microseconds", "leave it out")
        return replay.job_plan(
            path, name=name, hosts=hosts, fabric_ips=fabric_ips, dscp=dscp, iterations=iterations,
            congestion_control=congestion_control, scale=scale,
        )  # fmt: skip
    if known not in READERS:
        raise InputError(f"job {name}, trace_format", f"{known!r} is not known", f"known are {', '.join(FORMATS)}")
    read, usual_hz = READERS[known]
    return read(
        path, name=name, hosts=hosts, fabric_ips=fabric_ips, dscp=dscp, iterations=iterations,
        congestion_control=congestion_control, scale=scale, clock_hz=usual_hz if clock_hz is None else clock_hz,
    )  # fmt: skip


def _begin(path: Path) -> bytes:
    """What tells the form: all of a text, and of anything larger as much as a text may have."""
    with path.open("rb") as file:
        return file.read(TEXT_BYTES)


def format_of(path: Path) -> TraceFormat:
    """The form of the trace in `path`. Raises InputError if it cannot be read."""
    try:
        lines = [line.split() for line in _begin(path).lstrip().split(b"\n")]
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    first = [word.decode(errors="replace").removesuffix(":") for word in lines[0]]
    parallelism = first[0] if first else ""
    if parallelism not in {**aicb.AICB.settings, **astrasim.ASTRASIM.settings}:
        return "chakra"
    demanded = set(astrasim.ASTRASIM.settings.get(parallelism, ()))
    settings = set(aicb.AICB.optional) - demanded
    collectives = {word.encode() for word in set(aicb.AICB.words) - set(astrasim.ASTRASIM.words)}
    of_aicb = settings & set(first) or not demanded <= set(first)
    return "aicb" if of_aicb or any(collectives & set(line) for line in lines[1:]) else "astra-sim"
