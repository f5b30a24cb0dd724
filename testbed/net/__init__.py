"""The emulated network: what it is, and the kernel objects that make it.

A topology is data (`topology`, `fabrics`, `scale`): nodes with roles, links with two directions, and for
every direction the rate, delay, loss, queue and marking of its egress. `emulation` turns that data into real
objects of Linux: a host is a network namespace with a shell in it (Mininet's Host), a switch is an Open
vSwitch bridge (Mininet's OVSSwitch), a link is a veth pair with queueing disciplines on both ends. `readback`
asks the kernel what it really has, and refuses a network that differs from its data in anything.
"""
