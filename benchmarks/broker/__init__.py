"""The broker over loopback, beside NATS with JetStream and Redis Streams, all of them real processes.

One generator makes the load for all, in a process of its own, and speaks each protocol as plain bytes.
What was acknowledged is counted in the server after every round: a figure that fails this is not told.
"""
