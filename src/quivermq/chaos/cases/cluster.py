"""A cluster of real brokers, and what it leans on: killed, stopped, parted and restarted under load.

Each broker has its own way to etcd, to the store, and to the others. Failovers are counted by shards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quivermq.chaos import wait_until
from quivermq.chaos.cluster_load import ClusterLoad, cluster_load
from quivermq.chaos.cluster_processes import SHARDS, ChaosCluster, ClusterBroker, chaos_cluster
from quivermq.chaos.system_faults import JumpingClock
from quivermq.chaos.trial import Trial

_TROUBLE = 0.15
_JUMP_S_MAX = 6 * 3600


@contextmanager
def _loaded(trial: Trial, **options: Any) -> Iterator[tuple[ChaosCluster, ClusterLoad]]:
    with (
        chaos_cluster(trial.directory, trial.rng, **options) as cluster,
        cluster_load(cluster, trial.rng) as load,
    ):
        yield cluster, load


def _some_owner(trial: Trial, cluster: ChaosCluster) -> ClusterBroker:
    return cluster.owner(trial.rng.randrange(SHARDS))


def _kill_owner(trial: Trial, cluster: ChaosCluster, load: ClusterLoad) -> None:
    load.wait_for_puts()
    owner, before = _some_owner(trial, cluster), cluster.owners()
    owner.kill()
    trial.tried += cluster.wait_for_takeover(before, owner)
    load.wait_for_puts()
    owner.start()


def kill_owner(trial: Trial) -> None:
    """kill -9 of whoever owns a shard; others take over, and the killed one comes back."""
    with _loaded(trial) as (cluster, load):
        for _ in range(trial.cycles):
            _kill_owner(trial, cluster, load)


def set_clocks(trial: Trial) -> None:
    """The same, with brokers whose clocks are hours apart, and are set while they run."""
    clocks = [trial.directory / f"clock-{number}" for number in range(3)]
    with (
        chaos_cluster(trial.directory, trial.rng, clock_of=lambda number: clocks[number]) as cluster,
        cluster_load(cluster, trial.rng, leases_hold=False) as load,
    ):
        for _ in range(trial.cycles):
            for clock in clocks:
                JumpingClock(clock).set(trial.rng.randint(-_JUMP_S_MAX, _JUMP_S_MAX))
            _kill_owner(trial, cluster, load)


def restart_all(trial: Trial) -> None:
    """Brokers are told to end, one after the other, and come back."""
    with _loaded(trial) as (cluster, load):
        for _ in range(trial.cycles):
            for broker in cluster.brokers:
                load.wait_for_puts()
                broker.stop()
                load.wait_for_puts()
                broker.start()
                trial.tried += 1


def stop_owner(trial: Trial) -> None:
    """An owner stands still until others have taken over, and then goes on with what it was asked."""
    with _loaded(trial) as (cluster, load):
        for _ in range(trial.cycles):
            load.wait_for_puts()
            owner, before = _some_owner(trial, cluster), cluster.owners()
            owner.pause()
            try:
                trial.tried += cluster.wait_for_takeover(before, owner)
                load.wait_for_puts()
                probes = load.send_to(owner)
            finally:
                owner.resume()
            probes.check()
            _wait_until_ready(owner)


def _wait_until_ready(*brokers: ClusterBroker) -> None:
    wait_until(lambda: all(broker.is_ready for broker in brokers), "a broker is not ready again")


def kill_etcd(trial: Trial, members: int) -> None:
    """kill -9 of etcd, or of the leader where others are left; it comes back, sooner or later."""
    with _loaded(trial, members=members) as (cluster, load):
        for _ in range(trial.cycles):
            load.wait_for_puts()
            leader = cluster.etcd.leader
            leader.kill()
            if members > 1:
                load.wait_for_puts()
            elif trial.rng.random() < 0.5:
                _wait_for_silence(cluster, load)
            leader.start()
            load.wait_for_puts()
            trial.tried += 1


def stop_etcd(trial: Trial) -> None:
    """etcd stands still for longer than every lease: nobody may answer, and then all go on."""
    with _loaded(trial) as (cluster, load):
        [etcd] = cluster.etcd.members
        for _ in range(trial.cycles):
            load.wait_for_puts()
            etcd.pause()
            try:
                _wait_for_silence(cluster, load)
            finally:
                etcd.resume()
            load.wait_for_puts()
            trial.tried += 1


def _wait_for_silence(cluster: ChaosCluster, load: ClusterLoad) -> None:
    """Return once no lease can hold any more, by anybody's clock, and see that nobody answers then."""
    wait_until(
        lambda: not any(broker.is_ready for broker in cluster.brokers), "some broker believes in its lease"
    )
    for broker in cluster.brokers:
        load.send_to(broker).check(may_be_done=False)


def trouble_store(trial: Trial) -> None:
    """Requests to the store are late, doubled, lost, refused, or denied after the fact; owners die, too."""
    with _loaded(trial, with_store=True) as (cluster, load):
        for link in cluster.store_links.values():
            link.trouble = _TROUBLE
        for _ in range(trial.cycles):
            _kill_owner(trial, cluster, load)
        trial.tried += sum(link.troubled for link in cluster.store_links.values())


def stop_store(trial: Trial) -> None:
    """The store stands still, until puts are refused."""
    with _loaded(trial, with_store=True) as (cluster, load):
        assert cluster.store is not None
        for _ in range(trial.cycles):
            load.wait_for_puts()
            cluster.store.pause()
            try:
                load.wait_for_refusal()
            finally:
                cluster.store.resume()
            load.wait_for_puts()
            trial.tried += 1


def part(trial: Trial) -> None:
    """A broker is cut off from etcd, from the store, or from the other brokers, and joined again."""
    with _loaded(trial, with_store=True) as (cluster, load):
        for number in range(trial.cycles):
            load.wait_for_puts()
            owner = _some_owner(trial, cluster)
            (_part_from_etcd, _part_from_store, _part_from_brokers)[number % 3](cluster, load, owner)
            _wait_until_ready(owner)
            load.wait_for_puts()
            trial.tried += 1


def _part_from_etcd(cluster: ChaosCluster, load: ClusterLoad, owner: ClusterBroker) -> None:
    before, links = cluster.owners(), cluster.etcd_links[owner.name]
    for link in links:
        link.cut()
    try:
        cluster.wait_for_takeover(before, owner)
        load.wait_for_puts()
        # It runs, and believes what it saw last.
        load.send_to(owner).check()
    finally:
        for link in links:
            link.heal()


def _part_from_store(cluster: ChaosCluster, load: ClusterLoad, owner: ClusterBroker) -> None:
    cluster.store_links[owner.name].cut()
    try:
        load.wait_for_refusal()
    finally:
        cluster.store_links[owner.name].heal()


def _part_from_brokers(cluster: ChaosCluster, load: ClusterLoad, owner: ClusterBroker) -> None:
    cluster.broker_links[owner.name].cut()
    try:
        # Clients reach it by another way.
        load.wait_for_puts()
    finally:
        cluster.broker_links[owner.name].heal()
