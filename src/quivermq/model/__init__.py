"""What users hold in hand: messages, deliveries, dead letters, figures, settings of topics; their checks.

A leaf: it knows nothing of files, frames or the network, so that every way to a queue speaks of the same.
"""
