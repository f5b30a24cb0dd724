"""Who communicates with whom in a job of a text workload: the groups of workers that its first line stands for.

Ranks are numbered as ASTRA-sim and SimAI number them: the innermost group has consecutive ranks (ASTRA-sim 1.0,
Workload.cc, decode_involved_dimensions; SimAI, MockNcclGroup).

- *DATA* and DLRM: all workers exchange gradients of weights.
- *MODEL* and inference: all workers exchange activations and their gradients.
- *Transformers*: tensor groups of `model_parallel_NPU_group` consecutive ranks exchange activations, those of the same
  place in each group the gradients of weights.
- *HYBRID_DATA_MODEL*: the workers of one server exchange activations, those of the same place in each server gradients
  of weights; HYBRID_MODEL_DATA the other way round. ASTRA-sim says "the first dimension of the network" for the server.
- *Experts* (`ep`): so many consecutive members of a group of gradients share the experts; DP_EP are those that have the
  same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import InputError
from workloads.traces.layerwise import CUSTOMIZED, LayerWorkload

Ranks = tuple[int, ...]
GROUP = "model_parallel_NPU_group"
TRANSFORMERS = ("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD")
RECOMMENDATION = ("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")
INFERENCE = "DISTRIBUTED_INFERENCE"
_ALL_DATA = ("DATA", "MICRO", *RECOMMENDATION)
_ALL_MODEL = ("MODEL", INFERENCE)
_BY_SERVER = ("HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")


@dataclass(frozen=True)
class Groups:
    """The groups of one rank: of activations, of gradients of weights, of shared experts and of equal ones."""

    model: Ranks
    data: Ranks
    experts: Ranks
    replicas: Ranks


def groups_of(workload: LayerWorkload, parallelism: str, rank: int, hosts: Sequence[str], where: str) -> Groups:
    """Return the groups of `rank` in a layer of that parallelism. Raises InputError where workers make no groups."""
    workers = len(hosts)
    inner, model_inside = _inner(workload, parallelism, hosts, where), parallelism != "HYBRID_MODEL_DATA"
    close = tuple(range(rank // inner * inner, (rank // inner + 1) * inner))
    apart = tuple(range(rank % inner, workers, inner))
    model, data = (close, apart) if model_inside else (apart, close)
    if parallelism in RECOMMENDATION:
        model = data
    experts = (workload.setting("ep") or (1,))[0]
    if not experts or len(data) % experts:
        mend = f"give a multiple of {max(1, experts) * (workers // len(data))} workers"
        raise InputError(where, f"{len(data)} data-parallel workers are no whole groups of {experts} (ep)", mend)
    at = data.index(rank)
    return Groups(model, data, data[at // experts * experts :][:experts], data[at % experts :: experts])


def _inner(workload: LayerWorkload, parallelism: str, hosts: Sequence[str], where: str) -> int:
    """How many consecutive ranks the innermost group has."""
    if parallelism in _ALL_DATA:
        return 1
    if parallelism in _ALL_MODEL:
        return len(hosts)
    if parallelism in _BY_SERVER:
        return _per_server(hosts, where)
    if parallelism not in TRANSFORMERS or workload.parallelism == CUSTOMIZED:
        known = ", ".join((*_ALL_DATA[:1], *_ALL_MODEL[:1], *_BY_SERVER))
        raise InputError(where, f"{parallelism!r:.60} is not a layer's parallelism", f"a layer may have {known}")
    size = (workload.setting(GROUP) or (1,))[0]
    if not size or len(hosts) % size:
        mend = f"give a multiple of {size} workers" if size else "give a size from 1 on"
        raise InputError(where, f"{len(hosts)} workers are no whole tensor groups of {size} ({GROUP})", mend)
    return size


def _per_server(hosts: Sequence[str], where: str) -> int:
    size = hosts.count(hosts[0])
    if any(len(set(hosts[begin : begin + size])) != 1 for begin in range(0, len(hosts), size)) or len(hosts) % size:
        mend = "give the workers of a server one after another, equally many on each"
        raise InputError(where, f"workers {', '.join(hosts)} are not equally many on each server", mend)
    return size
