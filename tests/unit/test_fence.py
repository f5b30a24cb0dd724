"""The host's fence around a guest, put around a program of a few lines."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.engine import fence

ROOT = Path(__file__).resolve().parents[2]
TRY = """
import json, os, socket, sys
from pathlib import Path
from testbed.engine import fence
home, shown, write, port = sys.argv[1:]
folders = [os.open(path, os.O_PATH) for path in (shown, write)]
with fence.fence([Path(home)], folders[:1], folders[1:]) as rules:
    fence.restrict(rules)
def tried(deed):
    try:
        deed()
    except OSError as error:
        return type(error).__name__
    return "done"
print(json.dumps({
    "secret": tried(lambda: Path(home, "secret").read_text()),
    "shown": tried(lambda: Path(shown, "file").read_text()),
    "passwd": tried(lambda: Path("/etc/passwd").read_text()),
    "write": tried(lambda: Path(write, "new").write_text("x")),
    "move": tried(lambda: (Path(write, "a").mkdir(), Path(write, "new").rename(Path(write, "a", "b")))),
    "outside": tried(lambda: Path(write).parent.joinpath("outside").write_text("x")),
    "shown changed": tried(lambda: Path(shown, "file").write_text("x")),
    "removed": tried(lambda: Path(shown, "file").unlink()),
    "connect": tried(lambda: socket.create_connection(("127.0.0.1", int(port)), 5)),
    "signal": tried(lambda: os.kill(os.getppid(), 0)),
}))
"""


@pytest.mark.skipif(fence.version() < fence.LEAST_VERSION, reason="this kernel has no Landlock that would do")
def test_behind_it_nothing_private_is_read_nothing_written_but_the_results_and_nobody_reached(tmp_path: Path) -> None:
    home, write = tmp_path / "home", tmp_path / "write"
    shown = home / "project"
    for folder in (home, write, shown):
        folder.mkdir()
    (home / "secret").write_text("secret")
    (shown / "file").write_text("as it was")
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = subprocess.run(
            [sys.executable, "-c", TRY, home, shown, write, str(server.getsockname()[1])],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    became = json.loads(ended.stdout)
    wanted = {
        "secret": "PermissionError", "shown": "done", "passwd": "done", "write": "done", "move": "done",
        "outside": "PermissionError", "shown changed": "PermissionError", "removed": "PermissionError",
    }  # fmt: skip
    if fence.version() > 3:
        wanted["connect"] = "PermissionError"
    if fence.version() > 5:
        wanted["signal"] = "PermissionError"
    assert {name: became[name] for name in wanted} == wanted
    assert (shown / "file").read_text() == "as it was"


def test_homes_are_those_of_the_user_database_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path.resolve() in fence.homes()
    for nowhere in ("", "/", "relative", str(tmp_path / "not-there"), "/usr/sbin", "/bin"):
        monkeypatch.setenv("HOME", nowhere)
        assert all(path.is_dir() and str(path) not in ("/", "/usr/sbin", "/usr/bin") for path in fence.homes())


def test_what_covers_all_but_some_folders(tmp_path: Path) -> None:
    for name in ("a/secret", "a/b/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    allowed = set(fence._all_but(tmp_path, (tmp_path / "a" / "secret",)))
    assert allowed == {tmp_path / "a" / "b", tmp_path / "d"}
    assert list(fence._all_but(tmp_path, ())) == [tmp_path]
    assert list(fence._all_but(tmp_path, (tmp_path,))) == []


def test_a_kernel_without_it_has_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "version", lambda: 0)
    with fence.fence([Path.home()], [], []) as rules:
        assert rules is None
    assert os.access("/etc/passwd", os.R_OK)
