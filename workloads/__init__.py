"""What the hosts do: training jobs as the network sees them.

A data-parallel job repeats one iteration for ever. First its workers compute without sending (*Down*: the
forward pass, the optimizer, the next batch). Then the backward pass yields gradients, the last layer's
first, and they are all-reduced in *buckets* while the earlier layers are still computed (*Up*). The network
never sees the model, only when how many bytes want to leave: a `training.plan.JobPlan` says exactly that,
and is made from a model's description (`models`) or from a trace of a real run (`traces`). The agents that
act it out are in `training`.
"""
