"""Mutated scenarios, traces, arrivals and topology files, through everything that happens before a guest is started:

    python -m benchmarks.mutations [--cases 10000] [--seed 1] [--state FILE]

A case is a good file with one to three of its values, lines or bytes changed; what reads it must accept it, or raise
InputError. Anything else (a traceback, more than HANGS_S seconds, more than MEMORY_BYTES) is a fault, whose file is
kept and named. Prints counts as it goes; with --state it goes on where it was stopped. Exit code 1 when there was a
fault, or when too few cases came as far as the checks of what they say, or were accepted.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from benchmarks import chakra_file
from controllers.placement import arrivals
from testbed import cli, scenario_file
from testbed.errors import InputError
from testbed.net.wan import build as wan
from testbed.net.wan import graphml, pairwise, toml
from workloads import traces

HANGS_S = 120
"""Of wall time, on a machine that may be busy with other things."""
MEMORY_BYTES = 6 << 30
SAVE_EVERY = 100
LEAST_CHECKED, LEAST_ACCEPTED = 0.5, 0.05
"""Shares of the cases that must come as far as the checks of what a file says, and that must be accepted."""
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
VALUE = re.compile(r"(?<== )[^\n]+|(?<=\s)[-+]?\d[\d.e+-]*(?=\s)|(?<=,)[^,\n]*|(?<=\")[-\d.]+(?=\")")
POOL = (
    "0", "1", "2", "-1", "3", "8", "63", "64", "1e3", "1e308", "-1e308", "nan", "inf", "99999999999999999999", "1.5",
    '""', '"x"',
    '"h1"', '["h1", "h2"]', '["h1"]', "[]", "{}", "true", "false", '"1 ms"', '"10 us"', '"50 Gbit/s"', '"1 Gbit/s"',
    '"1 kB"', '"100 MB"', '"1 GiB"', '"1e9 s"', '"vgg16"', '"bert"', '"dumbbell"', '"dumbbell(9)"',
    '"leaf-spine(4, 2, 8)"',
    '"leaf-spine(999, 999, 999)"', '"dumbbell(99999999)"', '"cassini-48"', '["alone"]', '["alone", "together"]',
    '"../../etc/passwd"', '"\\u0000"', '"é"', '"__import__(\'os\')"', "1_000", "0x10", "2026-01-01",
    "ALLREDUCE", "NONE",
)  # fmt: skip
NETWORK = b"""name = "three"
[[site]]
name = "Bern"
latitude = 46.9
longitude = 7.4
[[site]]
name = "Oslo"
latitude = 59.9
longitude = 10.7
[[link]]
between = ["Bern", "Oslo"]
rate = "100 Mbit/s"
jitter = "1 ms"
[[link]]
between = ["Oslo", "Rome"]
rate = "1 Gbit/s"
back_rate = "20 Mbit/s"
delay = "11 ms"
loss = 0.001
queue = "1 MB"
[[tunnel]]
between = ["Bern", "Oslo"]
[[tunnel]]
between = ["Oslo", "Rome"]
"""
"""A network in our own format, with everything it may have."""
DEFAULTS = wan.Defaults(rate_bps=100_000_000, delay_s=0.01)
Case = Callable[[Path], None]
Counts = Counter[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Kind:
    """Files of one kind: good ones to begin with, what reads them, and the words by which they are no such file."""

    name: str
    suffix: str
    good: tuple[bytes, ...]
    read: Case
    broken: tuple[str, ...]


def mutated(good: bytes, draw: random.Random) -> bytes:
    """Return the file with one to three things changed; mostly values, so that it is still a file of its kind."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        good = draw.choices((_value, _line, _byte), (8, 2, 1))[0](good, draw)
    return good


def _value(good: bytes, draw: random.Random) -> bytes:
    text = good.decode("latin-1")
    found = list(VALUE.finditer(text))
    if not found:
        return _byte(good, draw)
    one = draw.choice(found)
    own = one[0]
    near = (
        re.sub(r"\d+", lambda digits: str(max(0, int(digits[0]) + draw.choice((-1, 1, 2, 7)))), own)
        if len(own) < 40
        else own
    )
    new = draw.choice((near, near, draw.choice(POOL), draw.choice(found)[0]))
    return (text[: one.start()] + new + text[one.end() :]).encode("latin-1", "replace")


