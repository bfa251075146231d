"""Faults on purpose: what `quiver chaos` and the tests of the project do to a queue, and what must hold.

- `faults`: the rows: what happens, and what must hold in spite of it.
- `catalogue`, `cases/`: how each is tried, against the engine and a broker; `run`: trying them for long.
- `worker`, `promises`: a load that uses every feature, and everything it was told held against the files.
- `nursery`, `lives`, `broker`: processes that are born quickly and killed often.
- `faulty_disk/`, `memory`: a disk in memory that stops, tears, forgets, fails and refuses.
- `tracing`, `small_disk`, `jumping_clock`: faults of the system that real processes run on.
- `damage`, `facts`: where bits can be flipped, and everything that a queue knows, to be compared.

Nothing here is needed to use a queue.
"""
