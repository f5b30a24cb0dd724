"""A kernel source of a few lines, which builds in a moment: what the tests of the kernel's build are made with."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from testbed.engine.kernel.cache import Recipe

REPOSITORY = Path(__file__).resolve().parents[2]

MAKEFILE = """\
VERSION = {version[0]}
PATCHLEVEL = {version[1]}
SUBLEVEL = {version[2]}

allnoconfig:
\tgrep -v '^#' $(KCONFIG_ALLCONFIG) | grep -v LOST | sed 's/FORCED=.*/FORCED=y/' > .config

linux:
\t@grep -q patched code.c
\t@echo "  CC      code.o"
{recipe}
\t@cp answer linux
"""
ANSWER = """\
#!/bin/sh
echo "rng-seed= hostfs-writable= time-travel= {extra}"
"""
PATCH = """\
--- a/code.c
+++ b/code.c
@@ -1,3 +1,3 @@
 first
-original
+patched
 last
"""
BUILD = """\
import sys
from pathlib import Path
from testbed.engine.kernel import build
from testbed.engine.kernel.cache import Recipe

config, *patches = map(Path, sys.argv[1:])
print(build(lambda fraction, text: None, Recipe(config, tuple(patches))).path)
"""


def fake_tree(
    folder: Path, steps: str = "\t@true", version: tuple[int, int, int] = (7, 2, 1), extra: str = "seccomp="
) -> Path:
    """Make a source tree whose `make linux` runs `steps` (lines of a make recipe) and return it."""
    folder.mkdir(parents=True)
    (folder / "Makefile").write_text(MAKEFILE.format(version=version, recipe=steps))
    (folder / "code.c").write_text("first\noriginal\nlast\n")
    (folder / "answer").write_text(ANSWER.format(extra=extra))
    (folder / "answer").chmod(0o755)
    return folder


def fake_tarball(tree: Path) -> Path:
    """Pack a tree as kernels are packed: one folder in an xz tarball."""
    tarball = tree.parent / f"{tree.name}.tar.xz"
    with tarfile.open(tarball, "w:xz") as archive:
        archive.add(tree, arcname=tree.name)
    return tarball


def fake_recipe(folder: Path, options: str = "CONFIG_A=y\nCONFIG_B=n\n") -> Recipe:
    """Write options and one patch that fits the fake tree, and return them as a recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    config, patch = folder / "kernel.config", folder / "fence.patch"
    config.write_text(options)
    patch.write_text(PATCH)
    return Recipe(config, (patch,))


def start_build(recipe: Recipe, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a build in a process of its own."""
    argv = (sys.executable, "-c", BUILD, str(recipe.config), *map(str, recipe.patches))
    return subprocess.Popen(
        argv, cwd=REPOSITORY, env=os.environ | dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
