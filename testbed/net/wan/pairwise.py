"""Pairwise measurements between cloud regions: one line per pair, with round trip or one-way delay and bandwidth.

The header names the columns: `region_a,region_b`, then `delay_ms` (one way) or `rtt_ms`, and `bandwidth_gbps` or
`bandwidth_mbps`. Both directions of a pair are alike. Every pair becomes a link of its own, so that what two pairs
share in reality is not modelled.
"""

from __future__ import annotations

import csv
from pathlib import Path

from testbed.errors import InputError
from testbed.files import read_text
from testbed.net.wan.build import Defaults, RawLink, assemble, number
from testbed.net.wan.model import Site, Wan

_DELAYS = {"delay_ms": 1e-3, "rtt_ms": 0.5e-3}
_RATES = {"bandwidth_gbps": 1e9, "bandwidth_mbps": 1e6}


def read(path: Path, defaults: Defaults) -> Wan:
    """The network of a table; its sites are in order of appearance. Raises InputError that names the line."""
    try:
        lines = list(csv.reader(read_text(path).splitlines()))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), f"is no table: {error}", "give a CSV file in UTF-8") from error
    header = [column.strip() for column in lines[0]] if lines else []
    delay = next((column for column in header if column in _DELAYS), "")
    rate = next((column for column in header if column in _RATES), "")
    if header[:2] != ["region_a", "region_b"] or not rate or not (delay or defaults.delay_s is not None):
        raise InputError(
            f"{path.name}:1", f"columns are {','.join(header)!r}", "region_a,region_b,delay_ms,bandwidth_gbps"
        )
    links: list[RawLink] = []
    sites: dict[str, Site] = {}
    for line, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        values = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        at = f"{path.name}:{line}, link {values.get('region_a', '')}-{values.get('region_b', '')}"
        if len(cells) != len(header) or not all(values.values()):
            raise InputError(at, f"{len([v for v in values.values() if v])} values", f"one for each of {len(header)}")
        rate_bps = number(at, rate, values[rate]) * _RATES[rate]
        if not rate_bps:
            raise InputError(at, f"{rate} is 0", "a link that carries something")
        delay_s = number(at, delay, values[delay]) * _DELAYS[delay] if delay else None
        links.append(RawLink(values["region_a"], values["region_b"], rate_bps, delay_s))
        sites |= {name: Site(name) for name in (values["region_a"], values["region_b"])}
    return assemble(path.name, sites.values(), links, defaults)
