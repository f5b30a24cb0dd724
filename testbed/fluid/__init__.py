"""The fluid engine: the same scenarios at flow level, without a kernel (docs/fluid.md).

sharing    max-min fair rates of the flows that are active, and the marks estimated for them
flows      from a job on hosts to its flows: which connections, over which links
programs   a worker's operations as steps, runs of buckets that cannot wait joined to one
workers    a worker's iterations: two streams, the ticks it keeps, what it waits for
part       jobs that share links, moved from event to event
skipping   stretches that repeat, in closed form
arm        the trials of an arm, and the files it leaves
conductor  jobs that come and go, for testbed.timeline
campaign   a whole scenario
"""
