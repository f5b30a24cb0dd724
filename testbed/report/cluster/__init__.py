"""Runs in which jobs come and go: what each arm's scheduler made of the same trace.

load      iterations and events of an arm as the lives of its jobs
summary   iteration times, marks, completion times and rho, arm by arm and in ratio -> summary.json
table     the same for the terminal
figures   iteration times, jobs on servers over time, marks per model
"""
