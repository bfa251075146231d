"""A queue in a simulated object store: its owner ends at any step, or sleeps, and another one takes over.

The store is one in memory, which fails, loses answers, and does things late or twice; so does etcd where
that decides who the owner is. The machine of each owner is new: what was not committed is gone with the
machine before.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

from quivermq.chaos import Violation, expect
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.chaos.history import LoadHistory
from quivermq.chaos.load import GROUPS, TOPIC, Worker, WorkerRun, prepare
from quivermq.chaos.trial import DAY_S, NoScheduler, TickingClock, Trial
from quivermq.clock import SystemClock
from quivermq.engine import engine_of
from quivermq.errors import NotOwner, QuiverError, UnsafeStore
from quivermq.opening import open_directory
from quivermq.queue.connection import Connection
from quivermq.settings import EngineSettings, Settings
from quivermq.shared import SharedDisk, SharedLimits, open_shared
from quivermq.shared.chunks import Chunks
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.etcd_chunks import EtcdChunks
from quivermq.shared.lease import KeptLease
from quivermq.shared.memory import MemoryStore, Stopped, StoreFault, StoreStep
from quivermq.shared.memory_etcd import MemoryEtcd, MemoryEtcdClient
from quivermq.shared.race import check_conditional_puts

_CACHE = Path("/cache")
_START_US = 1_800_000_000_000_000
_TICK_US = 50
_SETTINGS = Settings(engine=EngineSettings(free_bytes_min=0))
# A store in memory answers at once or never, and everything is small, so that much happens in little time.
_LIMITS = SharedLimits(
    commit_timeout_s=10,
    backoff_s=0.0005,
    backoff_s_max=0.001,
    checkpoint_chunks=25,
    checkpoint_bytes=64 * 1024,
    part_bytes_min=2000,
    quiet_bytes_min=500,
    cache_bytes_max=10_000,
    garbage_delay_s=0,
)
_STEPS_MAX, _STORE_STEPS_MAX = 40, 100
_RUNS = 8
_TROUBLES = (StoreFault.FAIL, StoreFault.LOSE_ANSWER, StoreFault.LATE, StoreFault.DOUBLE)


class _Chance:
    """Decides by chance what happens at a step of the store, and at which one the process ends."""

    def __init__(self, rng: Random, *, trouble: float, stop_at: int | None) -> None:
        self._rng = rng
        self._trouble = trouble
        self._stop_at = stop_at

    def __call__(self, step: StoreStep) -> StoreFault | None:
        if step.number == self._stop_at:
            return self._rng.choice((StoreFault.STOP_BEFORE, StoreFault.STOP_AFTER))
        return self._rng.choice(_TROUBLES) if self._rng.random() < self._trouble else None


class _Owner:
    """A process on a machine of its own, with the queue open."""

    def __init__(self, store: MemoryStore, chunks: Chunks, clock: TickingClock) -> None:
        self.store = store
        self.disk: SharedDisk = open_shared(chunks, _CACHE, disk=FaultyDisk(), limits=_LIMITS)
        try:
            self.mq: Connection = open_directory(
                self.disk.root, _SETTINGS, disk=self.disk, clock=clock, scheduler=NoScheduler()
            )
        except BaseException:
            self.disk.abandon()
            raise

    def close(self) -> None:
        """In order, with everything committed."""
        self.mq.close()
        self.disk.close()

    def end(self) -> None:
        """As kill -9 does."""
        # Nor does it let go of anything in order.
        with suppress(Stopped):
            self.disk.abandon()


class StoreSimulation:
    """A store, a clock and the history of the load: what stays when an owner ends."""

    def __init__(self, seed: str, ordering: str, *, with_etcd: bool) -> None:
        self.rng = Random(seed)
        self.clock = TickingClock(_START_US, _TICK_US)
        self.history = LoadHistory()
        self._objects = MemoryStore()
        self._etcd = MemoryEtcd() if with_etcd else None
        # That of the owner who came last, whatever has become of that.
        self._lease: KeptLease | None = None
        self._settings = {"durability": "fsync", "ordering": ordering}
        self._run = WorkerRun(0)
        self._asleep: list[_Owner] = []

    def run(self, *, trouble: float = 0.0, stops: bool = False, sleeps: bool = False) -> None:
        """Let an owner work for some steps, and then close, end at a step of the store, or fall asleep."""
        stop_at = self.rng.randint(1, _STORE_STEPS_MAX) if stops else None
        store = self._objects.beside(_Chance(Random(self.rng.random()), trouble=trouble, stop_at=stop_at))
        owner: _Owner | None = None
        try:
            owner = self._owner(store)
            self._work(owner)
            if sleeps:
                self._asleep.append(owner)
                owner = None
            else:
                owner.close()
        except Exception:
            # A process that is gone raises nothing; one whose store is troubled has to go on.
            if not store.is_stopped:
                raise
        finally:
            if owner is not None:
                owner.end()
        self._run = self.history.next_run(self._run.number + 1)

    def _owner(self, store: MemoryStore) -> _Owner:
        return _Owner(store, self._chunks(store), self.clock)

    def _chunks(self, store: MemoryStore) -> Chunks:
        if self._etcd is None:
            return ConditionalChunks(store)
        self.end_lease()
        # It is kept by somebody whom no fault strikes: here it ends when another one wants to take over.
        keeper = MemoryEtcdClient(self._etcd, self._objects.beside())
        self._lease = KeptLease(keeper, 60, SystemClock())
        etcd = MemoryEtcdClient(self._etcd, store)
        return EtcdChunks(store, etcd, "/simulation", owner=str(self._run.number), lease=self._lease)

    def end_lease(self) -> None:
        """Whoever was the owner is it no longer, as etcd has it."""
        if self._lease is not None and self._etcd is not None:
            self._lease.let_go()
            self._etcd.end_lease(self._lease.id)

    def _work(self, owner: _Owner) -> None:
        prepare(owner.mq, self._settings)

        def look_around() -> None:
            if owner.store.is_stopped:
                raise Violation("a process that has ended went on")
            # What threads do otherwise, at a moment that chance decides.
            match self.rng.randrange(12):
                case 0 | 1:
                    engine_of(owner.mq).maintain()
                case 2:
                    _quietly(owner.disk.checkpoint)
                case 3:
                    _quietly(owner.disk.clean)
                case 4:
                    owner.store.deliver_late()

        Worker(owner.mq, self._run, self.history.note).run(self.rng.randint(1, _STEPS_MAX), look_around)

    def wake(self) -> int:
        """Let owners go on that slept while others took over: they may store and acknowledge nothing."""
        count = len(self._asleep)
        while self._asleep:
            owner = self._asleep.pop()
            try:
                owner.store.deliver_late()
                queue = owner.mq.queue(TOPIC, group=GROUPS[0])
                _refused(partial(queue.put, b"0:nobody put this"), "a put")
                _refused(queue.get, "a get")
                _quietly(owner.disk.checkpoint)
                _quietly(owner.disk.clean)
                owner.store.deliver_late()
            finally:
                owner.end()
        return count

    def check(self) -> None:
        """A new owner finds every promise kept."""
        with self._opened() as owner:
            self.history.check(owner.mq, owner.disk)
            report = owner.mq.verify()
            expect(report.is_sound, f"a log is damaged: {report.findings}")

    def finish(self) -> None:
        """When no lease holds any more, everything comes out once, and nothing else."""
        self.clock.advance(DAY_S)
        with self._opened() as owner:
            self.history.check_finished(owner.mq, owner.disk)

    @contextmanager
    def _opened(self) -> Iterator[_Owner]:
        owner = self._owner(self._objects.beside())
        try:
            yield owner
            owner.close()
        finally:
            owner.end()


def _refused(act: Callable[[], object], what: str) -> None:
    try:
        act()
    except NotOwner:
        return
    raise Violation(f"{what} of an owner that was replaced was carried out")


def _quietly(act: Callable[[], object]) -> None:
    """Whatever it raises to its caller: what counts is what it does to the store."""
    try:
        act()
    except QuiverError as error:
        logging.getLogger(__name__).debug("refused: %s", error)


@contextmanager
def _simulated(seed: str, ordering: str, *, with_etcd: bool) -> Iterator[StoreSimulation]:
    simulation = StoreSimulation(seed, ordering, with_etcd=with_etcd)
    try:
        yield simulation
        simulation.check()
        simulation.finish()
    finally:
        simulation.end_lease()


def _simulations(trial: Trial, *, with_etcd: bool) -> Iterator[tuple[StoreSimulation, int]]:
    for start in range(0, trial.cycles, _RUNS):
        ordering = trial.rng.choice(("none", "key"))
        with _simulated(f"{trial.seed}.{start}", ordering, with_etcd=with_etcd) as simulation:
            yield simulation, min(_RUNS, trial.cycles - start)


def take_over(trial: Trial, *, with_etcd: bool) -> None:
    """Owners end at any step of the store, in the middle of taking over as well."""
    for sim, runs in _simulations(trial, with_etcd=with_etcd):
        for _ in range(runs):
            sim.run(trouble=sim.rng.choice((0, 0.1)), stops=True)
            trial.tried += 1


def fall_asleep(trial: Trial, *, with_etcd: bool) -> None:
    """Owners are stopped, others take over and clear away, and then they go on."""
    for sim, runs in _simulations(trial, with_etcd=with_etcd):
        for _ in range(runs):
            sim.run(trouble=sim.rng.choice((0, 0.1)), sleeps=True)
            for _ in range(sim.rng.randint(1, 3)):
                sim.run()
            trial.tried += sim.wake()
            sim.check()


def trouble(trial: Trial, *, with_etcd: bool) -> None:
    """The store fails, loses answers, and does things late or twice; nobody ends."""
    for sim, runs in _simulations(trial, with_etcd=with_etcd):
        for _ in range(runs):
            sim.run(trouble=sim.rng.choice((0.05, 0.3)))
            trial.tried += 1


def unsafe(trial: Trial) -> None:
    """A store that lets every conditional put win has to be found out."""
    for _ in range(trial.cycles):
        try:
            check_conditional_puts(MemoryStore(is_safe=False))
        except UnsafeStore:
            trial.tried += 1
        else:
            raise Violation("a store without conditional puts was taken for a safe one")
