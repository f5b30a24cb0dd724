"""Events of a scenario: links that fail or change, hosts that freeze or die, a controller that crashes.

- `plan`  what is to happen in an arm, checked against its network; pure
- `play`  makes it happen inside the guest, at exact virtual times, and reads back what it did
- `seen`  what happened, from an arm's events.csv: which links had which rate when, and where packets were lost
"""
