// The cluster that the broker is part of: who has which shard, what that does with the store, and moving it.

import { action } from "../access.js";
import { ApiError, CLUSTER, isGone } from "../api.js";
import { confirm, formDialog } from "../dialog.js";
import { fill, freshId, h } from "../dom.js";
import * as format from "../format.js";
import { select } from "../message_form.js";
import { problem } from "../notice.js";
import { plot } from "../plot.js";
import { table } from "../table.js";
import { tiles } from "../tiles.js";
import { done } from "../toast.js";

const LOOK_MS = 2000;
const POINTS_MAX = 1800;
const MAP = `${CLUSTER}v1/cluster`;
const SEVERITIES = { page: ["bad", "act now"], ticket: ["warn", "look into it"] };

export async function render(ctx) {
  const alerts = h("div", { class: "health" });
  const trouble = h("div", {});
  const figures = tiles([
    { id: "brokers", label: "Brokers", hint: "Brokers that are there" },
    { id: "shards", label: "Shards", hint: "Shards of the cluster, and how many nobody owns" },
    { id: "commits", label: "Commits a second", hint: "Chunks that the shards commit to the store" },
    { id: "behind", label: "Uncommitted", hint: "How far the store is behind" },
    { id: "requests", label: "Requests", hint: "Requests to the store since the shards were opened" },
    { id: "cost", label: "Cost a month", hint: "An estimate: the requests of all shards at list prices, without storage and traffic" },
  ]);
  const commits = plot({
    title: "Commits", unit: "/s", signal: ctx.signal, series: [{ id: "commits", title: "all shards", color: 1 }],
  });
  const pace = new Pace();
  let map = null;
  const brokers = brokersTable(ctx, (row) => drain(ctx, row, look));
  const shards = shardsTable(ctx, (row) => move(ctx, map, row, look));
  ctx.add(trouble, alerts, figures.element, commits.element, section("Brokers", brokers.element), section("Shards", shards.element));

  async function look() {
    try {
      const [cluster, told] = await Promise.all([ctx.api.get(MAP), ctx.api.get(`${MAP}/figures`)]);
      if (ctx.signal.aborted) return;
      map = cluster;
      pace.see(told);
      draw(cluster, told);
      fill(trouble);
    } catch (error) {
      if (isGone(error)) return;
      fill(trouble, problem(error, look));
      if (!(error instanceof ApiError)) throw error;
    }
  }

  function draw(cluster, told) {
    const known = Object.values(told.shards);
    const sum = (of) => known.reduce((total, shard) => total + (of(shard) || 0), 0);
    const ownerless = cluster.owners.filter(({ broker }) => broker === null).length;
    const costs = known.map((shard) => shard.estimated_dollars_a_month).filter((dollars) => dollars !== null);
    fill(alerts, cluster.alerts.map(alertLine));
    figures.update({
      brokers: { value: format.count(cluster.brokers.length), note: told.silent.length ? `${told.silent.join(", ")} does not answer` : "", level: told.silent.length ? "warn" : "" },
      shards: { value: format.count(cluster.shards), note: ownerless ? `${ownerless} without an owner` : "", level: ownerless ? "bad" : "" },
      commits: { value: format.rate(pace.all) },
      behind: { value: format.bytes(sum((shard) => shard.uncommitted_bytes)) },
      requests: { value: format.short(sum(requestsOf)), note: `${format.bytes(sum(bytesOf))} moved` },
      cost: { value: costs.length ? dollarsText(costs.reduce((total, each) => total + each, 0)) : format.none, note: costs.length ? "an estimate" : "after a minute" },
    });
    commits.update(pace.points, pace.points.at(-1).t);
    brokers.update(cluster.brokers);
    shards.update(cluster.owners.map((owner) => ({ ...owner, ...told.shards[owner.shard], broker: owner.broker, epoch: owner.epoch, pace: pace.of(owner.shard) })));
  }

  await look();
  ctx.every(LOOK_MS, look);
}

function section(title, content) {
  return h("section", { class: "section" }, h("div", { class: "section-head" }, h("h2", {}, title)), content);
}

function alertLine({ alert, severity, summary }) {
  const [level, word] = SEVERITIES[severity] || SEVERITIES.page;
  return h("p", { class: `notice ${level}`, role: "alert" }, h("span", { class: `tag ${level}`, title: alert }, word), " ", summary);
}

const requestsOf = (shard) => Object.values(shard.requests || {}).reduce((total, { count }) => total + count, 0);
const bytesOf = (shard) => Object.values(shard.requests || {}).reduce((total, each) => total + each.bytes, 0);
const dollarsText = (dollars) => `$${dollars < 10 ? dollars.toFixed(2) : format.count(Math.round(dollars))}`;

/** How often is committed, from one look to the next. A shard that has another owner since begins anew. */
class Pace {
  constructor() {
    this.points = [];
    this.all = null;
    this._seen = new Map();
    this._rates = new Map();
    this._time = 0;
  }

