"""Experiments on wide-area networks: data centres that keep a model in step over tunnels, one system after another.

`keys` is what their scenario files may say, `experiment` makes it concrete, `arm` is the program that runs one system
in a guest, `campaign` runs all of them, `summary` compares what they did and what had been predicted.
"""
