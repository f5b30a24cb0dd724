"""Telemetry: what is measured while the network runs, and the files it becomes.

Three rules. A measurement is written once, in one format, and everything else (summaries, plots, verdicts) is
computed from the file. Counters are written as they are, cumulative since the network began, so a lost row
loses resolution and never a packet; rates are differences. And no number stands alone: what a switch says
over OpenFlow (`controllers.sdn`), what its queues say over netlink (`qdisc`) and what the receiving hosts say
(`netstat`) are three independent sources of the same marks, kept apart so that a later check can hold one
against the other.

- `tables`   the columns of every CSV file, with units: the only place that defines them
- `events`   `events.jsonl`, what happened and when
- `schedule` sampling times that do not drift
- `qdisc`    queue disciplines, read raw by netlink
- `netstat`  a host's own counters, `InCEPkts` first
- `sampler`  a program that watches the queues of chosen ports
- `capture`, `pcapng`  packets of chosen links, in a file that Wireshark opens with the link's name
"""
