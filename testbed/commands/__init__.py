"""Commands of `python -m testbed` that have a module of their own; testbed.cli registers them."""
