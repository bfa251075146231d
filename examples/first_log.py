"""Write a log, read it back, look at it through Arrow, and check every byte of it."""

import tempfile

import quivermq

with tempfile.TemporaryDirectory() as data:
    with quivermq.DataDirectory(data) as directory:
        orders = directory.log("orders")

        # Each call returns once the message survives power loss.
        offset = orders.append(b"first", key=b"customer-1", headers={"source": b"web"})
        print(f"appended offset {offset}")

        # A batch is one frame: encoded once, written as it is, all or nothing.
        orders.append_many([b"second", b"third"], durability="os")

        for record in orders.records():
            print(f"{record.offset}: {record.value.decode()} {record.key or b''!r} {record.headers}")

        # The same bytes as a table, without a copy.
        try:
            from quivermq.frame import arrow_batch
        except ModuleNotFoundError as error:
            print(error)
        else:
            for frame in orders.frames(mapped=True):
                print(arrow_batch(frame, ["offset", "value"]).to_pydict())

    report = quivermq.verify(data)
    print(f"{report.messages} messages in {report.frames} frames, sound: {report.is_sound}")
