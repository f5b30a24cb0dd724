"""The SDN controller: which way packets go, and what the switches counted.

OpenFlow splits a switch in two: tables of rules (match, counters, what to do) that forward packets at full
speed, and a controller that fills the tables and reads the counters. Here a switch has two tables. Table 0
only counts: packets by ingress port, by job (each job has a DSCP of its own) and by ECN field, so that it
sees the marks that the switch *before* it set. Table 1 forwards by ingress port and destination, as the
Tofino in CASSINI's testbed does, and counts per egress the packets that carried a mark already when they
came.

- `paths`     which way packets go: a stated rule, pure
- `flows`     from paths to rules, and from rules to the least change between two sets: pure
- `openflow`  those rules, and the questions for counters, as bytes: pure
- `counters`  from counters to rows of `links.csv`, `flows.csv`, `tables.csv` and to a snapshot: pure
- `collect`   one reading of all switches and queues
- `framework` the one module that imports Ryu, or os-ken in its place
- `app`       the application: it connects the pure parts to the switches
- `control`   how the rest of the testbed talks to the running controller
- `config`    what the controller is told
- `launcher`  the program: `python -m controllers.sdn.launcher --config FILE`
"""
