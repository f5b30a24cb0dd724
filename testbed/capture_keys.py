"""The keys of a scenario that say which packets are kept, of fabrics and of wide-area networks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from testbed.part import Part
from testbed.units import Size

MOST_CAPTURED_BYTES = 500_000_000


class CaptureKeys(Part):
    """Packets kept of chosen directed links ("a->b"), in every arm. "shared" means those the jobs share, or may share
    where they come and go.

    Of each link at most `packets`, of each the first `snap_bytes`, in a file of at most `size`.
    """

    links: Literal["shared"] | tuple[str, ...] = ()
    packets: Annotated[int, Field(ge=1, le=10_000_000)] = 5000
    size: Annotated[Size, Field(ge=4096, le=10**10)] = 32_000_000
    snap_bytes: Annotated[int, Field(ge=64, le=9014)] = 128

    @model_validator(mode="after")
    def _fitting(self) -> CaptureKeys:
        if min(self.packets * self.snap_bytes, self.size) > MOST_CAPTURED_BYTES:
            raise ValueError(
                f"packets times snap_bytes, or size, is at most {MOST_CAPTURED_BYTES}, which the guest's memory holds"
            )
        return self
