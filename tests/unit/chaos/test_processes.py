import os
import signal
import threading
from pathlib import Path

from quivermq.chaos.processes import process_pool


def test_a_process_pool_that_is_gone_keeps_nobody_waiting(tmp_path: Path) -> None:
    with process_pool() as pool:
        pid = pool.start(kind="retention", path=str(tmp_path / "data"), number=0)
        os.kill(_parent(pid), signal.SIGKILL)
        end = threading.Thread(target=pool.reset, daemon=True)
        end.start()
        end.join(30)
        assert not end.is_alive()
        assert pool.pid == 0


def test_a_ctrl_c_does_not_reach_the_processes(tmp_path: Path) -> None:
    with process_pool() as pool:
        pid = pool.start(kind="retention", path=str(tmp_path / "data"), number=0)
        assert os.getpgid(pid) != os.getpgid(0)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