  see({ time, shards }) {
    const seconds = (time - this._time) / 1e6;
    const seen = new Map();
    this._rates.clear();
    for (const [number, { epoch, commits }] of Object.entries(shards)) {
      const before = this._seen.get(number);
      seen.set(number, { epoch, chunks: commits.chunks });
      if (before?.epoch === epoch && seconds > 0) this._rates.set(Number(number), (commits.chunks - before.chunks) / seconds);
    }
    this.all = this._seen.size ? [...this._rates.values()].reduce((total, each) => total + each, 0) : null;
    this._seen = seen;
    this._time = time;
    this.points = [...this.points.slice(1 - POINTS_MAX), { t: time / 1000, commits: this.all }];
  }

  of(shard) {
    return this._rates.get(shard) ?? null;
  }
}

// Who has what.

function brokersTable(ctx, ondrain) {
  return table({
    caption: "Brokers of the cluster",
    key: (broker) => broker.id,
    empty: "No broker is there.",
    sorted: { id: "id", down: false },
    columns: [
      { id: "id", title: "Broker", value: (broker) => broker.id },
      { id: "url", title: "Address", value: (broker) => broker.url },
      { id: "version", title: "Version", value: (broker) => broker.version },
      { id: "state", title: "State", kind: "tight", value: (broker) => (broker.is_draining ? "draining" : "serving") },
      { id: "shards", title: "Shards", kind: "num", sort: "desc", value: (broker) => broker.shards.length },
      {
        id: "act", title: "Drain", kind: "tight", sort: false, mark: (broker) => String(broker.is_draining),
        cell: (broker) => action(broker.is_draining ? "Undo" : "Drain", "admin", () => ondrain(broker), { "aria-label": `${broker.is_draining ? "Undo the drain of" : "Drain"} ${broker.id}` }),
      },
    ],
  });
}

function shardsTable(ctx, onmove) {
  return table({
    caption: "Shards of the cluster",
    key: (row) => String(row.shard),
    sorted: { id: "shard", down: false },
    columns: [
      {
        id: "shard", title: "Shard", kind: "num", value: (row) => row.shard, mark: (row) => String(row.shard),
        cell: (row) => h("a", { href: `${CLUSTER}shards/${row.shard}/`, title: "Its dashboard" }, String(row.shard)),
      },
      { id: "owner", title: "Owner", value: (row) => row.broker ?? "nobody" },
      { id: "epoch", title: "Epoch", kind: "num", value: (row) => row.epoch ?? 0 },
      { id: "standby", title: "Next owner", hint: "The broker that takes it over when its owner is lost", value: (row) => row.standby ?? format.none },
      { id: "replay", title: "To read", hint: "Chunks behind the latest checkpoint, which the next owner has to read", kind: "num", sort: "desc", value: (row) => row.replay_chunks ?? 0 },
      { id: "commits", title: "Commits/s", kind: "num", sort: "desc", value: (row) => row.pace ?? 0, cell: (row) => format.rate(row.pace) },
      { id: "p99", title: "p99", hint: "One commit in a hundred took longer", kind: "num", sort: "desc", value: (row) => row.commits?.p99_s ?? 0, cell: (row) => (row.commits?.p99_s ? format.duration(row.commits.p99_s * 1000) : format.none) },
      { id: "bytes", title: "Bytes", hint: "Sent to the store or fetched since it was opened", kind: "num", sort: "desc", value: bytesOf, cell: (row) => format.bytes(bytesOf(row)) },
      { id: "requests", title: "Requests", kind: "num", sort: "desc", value: requestsOf, cell: (row) => format.count(requestsOf(row)) },
      { id: "cost", title: "$ a month", hint: "An estimate", kind: "num", sort: "desc", value: (row) => row.estimated_dollars_a_month ?? 0, cell: (row) => (row.estimated_dollars_a_month == null ? format.none : dollarsText(row.estimated_dollars_a_month)) },
      {
        id: "act", title: "Move", kind: "tight", sort: false, mark: (row) => String(row.shard),
        cell: (row) => action("Move", "admin", () => onmove(row), { "aria-label": `Move shard ${row.shard}` }),
      },
    ],
  });
}

// What can be done.

function move(ctx, map, { shard, broker }, look) {
  const id = freshId("move");
  const places = map.brokers.filter((each) => each.id !== broker && !each.is_draining).map((each) => [each.id, each.id]);
  const choice = select([...places, ["any", "wherever placement has it"]], places[0]?.[0] ?? "any", { id });
  const form = h("form", { id: freshId("form") }, h("label", { for: id }, `Let shard ${shard} belong to`), choice);
  formDialog({
    title: `Move shard ${shard}`,
    action: "Move",
    form,
    apply: async () => {
      await ctx.api.post(`${MAP}/shards/${shard}/move`, { body: { broker: choice.value } });
      done(`Shard ${shard} goes there as soon as its owner has seen it.`);
      await look();
    },
  });
}

async function drain(ctx, { id, is_draining: isDraining, shards }, look) {
  const target = `${MAP}/brokers/${encodeURIComponent(id)}/drain`;
  const text = `It gives its ${format.many(shards.length, "shard")} to the others, and takes no more until that is undone.`;
  if (!isDraining && !(await confirm({ title: `Drain ${id}?`, text, action: "Drain", danger: true }))) return;
  await ctx.attempt(async () => {
    await (isDraining ? ctx.api.delete(target) : ctx.api.post(target));
    done(isDraining ? `${id} may own shards again.` : `${id} gives its shards to the others.`);
    await look();
  });
}
