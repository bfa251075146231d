"""Hand a call over to a server that has imported everything already; see warm.py."""

import json
import os
import socket
import sys


def main() -> int:
    name, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["WARM_SPARK" if wants_spark(name, arguments) else "WARM_PLAIN"])
        call = {
            "name": name,
            "arguments": arguments,
            "directory": os.getcwd(),
            "environment": dict(os.environ),
        }
        told = json.dumps(call).encode()
        socket.send_fds(connection, [len(told).to_bytes(4, "little")], [0, 1, 2])
        connection.sendall(told)
        answer = connection.recv(1)
    # Without an answer it died, as of a signal.
    return answer[0] if answer else 137


def wants_spark(name: str, arguments: "list[str]") -> bool:
    if name == "quiver":
        return arguments[:1] == ["pipeline"]
    if name == "pip":
        return False
    with open(arguments[-1], encoding="utf-8") as file:
        text = file.read()
    return "quivermq.spark" in text or "pyspark" in text


sys.exit(main())
