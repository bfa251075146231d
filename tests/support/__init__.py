"""What tests stand on: the parts of the outside world that they can break on purpose."""
