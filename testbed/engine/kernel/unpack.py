"""Make a source tree to build from: only what a User-Mode Linux kernel is made of, with our patches in it."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.engine.kernel.cache import Progress
from testbed.engine.kernel.steps import StepError, run
from testbed.errors import InputError, OrreryError

_DRIVERS = (
    "accel", "acpi", "clk", "comedi", "crypto", "gpu", "hid", "hwmon", "iio", "infiniband", "input", "md",
    "media", "mmc", "mtd", "net/ethernet", "net/wireless", "phy", "pinctrl", "platform", "scsi", "staging",
    "usb", "video",
)  # fmt: skip
_ARCHITECTURES = ("arm", "arm64", "m68k", "mips", "powerpc")
NOT_NEEDED = (
    *(f"*/drivers/{folder}/*.[ch]" for folder in _DRIVERS),
    *(f"*/arch/{folder}/*.[chS]" for folder in _ARCHITECTURES),
    "*/sound/*.[ch]", "*/tools/perf/*", "*/tools/testing/*",
    "*.dts", "*.dtsi", "*.rst", "*.yaml", "*.svg", "*.rs", "*/.git",
)  # fmt: skip
"""What is left in the tarball: three quarters of its bytes. No Kconfig or Makefile is: all are read."""
LEFTOVERS = (
    "*.o",
    "*.a",
    "*.cmd",
    "*/.config",
    "*/include/config",
    "*/include/generated",
    "*/arch/*/include/generated",
)
"""What an earlier build may have left in a user's tree."""
RECORDS = 170_000
"""Records of 10 240 B in a kernel's tarball, for the progress bar."""
CHECKPOINT = 5_000


class MisfitError(OrreryError):
    """This source cannot become our kernel; another one may."""


def unpack(source: Path, tree: Path, log: Path, progress: Progress) -> None:
    """Fill the new folder `tree` from a tarball or from another tree, which is not changed.

    Raises StepError, InputError when the source holds no kernel.
    """
    tree.mkdir()

    def on_line(line: str) -> None:
        if match := re.search(r"checkpoint (\d+)", line):
            progress(min(1.0, int(match[1]) / RECORDS), "unpacking the source")

    excluded = [f"--exclude={pattern}" for pattern in NOT_NEEDED]
    watch = (f"--checkpoint={CHECKPOINT}", "--checkpoint-action=echo=checkpoint %u")
    if source.is_dir():
        bundle = tree.parent / "tree.tar"
        leftovers = [f"--exclude={pattern}" for pattern in LEFTOVERS]
        run(
            ("tar", "-cf", str(bundle), *excluded, *leftovers, f"--directory={source.parent}", source.name),
            log,
        )
        source, excluded = bundle, []
    many = ("--use-compress-program=xz -T0",) if source.suffix == ".xz" else ()
    argv = (
        "tar",
        "-xf",
        str(source),
        *many,
        f"--directory={tree}",
        "--strip-components=1",
        "--no-same-owner",
        *excluded,
    )
    run((*argv, *watch), log, on_line=on_line)
    if not (tree / "Makefile").is_file():
        raise InputError(str(source), "holds no kernel source", "a tarball has one folder with the tree in it")


def apply_patches(patches: tuple[Path, ...], tree: Path, log: Path) -> None:
    """Patch the tree. Raises MisfitError unless each fits exactly: a fence in the wrong place is none."""
    for patch in patches:
        try:
            run(("patch", "--strip=1", "--batch", "--forward", "--fuzz=0"), log, cwd=tree, stdin=patch)
        except StepError as failure:
            raise MisfitError(f"{patch.name} does not apply: {failure.tail}") from failure
