"""How fast: packet-hops per wall second beside ns-3 and this machine's own kernel, set-up by stage, decisions.

A *packet-hop* is one packet, data or ACK, sent onto one link: the unit of work that all systems share, whatever a
simulator calls an event. The virtual clock of a guest does not say how long anything took, so the guest makes an empty
file before and after, and the host's file system stamps it with the host's time.

Machines drift: a neighbour takes the cache, a fan gives in. Systems are therefore measured in turns (A B C A B C),
ratios are taken within a turn, and what is shown is the median with the lowest and the highest.

`cases` says what is sent, `guest`, `ns3` and `native` are the systems that send it (`inside` is the part that runs in
the guest), `setup` and `decisions` measure the rest, `table` shows all of it. Run it by `make bench`.
"""
