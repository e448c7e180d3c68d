"""Run the jobs of a table in their order, resumable, each of a known identity.

A job is one training, or one making of data, of one seed. `job.py` has what a result depends on,
`results.py` the JSON file that a finished job leaves, `runner.py` the order in which processes run
them, `watch.py` what ends a process after its slice of time. A result names all settings, the
versions of the packages and the jobs that it started from; where those are no longer what would
run, `stale` says what changed.
"""
