"""The command line: every error is one message on standard error and an exit code, and starts nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scenario_texts import BAD, FINE, NOT_TOML

from testbed import campaign, cli, scenario_file
from testbed.engine import commands
from testbed.engine.kernel import Kernel
from testbed.engine.launch import Guest
from testbed.errors import NotValid
from testbed.geo.keys import WideScenario
from testbed.schema import schema

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Ended:
    """How a command ended: its exit code and what it said."""

    code: int
    out: str
    err: str


class Shell:
    """Runs the command line in this process, where nothing may be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["python -m testbed", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(Guest, "run", start)
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(monkeypatch, capsys)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which the kernel is built."""
    built = Kernel(tmp_path / "linux", "7.3", "7.3-abc", True)
    monkeypatch.setattr(commands, "find", lambda: built)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with the results of an earlier run."""
    (tmp_path / "results" / "tiny").mkdir(parents=True)
    (tmp_path / "results" / "tiny" / "summary.json").write_text("earlier")
    return tmp_path / "results"


def untouched(results: Path) -> bool:
    files = [path for path in results.rglob("*") if path.is_file()]
    return [path.relative_to(results).as_posix() for path in files] == ["tiny/summary.json"] and (
        files[0].read_text() == "earlier"
    )


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_scenario_ends_with_2_and_one_message_and_starts_nothing(
    kind: str, shell: Shell, tmp_path: Path, earlier: Path
) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(BAD[kind].text)
    ended = shell("run", path, "--results", earlier)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith(f"orrery: {path}: ")
    assert BAD[kind].key in ended.err
    assert BAD[kind].mend in ended.err
    assert "Traceback" not in ended.err
    assert untouched(earlier)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("content", NOT_TOML.values(), ids=NOT_TOML)
def test_a_file_that_is_no_scenario_does_likewise(content: bytes, shell: Shell, tmp_path: Path, earlier: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_bytes(content)
    ended = shell("run", path, "--results", earlier)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"orrery: {path}: is not TOML: ")
    assert untouched(earlier)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nonesuch"), "orrery: nonesuch: no such scenario or file (scenarios: "),
        (("run", "smoke", "--set", "fabric.scale"), "orrery: --set fabric.scale: is not KEY=VALUE"),
        (("run", "smoke", "--set", "job.workers=3"), "orrery: --set job.workers=3: names a list, not a key"),
        (("run", "smoke", "--set", "fabric.sacle=3"), "smoke.toml: fabric.sacle: unknown key"),
        (("run", "smoke", "--mem", "1"), "orrery: --mem: '1' is not one of the units"),
        (("run", "smoke", "--mem", "1 MB"), "orrery: --mem: 1 MB is too little for a guest (give at least 256MB"),
        (("run", "smoke", "--results", "/dev/null"), "orrery: /dev/null: cannot be written to"),
        (("run",), "Missing argument"),
        (("run", "smoke", "--nonesuch"), "No such option"),
        (("exec",), "Missing argument"),
        (("exec", "--mem", "-2GB", "--", "true"), "orrery: --mem: '-2GB' is negative"),
        (("exec", "--seed", "-1", "--", "true"), "--seed"),
        (("exec", "--seed", str(2**63), "--", "true"), "--seed"),
        (("exec", "--write", "/nonesuch", "--", "true"), "orrery: --write: /nonesuch is not a folder (mkdir -p"),
        (("exec", "--write", "/etc/passwd", "--", "true"), "orrery: --write: /etc/passwd is not a folder"),
        (("exec", "--write", "/", "--", "true"), "orrery: --write: the whole machine"),
        (("exec", "--write", "/etc/..", "--", "true"), "orrery: --write: the whole machine"),
        (("report", "/etc"), "orrery: /etc: is not a run's folder"),
        (("report", "/nonesuch"), "orrery: /nonesuch: is not a run's folder"),
        (("topology", "ring"), "orrery: topology: there is no fabric 'ring'"),
        (
            ("topology", "dumbbell", "--out", "x.gif"),
            "orrery: --out: x.gif is neither .png nor .svg (as in --out x.png",
        ),
        (("topology", "dumbbell", "--out", "/nonesuch/x.png"), "orrery: --out: there is no folder /nonesuch (mkdir -p"),
        (("frobnicate",), "No such command"),
        (("kernel", "frobnicate"), "No such command"),
    ],
)
def test_what_a_user_mistypes_is_said_and_ends_with_2(arguments: tuple[str, ...], said: str, shell: Shell) -> None:
    ended = shell(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_a_shell_needs_a_terminal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "find", lambda: Kernel(Path("/linux"), "7.3", "k", True))
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        ended = shell("shell")
    assert (ended.code, ended.out) == (2, "")
    assert "use exec" in ended.err


