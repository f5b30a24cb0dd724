"""Starting a guest: what its kernel is told, what it inherits, and what becomes of both ends. A program of a few lines
stands in for the kernel."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import site
import string
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.engine import commands
from testbed.engine.kernel import Kernel
from testbed.engine.launch import (
    COMMAND_LINE_MAX,
    DESCRIPTORS,
    Guest,
    GuestDied,
    Job,
    Machine,
    encode_job,
    kernel_arguments,
)
from testbed.errors import EnvironmentLacks, InputError

ROOT = Path(__file__).resolve().parents[2]
KERNEL = Kernel(Path("/cache/linux"), "7.3", "7.3-abc", seccomp=True)
WORDS = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)


def decoded(arguments: list[str]) -> dict[str, Any]:
    (word,) = [argument.partition("=")[2] for argument in arguments if argument.startswith("ORRERY_JOB=")]
    job: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(word)))
    return job


# The command line


def test_the_command_line_does_not_tell_where_anything_lies() -> None:
    """Linux mixes its command line into its entropy: another folder would be other packets."""

    def line(user: str) -> list[str]:
        job = Job(
            argv=("true",), cwd="/run", write=(f"/home/{user}/results/x", "/run/orrery/results"),
            mounts=((f"/home/{user}/src", "/run/orrery/project"), (f"/opt/{user}/venv", "/run/orrery/venv")),
        )  # fmt: skip
        return kernel_arguments(job, Machine(), Kernel(Path(f"/home/{user}/.cache/linux"), "7.3", user, True))

    assert line("ann") == line("somebody-with-a-long-name")
    assert "ann" not in " ".join(line("ann"))


def test_nor_does_that_of_an_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = []
    for place in ("a", "a/longer/place"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        monkeypatch.setattr(commands, "PROJECT", folder / "project")
        monkeypatch.setattr(sys, "prefix", str(folder / "venv"))
        monkeypatch.chdir(folder)
        monkeypatch.setenv("HOME", str(folder))
        job = commands.program_job(("-m", "testbed.arm", commands.RESULTS_IN_GUEST), "/run/orrery/project", folder)
        lines.append(kernel_arguments(job, Machine(seed=3), KERNEL))
    assert lines[0] == lines[1]
    assert str(tmp_path) not in " ".join(lines[0]) + json.dumps(decoded(lines[0]))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there distutils comes by site")
def test_programs_of_a_guest_run_without_what_this_machine_adds_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, whole = str(tmp_path / ".local/lib/python3.11/site-packages"), "/usr/lib/python3/dist-packages"
    monkeypatch.setattr(site, "getusersitepackages", lambda: own)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(sys, "path", ["", "/usr/lib/python3.11", f"{sys.prefix}/lib/site-packages", own, whole])
    job = commands.program_job(("-m", "testbed.arm"), "/", tmp_path)
    assert job.argv == (f"{commands.PYTHON_IN_GUEST}/bin/python", "-S", "-m", "testbed.arm")
    found = [commands.PROJECT_IN_GUEST, f"{commands.PYTHON_IN_GUEST}/lib/site-packages", whole]
    assert job.env["PYTHONPATH"].split(":") == found


def test_what_the_kernel_is_told() -> None:
    virtual = kernel_arguments(Job(("true",), "/"), Machine(1 << 30, seed=42), KERNEL)
    for wanted in ("mem=1024M", "ro", "rng-seed=42", "time-travel=inf-cpu", "seccomp=auto", "hostfs-writable=none"):
        assert wanted in virtual
    assert not any(argument.startswith("ssl3") for argument in virtual)
    real = kernel_arguments(Job(("true",), "/"), Machine(real_time=True), Kernel(KERNEL.path, "6.12", "k", False))
    assert not any("time-travel" in argument or "seccomp" in argument for argument in real)


def test_a_guest_that_writes_is_told_the_one_folder_by_descriptor() -> None:
    arguments = kernel_arguments(Job(("true",), "/", write=("/secret", "/out")), Machine(), KERNEL)
    place = f"/proc/self/fd/{DESCRIPTORS['write']}"
    assert f"hostfs-writable={place}" in arguments
    assert decoded(arguments)["write"] == [place, "/out"]


def test_standard_input_and_terminal_are_lines_of_their_own() -> None:
    arguments = kernel_arguments(Job(("cat",), "/", stdin=True), Machine(), KERNEL)
    assert f"ssl3=fd:{DESCRIPTORS['stdin']},null" in arguments
    arguments = kernel_arguments(Job(("bash",), "/", terminal=(24, 80)), Machine(), KERNEL)
    assert f"con0=fd:{DESCRIPTORS['terminal']}" in arguments


def test_every_descriptor_has_a_number_of_its_own_and_mounts_come_last() -> None:
    assert len(set(DESCRIPTORS.values())) == len(DESCRIPTORS)
    assert max(DESCRIPTORS, key=lambda name: DESCRIPTORS[name]) == "mount"
    mounts = tuple((f"/host/{n}", f"/guest/{n}") for n in range(3))
    job = decoded(kernel_arguments(Job(("true",), "/", mounts=mounts), Machine(), KERNEL))
    first = DESCRIPTORS["mount"]
    ours = [f"/proc/self/fd/{DESCRIPTORS['project']}", "/run/orrery/project"]
    assert job["mounts"] == [ours, *([f"/proc/self/fd/{first + n}", f"/guest/{n}"] for n in range(3))]


@given(argv=st.lists(WORDS, min_size=1, max_size=8), cwd=WORDS, env=st.dictionaries(WORDS, WORDS, max_size=4))
def test_any_command_arrives_as_it_was_given(argv: list[str], cwd: str, env: dict[str, str]) -> None:
    """Blanks, quotes, line breaks, what is special to a kernel's command line: nothing changes on the way."""
    arguments = kernel_arguments(Job(tuple(argv), cwd, env), Machine(), KERNEL)
    job = decoded(arguments)
    assert (job["argv"], job["cwd"], job["env"]) == (argv, cwd, env)
    assert not any(blank in argument for argument in arguments for blank in " \t\n\"'")


