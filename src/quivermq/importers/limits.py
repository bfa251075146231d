"""How large a message may be in the topic it goes to. A topic that an import made grows with what comes."""

from quivermq.errors import Denied, InvalidSettings
from quivermq.importers.ledger import Ledger
from quivermq.importers.target import ImportTarget, TargetTopic
from quivermq.settings import StorageSettings
from quivermq.topic.settings import TopicSettings

# What a frame, and the story of a dead letter, need besides the message.
_ROOM_BYTES = 64 * 1024
MESSAGE_BYTES_MAX = StorageSettings().frame_bytes_max - _ROOM_BYTES


class MessageSizeLimit:
    """Of one topic.

    What somebody has set is kept to. Only a topic that an import made, and whose limit is still the one
    that an import left, is altered: a message that is whole must not be left behind for a default.
    """

    def __init__(self, target: ImportTarget, ledger: Ledger, topic: str) -> None:
        self._target = target
        self._ledger = ledger
        self._topic = topic
        self._is_dry = True
        self._view: TargetTopic | None = None
        self._may_grow = True
        self.bytes = TopicSettings().message_bytes_max
        """What a message may have now."""

    def look(self, view: TargetTopic | None, *, is_dry: bool) -> None:
        """Begin anew with the topic as it is, None when there is none, and alter nothing when it is dry."""
        self._view, self._is_dry = view, is_dry
        settings = TopicSettings() if view is None else view.settings
        self.bytes = settings.message_bytes_max
        self._may_grow = view is None or self.bytes in self._ledger.limits(view.created_us)

    def note_made(self, view: TargetTopic) -> None:
        """The import has made the topic, whose limit is the usual one here."""
        wanted_bytes = self.bytes
        self._view, self.bytes, self._may_grow = view, view.settings.message_bytes_max, True
        self._ledger.note_limit(view.created_us, self.bytes)
        if wanted_bytes > max(self.bytes, TopicSettings().message_bytes_max):
            self._grow(wanted_bytes)

    def let_in(self, size_bytes: int) -> bool:
        """Whether a message of that size may come, for which the topic is altered if need be."""
        if size_bytes > self.bytes and self._may_grow and size_bytes <= MESSAGE_BYTES_MAX:
            self._grow(min(1 << (size_bytes + _ROOM_BYTES).bit_length(), MESSAGE_BYTES_MAX))
        return size_bytes <= self.bytes

    def _grow(self, limit_bytes: int) -> None:
        if self._view is not None and not self._is_dry:
            self._ledger.begin()
            # Noted first: whatever dies in between, the limit is one that an import left.
            self._ledger.note_limit(self._view.created_us, limit_bytes)
            try:
                self._target.alter(self._topic, message_bytes_max=limit_bytes)
            except (InvalidSettings, Denied):
                # The queue was told to have smaller frames than usual, or a key allows only to put.
                self._may_grow = False
                return
        self.bytes = limit_bytes
