"""What sites under a scheduler are told beside the plan: who reaches whom, how to decide, what to measure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.errors import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@dataclass(frozen=True)
class Tunnel:
    """One direction of a tunnel, by the numbers of its ends, as the scheduler takes it to be at first."""

    source: int
    target: int
    believed_bps: float
    latency_s: float


@dataclass(frozen=True)
class Protocol:
    """How sites decide together. `scheduler` is the site it runs at, and listens at the port after the servers'.

    It decides by `strategy` (with `root` or `roots`) on `tensors`, cut into `chunk_elements`, over `tunnels`. With
    `awareness` it learns: messages of `probe_bytes` are probes, it looks every `look_s`, thresholds are relative
    changes. `paths` is how many auxiliary paths a pair has. A worker stops at `limit_bytes` that wait. Who answers
    nothing for `detect_s` is taken for gone. Control messages are held for `late_s` more on average, by the seed. What
    outlives a site's programs is in `folder`. Raises InputError for a site that is none.
    """

    tunnels: tuple[Tunnel, ...]
    scheduler: int
    strategy: str
    root: str | None
    roots: int | None
    tensors: tuple[int, ...]
    chunk_elements: int
    awareness: bool
    paths: int
    probe_bytes: int
    look_s: float
    report_change: float
    decide_change: float
    limit_bytes: int
    detect_s: float
    late_s: float
    folder: str

    def __post_init__(self) -> None:
        ends = {end for tunnel in self.tunnels for end in (tunnel.source, tunnel.target)}
        if self.scheduler not in ends:
            raise InputError("scheduler.site", f"{self.scheduler} has no tunnel", "a site of the network")

    def peers(self, node: int) -> list[int]:
        """The nodes at the other ends of a node's tunnels, in order."""
        return sorted(tunnel.target for tunnel in self.tunnels if tunnel.source == node)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Protocol:
        """The inverse of dataclasses.asdict, from JSON."""
        tunnels = tuple(Tunnel(**tunnel) for tunnel in data["tunnels"])
        return cls(**data | {"tunnels": tunnels, "tensors": tuple(data["tensors"])})
