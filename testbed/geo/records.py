"""What the arm of a wide-area experiment leaves beside rounds.csv and chunks.csv."""

from __future__ import annotations

from testbed.telemetry.tables import Column, Table

TUNNELS = Table(
    "tunnels.csv",
    {
        "from": Column("name", "data centre"),
        "to": Column("name", "data centre at the other end"),
        "rate_bps": Column("bit/s", "of the slowest link under the tunnel, as it was set"),
        "rtt_s": Column("s", "round trip of a small packet before the first round"),
        "throughput_bps": Column("bit/s", "of TCP, likewise"),
    },
)
BELIEFS = Table(
    "beliefs.csv",
    {
        "t_s": Column("s", "virtual time since the arm's epoch"),
        "from": Column("name", "data centre"),
        "to": Column("name", "data centre at the other end"),
        "believed_bps": Column("bit/s", "the tunnel's throughput as the scheduler believes it from now on"),
    },
)
POLICIES = Table(
    "policies.csv",
    {
        "t_s": Column("s", "virtual time since the arm's epoch, when it was decided"),
        "version": Column("count", "of the policy, from 1"),
        "root": Column("name", "data centre that is one of its roots"),
        "quota": Column("share", "of all bytes that this root adds up"),
        "tree": Column("name", 'every "child>parent" of the root\'s tree, with spaces between'),
    },
)
STAGES = Table(
    "stages.csv",
    {
        "t_s": Column("s", "virtual time since the arm's epoch, when the scheduler began it"),
        "round": Column("count", "round, from 0"),
        "attempt": Column("count", "attempt at it, from 0"),
        "version": Column("count", "of the policy that holds in it"),
    },
)
CONTROL = Table(
    "control.csv",
    {
        "t_s": Column("s", "virtual time since the arm's epoch, when the scheduler heard it"),
        "message": Column("name", "request (TRP: gradients are there), hello (started again), link (cut or back)"),
        "site": Column("name", "who says it"),
        "life": Column("count", "how often the site had been started"),
    },
)
WAN_LINKS = Table(
    "wan-links.csv",
    {
        "label": Column("name", '"begin" before the first round, "end" after the last, counters settled'),
        "link": Column("name", 'directed link "a->b" between the switches of two sites'),
        "tx_packets": Column("packets", "sent by a's port, its OpenFlow counter"),
        "tx_bytes": Column("B", "likewise, bytes"),
        "rx_packets": Column("packets", "received by b's port, its OpenFlow counter"),
        "queue_packets": Column("packets", "sent through a's rate limiter, by netlink"),
        "queue_bytes": Column("B", "likewise, bytes"),
        "dropped_packets": Column("packets", "dropped by a's queue, by netlink"),
        "marked_packets": Column("packets", "CE once they left a's queue, marked there or before, by netlink"),
    },
)
