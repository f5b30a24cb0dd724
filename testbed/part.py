"""What every table of a scenario file is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
"""Of scenarios, jobs and systems: also the name of a folder."""


class Part(BaseModel):
    """A table of the scenario file: no unknown keys, nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
