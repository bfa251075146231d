"""Makes checkpoints while others go on writing, and takes away what the latest one has made needless.

A checkpoint is a picture of one moment, and is read file by file afterwards. What is appended meanwhile
lies behind the sizes of the picture; a file that loses its name is opened before; and where bytes of the
picture are cut off or written over, the picture is given up, and another one is made later.

The order of things keeps every reader safe, however late requests arrive:

- a checkpoint is put only when every chunk that it covers is known to be committed;
- chunks that it covers, and what earlier owners left, go only when one more chunk was committed that was
  begun after it was put: then any later owner's claim came after it, and its look at the checkpoints sees
  this one;
- of one number there is one checkpoint, put again as it is where nobody knows whether it was stored: nobody
  could tell which of two is the one that has what it names;
- objects go only after a delay, for those who read without having claimed anything.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from quivermq.clock import Clock
from quivermq.disk import Disk, File
from quivermq.errors import QuiverError, StoreUnreachable
from quivermq.helping import Condition, Helper
from quivermq.shared.cache import Cache
from quivermq.shared.checkpoint import Checkpoint, Part, StoredFile, encode_checkpoint
from quivermq.shared.chunks import Chunks
from quivermq.shared.committer import Committer
from quivermq.shared.figures import CheckpointFigures
from quivermq.shared.limits import SharedLimits
from quivermq.shared.tree import FileNode, Tree

logger = logging.getLogger(__name__)


class _Pictured(NamedTuple):
    """A file as it was at the moment of the picture."""

    path: str
    size: int
    parts: tuple[Part, ...]
    cuts: int


class _Made(NamedTuple):
    """A checkpoint, and the picture that it was made from."""

    checkpoint: Checkpoint
    pictured: dict[FileNode, _Pictured]


class _Spoiled(Exception):
    """Bytes of the picture are gone: it has to be made anew."""


class Checkpointer:
    """Makes a checkpoint after so many chunks or bytes, in a thread of its own. Thread-safe."""

    def __init__(
        self,
        chunks: Chunks,
        committer: Committer,
        tree: Tree,
        *,
        disk: Disk,
        root: Path,
        limits: SharedLimits,
        clock: Clock,
        claims: Iterable[int],
        part_names: Iterable[str],
        number: int | None,
        cache: Cache,
    ) -> None:
        self._cache = cache
        self._chunks = chunks
        self._committer = committer
        self._tree = tree
        self._disk = disk
        self._root = root
        self._limits = limits
        self._clock = clock
        self._claims = frozenset(claims)
        # What the latest checkpoint names; nothing else may be named by the nodes of the tree.
        self._part_names = set(part_names)
        # The latest checkpoint, and when it was stored or, by an earlier owner, read.
        self._stored_at = None if number is None else (number, clock.monotonic())
        # Of the picture that is being read: guarded by the committer's lock, as the tree is.
        self._unread: dict[FileNode, _Pictured] = {}
        self._held: dict[FileNode, File] = {}
        self._is_spoiled = False
        # One at a time makes a checkpoint or cleans up; it guards what follows.
        self._making = threading.Lock()
        self._seen: dict[FileNode, tuple[int, int]] = {}
        self._uploaded: list[str] = []
        self._inline_bytes = 0
        self._needless: set[str] = set()
        self._number = -1
        # A checkpoint to clean up behind, and the first chunk that was begun when it was stored.
        self._trims: tuple[int, int] | None = None
        self._garbage: list[tuple[float, list[str]]] = []
        # Whether there may be objects that nobody remembers: of earlier owners, or without an answer.
        self._wants_sweep = True
        # What a checkpoint names of which nobody knows whether it is stored, and the last one of these.
        self._doubtful: set[str] = set()
        self._unsettled: _Made | None = None
        self._changed = Condition()
        self._chunk_count = self._byte_count = 0
        self._has_news = False
        self._is_closing = False
        self._thread = Helper(self._run, "quiver-checkpoint")
        self._thread.start()

    # With the committer's lock held.

    def before_unlink(self, node: FileNode) -> None:
        """A file is about to lose its name."""
        # What is only in the store is not read for a picture.
        if (
            node in self._unread
            and node not in self._held
            and not node.is_evicted
            and node.path is not None
        ):
            self._held[node] = self._disk.open(self._root / node.path)

    def before_cut(self, node: FileNode) -> None:
        """Bytes of a file are about to be cut off or written over."""
        if node in self._unread:
            self._is_spoiled = True

    # Without it.

    def count(self, chunk_bytes: int) -> None:
        """A chunk was committed."""
        with self._changed.lock:
            self._chunk_count += 1
            self._byte_count += chunk_bytes
            self._has_news = True
            self._changed.notify_all()

    def make(self) -> bool:
        """Make a checkpoint now; whether there is one. Raises what the store raises."""
        with self._making:
            return self._make()

    def clean(self) -> None:
        """Take away what the latest checkpoint has made needless, as far as that is safe by now."""
        with self._making:
            self._clean()

    def figures(self) -> CheckpointFigures:
        """What the latest checkpoint is, and what it has made needless."""
        stored_at, garbage = self._stored_at, list(self._garbage)
        return CheckpointFigures(
            number=None if stored_at is None else stored_at[0],
            age_s=None if stored_at is None else self._clock.monotonic() - stored_at[1],
            garbage_objects=len(self._needless) + sum(len(names) for _, names in garbage),
        )

    def close(self) -> None:
        """End the thread, and whatever it is making."""
        with self._changed.lock:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    # The thread.

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                with self._making:
                    self._clean()
                    if self._is_due():
                        self._make()
            except QuiverError as error:
                # The chunks are all there: without a checkpoint they are only many.
                logger.warning("no checkpoint was made: %s", error)
            except Exception:
                logger.exception("no checkpoint was made")

    def _is_due(self) -> bool:
        limits = self._limits
        return self._chunk_count >= limits.checkpoint_chunks or self._byte_count >= limits.checkpoint_bytes

    def _wait_until_due(self) -> bool:
        """Return once there may be something to do; False at the end."""
        with self._changed.lock:
            while not self._is_closing:
                # Only a commit makes something due, so after a failure nothing is tried before the next.
                if self._has_news and (self._is_due() or self._trims is not None or self._garbage):
                    break
                self._changed.wait()
            self._has_news = False
            return not self._is_closing

    # Making one: these are called with `_making` held.

    def _make(self) -> bool:
        with self._changed.lock:
            self._chunk_count = self._byte_count = 0
        committer, made = self._committer, self._unsettled
        with committer.changed.lock:
            committer.check_usable()
            number = committer.committed.number
            is_idle = committer.last == committer.committed.ticket
        if is_idle and number == self._number:
            # Nothing was done since the last one.
            return True
        if made is None or not is_idle or number != made.checkpoint.number:
            made = self._made_now()
        if made is None:
            return False
        # If that fails, it may be stored all the same, and be the latest.
        self._unsettled = made
        self._doubtful |= made.checkpoint.part_names()
        self._put(made.checkpoint.number, encode_checkpoint(made.checkpoint))
        self._adopt(made)
        self._cache.make_room()
        return True

    def _made_now(self) -> _Made | None:
        """A checkpoint of this moment, what it names is stored; None when files were cut meanwhile."""
        committer = self._committer
        with committer.changed.lock:
            pictured = {
                node: _Pictured(path, node.size, node.parts, node.cuts)
                for path, node in self._tree.files.items()
            }
            directories = tuple(sorted(self._tree.directories))
            self._unread = dict(pictured)
            self._is_spoiled = False
            ticket = committer.cut()
        self._uploaded = []
        self._inline_bytes = 0
        try:
            files = [self._stored(node, picture) for node, picture in pictured.items()]
            at = committer.commit_cut(ticket)
        except BaseException as error:
            # No checkpoint names them, and none will.
            self._garbage.append((0, self._uploaded))
            if not isinstance(error, _Spoiled):
                raise
            logger.info("files were cut while a checkpoint was made: the next one comes later")
            return None
        finally:
            self._let_go()
        checkpoint = Checkpoint(at.number, at.chain, tuple(sorted(self._claims)), directories, files)
        return _Made(checkpoint, pictured)

    def _stored(self, node: FileNode, picture: _Pictured) -> StoredFile:
        """A file of the picture, with what is new in it stored or at hand."""
        path, size, parts, cuts = picture
        limits = self._limits
        start = sum(part.size for part in parts)
        is_quiet = self._seen.get(node) == (size, cuts)
        bytes_min = limits.part_bytes_min
        is_in_pieces = len(parts) > 1 or start < size
        is_worth_it = parts or size >= limits.quiet_bytes_min
        if is_quiet and is_in_pieces and is_worth_it and size <= limits.part_bytes_max:
            # It has not grown for a while: from now on it is one object, as it is.
            parts, start = (), 0
            bytes_min = min(bytes_min, limits.quiet_bytes_min)
        tail = b""
        if start < size:
            for data in self._pieces(node, start, size):
                if len(data) < bytes_min and self._has_room_for(data):
                    tail = data
                else:
                    parts = (*parts, Part(self._put_file(data), len(data), crc32c(data)))
        with self._committer.changed.lock:
            if self._is_spoiled:
                raise _Spoiled
            self._unread.pop(node)
            held = self._held.pop(node, None)
        if held is not None:
            held.close()
        return StoredFile(path, node.is_private, parts, tail)

    def _has_room_for(self, data: bytes) -> bool:
        """Whether a tail can be in the checkpoint itself, which is made in memory."""
        self._inline_bytes += len(data)
        return self._inline_bytes <= self._limits.inline_bytes_max

    def _put_file(self, data: bytes) -> str:
        try:
            name = self._chunks.put_file(data)
        except StoreUnreachable:
            self._wants_sweep = True
            raise
        self._uploaded.append(name)
        return name

    def _pieces(self, node: FileNode, start: int, end: int) -> Iterator[bytes]:
        with self._committer.changed.lock:
            file = self._held.pop(node, None)
            if file is None:
                assert node.path is not None, "a file that lost its name is held"
                file = self._disk.open(self._root / node.path)
        try:
            while start < end:
                if self._is_closing:
                    raise StoreUnreachable("the disk is closed while a checkpoint is made")
                data = file.read(start, min(end - start, self._limits.part_bytes_max))
                if not data:
                    # Only a cut can have taken it.
                    raise _Spoiled
                start += len(data)
                yield data
        finally:
            file.close()

    def _let_go(self) -> None:
        with self._committer.changed.lock:
            self._unread = {}
            held, self._held = self._held, {}
        for file in held.values():
            file.close()

    def _put(self, number: int, data: bytes) -> None:
        """Put it until the store says that it has it: what it names must not be taken for garbage."""
        backoff_s = self._limits.backoff_s
        while True:
            # Who was fenced is told so now; the store may never answer.
            self._committer.check_usable()
            try:
                self._chunks.put_checkpoint(number, data)
            except StoreUnreachable as error:
                logger.warning("checkpoint %d is not stored yet: %s", number, error)
                with self._changed.lock:
                    if not self._is_closing:
                        self._changed.wait(backoff_s)
                    if self._is_closing:
                        raise
                backoff_s = min(2 * backoff_s, self._limits.backoff_s_max)
            else:
                return

    def _adopt(self, made: _Made) -> None:
        """Go on from a checkpoint that is stored."""
        checkpoint, pictured = made
        number, names = checkpoint.number, checkpoint.part_names()
        with self._committer.changed.lock:
            for (node, picture), file in zip(pictured.items(), checkpoint.files, strict=True):
                # One that was cut since has other bytes there, and begins anew.
                node.parts = file.parts if node.cuts == picture.cuts else ()
        self._seen = {node: (picture.size, picture.cuts) for node, picture in pictured.items()}
        self._wants_sweep |= not self._doubtful <= names
        self._doubtful = set()
        self._unsettled = None
        self._needless |= self._part_names - names
        self._part_names = names
        self._number = number
        self._stored_at = number, self._clock.monotonic()
        self._trims = number, self._committer.next_begun()

    # Cleaning up.

    def _left_over(self) -> set[str]:
        waiting = {name for _, names in self._garbage for name in names}
        return set(self._chunks.left_files()) - self._part_names - self._doubtful - waiting

    def _clean(self) -> None:
        if self._trims is not None and self._committer.committed.number > self._trims[1]:
            self._chunks.trim(self._trims[0], self._claims)
            needless = self._needless
            if self._wants_sweep:
                needless = needless | self._left_over()
            self._wants_sweep = False
            self._garbage.append((self._clock.monotonic() + self._limits.garbage_delay_s, sorted(needless)))
            self._needless = set()
            self._trims = None
        now = self._clock.monotonic()
        for each in [each for each in self._garbage if each[0] <= now]:
            # Whoever has a file open goes on reading what it was.
            read = self._cache.names_read().intersection(each[1])
            self._chunks.remove_files([name for name in each[1] if name not in read])
            self._garbage.remove(each)
            if read:
                self._garbage.append((each[0], sorted(read)))
