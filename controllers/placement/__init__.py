"""Placement: which job runs on which accelerators, decided again whenever jobs come, go or change.

A cluster is servers in racks, each with some accelerators. A job trains with a number of *workers*, one accelerator
each, and its iteration takes longer the further they lie apart: all on one server, in one rack, or across racks (its
*span*). A scheduler looks at the cluster and hands out accelerators by some notion of *merit*; the network it ignores.
Many placements have the same merit and differ only in which servers are used, so every scheduler here returns up to
ten such *candidates*. CASSINI (`controllers.cassini`) then takes the one whose jobs interleave best on the links they
share: a plug-in on top of any of them.

    state       the cluster and its jobs in, a proposal of candidates out: the one interface
    layout      accelerators as counts per server; packing workers closely; spans
    variants    from one placement to others of equal merit
    auction     bids, the allocation of highest product of valuations, hidden payments
    themis      finish-time fairness: the worst-off jobs bid for the accelerators that are free
    goodput     throughput times statistical efficiency, and the batch size that makes most of it
    pollux      re-allocates all jobs so that their goodput, relative to a fair share, is highest
    evolution   how the best allocation matrix is found
    random      any free accelerators
    ideal       each job alone on its own copy of the cluster: what nobody can beat
    arrivals    which jobs come when: from a file, Poisson, dynamic or snapshot
    cluster     the life of a cluster: what happened in, orders to start, stop and retime jobs out
    orders      these orders, rounds, and what a plug-in is
    beats       from time-shifts to moments, so that few running jobs have to wait
    interleave  CASSINI as a plug-in: traffic measured alone, on the links of each candidate

Numbers in, decisions out; only `arrivals.read` opens a file. After Mahajan et al., "Themis: Fair and Efficient GPU
Cluster Scheduling", NSDI 2020, and Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
Learning", OSDI 2021; what is simpler here than there stands in the docstring of the module.
"""
