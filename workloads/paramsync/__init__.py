"""Data centres that keep the parameters of one model in step: push, aggregate, pull, with real bytes.

Every site runs two programs of its own: a `worker`, which computes and pushes gradients, and a `server`, which
merges what its children and its worker push, passes the sum on towards the root of the chunk's way, and hands the
root's result down again. `plan` says who does what, `ledger` is the protocol of one server without any I/O,
`conductor` starts the programs, collects what they report, and checks every sum against a direct one.
"""
