"""What agents report: the sockets they really have, and their iterations."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.training.plan import JobPlan


@dataclass(frozen=True)
class IterationRecord:
    """One iteration of one worker, times as time.time().

    Down lasts from `begin_s` to `up_begin_s`, Up from there to `end_s`; `ce_packets` is by how much InCEPkts of the
    worker's host grew since the iteration before, which workers of one host therefore all count. Before it began, the
    worker was held for its tick for `held_s`, or, because it had drifted (`adjusted` is 1), lost `lost_s`.
    """

    job: str
    rank: int
    host: str
    iteration: int
    begin_s: float
    up_begin_s: float
    end_s: float
    ce_packets: int
    held_s: float = 0.0
    lost_s: float = 0.0
    adjusted: int = 0


@dataclass(frozen=True)
class Hold:
    """A time-shift to keep to: iterations begin on ticks, tick n at `start_s` (time.time(), shift included) + n times
    `period_s`, the iteration time on the circle. Who is later than `tolerance` of a period waits for the next tick.
    """

    start_s: float
    period_s: float
    tolerance: float = 0.05

    def __post_init__(self) -> None:
        if not (self.period_s > 0 and 0 <= self.tolerance < 1):
            raise ValueError(f"no time-shift: period {self.period_s} s, tolerance {self.tolerance}")


@dataclass(frozen=True)
class SocketTerms:
    """What every socket of the jobs must be like, beside its job's congestion control and DSCP.

    `ecn`: whether ECN must have been negotiated, or must not. `least_buffer_bytes`: what the send and the
    receive buffer must be at least, as the kernel counts them. `set_buffer_bytes`: a size the agents set
    themselves, which ends the kernel's own tuning; None leaves buffers to the sysctls of the host.
    """

    ecn: bool = True
    least_buffer_bytes: int = 0
    set_buffer_bytes: int | None = None


@dataclass(frozen=True)
class AgentSocket:
    """One end of a job's connection as the kernel describes it (workloads.training.sockets.read_back).

    `direction` is "to rank 1" or "from rank 1".
    """

    job: str
    rank: int
    host: str
    direction: str
    congestion_control: str
    ecn: bool
    nodelay: bool
    dscp: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    mss_bytes: int
    rto_s: float

    def differences(self, plan: JobPlan, terms: SocketTerms) -> list[str]:
        """What is not as `plan` and `terms` demand, each as "what is N, must be M"; empty if all is well."""
        exact = {
            "congestion_control": plan.congestion_control,
            "ecn": terms.ecn,
            "nodelay": True,
            "dscp": plan.dscp,
        }
        wrong = [
            f"{key} is {getattr(self, key)!r}, must be {value!r}"
            for key, value in exact.items()
            if getattr(self, key) != value
        ]
        for key in ("send_buffer_bytes", "receive_buffer_bytes"):
            found = getattr(self, key)
            if found < terms.least_buffer_bytes:
                wrong.append(f"{key} is {found}, must be at least {terms.least_buffer_bytes}")
        return wrong
