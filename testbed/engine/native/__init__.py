"""The native engine: the programs of a guest on the machine's own kernel, as root, in real time.

- `launch`  starts a job in namespaces of its own, and ends it; whatever it makes (devices, switches, mounts, processes)
  is made in there and goes with them
- `inside`  the first process in there
- `ledger`  the few settings of the whole machine that are changed meanwhile, on file, so that they are put back also
  after the launcher was killed
"""
