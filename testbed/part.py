"""What every table of a scenario file is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A table of the scenario file: no unknown keys, nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
