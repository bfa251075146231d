"""How fast the storage, the queue and the broker are, each figure beside what the machine can do at best.

`make bench` runs everything; docs/internals/benchmarks.md says how to read what comes out. Nothing here
is asserted: a slow machine is not a bug.
"""
