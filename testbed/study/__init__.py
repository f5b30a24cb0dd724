"""Studies: one scenario run at several points, each with other settings, compared in one summary and one plot.

A scenario file with a table [study] is a study (docs/scenarios.md):

    points    what the points are: keys of [study], each point's settings as those of `run --set`
    run       all points, two at once where there are CPUs, those that are there already left as they are

What comes of it is testbed.report.study's.
"""
