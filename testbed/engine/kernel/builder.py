"""From a kernel source to a kernel in the cache: configure, compile, try, store."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from testbed.engine.kernel.cache import (
    RECIPE,
    Kernel,
    Progress,
    Recipe,
    cached,
    exclusive,
    kernels_folder,
    store,
    workspace,
)
from testbed.engine.kernel.source import Source, sources
from testbed.engine.kernel.steps import StepError, require_tools, run, terminable
from testbed.engine.kernel.unpack import MisfitError, apply_patches, unpack
from testbed.errors import EnvironmentLacks, NotValid

EXPECTED_OBJECTS = 700
"""Files that a build compiles, for the progress bar."""
NEEDED_BYTES = 1_500 << 20
OUR_OPTIONS = ("rng-seed=", "hostfs-writable=", "time-travel")
COMPILED = re.compile(r" +(CC|AS|USER) ")
RENAMED = {"CONFIG_PROC_SYSCTL": "CONFIG_SYSCTL"}
"""Options asked for under an old name that newer kernels have under another one only."""
ASSIGNMENT = re.compile(r"^(CONFIG_\w+)=(\w+)$", re.MULTILINE)
SAME_EVERYWHERE = {
    "KBUILD_BUILD_USER": "orrery", "KBUILD_BUILD_HOST": "orrery", "KBUILD_BUILD_VERSION": "1",
    "KBUILD_BUILD_TIMESTAMP": "Tue Nov 14 22:13:20 UTC 2023",
}  # fmt: skip
"""What a guest can read in /proc/version: the same whoever built its kernel, and when."""


def build(progress: Progress, recipe: Recipe = RECIPE, *, force: bool = False, in_tmpdir: bool = False) -> Kernel:
    """Return the kernel of this recipe from the best source there is, built now unless it was before.

    `force` builds it again; `in_tmpdir` uses $TMPDIR for the 1.5 GB that a build needs for its time, instead
    of the cache folder. Raises EnvironmentLacks (tools, space or source), InputError (KERNEL_SOURCE), and
    NotValid with the end of the log when a step of the build fails.
    """
    require_tools()
    with terminable(), exclusive(progress):
        base = Path(tempfile.gettempdir()) if in_tmpdir else kernels_folder()
        with workspace(base) as work:
            tried: list[str] = []
            for source in sources(work, progress, tried):
                if source.reusable and not force and (kernel := cached(source.version, recipe)):
                    return kernel
                _require_space(base)
                try:
                    return _build_from(source, work, recipe, progress)
                except MisfitError as misfit:
                    tried.append(f"{source.origin} ({source.version}): {misfit}")
                    progress(0.0, tried[-1])
        raise EnvironmentLacks(f"no kernel source fits: {'; '.join(tried)}", "unset KERNEL_SOURCE, or give another one")


def _build_from(source: Source, work: Path, recipe: Recipe, progress: Progress) -> Kernel:
    """Build one source in the folder `work`. Raises MisfitError when it cannot be had, patched or set."""
    log, tree = kernels_folder() / "build.log", work / "tree"
    log.write_text(f"{source.origin}, version {source.version}\n")
    shutil.rmtree(tree, ignore_errors=True)
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        origin = source.fetch(work, _part(progress, 0.0, 0.03))
    except StepError as failure:
        raise MisfitError(
            f"cannot be fetched: {failure.tail.splitlines()[-1] if failure.tail else failure}"
        ) from failure
    try:
        unpack(origin, tree, log, _part(progress, 0.03, 0.1))
        apply_patches(recipe.patches, tree, log)
        progress(0.1, f"configuring Linux {source.version}")
        configure(tree, recipe.config, log)
        compile_kernel(tree, log, _part(progress, 0.12, 0.99))
        seccomp = examine(tree / "linux")
    except StepError as failure:
        raise NotValid(
            f"building Linux {source.version} failed: {failure}\n{failure.tail}\n  whole log: {log}"
        ) from failure
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    info = {
        "source": source.origin,
        "seccomp": seccomp,
        "compiler": _first_line(("gcc", "--version")),
        "seconds": round(time.monotonic() - began_s, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    }
    kernel = store(tree / "linux", source.version, recipe, info)
    shutil.rmtree(kernels_folder() / "downloads", ignore_errors=True)
    progress(1.0, f"Linux {source.version} is built")
    return kernel


def configure(tree: Path, config: Path, log: Path) -> None:
    """Make the tree's .config from the options asked for and nothing else.

    Raises StepError, MisfitError when an option did not come out as asked: this kernel has it no more, or not
    without another one.
    """
    _make(tree, log, f"KCONFIG_ALLCONFIG={config}", "allnoconfig")
    final, asked = (dict(ASSIGNMENT.findall(path.read_text())) for path in (tree / ".config", config))
    wrong = []
    for name, value in asked.items():
        got = final.get(name, final.get(RENAMED.get(name, ""), "n"))
        if got != value and (value in ("y", "n") or name in final):  # a number where there is such an option at all
            wrong.append(f"{name}={value}")
    if wrong:
        raise MisfitError(f"it does not take the options {', '.join(wrong)} of {config.name}")


def compile_kernel(tree: Path, log: Path, progress: Progress) -> None:
    """Compile the configured tree into `tree/linux` on all CPUs. Raises StepError."""
    count = 0

    def on_line(line: str) -> None:
        nonlocal count
        if COMPILED.match(line):
            count += 1
            progress(min(1.0, count / EXPECTED_OBJECTS), f"compiling: {count} of about {EXPECTED_OBJECTS} files")

    jobs = len(os.sched_getaffinity(0)) + 1
    _make(tree, log, f"-j{jobs}", "linux", on_line=on_line)


def examine(binary: Path) -> bool:
    """Run the kernel's own --help and return whether it has the seccomp mode.

    Raises NotValid when it does not start here or lacks what our patches and options bring.
    """
    try:
        shown = subprocess.run((str(binary), "--help"), capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotValid(f"the built kernel does not start: {error}") from error
    if lacking := [option for option in OUR_OPTIONS if option not in shown]:
        raise NotValid(f"the built kernel does not know {', '.join(lacking)}")
    return "seccomp=" in shown


def _make(tree: Path, log: Path, *arguments: str, on_line: Callable[[str], None] | None = None) -> None:
    """Run the tree's make in an environment of its own: the flags of an outer make are not for this one."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    run(
        ("make", "ARCH=um", *arguments),
        log,
        cwd=tree,
        env=env | SAME_EVERYWHERE | {"LC_ALL": "C"},
        on_line=on_line,
    )


def _first_line(argv: tuple[str, ...]) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _part(progress: Progress, begin: float, end: float) -> Progress:
    """Return a progress of which 0 to 1 is `begin` to `end` of the whole."""
    return lambda fraction, text: progress(begin + (end - begin) * fraction, text)


def _require_space(base: Path) -> None:
    free_bytes = shutil.disk_usage(base).free
    if free_bytes < NEEDED_BYTES:
        raise EnvironmentLacks(
            f"{base} has {free_bytes >> 20} MB free; building the guest kernel takes {NEEDED_BYTES >> 20} MB",
            "free some, or choose another folder: export ORRERY_CACHE=FOLDER",
        )
