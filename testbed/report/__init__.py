"""From the files of a run to numbers, tables and plots: computed from files, and at any time again.

An *arm* is one way of starting the jobs: `alone` (each job by itself), `together` (all at once), `random` (start
offsets drawn by seed) and `cassini` (time-shifts decided from profiles). An arm has *trials*: one start of all jobs
each. A run folder has one folder per arm.

    load        the CSV files of an arm as arrays, per trial and job
    stats       intervals by resampling trials: iterations of one trial are not independent of each other
    summary     what a run showed: iteration times, marks, utilisation, ratios between arms -> summary.json
    validation  what was predicted, beside what was measured -> validation.json
    table       both of them for the terminal
    series      bandwidth of each job over time
    style       colours, fonts, and files that are the same bytes every time
    figures/    one module per plot; `draw` makes them all
"""
