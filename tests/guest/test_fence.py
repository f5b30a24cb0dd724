"""The fence: a guest is root on the host's own file system, and changes nothing in it but one folder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.engine.launch import DESCRIPTORS

pytestmark = pytest.mark.guest

Run = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
OTHERS = " ".join(str(DESCRIPTORS["mount"] + number) for number in range(4))
"""Descriptors of folders that are shown: the project, the environment and the one the command was started in."""
# What is tried on a file beside the folder; {beside} is where its folder is seen.
DEEDS = (
    "echo changed > {beside}/file",
    "echo changed >> {beside}/file",
    "truncate -s 0 {beside}/file",
    "rm -f {beside}/file",
    "mv {beside}/file {beside}/moved",
    "cp /bin/true {beside}/new",
    "chmod 777 {beside}/file",
    "chown 1:1 {beside}/file",
    "touch {beside}/file",
    "ln {beside}/file {beside}/hard",
    "ln -s /etc {beside}/soft",
    "mkdir {beside}/sub",
    "mknod {beside}/device c 1 3",
    "setfattr -n user.a -v b {beside}/file",
)
# Ways to come at the folder around it, or at all of the host: each makes it appear at the place it prints.
WAYS = {
    "where it lies": "echo {around}",
    "remounted": "mount -o remount,rw /; mount -o remount,rw {around}; echo {around}",
    "bound and remounted": "mkdir /run/b && mount --bind {around} /run/b; mount -o remount,rw,bind /run/b; echo /run/b",
    "mounted again": "mkdir /run/a && mount -t hostfs -o rw,{around} none /run/a && echo /run/a",
    "from the root": "mkdir /run/r && mount -t hostfs -o rw,/ none /run/r && echo /run/r{around}",
    "mounted again and remounted": (
        "mkdir /run/m && mount -t hostfs -o {around} none /run/m && mount -o remount,rw /run/m; echo /run/m"
    ),
    "by the folder and up": "mkdir /run/u && mount -t hostfs -o rw,{folder}/.. none /run/u && echo /run/u",
    "by the descriptor and up": (
        "mkdir /run/d && mount -t hostfs -o rw,/proc/self/fd/{own}/.. none /run/d && echo /run/d"
    ),
    "by another descriptor": (
        "for n in {others}; do mkdir /run/$n; mount -t hostfs -o rw,/proc/self/fd/$n none /run/$n; done; "
        "for n in {others}; do test -e /run/$n/file && echo /run/$n; done"
    ),
    "by a link in the folder": (
        "ln -s {around} {folder}/link && mkdir /run/l && mount -t hostfs -o rw,{folder}/link none /run/l && echo /run/l"
    ),
    "by the link itself": "ln -s {around} {folder}/through && echo {folder}/through",
}


def state(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything of every file in a folder that somebody could have changed."""
    found = {}
    for path in sorted(folder.iterdir()):
        facts = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[path.name] = (facts.st_mode, facts.st_uid, facts.st_mtime_ns, content)
    return found


@pytest.fixture
def around(tmp_path: Path) -> Path:
    """A folder with a file in it, and beside that the folder that the guest may write to."""
    (tmp_path / "around" / "folder").mkdir(parents=True)
    (tmp_path / "around" / "file").write_text("as it was\n")
    return tmp_path / "around"


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_out_of_the_folder(way: str, orrery: Run, around: Path) -> None:
    folder = around / "folder"
    before = state(around)
    deeds = "\n".join(f"({deed.format(beside='$beside')}) && echo {number} worked" for number, deed in enumerate(DEEDS))
    find = WAYS[way].format(around=around, folder=folder, own=DESCRIPTORS["write"], others=OTHERS)
    script = f"beside=$({find})\ncat $beside/file\n{deeds}\necho done"
    ended = orrery(
        "exec", "--no-vswitch", "--write", folder, "--", "sh", "-c", script, cwd=around, env={"PYTHONPATH": str(ROOT)}
    )
    after = state(around)
    assert {name: facts for name, facts in after.items() if name != "folder"} == {
        name: facts for name, facts in before.items() if name != "folder"
    }
    assert ended.stdout == "as it was\ndone\n"


def test_the_way_it_lies_is_seen_and_the_folder_can_be_written(orrery: Run, around: Path) -> None:
    """The tests above would all pass if the guest saw nothing, or could write nothing at all."""
    deeds = "\n".join(
        f"rm -rf folder/*; echo inside > folder/file; {deed.format(beside='folder')} && echo {number} worked"
        for number, deed in enumerate(DEEDS)
    )
    ended = orrery(
        "exec", "--no-vswitch", "--write", around / "folder", "--", "sh", "-c", f"cat file\n{deeds}\necho >folder/last",
        cwd=around, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said = ended.stdout.splitlines()
    assert said[0] == "as it was"
    assert set(said[1:]) >= {f"{number} worked" for number in range(12)}
    assert (around / "folder" / "last").read_text() == "\n"


def test_without_a_folder_there_is_none(orrery: Run, around: Path) -> None:
    before = state(around)
    script = (
        "touch file new folder/new; mkdir /run/x; mount -t hostfs -o rw,none none /run/x; "
        f"mount -t hostfs -o rw,{around} none /run/x; touch /run/x/new; echo done"
    )
    ended = orrery("exec", "--no-vswitch", "--", "sh", "-c", script, cwd=around, env={"PYTHONPATH": str(ROOT)})
    assert state(around) == before
    assert list((around / "folder").iterdir()) == []
    assert ended.stdout == "done\n"