@pytest.mark.parametrize(
    "arguments", [("run", "smoke"), ("exec", "--", "true"), ("kernel", "path"), ("kernel", "info")]
)
def test_without_a_kernel_the_command_that_builds_it_is_said(
    arguments: tuple[str, ...], shell: Shell, tmp_path: Path
) -> None:
    more = ("--results", tmp_path / "results") if arguments[0] == "run" else ()
    ended = shell(*arguments, *more)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "orrery: the guest kernel is not built yet\n  mend: python -m testbed kernel build\n"
    assert not (tmp_path / "results").exists()


def test_a_dry_run_needs_no_kernel_and_leaves_nothing(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(FINE)
    before = sorted(tmp_path.rglob("*"))
    ended = shell("run", tmp_path / "tiny.toml", "--dry-run", "--results", tmp_path / "results")
    assert (ended.code, ended.err) == (0, "")
    for shown in (
        "50 Gbit/s",
        "250 Mbit/s",
        "2 us",
        "400 us",
        "s1->s2",
        "h1 h3",
        "2 trials",
        "nothing was started",
    ):
        assert shown in ended.out, shown
    assert sorted(tmp_path.rglob("*")) == before


def test_every_scenario_can_be_listed_and_tried_dry(shell: Shell) -> None:
    listed = shell("list")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == scenario_file.names()
    for name in ("smoke", "two-jobs", "two-jobs-50g"):
        assert shell("run", name, "--dry-run").code == 0


def test_every_key_is_listed_with_its_default(shell: Shell) -> None:
    lines = shell("list", "--keys").out.splitlines()
    assert len(lines) == len({*schema(), *schema(WideScenario)})
    assert any(line.split()[:4] == ["fabric.red.max", "size", "160", "kB"] for line in lines)


def test_a_fabric_is_drawn(shell: Shell, tmp_path: Path) -> None:
    assert "tor6" in shell("topology", "cassini-48").out
    for kind, begins in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        ended = shell("topology", "leaf-spine(2, 2, 2)", "--out", tmp_path / f"x.{kind}")
        assert (ended.code, ended.err) == (0, "")
        assert (tmp_path / f"x.{kind}").read_bytes().startswith(begins)


# What becomes of a run


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the campaign end in a way of the test's choice."""

    def end_with(error: BaseException) -> None:
        def run(_: campaign.Campaign) -> None:
            raise error

        monkeypatch.setattr(campaign.Campaign, "run", run)

    return end_with


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            NotValid("arm together: s1-eth3: tbf rate should be 1 and is 2"),
            1,
            "orrery: arm together: s1-eth3: tbf rate",
        ),
        (KeyboardInterrupt(), 130, "stopped; earlier results are as they were"),
    ],
)
def test_a_run_that_does_not_end_well_says_so(
    error: BaseException, code: int, said: str, shell: Shell, outcome: Any, earlier: Path
) -> None:
    outcome(error)
    ended = shell("run", "smoke", "--results", earlier)
    assert ended.code == code
    assert said in ended.out + ended.err
    assert "Traceback" not in ended.err
    assert untouched(earlier)


# As a program of its own


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), ([], 2), (["run", "nonesuch"], 2)])
def test_the_program_is_the_module(arguments: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, "-m", "testbed", *arguments], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    """As in `list --keys | head -1`."""
    command = [sys.executable, "-m", "testbed", "list", "--keys"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    with process.stderr:
        said = process.stderr.read()
    assert process.wait() == 1
    assert said == b""
