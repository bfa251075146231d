"""A producer: messages one by one in, frames out, in the background."""
