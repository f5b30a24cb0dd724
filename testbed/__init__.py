"""Orrery's testbed: the emulated network, the machine it runs on, and what is measured there."""
