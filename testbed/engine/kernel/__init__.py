"""The guest's kernel: found, built once, and kept in the user's cache.

User-Mode Linux is a Linux kernel whose architecture is "a process". No distribution ships one that can travel
in time and has the queueing disciplines, so it is built here, from the distribution's own kernel source
(fetched and verified by apt), from the options in `kernel.config` and from the patches in `patches/`: seeded
entropy; a fence so that a guest that runs on the host's root file system can write to one folder of it only; no
virtual time for files that are not there.

`source` says where the source comes from, `builder` makes the kernel of it, `cache` keeps the result under a
key of source version, options and patches: change any of them and the next build is another kernel beside the
old one.
"""

from testbed.engine.kernel.builder import build
from testbed.engine.kernel.cache import Kernel, find

__all__ = ["Kernel", "build", "find"]
