"""Jobs from traces of real training runs: what was computed and all-reduced, when, and in which order.

A trace is a graph of what one worker did. Its compute has durations, its collectives have sizes. Replaying
it on another network keeps the first and the second, and lets the network decide how long the collectives
take.
"""
