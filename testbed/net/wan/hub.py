"""Maps of real and generated backbones by their topohub names, such as "sndlib/polska" or "topozoo/Abilene".

topohub (MIT) has positions and distances but no capacities. The rule for those: the share of all shortest-path
traffic, one unit between each pair of nodes, that a direction carries (topohub's `ecmp_fwd` and `ecmp_bwd`, "uni"),
relative to the busiest direction, times `wan.rate`; never below a tenth of it. Delays are distances at the speed of
light in glass.
"""

from __future__ import annotations

from collections import Counter

from testbed.errors import EnvironmentLacks, InputError
from testbed.net.wan.build import KM_PER_S, Defaults, RawLink, assemble
from testbed.net.wan.model import Site, Wan

LEAST_SHARE = 0.1


def read(name: str, defaults: Defaults) -> Wan:
    """The network of a topohub name; `defaults.rate_bps` is the rate of the busiest direction. Raises InputError."""
    try:
        import topohub
    except ImportError:
        raise EnvironmentLacks("the package topohub is not installed", "make setup") from None
    try:
        data = topohub.get(name)
    except (KeyError, OSError):
        raise InputError(f"topohub:{name}", "there is no such network", 'as in "topohub:sndlib/polska"') from None
    where = f"topohub:{name}"
    if defaults.rate_bps is None:
        raise InputError(where, "has no capacities", "set wan.rate to the rate of its busiest link")
    labels = Counter(str(node.get("name", "")) for node in data["nodes"])
    names = {node["id"]: _name(node["id"], str(node.get("name", "")), labels) for node in data["nodes"]}
    sites = [Site(names[node["id"]], node["pos"][1], node["pos"][0]) for node in data["nodes"]]
    busiest = max(edge[way]["uni"] for edge in data["edges"] for way in ("ecmp_fwd", "ecmp_bwd"))
    links = [
        RawLink(
            names[edge["source"]],
            names[edge["target"]],
            defaults.rate_bps * max(LEAST_SHARE, edge["ecmp_fwd"]["uni"] / busiest),
            edge["dist"] / KM_PER_S if defaults.delay_s is None else None,
            defaults.rate_bps * max(LEAST_SHARE, edge["ecmp_bwd"]["uni"] / busiest),
        )
        for edge in data["edges"]
    ]
    return assemble(where, sites, links, defaults)


def _name(id_: object, label: str, labels: Counter[str]) -> str:
    label = label.replace(",", " ").replace('"', "").replace("->", " ")
    return label if label and labels[label] == 1 else f"{label or 'node'} {id_}"
