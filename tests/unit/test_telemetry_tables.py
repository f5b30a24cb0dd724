"""Tables, events and sampling times."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.telemetry.events import EventLog, read_events
from testbed.telemetry.schedule import Schedule
from testbed.telemetry.tables import ALL, MARKS, QUEUES, TABLES

NAMES = st.text(st.characters(codec="utf-8", exclude_characters=',"\r\n', exclude_categories=["C"]))


def test_every_column_has_a_unit_and_a_meaning() -> None:
    for table in ALL:
        for name, column in table.columns.items():
            assert column.unit in ("s", "B", "packets", "count", "name", "share", "bit/s, s or share"), (
                table.file,
                name,
            )
            assert column.meaning
            assert name.endswith("_share") == (column.unit == "share"), (table.file, name)
            assert name.endswith("_s") == (column.unit == "s"), (table.file, name)
            assert name.endswith("_bytes") == (column.unit == "B"), (table.file, name)
            assert name.endswith("_packets") == (column.unit == "packets") or name in ("lookups", "matched")
    assert len({table.file for table in ALL}) == len(ALL)


def test_rows_come_back(tmp_path: Path) -> None:
    path = tmp_path / QUEUES.file
    with QUEUES.writer(path) as writer:
        writer.row(0.1 + 0.2, "a->b", 1, 2, 3, 4, 5, None)
        writer.row(1e-6, "b->a", 1, 2, 3, 4, 5, 6)
    assert path.read_text().splitlines()[:2] == [",".join(QUEUES.columns), "0.300000,a->b,1,2,3,4,5,"]
    records = QUEUES.read(path)
    assert len(records) == 2
    assert records.text("link") == ["a->b", "b->a"]
    assert records.numbers("t_s") == [0.3, 1e-6]
    assert records.counts("dropped_packets") == [None, 6]
    assert math.isnan(records.numbers("dropped_packets")[0])
    assert records.where(link="b->a", backlog_bytes=1).counts("dropped_packets") == [6]
    assert len(records.where(link="c->a")) == 0


@given(st.lists(st.tuples(NAMES, NAMES, st.integers(-1, 2**63), st.floats(0, 1e5), NAMES, st.integers(0, 2**64))))
def test_whatever_is_written_is_read(rows: list[tuple[str, str, int, float, str, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "marks.csv"
        with MARKS.writer(path) as writer:
            for row in rows:
                writer.row(*row)
        records = MARKS.read(path)
    assert len(records) == len(rows)
    assert records.text("link") == [row[4] for row in rows]
    assert records.counts("marked_packets") == [row[5] for row in rows]
    assert records.numbers("t_s") == pytest.approx([row[3] for row in rows], abs=1e-6)


@pytest.mark.parametrize(
    "values", [(1.0,), (1.0, "s", 0, 1, 2, 3, 4), (1.0, "a,b", 0, 1, 2, 3), (1.0, 'a"', 0, 1, 2, 3)]
)
def test_a_row_that_does_not_fit_is_refused(tmp_path: Path, values: tuple[float | str, ...]) -> None:
    with TABLES.writer(tmp_path / "t.csv") as writer, pytest.raises(ValueError, match=r"tables\.csv|comma"):
        writer.row(*values)
    assert len(TABLES.read(tmp_path / "t.csv")) == 0


def test_foreign_and_torn_files_are_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "tables.csv"
    with pytest.raises(InputError, match=r"tables\.csv: cannot be read"):
        TABLES.read(path)
    path.write_text("t_s,link\n1,2\n")
    with pytest.raises(InputError, match=r"tables\.csv:1: is not tables\.csv"):
        TABLES.read(path)
    path.write_text(",".join(TABLES.columns) + "\n1,s,0,1,2,3\n2,s,0\n")
    with pytest.raises(InputError, match=r"tables\.csv:3: has 3 values for 6 columns"):
        TABLES.read(path)
    path.write_text(",".join(TABLES.columns) + "\n1,s,0,1,2,3\n2,s,0,1,2,3")
    with pytest.raises(InputError, match=r"tables\.csv:3: ends inside a row"):
        TABLES.read(path)


def test_rows_wait_for_a_flush(tmp_path: Path) -> None:
    writer = TABLES.writer(tmp_path / "t.csv")
    writer.row(1.0, "s", 0, 1, 2, 3)
    assert (tmp_path / "t.csv").read_text() == ""
    writer.flush()
    assert len(TABLES.read(tmp_path / "t.csv")) == 1
    writer.close()


def test_events_of_several_programs_share_a_file(tmp_path: Path) -> None:
    logs = [EventLog(tmp_path / "events.jsonl") for _ in range(2)]
    for number in range(4):
        logs[number % 2].write(number / 3, "paths", down=["a->b"], number=number)
    events = list(read_events(tmp_path / "events.jsonl"))
    assert [event["number"] for event in events] == [0, 1, 2, 3]
    assert events[1] == {"t_s": 0.333333, "event": "paths", "down": ["a->b"], "number": 1}
    for log in logs:
        log.close()


@given(
    st.floats(1e-4, 10),
    st.lists(st.floats(0, 5), max_size=30),
)
def test_times_are_multiples_that_never_repeat(interval_s: float, lateness: list[float]) -> None:
    start_s = 1_700_000_000.0
    schedule, now_s, before_s = Schedule(start_s, interval_s), start_s, start_s
    for late_s in lateness:
        next_s = schedule.after(now_s)
        assert next_s > before_s
        assert next_s >= now_s - 1e-6
        assert (next_s - start_s) / interval_s == pytest.approx(round((next_s - start_s) / interval_s), abs=0.01)
        before_s, now_s = next_s, next_s + late_s


def test_a_late_sample_skips_times_and_an_early_one_does_not_repeat_one() -> None:
    schedule = Schedule(10.0, 0.5)
    assert [schedule.after(now) for now in (10.0, 10.49, 10.51, 13.2, 13.3)] == [10.5, 11.0, 11.5, 13.5, 14.0]


def test_an_interval_must_be_positive() -> None:
    for interval_s in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="not positive"):
            Schedule(0.0, interval_s)
