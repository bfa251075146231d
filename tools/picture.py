"""Makes docs/images/dashboard.png: a real broker with real traffic, seen by a real browser.

It takes more than five minutes, because that is what the plots show; fewer seconds may be given.
"""

import json
import math
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

import quivermq

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "dashboard.png"
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 320.0
STEP_S = 0.25

# By topic: how many messages a second, and how much of that each group takes.
TRAFFIC = {
    "orders": (420, {"billing": 1.4, "shipping": 1.4, "analytics": 0.97}),
    "payments": (180, {"ledger": 1.5}),
    "events.eu.clicks": (900, {"warehouse": 1.3, "sessions": 1.2}),
    "events.us.clicks": (640, {"warehouse": 1.3}),
    "emails": (60, {"sender": 1.2}),
    "invoices": (25, {"printer": 1.1, "archive": 1.3}),
}


@contextmanager
def served(data: Path) -> Iterator[str]:
    """A broker in a process of its own, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quiver, url = Path(sys.executable).with_name("quiver"), f"http://127.0.0.1:{port}"
    process = subprocess.Popen([quiver, "serve", "--data", data, "--port", str(port)])
    try:
        while not _answers(f"{url}/readyz"):
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(address: str) -> bool:
    try:
        with urlopen(address) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def work(url: str, stop: threading.Event) -> None:
    """Publish and consume, more and less by turns, until told to stop."""
    chance = random.Random(7)
    with quivermq.connect(url) as mq:
        mq.create_topic("orders", partitions=3, durability="os")
        for name in TRAFFIC.keys() - {"orders"}:
            mq.create_topic(name, durability="os")
        mq.queue("emails").put(b"a reminder", delay=86_400)
        bad = mq.queue("payments", "ledger")
        bad.put_many([b"{}"] * 3)
        for delivery in bad.get_many(3, timeout=1):
            delivery.reject("no account of that number")
        for step in range(10**9):
            if stop.wait(STEP_S):
                return
            for place, (name, (per_second, groups)) in enumerate(TRAFFIC.items()):
                swing = 1 + 0.5 * math.sin(step / 90 + place) + chance.uniform(-0.15, 0.15)
                value = json.dumps({"number": step, "topic": name}).encode()
                count = max(1, round(per_second * STEP_S * swing))
                mq.queue(name).put_many([value] * count)
                for group, share in groups.items():
                    queue = mq.queue(name, group)
                    queue.ack(queue.get_many(max(1, round(per_second * STEP_S * share)), timeout=0))


def main() -> None:
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as directory, served(Path(directory) / "data") as url:
        worker = threading.Thread(target=work, args=(url, stop))
        worker.start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--headless=new", "--no-sandbox"]
                )
                page = browser.new_page(viewport={"width": 1280, "height": 760}, device_scale_factor=1.5)
                page.goto(url)
                page.wait_for_timeout(SECONDS * 1000)
                page.screenshot(path=IMAGE)
                browser.close()
        finally:
            stop.set()
            worker.join()


if __name__ == "__main__":
    main()
