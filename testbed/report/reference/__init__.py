"""The paper's figures beside ours: results/reference/cassini.md, made of the files of finished runs.

cassini.toml    the rows: what the paper says, which figure of which scenario stands beside it, why they differ
table           rows and runs as one Markdown page, with plots, rank correlations and wall times
"""
