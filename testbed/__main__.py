"""`python -m testbed`: see testbed.cli."""

import os
import sys

from testbed.engine.guest.init import DISPATCH

if missing := {name: value for name, value in DISPATCH.items() if name not in os.environ}:
    # glibc looks at its tunables when a program begins, so this one begins again
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | missing)

from testbed.cli import main

main()
