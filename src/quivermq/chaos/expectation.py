"""What has to hold, said so that somebody who reads it later knows what did not."""


class Unkept(Exception):
    """Something that was promised did not hold. The text says what."""


def expect(holds: object, text: str) -> None:
    """Raise Unkept unless it holds."""
    if not holds:
        raise Unkept(text)
