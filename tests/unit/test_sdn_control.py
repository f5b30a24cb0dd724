"""The control socket: requests, answers, and errors in words."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sdn_fakes import fabric

from controllers.sdn.config import Config
from controllers.sdn.control import Action, Client, answer, converse
from testbed.errors import InputError, NotValid


def refuse(_request: dict[str, Any]) -> dict[str, Any]:
    raise NotValid("not connected and programmed: s2")


ACTIONS: dict[str, Action] = {
    "ready?": lambda request: {"switches": 13, "asked": request["timeout_s"]},
    "epoch": refuse,
    "snapshot": lambda _: {"t_s": 1.5, "links": {}, "jobs": {}},
}


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"do": "dance"}', b'{"done": 1}', b'{"do": []}', b"\xff"])
def test_what_is_no_request_is_answered(line: bytes) -> None:
    said = answer(line, ACTIONS)
    assert said["ok"] is False
    assert "ready?" in said["error"]


def test_a_lacking_value_is_answered() -> None:
    assert answer(b'{"do": "ready?"}', ACTIONS) == {"ok": False, "error": "KeyError: 'timeout_s'"}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A socket with a controller of three actions behind it, that serves one client."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "sdn.sock"))
    listener.listen()
    thread = threading.Thread(target=lambda: converse(listener.accept()[0], ACTIONS))
    thread.start()
    yield tmp_path / "sdn.sock"
    thread.join()
    listener.close()


def test_a_client_asks(path: Path) -> None:
    with Client(path) as client:
        assert client.ready() == 13
        assert client.snapshot()["t_s"] == 1.5
        with pytest.raises(NotValid, match="asked 'epoch': NotValid: not connected and programmed: s2"):
            client.set_epoch(1.0)
        assert client.ready() == 13


def test_requests_may_come_in_pieces(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        for piece in (b'{"do": "sna', b'pshot"}\n{"do"', b': "snapshot"}\n'):
            raw.sendall(piece)
        answers = raw.makefile("rb")
        assert [json.loads(answers.readline())["ok"] for _ in range(2)] == [True, True]


def test_nobody_listening_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotValid, match=r"does not listen at .*nobody"):
        Client(tmp_path / "nobody", timeout_s=0.0)


def test_a_controller_that_goes_away_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        threading.Thread(target=lambda: listener.accept()[0].close()).start()
        with Client(tmp_path / "s") as client, pytest.raises(NotValid, match="went away"):
            client.snapshot()


def config(tmp_path: Path, **changes: Any) -> Config:
    return Config(fabric("dumbbell(2)"), **{"jobs": {"a": 10}, "out": tmp_path, "control": tmp_path / "s", **changes})


def test_a_configuration_survives_its_file(tmp_path: Path) -> None:
    config(tmp_path, epoch=12.5, interval_s=0.01).write(tmp_path / "c.json")
    assert Config.read(tmp_path / "c.json") == config(tmp_path, epoch=12.5, interval_s=0.01)


@pytest.mark.parametrize("change", [{"interval_s": 0.0}, {"interval_s": float("nan")}, {"port": 0}, {"jobs": {"a": 0}}])
def test_values_out_of_range(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        config(tmp_path, **change)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"topology": 1}', '{"topology": {}, "out": "", "control": ""}'])
def test_a_foreign_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputError, match=r"c\.json"):
        Config.read(tmp_path / "c.json")


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    config(tmp_path).write(tmp_path / "c.json")
    values = json.loads((tmp_path / "c.json").read_text()) | {"intervall_s": 1}
    (tmp_path / "c.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match="intervall_s"):
        Config.read(tmp_path / "c.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.json: cannot be read"):
        Config.read(tmp_path / "nothing.json")
