"""NETSTORM: sum up gradients across data centres along trees that suit the network.

Data centres are the nodes of an *overlay* of tunnels over a network that nobody sees. Every round each of them pushes
its gradients up a tree towards a root; nodes on the way add up what their children send and pass it on; the root's sum
comes back down (push, pull). The parameters are cut into chunks, and chunks have different roots, so that many trees
are at work at once.

    overlay       nodes, tunnels, and the links that tunnels share; ways between pairs without a tunnel
    chunks, tree  what is sent, along what: a plan gives each chunk its way
    metric        the paper's delays: transmission, blocking, aggregation
    fapt          the tree over which a root has the sum soonest, for all roots at once; quality and quotas
    strategies    NETSTORM's plans and those it is compared with; `packing` and `quantise` help
    simulate      a round chunk by chunk: shared links, pipelines, queues; `rates` and `links` share them
    bound         what no schedule can beat
    planner       our own: the bound's trees (`arborescence`), rounded into chunks
    awareness     throughputs learnt from the model's own messages
    auxiliary     paths round a queue
    messages, node, scheduler    policies that change under way, as state machines
    loop, model   many rounds with links that change; the protocol under fire

Numbers in, decisions out: nothing here reads a file or knows of a network. After Li et al., "Accelerating
Geo-Distributed Machine Learning With Network-Aware Adaptive Tree and Auxiliary Route" (NETSTORM), IEEE/ACM Transactions
on Networking 32(5), 2024 (DOI 10.1109/TNET.2024.3412429), and its authors' public code; docs/netstorm.md says what is
published and what is assumed.
"""