def noise(length: int) -> str:
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))


def test_a_command_too_long_is_an_error_and_a_long_one_is_not() -> None:
    encode_job(Job(("echo", "a" * 100_000), "/"))
    with pytest.raises(InputError, match=r"too long for a guest .*script") as caught:
        encode_job(Job(("echo", noise(4000)), "/"))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("step", [1, 100])
def test_what_is_accepted_fits_a_kernels_command_line(step: int) -> None:
    """The kernel cuts a longer one off without a word."""
    length = 4000
    while True:
        length -= step
        job = Job(("echo", noise(length)), "/", write=("/a", "/b"), mounts=(("/c", "/d"),) * 3, stdin=True)
        try:
            arguments = kernel_arguments(job, Machine(1 << 50, 2**63 - 1), KERNEL)
        except InputError:
            continue
        break
    assert length > 2000
    assert len(" ".join([str(KERNEL.path) * 10, *arguments])) < COMMAND_LINE_MAX


# What a guest inherits and says. The stand-in is a Python program with the guest's descriptors.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORRERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def stand_in(tmp_path: Path, cache: Path) -> Callable[[str], Kernel]:
    """A kernel that is a Python program: D is the table of descriptors, `say` writes to one of them."""

    def make(code: str) -> Kernel:
        path, python = tmp_path / "kernel", tmp_path / "python"
        python.symlink_to(sys.executable)  # whose own path may have a space, which no first line of a program can
        path.write_text(
            f"#!{python} -ISB\nimport json, os, sys, time\nD = {DESCRIPTORS}\n"
            f"def say(line, text): os.write(D[line], text.encode())\n{code}\n"
        )
        path.chmod(0o755)
        return Kernel(path, "7.3", "key", True)

    assert not cache.exists()
    return make


