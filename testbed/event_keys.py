"""The tables [[event]] of a scenario: what happens to the network, its hosts or its controller while jobs run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from testbed.part import Part
from testbed.units import Delay, Rate

Arm = Literal["alone", "together", "random", "priority", "cassini", "refined"]
EventKind = Literal[
    "link-down", "link-up", "rate", "delay", "loss",
    "host-freeze", "host-thaw", "host-kill", "controller-crash", "controller-restart",
]  # fmt: skip
NEEDS: dict[str, tuple[str, ...]] = {
    "link-down": ("link",), "link-up": ("link",),
    "rate": ("link", "rate"), "delay": ("link", "delay"), "loss": ("link", "loss"),
    "host-freeze": ("host",), "host-thaw": ("host",), "host-kill": ("host",),
    "controller-crash": (), "controller-restart": (),
}  # fmt: skip
"""The keys that each kind of event has, beside those that all have."""


class EventKeys(Part):
    """One event, `at` so long after every trial's zero. What each kind does: docs/scenarios.md.

    `link` is "a->b", one direction, or "a<->b", both; only a whole cable goes down and up. `rate` and `delay` are
    unscaled, as those of the fabric. Jobs in `expect` are expected to fail by it; any other job that fails makes the
    run not valid, and so does one of them that does not. It happens in the `arms` named; unless given in all but
    `alone`.
    """

    at: Delay
    kind: EventKind
    link: str | None = None
    host: str | None = None
    rate: Rate | None = None
    delay: Delay | None = None
    loss: Annotated[float, Field(ge=0, lt=1)] | None = None
    expect: tuple[str, ...] = ()
    arms: tuple[Arm, ...] = ()

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> EventKeys:
        needed = NEEDS[self.kind]
        for key in ("link", "host", "rate", "delay", "loss"):
            given = getattr(self, key) is not None
            if given and key not in needed:
                raise ValueError(f"{key} is no key of {self.kind}")
            if not given and key in needed:
                raise ValueError(f"{self.kind} needs {key}")
        if self.link is not None and self.kind.startswith("link-") and "<->" not in self.link:
            raise ValueError(f'{self.kind} is of a whole cable: write link = "a<->b"')
        if self.expect and self.kind in ("link-up", "host-thaw", "controller-restart"):
            raise ValueError(f"no job fails by {self.kind}: expect belongs to what breaks it")
        return self
