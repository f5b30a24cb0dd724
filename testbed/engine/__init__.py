"""Where an emulated network runs.

The default engine is *virtual*: a User-Mode Linux kernel, an ordinary process without privileges, boots on the
machine's own root file system (read-only) in virtual time. Its clock moves only when every process in it sleeps, so
links of any rate are exact on any machine, idle time is free, and the same seed gives the same packets. When the
process ends, nothing of it is left.

`kernel/` finds, builds and caches that kernel; `launch` starts a guest and dies with it; `guest/init.py` is the first
process inside; `doctor` says what this machine lacks.
"""
