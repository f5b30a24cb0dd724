"""What is private: the home folder is not seen in a guest, by no way in, unless it is asked for; nor is a network."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.engine import fence
from testbed.engine.host import cache_folder

pytestmark = pytest.mark.guest

Run = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
LOCKED = fence.version() >= fence.LEAST_VERSION
# Ways to come at a file of the host; {path} is where it lies.
WAYS = (
    "cat {path}",
    "while umount {home}; do :; done; umount /home; umount /root; cat {path}",
    "mkdir /run/h && mount -t hostfs -o {home} none /run/h && cat /run/h/{inside}",
    "mkdir /run/r && mount -t hostfs -o / none /run/r && cat /run/r{path}",
    "mkdir /run/p && mount -t hostfs -o /proc/self/fd/209 none /run/p && cat /run/p/{inside}",
    "umount -l /proc; cat /proc/self/root{path}",
)


@pytest.fixture(params=["where it is", "elsewhere"])
def home(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A home folder with a secret file in it: the user's own, or one where no homes lie."""
    base = Path.home() if request.param == "where it is" else Path("/srv")
    if not os.access(base, os.W_OK):
        pytest.skip(f"{base} cannot be written to")
    with tempfile.TemporaryDirectory(prefix="orrery-secret-", dir=base) as name:
        (Path(name) / "secret").write_text("secret\n")
        yield base if request.param == "where it is" else Path(name)


def secret(home: Path) -> Path:
    """Where the file lies."""
    found = [path for path in (home / "secret", *home.glob("orrery-secret-*/secret")) if path.exists()]
    return found[0]


def of(home: Path) -> dict[str, str]:
    """The environment of a user with that home, and with our kernel."""
    return {"HOME": str(home), "ORRERY_CACHE": str(cache_folder())}


def test_by_no_way_is_a_file_in_the_home_folder_read(orrery: Run, home: Path) -> None:
    path = secret(home)
    words = {"path": path, "home": home, "inside": path.relative_to(home)}
    script = "\n".join(f"({way.format(**words)}) 2>&1" for way in (WAYS if LOCKED else WAYS[:1]))
    ended = orrery("exec", "--no-vswitch", "--", "sh", "-c", f"{script}\necho done", env=of(home))
    assert "secret\n" not in ended.stdout
    assert ended.stdout.endswith("done\n"), ended.stderr


def test_asked_for_it_is_seen(orrery: Run, home: Path) -> None:
    ended = orrery("exec", "--home", "--no-vswitch", "--", "cat", secret(home), env=of(home))
    assert (ended.returncode, ended.stdout) == (0, "secret\n"), ended.stderr


def test_of_a_home_only_the_working_folder_is_seen_and_only_the_results_are_written(orrery: Run) -> None:
    with tempfile.TemporaryDirectory(prefix="orrery-secret-", dir=Path.home()) as name:
        folder = Path(name)
        for place in ("work/results", "other"):
            (folder / place).mkdir(parents=True)
        (folder / "work" / "file").write_text("mine\n")
        (folder / "other" / "secret").write_text("secret\n")
        script = "cat file; cat ../other/secret; echo a > results/new; echo a > file; echo a > ../new; echo done"
        ended = orrery(
            "exec", "--no-vswitch", "--write", folder / "work" / "results", "--", "sh", "-c", script,
            cwd=folder / "work", env={"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert ended.stdout == "mine\ndone\n", ended.stderr
        assert (folder / "work" / "results" / "new").read_text() == "a\n"
        assert (folder / "work" / "file").read_text() == "mine\n"
        assert {path.name for path in folder.iterdir()} == {"work", "other"}


def test_begun_in_the_home_folder_itself_a_guest_does_not_see_it(orrery: Run) -> None:
    script = "ls -A | wc -l; echo done"
    ended = orrery("exec", "--no-vswitch", "--", "sh", "-c", script, cwd=Path.home(), env={"PYTHONPATH": str(ROOT)})
    assert ended.stdout.endswith("done\n"), ended.stderr
    assert len(list(Path.home().iterdir())) > int(ended.stdout.split()[0]) or not any(Path.home().iterdir())


def test_the_host_s_network_is_not_there(orrery: Run) -> None:
    script = (
        "import os, socket, sys\nprint(sorted(os.listdir('/sys/class/net')))\n"
        "for address in ('127.0.0.1', sys.argv[2]):\n"
        "    try:\n        socket.create_connection((address, int(sys.argv[1])), 5)\n        print('reached')\n"
        "    except OSError as error:\n        print(type(error).__name__)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert socket.create_connection(("127.0.0.1", port), 5).close() is None
        ended = orrery("exec", "--no-vswitch", "--", "python3", "-S", "-c", script, str(port), "192.0.2.1")
    names, *became = ended.stdout.splitlines()
    assert names == "['lo']"
    assert became == ["ConnectionRefusedError", "OSError"], ended.stderr


def test_numbers_are_calculated_by_the_same_instructions_everywhere(orrery: Run) -> None:
    script = (
        "import os, numpy as n\nfrom numpy._core._multiarray_umath import __cpu_features__ as f\n"
        "print([name for name in ('X86_V3', 'X86_V4', 'AVX512_ICL', 'AVX512_SPR') if f.get(name)])\n"
        "print(os.environ['GLIBC_TUNABLES'], os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    ended = orrery("exec", "--no-vswitch", "--", "sh", "-c", '$ORRERY_PYTHON -c "$0"', script)
    assert ended.stdout.splitlines() == ["[]", "glibc.cpu.hwcaps=-FMA,-FMA4 1"], ended.stderr
