"""`quiver cluster demo` as somebody tries it: it says where to look, and leaves nothing running."""

import json
import signal
import subprocess
import urllib.request
from pathlib import Path

from support.cluster import free_port, wait_until
from support.command import INHERITED, QUIVER


def owners(url: str) -> set[str | None]:
    with urllib.request.urlopen(f"{url}/v1/cluster", timeout=20) as answer:
        return {owner["broker"] for owner in json.load(answer)["owners"]}


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_cluster_is_there_until_ctrl_c(tmp_path: Path) -> None:
    port = 20_000 + free_port() % 20_000
    command = [
        *(str(QUIVER), "cluster", "demo", "--directory", str(tmp_path / "demo")),
        *("--brokers", "2", "--port", str(port), "--json"),
    ]
    with subprocess.Popen(command, env=INHERITED, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            first, second = told["brokers"]
            wait_until(lambda: len(owners(first["url"]) - {None}) == 2)
            data = json.dumps({"value": "tea"}).encode()
            put = urllib.request.Request(
                f"{second['url']}/v1/topics/orders/messages", data, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(put, timeout=20) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert not any(is_there(broker["pid"]) for broker in told["brokers"])


def test_without_etcd_it_says_how_to_get_it(tmp_path: Path) -> None:
    command = [str(QUIVER), "cluster", "demo", "--directory", str(tmp_path / "demo")]
    environment = {**INHERITED, "PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "apt-get install etcd-server" in done.stderr
    assert not (tmp_path / "demo").exists()
