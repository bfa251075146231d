"""What is said about an exception of a handler."""


def told(error: BaseException) -> str:
    """What an exception says, even one that cannot say it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as unspeakable:
        return f"{type(error).__name__}, which cannot be shown: {type(unspeakable).__name__}"
