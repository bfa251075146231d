from collections.abc import Iterator

import pytest
from support.etcd_gateway import EtcdGateway, served

from quivermq.shared.etcd import EtcdClient


@pytest.fixture
def gateway() -> EtcdGateway:
    return EtcdGateway()


@pytest.fixture
def etcd(gateway: EtcdGateway) -> Iterator[EtcdClient]:
    with served(gateway) as url:
        client = EtcdClient([url])
        yield client
        client.close()
