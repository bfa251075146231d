"""The client without a socket: calls as values, what answers mean, and when to try again.

Whatever takes several calls, or a wait between two, is a flow: a generator that yields what is to be done
and is sent what came of it. The shells, blocking and asynchronous, only move bytes.
"""
