"""CASSINI: shift jobs in time so that their Up phases interleave on the links they share.

Training is periodic. In each *iteration* a job computes without traffic (Down phase), then sends (Up phase). Roll one
iteration onto a circle whose perimeter is the iteration time: the Up phases become arcs, and a *rotation* of the
circle is a delay of the job. Jobs that share a link are put on one *unified circle*, whose perimeter is the least
common multiple of their iteration times, so that every job turns a whole number of times. Where the summed demand
rises above the link's capacity there is *excess*; the *compatibility score* is one minus the mean excess in units of
the capacity. Rotating the circles against each other until the score is highest gives each job's *time-shift*.

    profile        cumulative byte counters of a job alone -> its bandwidth over one iteration
    circle         profiles -> the unified circle of a link
    compatibility  excess and score of given rotations; the best rotation
    system         jobs on one link, or on several at once, as numbers: what one more job costs
    search, slack  how the best rotations are found, and which of several equally good ones are taken
    decision       what is decided for one link, what it predicts, and its form as JSON
    refine         marks measured after the shift -> time-shifts that make the jobs meet where it costs fewer
    affinity       which jobs meet on which links; one time-shift per job out of the delays of its links
    module         candidate placements -> the best one, and the time-shifts of its jobs

A job may share different links with different jobs, and the links may ask for shifts that contradict each other. How
that is decided, and what the paper does instead, is told in `affinity` and `module`.

Numbers in, decisions out: nothing here reads a file or knows of a network. After Rajasekaran, Ghobadi and Akella,
"CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters", NSDI 2024 (arXiv 2308.00852).
"""