class Heard:
    """Everything one guest said."""

    def __init__(self) -> None:
        self.out, self.err = bytearray(), bytearray()
        self.status: list[dict[str, Any]] = []
        self.code: int | None = None

    def listen(self, guest: Guest, **more: Any) -> Heard:
        self.code = guest.run(self.out.extend, self.err.extend, self.status.append, **more)
        return self


def test_streams_come_apart_and_the_exit_code_is_the_jobs(stand_in: Callable[[str], Kernel]) -> None:
    kernel = stand_in(
        "say('stdout', 'out'); say('stderr', 'err'); say('console', 'noise')\n"
        'say(\'status\', \'{"stage": "a"}\\n{"st\'); time.sleep(0.05); say(\'status\', \'age": "b"}\\n{"exit": 7}\\n\')'
    )
    heard = Heard().listen(Guest(Job(("x",), "/"), Machine(), kernel))
    assert (heard.code, heard.out, heard.err) == (7, b"out", b"err")
    assert heard.status == [{"stage": "a"}, {"stage": "b"}]


def test_much_is_said_and_nothing_lost(stand_in: Callable[[str], Kernel]) -> None:
    """More than a pipe holds, on both streams in turn: who reads only one of them waits for ever."""
    kernel = stand_in(
        "for n in range(300): say('stderr', 'e' * 9000); say('stdout', f'{n:9000}')\nsay('status', '{\"exit\": 0}\\n')"
    )
    heard = Heard().listen(Guest(Job(("x",), "/"), Machine(), kernel))
    assert heard.out == "".join(f"{n:9000}" for n in range(300)).encode()
    assert len(heard.err) == 300 * 9000


def test_a_guest_that_ends_before_its_command_is_an_error_with_its_console(stand_in: Callable[[str], Kernel]) -> None:
    kernel = stand_in("say('stdout', 'half'); say('console', 'Kernel panic - not syncing'); sys.exit(0)")
    with pytest.raises(GuestDied, match=r"before its command did: Kernel panic") as caught:
        Heard().listen(Guest(Job(("x",), "/"), Machine(), kernel))
    assert caught.value.exit_code == 1


def test_standard_input_is_sent_in_pieces_once_the_guest_is_up(
    stand_in: Callable[[str], Kernel], tmp_path: Path
) -> None:
    kernel = stand_in(
        "os.set_blocking(D['stdin'], False); say('status', '{\"stage\": \"boots\"}\\n')\n"
        "time.sleep(0.2)\n"
        "try: say('stderr', 'too early' if os.read(D['stdin'], 9) else 'closed')\n"
        "except BlockingIOError: pass\n"
        "os.set_blocking(D['stdin'], True); say('status', '{\"stage\": \"guest up\"}\\n')\n"
        "got = open(D['stdin'], 'rb')\n"
        "while size := int.from_bytes(got.read(4), 'big'): os.write(D['stdout'], got.read(size))\n"
        "say('status', '{\"exit\": 0}\\n')"
    )
    content = random.Random(1).randbytes(100_000)
    (tmp_path / "input").write_bytes(content)
    with (tmp_path / "input").open("rb") as source:
        heard = Heard().listen(Guest(Job(("cat",), "/", stdin=True), Machine(), kernel), stdin=source)
    assert heard.err == b""
    assert heard.out == content