def _line(good: bytes, draw: random.Random) -> bytes:
    lines = good.splitlines(keepends=True)
    at, other = (draw.randrange(len(lines)) for _ in range(2))
    how = draw.randrange(3)
    if how == 0:
        lines.insert(at, lines[other])
    elif how == 1:
        del lines[at]
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines) or b"\n"


def _byte(good: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(good))
    return good[:at] + draw.choice((b"", bytes([draw.randrange(256)]), good[at : at + 9] * 2)) + good[at + 1 :]


LONG = ("cluster-", "netstorm-", "traffic-gpt3-hybrid")
"""Scenarios whose dry run takes seconds, of thousands of hosts, many layers or simulated rounds, are not mutated."""
OFTEN = 4
"""So much more often than a study, whose dry run is that of many points, is a scenario mutated that is none."""


def read_scenario(path: Path) -> None:
    """Do what `run FILE --dry-run` does."""
    with contextlib.redirect_stdout(io.StringIO()):
        cli.run(str(path), settings=None, dry_run=True, full=False, only=None, mem="2GB")


def read_trace(path: Path) -> None:
    """Make a job of a trace on four hosts."""
    hosts = tuple(f"h{number}" for number in range(1, 5))
    ips = tuple(f"10.0.0.{number}" for number in range(1, 5))
    traces.job_plan(
        path, trace_format=None, clock_hz=None, name="a", hosts=hosts, fabric_ips=ips, dscp=1, iterations=3,
        congestion_control="dctcp", scale=50.0,
    )  # fmt: skip


def kinds() -> Iterator[Kind]:
    """Yield the kinds of files of which there are good ones here."""
    names = [name for name in scenario_file.names() if not name.startswith(LONG)]
    scenarios = [(scenario_file.FOLDER / f"{name}.toml").read_bytes() for name in names]
    scenarios += (OFTEN - 1) * [content for content in scenarios if b"[study" not in content]
    coming = b'name = "coming"\ntitle = "t"\n\n[fabric]\ntopology = "dumbbell"\nscale = 200\n\n'
    coming += b'[[cluster.kind]]\nname = "vgg"\nmodel = "vgg16"\nworkers = 2\nmost_workers = 4\n'
    yield Kind("scenario", ".toml", (*scenarios, coming), read_scenario, ("is not TOML",))
    rows = b"".join(b"%d.5,vgg16,2,512,%d\n" % (number, 10 + number) for number in range(5))
    header = ",".join(arrivals.COLUMNS).encode()
    yield Kind("arrivals", ".csv", (header + b"\n" + rows,), lambda path: _drop(arrivals.read(path)), ("columns are",))
    folder = DATA / "traces"
    texts = tuple(path.read_bytes() for path in sorted(folder.glob("*.txt")))
    if texts:
        yield Kind("text trace", ".txt", texts, read_trace, ("is no trace",))
    yield Kind(
        "chakra",
        ".et",
        chakra_file.GOOD,
        read_trace,
        ("wire type", "cut off", "are announced", "field number 0", "64 bits", "UTF-8"),
    )
    yield Kind("network", ".toml", (NETWORK,), lambda path: _drop(toml.read(path, DEFAULTS)), ("is not TOML",))
    for name, reader in (("graphml", graphml), ("pairwise", pairwise)):
        suffix = ".graphml" if reader is graphml else ".csv"
        good = tuple(
            path.read_bytes() for path in sorted((DATA / "wan").rglob(f"*{suffix}")) if path.stat().st_size < 10**6
        )
        if good:
            yield Kind(
                name, suffix, good, lambda path, of=reader: _drop(of.read(path, DEFAULTS)), ("is not", "not well")
            )


