"""Jobs from traces of real training runs: what was computed and all-reduced, when, and in which order.

A trace is a graph of what one worker did. Its compute has durations, its collectives have sizes. Replaying
it on another network keeps the first and the second, and lets the network decide how long the collectives
take.

Chakra's traces are recorded graphs (`chakra`, `replay`); ASTRA-sim's and AICB's workloads are lists of layers with
times (`astrasim`, `aicb`), of which the all-reduces of gradients become a job (`gradients`). `formats.job_plan` takes
any of them.
"""

from workloads.traces.formats import FORMATS, TraceFormat, job_plan

__all__ = ["FORMATS", "TraceFormat", "job_plan"]
