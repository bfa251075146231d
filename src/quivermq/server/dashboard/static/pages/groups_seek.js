// Letting a group go on from elsewhere. Before anything moves, it says for each lane what would come again and what
// would be passed over.

import { isGone, path } from "../api.js";
import { openDialog } from "../dialog.js";
import { fill, freshId, h, set, setText } from "../dom.js";
import * as format from "../format.js";
import { field, select } from "../message_form.js";
import { forEach, readLane } from "./messages_reader.js";

const WAYS = [["earliest", "Everything again, from the earliest message"], ["latest", "Only what comes from now on"], ["time", "From a time"], ["offsets", "From offsets, partition by partition"]];

const HEADS = [["Partition", "num"], ["Priority", ""], ["Offsets", "num minor"], ["Now at", "num minor"], ["Goes to", "num"], ["So", ""]];

/** Ask where to, and go there. `shown` is the group as the broker tells it. Resolves to true once it has moved. */
export async function seekDialog(ctx, topic, group, shown) {
  const lanes = shown.partitions;
  const numbers = [...new Set(lanes.map(({ partition }) => partition))];
  const scope = select([["", "All"], ...numbers.map((number) => [number, String(number)])], "");
  const moment = h("input", { type: "datetime-local", step: "1" });
  const inputs = lanes.map((lane) => h("input", {
    type: "number", min: lane.start, max: lane.end, step: "1", value: lane.position, inputmode: "numeric", "aria-label": `Offset for partition ${lane.partition}, ${lane.priority}`,
  }));
  const name = freshId("way");
  const ways = WAYS.map(([value, words]) =>
    h("label", { class: "row way" }, h("input", { type: "radio", name, value, checked: value === "offsets" }), h("span", {}, words)));
  const outcomes = lanes.map(() => h("td", {}));
  const targets = lanes.map(() => h("td", { class: "num" }));
  const rows = lanes.map((lane, index) => h(
    "tr", {},
    h("td", { class: "num tight" }, String(lane.partition)), h("td", { class: "tight" }, lane.priority),
    h("td", { class: "num minor" }, `${format.count(lane.start)} – ${format.count(lane.end)}`), h("td", { class: "num minor" }, format.count(lane.position)),
    targets[index], outcomes[index],
  ));
  const details = h("div", { class: "fields" });
  const error = h("p", { class: "error", role: "alert" });
  const formId = freshId("seek");
  const form = h(
    "form", { id: formId, novalidate: true },
    h("fieldset", { class: "field" }, h("legend", {}, "Go on from"), ways),
    details,
    h("div", { class: "table-wrap compact" }, h("table", {},
      h("thead", {}, h("tr", {}, HEADS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, rows))),
    shown.in_flight + shown.retrying ? h("p", { class: "help" }, `${format.many(shown.in_flight + shown.retrying, "message")} in flight or retrying: in every lane that moves, those who have them lose their leases.`) : null,
    error,
  );
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const go = h("button", { type: "submit", class: "primary", form: formId }, "Seek");
  const way = () => form.querySelector("input[type=radio]:checked").value;
  const isMeant = (lane) => way() === "offsets" || scope.value === "" || Number(scope.value) === lane.partition;
  // Where each lane would go; null for one that stays, NaN for what is no offset.
  let places = lanes.map(() => null);
  let turn = 0;

  async function plan() {
    turn += 1;
    const mine = turn;
    setText(error, "");
    const found = await placesNow(mine);
    if (mine !== turn || !found) return;
    places = found;
    lanes.forEach((lane, index) => fill(outcomes[index], outcome(lane, places[index])));
    if (way() !== "offsets") lanes.forEach((lane, index) => fill(targets[index], places[index] === null ? "stays" : format.count(places[index])));
    set(go, { disabled: places.every((place, index) => place === null || place === lanes[index].position) || places.some(Number.isNaN) });
  }

  async function placesNow(mine) {
    if (way() === "offsets") {
      return lanes.map((lane, index) => {
        const number = inputs[index].value === "" ? NaN : Number(inputs[index].value);
        const isThere = Number.isInteger(number) && number >= lane.start && number <= lane.end;
        set(inputs[index], { "aria-invalid": isThere ? null : "true" });
        return isThere ? number : NaN;
      });
    }
    if (way() !== "time") return lanes.map((lane) => (isMeant(lane) ? (way() === "earliest" ? lane.start : lane.end) : null));
    const timestamp = new Date(moment.value).getTime() * 1000;
    if (!Number.isFinite(timestamp)) return lanes.map(() => null);
    try {
      return await forEach(lanes, async (lane) => {
        if (!isMeant(lane)) return null;
        const page = await readLane(ctx.api, topic, lane, { timestamp, limit: 1 });
        return page.messages.length ? page.messages[0].offset : page.next;
      });
    } catch (failure) {
      if (!isGone(failure) && mine === turn) setText(error, failure.message);
      return null;
    }
  }

  function draw() {
    const isByOffset = way() === "offsets";
    fill(details, way() === "time" ? field("Time", moment) : null, isByOffset ? null : field("Partition", scope));
    lanes.forEach((lane, index) => fill(targets[index], isByOffset ? inputs[index] : ""));
    plan();
  }

  form.addEventListener("input", (event) => (event.target.type === "radio" ? draw() : plan()));
  scope.addEventListener("change", plan);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await plan();
    if (go.disabled) return;
    go.disabled = true;
    try {
      for (const body of bodies(way(), lanes, places, { scope: scope.value, time: moment.value })) {
        await ctx.api.post(path("topics", topic, "groups", group, "seek"), { body });
      }
      dialog.close(true);
    } catch (failure) {
      if (isGone(failure)) return;
      setText(error, failure.message);
      go.disabled = false;
    }
  });
  draw();
  // Once its fields are there: what they hold now, nobody has filled in.
  const dialog = openDialog({ title: `Seek ${group} in ${topic}`, body: form, actions: [cancel, go], wide: true, keeps: true });
  return dialog.closed;
}

/** What to ask of the broker: one call, or one for each lane that goes to an offset of its own. */
function bodies(way, lanes, places, { scope, time }) {
  const where = scope === "" ? {} : { partition: Number(scope) };
  if (way === "time") return [{ timestamp: new Date(time).getTime() * 1000, ...where }];
  if (way !== "offsets") return [{ to: way, ...where }];
  return lanes
    .map(({ partition, priority, position }, index) => ({ offset: places[index], partition, priority, position }))
    .filter(({ offset, position }) => offset !== position)
    .map(({ offset, partition, priority }) => ({ offset, partition, priority }));
}

function outcome({ position, start, end }, place) {
  if (Number.isNaN(place)) return h("span", { class: "bad-text" }, `give ${format.count(start)} to ${format.count(end)}`);
  if (place === null || place === position) return h("span", { class: "quiet-text" }, "stays");
  if (place < position) return h("span", { class: "warn-text" }, `${format.count(position - place)} come again`);
  return h("span", { class: "warn-text" }, `${format.count(place - position)} passed over`);
}
