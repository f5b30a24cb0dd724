"""The agents that act out training jobs in the hosts, and the coordinator that conducts them.

A job is a program of operations per worker: compute, collectives among groups of workers, sending and receiving. Most
bytes are gradients, summed by a *ring all-reduce*: the buffer is cut into n chunks, and in 2(n-1) steps every worker
sends one chunk to the next worker while it receives one from the previous. In the first n-1 steps each chunk travels
round the ring and is added to on the way (reduce-scatter), in the last n-1 the sums travel round once more
(all-gather). Each worker sends 2(n-1)/n of the buffer whatever n is; but a step starts only when the chunk of the step
before has come, so the slowest link of the ring paces all of them. That is why two jobs that share a single link can
slow each other down as a whole, and why it pays to shift one of them in time.

operations.py and plan.py say what a job does, schedule.py who sends what in a collective. In the host sockets.py opens
the connections and reads back what the kernel made of them, mesh.py sends and receives on them, executor.py acts out an
iteration, pace.py says when the next one may begin, agent.py is the program. Outside coordinator.py conducts them all,
slots.py keeps what it knows of each agent.
"""
