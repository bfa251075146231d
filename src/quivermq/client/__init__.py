"""A broker as a backend, over HTTP.

`core` knows the calls and what answers mean, without a socket; `blocking` and `asynchronous` move bytes.
"""
