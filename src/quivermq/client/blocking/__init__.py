"""The blocking shell: sockets, threads, and what `quivermq.connect` returns."""
