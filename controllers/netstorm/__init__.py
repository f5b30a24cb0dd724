"""NETSTORM: sum up gradients across data centres along trees that suit the network (numbers in, decisions out)."""
