"""The asynchronous shell: what `quivermq.aio` offers, over the wire and for the embedded queue."""
