"""Two papers' figures beside ours: results/reference/cassini.md and netstorm.md, made of the files of finished runs.

cassini.toml, netstorm.toml    the rows: what a paper says, the figure of a scenario beside it, why they differ
pictures        the four pictures of traffic: drawn, and their Up phases counted
table           rows and runs as one Markdown page, with plots, rank correlations and wall times
systems         what every system of a run on a wide-area network did, and the run's pictures
"""
