"""How a cluster is named, and how its etcd is come by."""

import ssl
from pathlib import Path

import pytest
import trustme
from support.etcd_gateway import EtcdGateway, served

from quivermq.cluster.address import ClusterAddress, connect_etcd
from quivermq.errors import InvalidRequest, StoreDenied
from quivermq.settings import ClusterSettings


@pytest.mark.parametrize(
    ("text", "endpoints", "name"),
    [
        ("etcd://a:2379,b:1/orders", ("a:2379", "b:1"), "orders"),
        ("etcd://a", ("a:2379",), "quiver"),
        ("etcd://[::1]:2379/", ("[::1]:2379",), "quiver"),
        ("etcd://[::1]", ("[::1]:2379",), "quiver"),
    ],
)
def test_an_address_has_endpoints_and_a_name(text: str, endpoints: tuple[str, ...], name: str) -> None:
    assert ClusterAddress.parse(text) == (endpoints, name)
    assert ClusterAddress.parse(text).keys.root == f"/quiver/{name}"


@pytest.mark.parametrize("text", ["http://a:2379", "etcd://", "etcd://a,,b", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="named like etcd://"):
        ClusterAddress.parse(text)


def test_etcd_is_asked_over_tls_and_with_a_password(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    gateway = EtcdGateway(password="secret")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with served(gateway, context) as url:
        address = url.replace("https://", "etcd://")
        settings = ClusterSettings(etcd=address, etcd_ca=tmp_path / "ca.pem", etcd_user="quiver")
        client = connect_etcd(settings, "secret")
        assert client.range("x") == []
        client.close()
        with pytest.raises(StoreDenied):
            connect_etcd(settings, "wrong").range("x")


def test_a_certificate_alone_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="etcd_ca is missing"):
        connect_etcd(ClusterSettings(etcd="etcd://a", etcd_certificate=tmp_path / "c.pem"), "")
    with pytest.raises(InvalidRequest, match="cannot be used"):
        connect_etcd(ClusterSettings(etcd="etcd://a", etcd_ca=tmp_path / "missing.pem"), "")
