"""Text workloads, layer by layer: what the files of ASTRA-sim 1.0 and of AICB/SimAI have in common.

The first line names the parallelism and its settings, the second the number of layers; then each line is a layer:

    name reserved  fwd_time fwd_comm fwd_bytes  ig_time ig_comm ig_bytes  wg_time wg_comm wg_bytes  update_time

that is, how long its forward pass, its gradient of inputs (ig) and its gradient of weights (wg) compute, and which
collective of how many bytes follows each (astra-sim/astra-sim, branch ASTRA-sim-1.0, workload_inputs/README.md and
Workload.cc; aliyun/SimAI, Workload.cc). The `Dialect`s differ in settings, collectives and the unit of time.

One thing cannot be noticed: a file cut off within the very last number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from testbed.errors import InputError
from testbed.files import read_bytes

COLUMNS = (
    "name", "reserved", "fwd_time", "fwd_comm", "fwd_bytes", "ig_time", "ig_comm", "ig_bytes",
    "wg_time", "wg_comm", "wg_bytes", "update_time", "parallelism",
)  # fmt: skip
CUSTOMIZED = "HYBRID_CUSTOMIZED"
LARGEST = (1 << 63) - 1
# Only what C++'s streams take for space, so that names may hold everything else.
_WORD = re.compile(r"\S+", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]{1,19}")
# AICB divides the bytes of a pipeline's transfer, and Python writes the quotient with a point.
_SETTING = re.compile(r"([0-9]{1,19})(?:\.0+)?")


@dataclass(frozen=True)
class Communication:
    """A collective. `kind` as in the file, without the `group` behind it ("" unless AICB names one: EP, DP_EP)."""

    kind: str
    size_bytes: int
    group: str = ""

    @property
    def word(self) -> str:
        """As the file writes it."""
        return f"{self.kind}_{self.group}" if self.group else self.kind


@dataclass(frozen=True)
class Phase:
    """Part of a layer's work: `compute` in the file's unit of time, then the communication."""

    compute: int
    communication: Communication


@dataclass(frozen=True)
class TraceLayer:
    """A layer, and the `line` of the file where it stands (not compared).

    `update` is the file's last number, a delay per KiB of result once a collective has ended. `parallelism` is the
    layer's own, if the file's is HYBRID_CUSTOMIZED, else "".
    """

    name: str
    reserved: int
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase
    update: int
    parallelism: str = ""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class LayerWorkload:
    """A whole file. `settings` are those of its first line: name (without colon) and numbers, in order.

    ASTRA-sim's HYBRID_DLRM has one number there without a name: its name is "".
    """

    parallelism: str
    settings: tuple[tuple[str, tuple[int, ...]], ...]
    layers: tuple[TraceLayer, ...]

    def setting(self, name: str) -> tuple[int, ...] | None:
        """The numbers of setting `name`, or None."""
        return dict(self.settings).get(name)

    def to_text(self) -> str:
        """The file that says this, its columns parted by tabs; reading it gives an equal workload."""
        first = [self.parallelism]
        for name, numbers in self.settings:
            first += ([f"{name}:"] if name else []) + [str(number) for number in numbers]
        rows = [" ".join(first), str(len(self.layers)), *map(_row, self.layers)]
        return "\n".join(rows) + "\n"


@dataclass(frozen=True)
class Dialect:
    """What one program writes. `settings`: parallelism to the settings that must be there; `optional`: others known.

    `lists` are settings that say how many numbers follow. `unnamed` parallelisms have a number in place of a setting.
    """

    title: str
    settings: dict[str, tuple[str, ...]]
    optional: tuple[str, ...]
    lists: tuple[str, ...]
    unnamed: tuple[str, ...]
    collectives: tuple[str, ...]
    groups: tuple[str, ...] = ()

    @property
    def words(self) -> dict[str, tuple[str, str]]:
        """Every word for a collective: its kind and group."""
        found = {kind: (kind, "") for kind in self.collectives}
        moving = [kind for kind in self.collectives if kind != "NONE"]
        return found | {f"{kind}_{group}": (kind, group) for kind in moving for group in self.groups}


class _Word(NamedTuple):
    text: str
    column: int


class _Line(NamedTuple):
    where: str
    number: int
    words: list[_Word]
    end: int

    def wrong(self, index: int, what: str, mend: str) -> InputError:
        column = self.words[index].column if index < len(self.words) else self.end
        return InputError(f"{self.where}, line {self.number}, column {column}", what, mend)


def read_file(path: Path, dialect: Dialect) -> LayerWorkload:
    """The workload in the file `path`. Raises InputError with the line and column of what is wrong."""
    try:
        data = read_bytes(path)
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise InputError(f"{path}, line {line}, column {column}", "is not text", "is it a text workload?") from None
    return parse(text, str(path), dialect)


def parse(text: str, where: str, dialect: Dialect) -> LayerWorkload:
    """The workload that `text` says; `where` names it in errors. Raises InputError as `read_file` does."""
    every = [
        _Line(where, number, [_Word(m.group(), m.start() + 1) for m in _WORD.finditer(line)], len(line.rstrip()) + 1)
        for number, line in enumerate(text.split("\n"), start=1)
    ]
    lines = [line for line in every if line.words]
    if not lines:
        raise InputError(f"{where}, line 1, column 1", "is empty", f"give a text workload of {dialect.title}")
    parallelism, settings = _first(lines[0], dialect)
    if len(lines) < 2:
        raise lines[0].wrong(len(lines[0].words), "ends after the first line", "the second says how many layers follow")
    count = _count(lines[1])
    rows = lines[2:]
    if len(rows) != count:
        # The first row too many, or the end of the last one there is.
        at, index = (rows[count], 0) if len(rows) > count else (lines[-1], len(lines[-1].words))
        mend = f"one layer per line, as many as line {lines[1].number} says"
        raise at.wrong(index, f"{len(rows)} layers are there, {count} are announced", mend)
    width = len(COLUMNS) - (parallelism != CUSTOMIZED)
    return LayerWorkload(parallelism, settings, tuple(_layer(row, width, dialect) for row in rows))


def _first(line: _Line, dialect: Dialect) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    parallelism = line.words[0].text
    if parallelism not in dialect.settings:
        mend = f"{dialect.title} knows {', '.join(dialect.settings)}"
        raise line.wrong(0, f"{parallelism!r:.60} is no parallelism", mend)
    required = dialect.settings[parallelism]
    settings: dict[str, tuple[int, ...]] = {}
    at = 1
    if parallelism in dialect.unnamed:
        settings[""], at = (_setting(line, at, "the last layer of the lower perceptron"),), 2
    while at < len(line.words):
        name = line.words[at].text.removesuffix(":")
        if name not in {*required, *dialect.optional}:
            mend = f"{parallelism} may have {', '.join([*required, *dialect.optional]) or 'none'}"
            raise line.wrong(at, f"{name!r:.60} is no setting", mend)
        if name in settings:
            raise line.wrong(at, f"{name} was there already", "give it once")
        numbers = [_setting(line, at + 1, name)]
        if name in dialect.lists:
            numbers += [_setting(line, at + 2 + index, name) for index in range(_available(line, at + 2, numbers[0]))]
        settings[name] = tuple(numbers)
        at += 1 + len(numbers)
    for name in required:
        if name not in settings:
            raise line.wrong(len(line.words), f"{name} is missing", f"{parallelism} needs {', '.join(required)}")
    return parallelism, tuple(settings.items())


def _available(line: _Line, at: int, count: int) -> int:
    """`count`, or one more than there are words from `at` on, so that a huge count ends at the first one missing."""
    return min(count, len(line.words) - at + 1)


def _setting(line: _Line, at: int, name: str) -> int:
    if at >= len(line.words):
        raise line.wrong(at, f"a number is missing for {name}", "give a whole number from 0 on")
    found = _SETTING.fullmatch(line.words[at].text)
    if found is None or int(found[1]) > LARGEST:
        raise line.wrong(at, f"{name} is {line.words[at].text!r:.60}", "give a whole number from 0 on")
    return int(found[1])


def _count(line: _Line) -> int:
    mend = "the second line is the number of layers"
    if len(line.words) > 1:
        raise line.wrong(1, f"{line.words[1].text!r:.60} follows the number of layers", mend)
    count = _whole(line, 0, "the number of layers", mend)
    if count < 1:
        raise line.wrong(0, f"{count} layers", mend)
    return count


def _layer(line: _Line, width: int, dialect: Dialect) -> TraceLayer:
    if len(line.words) < width:
        mend = f"a layer has {width} columns: {' '.join(COLUMNS[:width])}"
        raise line.wrong(len(line.words), f"{COLUMNS[len(line.words)]} is missing", mend)
    if len(line.words) > width:
        raise line.wrong(width, f"{line.words[width].text!r:.60} is one too many", f"a layer has {width} columns")
    texts = [word.text for word in line.words]
    if width == len(COLUMNS) and texts[-1] not in dialect.settings:
        raise line.wrong(width - 1, f"{texts[-1]!r:.60} is no parallelism", f"known are {', '.join(dialect.settings)}")
    return TraceLayer(
        name=texts[0],
        reserved=_whole(line, 1, "reserved", "give a whole number, usually -1"),
        forward=_phase(line, 2, dialect),
        input_gradient=_phase(line, 5, dialect),
        weight_gradient=_phase(line, 8, dialect),
        update=_natural(line, 11),
        parallelism=texts[-1] if width == len(COLUMNS) else "",
        line=line.number,
    )


def _phase(line: _Line, at: int, dialect: Dialect) -> Phase:
    word = line.words[at + 1].text
    if word not in dialect.words:
        mend = f"{dialect.title} knows {', '.join(dialect.words)}"
        raise line.wrong(at + 1, f"{COLUMNS[at + 1]} is {word!r:.60}", mend)
    kind, group = dialect.words[word]
    return Phase(_natural(line, at), Communication(kind, _natural(line, at + 2), group))


def _natural(line: _Line, at: int) -> int:
    number = _whole(line, at, COLUMNS[at], "give a whole number from 0 on")
    if number < 0:
        raise line.wrong(at, f"{COLUMNS[at]} is {number}", "give a whole number from 0 on")
    return number


def _whole(line: _Line, at: int, name: str, mend: str) -> int:
    text = line.words[at].text
    if not _WHOLE.fullmatch(text):
        raise line.wrong(at, f"{name} is {text!r:.60}", mend)
    number = int(text)
    if abs(number) > LARGEST:
        raise line.wrong(at, f"{name} is {text}, more than 64 bits hold", mend)
    return number


def _row(layer: TraceLayer) -> str:
    cells: list[object] = [layer.name, layer.reserved]
    for phase in phases(layer):
        cells += [phase.compute, phase.communication.word, phase.communication.size_bytes]
    cells += [layer.update, *([layer.parallelism] if layer.parallelism else [])]
    return "\t".join(map(str, cells))


def phases(layer: TraceLayer) -> Sequence[Phase]:
    """The three phases of a layer in the order of the file."""
    return layer.forward, layer.input_gradient, layer.weight_gradient
