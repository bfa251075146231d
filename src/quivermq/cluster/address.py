"""Where a cluster is: the endpoints of its etcd and its name, and how etcd is come by."""

import ssl
from typing import NamedTuple

from quivermq.cluster.naming import ClusterKeys
from quivermq.errors import InvalidRequest
from quivermq.settings import ClusterSettings
from quivermq.shared.etcd import EtcdClient

NAME = "quiver"
_SCHEME = "etcd://"


class ClusterAddress(NamedTuple):
    """What `etcd://host:2379,host2:2379/name` says."""

    endpoints: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> "ClusterAddress":
        """The address that a text stands for. Raises InvalidRequest."""
        hosts, _, name = text.removeprefix(_SCHEME).partition("/")
        if not text.startswith(_SCHEME) or not all(hosts.split(",")):
            raise InvalidRequest(
                f"a cluster is named like etcd://host:2379,host2:2379/name, not {text[:100]!r}"
            )
        return cls(
            tuple(host if _has_port(host) else f"{host}:2379" for host in hosts.split(",")), name or NAME
        )

    @property
    def keys(self) -> ClusterKeys:
        """Its keys in etcd. Raises InvalidName."""
        return ClusterKeys(self.name)


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]")


def connect_etcd(settings: ClusterSettings, password: str) -> EtcdClient:
    """A client of the etcd that the settings name. Raises InvalidRequest where they cannot be used."""
    address = ClusterAddress.parse(settings.etcd)
    tls = _tls(settings)
    scheme = "http" if tls is None else "https"
    return EtcdClient(
        [f"{scheme}://{endpoint}" for endpoint in address.endpoints],
        user=settings.etcd_user or None,
        password=password,
        tls=tls,
    )


def _tls(settings: ClusterSettings) -> ssl.SSLContext | None:
    if settings.etcd_ca is None:
        if settings.etcd_certificate is not None or settings.etcd_key is not None:
            raise InvalidRequest("cluster.etcd_ca is missing: with a certificate, etcd is asked over https")
        return None
    try:
        context = ssl.create_default_context(cafile=settings.etcd_ca)
        if settings.etcd_certificate is not None:
            context.load_cert_chain(settings.etcd_certificate, settings.etcd_key)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"the certificates for etcd cannot be used: {error}") from error
    return context
