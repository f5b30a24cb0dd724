"""How workers share the work of one model: programs of operations with what each waits for.

A strategy gets numbers (seconds of compute, bytes of activations and gradients, how many workers in which roles) and
makes the operations of one iteration for every rank (`workloads.training.operations`): `transformers` pipelines,
tensor groups, replicas and their products; `recommendation` tables that are spread over all workers beside perceptrons
that all have; `experts` attention and expert workers that pass tokens to and fro. Plain data parallelism is
`workloads.training.plan.data_parallel`. `alone` says how long such an iteration lasts on an empty network.
"""
