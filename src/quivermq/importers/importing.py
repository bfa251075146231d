"""Importing a directory of another queue: what `quivermq.importers.import_queue` does, step by step."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from quivermq.clock import Clock, SystemClock
from quivermq.disk import Disk, SystemDisk
from quivermq.errors import InvalidRequest, StorageFailed
from quivermq.importers.kinds import check_apart, chosen_topics, open_source
from quivermq.importers.ledger import LedgerBook
from quivermq.importers.model import ImportSummary
from quivermq.importers.target import ImportTarget, target_of
from quivermq.importers.topic_import import ImportOptions, TopicImport
from quivermq.model.names import check_group_name
from quivermq.queue.connection import Connection


class NothingImported(StorageFailed):
    """Something of the source is damaged, and all of it was to be imported or nothing."""

    advice = "Without strict, everything that is whole is imported"
    command_advice = "Without --strict, everything that is whole is imported"


def import_queue(
    kind: str,
    directory: str | os.PathLike[str],
    queue: Connection | None,
    *,
    topic: str | None = None,
    source_topics: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    groups: Sequence[str] = ("default",),
    all: bool = False,  # noqa: A002 - As the option of the command is called.
    strict: bool = False,
    dry_run: bool = False,
    key: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> ImportSummary:
    """Bring the messages of another queue, and what it knows of them, into topics of this one.

    `kind` is ledgerq, tinymq, fluxmq or goqueue. One topic of the source gets the name `topic`; several get
    it as a prefix, or keep their own names. `names` says for single ones what they are called here, and
    `source_topics` which of them to take. Attempts of a source without groups count for `groups`.

    Consumed and expired messages are left out unless `all`. What is damaged is left out and listed in the
    findings; with `strict` it raises StorageFailed instead, before anything is written. What an earlier
    call imported is not added again. A `dry_run` writes nothing, and needs no queue. With `key`, 64 hex
    digits or @FILE with them, the values of a GoQueue are decrypted. `progress` gets how many bytes of
    how many are done. Raises InvalidRequest, NotFound, Conflict, and what `put_frame` raises.
    """
    if queue is None and not dry_run:
        raise InvalidRequest("an import needs a queue to go to: only a dry run does without")
    prepared = Import(
        kind,
        directory,
        topic=topic,
        source_topics=source_topics,
        names=names,
        groups=groups,
        all=all,
        strict=strict,
        dry_run=dry_run,
        key=key,
        progress=progress,
        disk=disk,
        clock=clock,
        target=None if queue is None else queue.backend.directory,
    )
    return prepared.run(queue)


class Import:
    """An import of which everything is known but the queue it goes to, which need not be open yet.

    What can be refused is refused here, so that whoever opens the queue afterwards has not made a directory
    for nothing. `target` is where that directory is or will be. Takes what `import_queue` takes.
    """

    def __init__(
        self,
        kind: str,
        directory: str | os.PathLike[str],
        *,
        topic: str | None = None,
        source_topics: Sequence[str] = (),
        names: Mapping[str, str] | None = None,
        groups: Sequence[str] = ("default",),
        all: bool = False,  # noqa: A002 - As the option of the command is called.
        strict: bool = False,
        dry_run: bool = False,
        key: str | None = None,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        disk: Disk | None = None,
        clock: Clock | None = None,
        target: Path | None = None,
    ) -> None:
        for group in groups:
            check_group_name(group)
        disk, path = disk or SystemDisk(), Path(directory)
        if target is not None:
            check_apart(path, target, disk)
        self._kind = kind
        self._source = open_source(kind, path, disk, key)
        self._chosen = chosen_topics(self._source, topic, source_topics, names or {})
        self._must_check = strict
        self._total_bytes = sum(each.size_bytes for _, each in self._chosen) * (2 if strict else 1)
        self._done_bytes = 0
        self._progress = progress
        self._options = ImportOptions(tuple(groups), all, dry_run, self._advance, clock or SystemClock())

    def check(self) -> None:
        """Do before there is a queue what `strict` asks for. Raises StorageFailed for what is damaged."""
        self._check(self._imports(target_of(None)))

    def run(self, queue: Connection | None) -> ImportSummary:
        """Import into a queue, or with None only say what would be done."""
        imports = self._imports(target_of(queue))
        self._check(imports)
        summary = ImportSummary(
            self._kind, self._source.path, self._options.is_dry, [each.run() for each in imports]
        )
        summary.take_findings(self._source.findings)
        # What a source has superseded is never seen, so the end comes with a jump.
        self._progress(self._total_bytes, self._total_bytes)
        return summary

    def _imports(self, target: ImportTarget) -> list[TopicImport]:
        book = LedgerBook(target, [name for name, _ in self._chosen])
        return [
            TopicImport(self._source, each, name, target, book, self._options)
            for name, each in self._chosen
        ]

    def _advance(self, done_bytes: int) -> None:
        self._done_bytes = min(self._done_bytes + done_bytes, self._total_bytes)
        self._progress(self._done_bytes, self._total_bytes)

    def _check(self, imports: list[TopicImport]) -> None:
        """Read everything once, if nobody has. Raises StorageFailed for what could not be imported."""
        if not self._must_check:
            return
        for each in imports:
            each.check()
        findings = self._source.findings
        if findings.damages:
            first = next(finding for finding in findings.kept if finding.is_damage)
            place = "" if first.position is None else f" at byte {first.position}"
            more = f", and {findings.damages - 1} more" if findings.damages > 1 else ""
            problem = f"{first.path}{place}: {first.problem}{more}"
            raise NothingImported(
                f"{problem}: nothing was imported. {NothingImported.advice}", path=first.path
            )
        findings.clear()
        self._must_check = False