def test_a_guest_inherits_its_descriptors_and_no_others(stand_in: Callable[[str], Kernel], tmp_path: Path) -> None:
    kernel = stand_in(
        "fds = sorted(map(int, os.listdir('/proc/self/fd')))\n"
        "seen = dict(env=dict(os.environ), cwd=os.getcwd(), cpus=len(os.sched_getaffinity(0)), args=sys.argv[1:])\n"
        "seen['fds'] = [fd for fd in fds if os.path.exists(f'/proc/self/fd/{fd}') and fd > 2]\n"
        "seen['write'] = os.readlink(f'/proc/self/fd/{D[\"write\"]}')\n"
        "seen['mount'] = os.readlink(f'/proc/self/fd/{D[\"mount\"]}')\n"
        "say('stdout', json.dumps(seen)); say('status', '{\"exit\": 0}\\n')"
    )
    (tmp_path / "write").mkdir()
    (tmp_path / "show").mkdir()
    mounts = ((str(tmp_path / "show"), "/s"),)
    job = Job(("x",), "/", write=(str(tmp_path / "write"), "/w"), mounts=mounts)
    with (tmp_path / "mine").open("w") as mine:
        given_to_us = {fd for fd in range(3, 1000) if _inheritable(fd)}
        assert mine.fileno() not in given_to_us
        heard = Heard().listen(Guest(job, Machine(), kernel))
    seen = json.loads(heard.out)
    names = ("stdout", "stderr", "status", "console", "slot", "project", "write", "mount")
    assert set(seen["fds"]) - given_to_us == {DESCRIPTORS[name] for name in names}
    assert (seen["write"], seen["mount"]) == (str(tmp_path / "write"), str(tmp_path / "show"))
    assert (seen["cwd"], seen["cpus"]) == ("/", 1)
    assert sorted(seen["env"].keys() - {"LC_CTYPE"}) == ["PATH", "TMPDIR"]
    assert seen["args"] == kernel_arguments(job, Machine(), kernel)


def _inheritable(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


@pytest.mark.parametrize("missing", ["write", "mount"])
def test_a_folder_that_is_not_there_is_named_and_nothing_started(
    missing: str, stand_in: Callable[[str], Kernel], tmp_path: Path
) -> None:
    kernel = stand_in(f"open({str(tmp_path / 'started')!r}, 'w')")
    pair = (str(tmp_path / "gone"), "/x")
    job = Job(("x",), "/", write=pair if missing == "write" else None, mounts=(pair,) if missing == "mount" else ())
    with pytest.raises(InputError, match=r"gone: cannot be shown to a guest: No such file"):
        Heard().listen(Guest(job, Machine(), kernel))
    assert not (tmp_path / "started").exists()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("kind", ["absent", "not executable", "not a program"])
def test_a_kernel_that_does_not_start_comes_with_its_mend(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel"
    if kind != "absent":
        path.write_bytes(b"\x7fELF but not really")
        path.chmod(0o755 if kind == "not a program" else 0o644)
    with pytest.raises(EnvironmentLacks, match="does not start") as caught:
        Heard().listen(Guest(Job(("x",), "/"), Machine(), Kernel(path, "7.3", "key", True)))
    assert caught.value.mend == "python -m testbed kernel build"


def test_a_guest_can_be_stopped_from_another_thread(stand_in: Callable[[str], Kernel]) -> None:
    guest = Guest(Job(("x",), "/"), Machine(), stand_in("say('status', '{\"stage\": \"a\"}\\n'); time.sleep(600)"))
    heard = Heard()

    def stop_at(message: dict[str, Any]) -> None:
        heard.status.append(message)
        threading.Thread(target=guest.stop).start()

    with pytest.raises(GuestDied):
        guest.run(heard.out.extend, heard.err.extend, stop_at)
    assert heard.status == [{"stage": "a"}]


LAUNCHER = """
import sys
from pathlib import Path
from testbed.engine.kernel import Kernel
from testbed.engine.launch import Guest, Job, Machine
kernel = Kernel(Path(sys.argv[1]), "7.3", "key", True)
Guest(Job(("x",), "/"), Machine(), kernel).run(lambda chunk: print(chunk.decode(), flush=True), print)
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_guest_dies_with_its_launcher(sign: signal.Signals, stand_in: Callable[[str], Kernel]) -> None:
    kernel = stand_in("say('stdout', str(os.getpid())); time.sleep(600)")
    command = [sys.executable, "-c", LAUNCHER, str(kernel.path)]
    launcher = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert launcher.stdout
    with launcher.stdout:
        guest = int(launcher.stdout.readline())
        launcher.send_signal(sign)
        launcher.wait()
    wait_for(lambda: not running(guest))


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    """What must come about by itself, however long the machine takes."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.01)