def _drop(_: object) -> None:
    """What was read is of no use here."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Let nothing inside take longer than HANGS_S."""

    def hangs(*_: object) -> None:
        raise TimeoutError(f"longer than {HANGS_S} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tried(kind: Kind, content: bytes, path: Path) -> str:
    """Return what became of a file: accepted, refused (by a check of what it says), no such file, or a fault."""
    path.write_bytes(content)
    try:
        with limited():
            kind.read(path)
    except InputError as error:
        return "no such file" if any(word in str(error) for word in kind.broken) else "refused"
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"FAULT {type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {str(error)[:80]}"
    return "accepted"


@cache
def usable() -> tuple[Kind, ...]:
    """Return all kinds without those of their files that are refused as they are, scenarios first."""
    found = []
    with tempfile.TemporaryDirectory(prefix="orrery-mutations-") as name:
        for kind in kinds():
            path = Path(name) / f"good{kind.suffix}"
            accepted = {content for content in set(kind.good) if tried(kind, content, path) == "accepted"}
            found.append(dataclasses.replace(kind, good=tuple(one for one in kind.good if one in accepted)))
    return tuple(kind for kind in found if kind.good)


def trial(cases: int, seed: int, keep: Path, state: Path | None = None) -> Counts:
    """Try so many cases, kinds in turn (half of them scenarios); return the counts by (kind, what became).

    Every case is drawn by its own number, so that a trial goes on from `state` as if it had not been stopped.
    """
    first, counts = _begun(state, seed)
    with tempfile.TemporaryDirectory(prefix="orrery-mutations-") as name:
        found = usable()
        for number in range(first, cases):
            draw = random.Random(f"{seed} {number}")
            kind = found[0] if number % 2 == 0 else found[number // 2 % len(found)]
            content = mutated(draw.choice(kind.good), draw)
            became = tried(kind, content, Path(name) / f"case{kind.suffix}")
            if became.startswith("FAULT") and not counts[kind.name, became]:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{number}{kind.suffix}").write_bytes(content)
                print(f"{keep / str(number)}{kind.suffix}: {became}", flush=True)
            counts[kind.name, became] += 1
            if state and (number % SAVE_EVERY == SAVE_EVERY - 1 or number == cases - 1):
                _save(state, seed, number + 1, counts)
                print(told(counts), flush=True)
    return counts


def _begun(state: Path | None, seed: int) -> tuple[int, Counts]:
    """Return the number of the next case and the counts so far."""
    if state is None or not state.exists():
        return 0, Counter()
    said = json.loads(state.read_text())
    if said["seed"] != seed:
        raise InputError(str(state), f"is of the seed {said['seed']}", "give another --state")
    return said["next"], Counter({(kind, became): count for kind, became, count in said["counts"]})


def _save(state: Path, seed: int, number: int, counts: Counts) -> None:
    rows = [[kind, became, count] for (kind, became), count in sorted(counts.items())]
    fresh = state.with_name(state.name + ".new")
    fresh.write_text(json.dumps({"seed": seed, "next": number, "counts": rows}, indent=1) + "\n")
    fresh.replace(state)


def shares(counts: Counts) -> tuple[float, float, int]:
    """Return the share of cases that came to the checks of what they say, that of those accepted, and the faults."""
    became: Counter[str] = Counter()
    for (_, what), count in counts.items():
        became[what.partition(" ")[0]] += count
    total = max(1, became.total())
    return (became["accepted"] + became["refused"]) / total, became["accepted"] / total, became["FAULT"]


def told(counts: Counts) -> str:
    """Return one line: how many cases, and what became of them."""
    checked, accepted, faults = shares(counts)
    return f"{counts.total():6} cases, checked {checked:.1%}, accepted {accepted:.1%}, faults {faults}"


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    parser = argparse.ArgumentParser(description="mutated input files, none of which may do any harm")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "orrery-faults")
    parser.add_argument("--state", type=Path, help="where the counts are kept, to go on from")
    wanted = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    counts = trial(wanted.cases, wanted.seed, wanted.keep, wanted.state)
    for (kind, became), count in sorted(counts.items()):
        print(f"{count:6}  {kind:<11} {became}")
    print(told(counts))
    checked, accepted, faults = shares(counts)
    return int(faults > 0 or checked < LEAST_CHECKED or accepted < LEAST_ACCEPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
