"""A first pipeline, from nothing to a page in the browser: `make pipeline`.

Puts a day of orders into a queue, has a worker ship a part of them, computes the revenue of each country in
each hour with Spark, shows what arrived in the Parquet table and in the topic, and writes a report about
the queue.
"""

import shutil
from pathlib import Path

from orders.make_orders import fill

import quivermq
from quivermq.spark import report, run, session, sql

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "pipelines"
DATA = str(BUILD / "data")

shutil.rmtree(BUILD, ignore_errors=True)
fill(DATA, 20_000)
print(f"20,000 orders are in the topic orders, in {DATA}")

with quivermq.open(DATA) as mq:
    shipping = mq.queue("orders", group="shipping")
    orders = shipping.get_many(8000)
    shipping.ack([order for order in orders if order.value.endswith(b"}")])
    shipping.reject([order for order in orders if not order.value.endswith(b"}")], "not an order")
    shipping.nack(shipping.get_many(100), delay=60, reason="no courier")
    print(f"a worker has shipped 8,000 of them, less {len(shipping.dead_letters())} that were none")

print("starting Spark, which takes some seconds …")
spark = session()
done = run(HERE / "orders" / "orders.toml", spark=spark)
for sink in done.sinks:
    print(f"{sink.written:,} rows out of {sink.read:,} messages went to {sink.target}")

print(f"\nThe Parquet table {BUILD / 'revenue'}:")
table = spark.read.parquet(str(BUILD / "revenue"))
table.orderBy("hour", "country").select("hour", "country", "orders", "revenue").show(5)

print("The topic revenue:")
sql("SELECT offset, key, value FROM revenue", path=DATA, spark=spark).show(5, truncate=False)
with quivermq.open(DATA) as mq:
    broken = mq.queue("orders.malformed").read(limit=1)
    print(f"What was no order is in orders.malformed, such as {broken[0].value!r}\n")

page = BUILD / "report.html"
report(path=DATA, to=str(page), spark=spark)
print(f"A report about the queue: {page.resolve().as_uri()}")
print("Ask it something yourself:")
print(
    f"  .venv/bin/quiver pipeline sql 'SELECT key, count(*) FROM orders GROUP BY key LIMIT 5' --data {DATA}"
)
