"""Which lines of a TinyMQ log stand for a message: by id, the first PUT tells the place, the last the rest.

An index takes 33 bytes of memory for each line, whatever is in the lines. The work is done in parts of the
ids, so that only a small part of them is ever in a dict.
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b

from quivermq.importers.model import Findings
from quivermq.importers.tinymq_files import Line, LogFiles
from quivermq.importers.tinymq_lines import UnreadableLine, glance

_PARTS = 64
_DIGEST_BYTES = 16
_NOTHING, _LIVE, _CONSUMED = range(3)


class LineIndex:
    """One pass over all lines; what is damaged is told here, and stands for nothing."""

    def __init__(self, files: LogFiles, findings: Findings) -> None:
        self._files = files
        self._digests = [bytearray() for _ in range(_PARTS)]
        # The number of a line, twice, and one more for an ACK.
        self._codes = [array("Q") for _ in range(_PARTS)]
        self._places: dict[int, tuple[int, int]] = {}
        self._positions = array("Q")
        self._starts: list[int] = []
        for number, line in enumerate(files.lines(findings)):
            self._take(number, line, findings)
        self._states = bytearray(len(self._positions))
        # Where the last PUT of an id is, when it is not the first.
        self._last: dict[int, int] = {}
        while self._digests:
            self._decide(self._digests.pop(), self._codes.pop())

    def messages(self) -> Iterator[tuple[Line, bool]]:
        """The line that tells of each message, in the order of the first PUTs, and whether it lives."""
        states, last = self._states, self._last
        for number, line in enumerate(self._files.lines(Findings(0))):
            if number >= len(states):
                return
            state = states[number]
            if state == _NOTHING:
                continue
            yield self._line(last[number]) if number in last else line, state == _LIVE

    def _take(self, number: int, line: Line, findings: Findings) -> None:
        while len(self._starts) <= line.file:
            self._starts.append(number)
        self._positions.append(line.position)
        try:
            is_put, message_id = glance(line.data)
        except UnreadableLine as error:
            path = self._files.path(line.file)
            findings.add(path, line.position, str(error), length=len(line.data))
            return
        digest = blake2b(message_id, digest_size=_DIGEST_BYTES).digest()
        part = digest[0] % _PARTS
        self._digests[part] += digest
        self._codes[part].append(number << 1 if is_put else number << 1 | 1)

    def _decide(self, digests: bytearray, codes: "array[int]") -> None:
        """What becomes of the ids of one part, told line after line."""
        found: dict[bytes, tuple[int, int]] = {}
        gone: dict[bytes, tuple[int, int]] = {}
        for place, code in enumerate(codes):
            digest = bytes(digests[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES])
            number = code >> 1
            if code & 1:
                if digest in found:
                    gone[digest] = found.pop(digest)
            else:
                # One that was acknowledged and comes again is a new one.
                gone.pop(digest, None)
                found[digest] = (found[digest][0] if digest in found else number, number)
        for state, decided in ((_LIVE, found), (_CONSUMED, gone)):
            for first, last in decided.values():
                self._states[first] = state
                if last != first:
                    self._last[first] = last

    def _line(self, number: int) -> Line:
        file = max(n for n, start in enumerate(self._starts) if start <= number)
        position = self._positions[number]
        return Line(file, position, self._files.line_at(file, position))
