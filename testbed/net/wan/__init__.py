"""Wide-area networks as data: sites, links with two directions, tunnels, and how links change over time.

`model` is the network itself and what makes one impossible; `sources` reads one from wherever it is
described (a name of ours, GraphML, a pairwise table, topohub, our own TOML), `dynamics` moves it, `routing`
says how sites without a tunnel of their own reach each other, `underlay` turns it into a topology of gateways and
switches. Nothing here touches a kernel.
"""
