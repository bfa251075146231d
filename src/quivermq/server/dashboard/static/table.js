// Tables that sort, filter and stay put: rows are known by their key, so that an update neither moves the
// focus nor undoes a selection.

import { fill, h, set } from "./dom.js";
import { remember } from "./site.js";

/**
 * columns: [{id, title, value(row), cell(row)?, kind?, sort?, hint?, minor?, mark?}]
 *   value  what is sorted and searched by: a number or a text
 *   cell   what is shown: a node, a text or a list of these; by default the value
 *   kind   "num" (right-aligned, digits of one width), "text" (default), "wide", "tight"
 *   mark   a text that is another one when nodes of `cell` have to be drawn again
 *   sort   "asc" (default) or "desc": the first direction; false: not sortable
 * key(row): a text that is the row's own. sorted: {id, down}. caption: for screen readers.
 * empty: what to say without rows. select: true for a column of checkboxes; onselect(keys).
 * onopen(row): Enter or a click beside links and buttons.
 * activity(row): numbers by which rows are in order as long as nobody sorts them, the greatest first.
 * ctx: that of the page whose address tells how the table is sorted and filtered; for one table of a page.
 * compact: stay a table on a phone, without the columns that are `minor`; others become cards there.
 */
export function table({ columns, key, caption, sorted, empty = "Nothing here.", select = false, onselect, onopen, activity = null, ctx = null, compact = false, limit = 200 }) {
  let rows = [];
  let isKnown = false;
  let needle = ctx?.query.filter ?? "";
  const usual = activity ? { id: null } : sorted || { id: columns[0].id, down: columns[0].sort === "desc" };
  let order = orderFrom(ctx?.query.sort) ?? usual;
  const known = new Map();
  const chosen = new Set();

  const heads = new Map();
  const all = select ? h("input", { type: "checkbox", "aria-label": "Select all rows" }) : null;
  const headRow = h("tr", {}, select ? h("th", { class: "pick", scope: "col" }, all) : null);
  for (const column of columns) headRow.append(headOf(column));
  const body = h("tbody");
  const notice = h("p", { class: "empty", hidden: true });
  const element = h(
    "div", { class: compact ? "table-wrap compact" : "table-wrap" },
    h("table", {}, caption ? h("caption", { class: "unseen" }, caption) : null, h("thead", {}, headRow), body),
    notice,
  );
  body.addEventListener("keydown", onKey);
  if (onopen) body.addEventListener("click", onClick);
  all?.addEventListener("change", () => choose(shown().map(key), all.checked));

  function headOf(column) {
    const { id, title, hint } = column;
    const props = { scope: "col", class: classOf(column), title: hint };
    const head = h("th", props);
    heads.set(id, head);
    if (column.sort === false) return fill(head, title);
    return fill(head, h("button", { type: "button", class: "sort", onclick: () => sortBy(column) }, title));
  }

  /** "lag" or "-lag", as an address has it; null for what no column is called. */
  function orderFrom(text = "") {
    const column = columns.find(({ id, sort }) => sort !== false && id === text.replace(/^-/, ""));
    return column ? { id: column.id, down: text.startsWith("-") } : null;
  }

  /** Once in its own direction, once in the other, and then as before anybody sorted. */
  function sortBy(column) {
    const first = column.sort === "desc";
    const isSecond = order.id === column.id;
    order = isSecond && order.down !== first && activity ? usual : { id: column.id, down: isSecond ? !order.down : first };
    if (ctx) remember({ sort: order.id === usual.id && order.down === usual.down ? null : `${order.down ? "-" : ""}${order.id}` });
    draw();
  }

  function byActivity(found) {
    const ranks = new Map(found.map((row) => [row, activity(row)]));
    const isBefore = (a, b) => {
      const [left, right] = [ranks.get(a), ranks.get(b)];
      const at = left.findIndex((rank, index) => rank !== right[index]);
      return at < 0 ? compare(key(a), key(b)) : right[at] - left[at];
    };
    return found.sort(isBefore);
  }

  function shown() {
    const words = needle.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? rows.filter((row) => matches(row, words)) : [...rows];
    if (order.id === null) return byActivity(found);
    const column = columns.find(({ id }) => id === order.id);
    if (!column || column.sort === false) return found;
    const sign = order.down ? -1 : 1;
    return found.sort((a, b) => sign * compare(column.value(a), column.value(b)) || compare(key(a), key(b)));
  }

  function matches(row, words) {
    const text = columns.map((column) => (column.value ? column.value(row) : "")).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function draw() {
    for (const column of columns) {
      if (column.sort === false) continue;
      const direction = order.id !== column.id ? null : order.down ? "descending" : "ascending";
      set(heads.get(column.id), { "aria-sort": direction });
    }
    const visible = shown();
    const drawn = visible.slice(0, limit).map(rowOf);
    const present = new Set(rows.map(key));
    for (const name of [...known.keys()].filter((name) => !present.has(name))) known.delete(name);
    for (const name of [...chosen].filter((name) => !present.has(name))) chosen.delete(name);
    place(drawn);
    const hiddenRows = visible.length - drawn.length;
    const words = !visible.length ? (rows.length ? "Nothing matches the filter." : isKnown ? empty : "Loading…") : `${hiddenRows} more: filter to see them.`;
    notice.hidden = visible.length > 0 && hiddenRows === 0;
    fill(notice, words);
    drawChosen();
  }

  /** Move only what is not in its place: moving an element takes the focus from it. */
  function place(wanted) {
    const staying = new Set(wanted);
    for (const row of [...body.children]) if (!staying.has(row)) row.remove();
    wanted.forEach((row, index) => {
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] || null);
    });
  }

  function rowOf(row) {
    const name = key(row);
    let line = known.get(name);
    if (!line) {
      const element = h("tr", { dataset: { key: name } }, select ? h("td", { class: "pick" }, checkbox(name, row)) : null);
      const cells = columns.map((column) => h("td", { class: classOf(column), dataset: { label: column.title } }));
      element.append(...cells);
      line = { element, cells, told: [] };
      known.set(name, line);
    }
    line.row = row;
    columns.forEach((column, index) => {
      // A cell with nodes is drawn again when what it stands for has changed, and not even made before that.
      const mark = column.mark ? column.mark(row) : undefined;
      if (mark !== undefined && line.told[index] === mark) return;
      const content = column.cell ? column.cell(row) : column.value(row);
      if (content instanceof Node || Array.isArray(content)) {
        if (line.cells[index].contains(document.activeElement) && mark === undefined && line.told[index] === "nodes") return;
        line.told[index] = mark === undefined ? "nodes" : mark;
        fill(line.cells[index], content);
      } else if (line.told[index] !== content) {
        line.told[index] = content;
        fill(line.cells[index], content);
      }
    });
    return line.element;
  }

  function checkbox(name) {
    return h("input", {
      type: "checkbox", "aria-label": `Select ${name}`,
      onchange: (event) => choose([name], event.target.checked),
    });
  }

  function choose(names, is) {
    for (const name of names) {
      if (is) chosen.add(name);
      else chosen.delete(name);
    }
    drawChosen();
    onselect?.([...chosen]);
  }

  function drawChosen() {
    if (!select) return;
    for (const [name, line] of known) {
      line.element.classList.toggle("chosen", chosen.has(name));
      line.element.querySelector(".pick input").checked = chosen.has(name);
    }
    all.checked = rows.length > 0 && chosen.size === rows.length;
    all.indeterminate = chosen.size > 0 && chosen.size < rows.length;
  }

  function onKey(event) {
    const line = event.target.closest("tr");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const other = event.key === "ArrowDown" ? line.nextElementSibling : line.previousElementSibling;
      const cell = event.target.closest("td");
      const target = other && (other.children[cell.cellIndex]?.querySelector(FOCUSABLE) || other.querySelector(FOCUSABLE));
      if (target) {
        event.preventDefault();
        target.focus();
      }
    } else if (event.key === "Enter" && onopen && event.target === line) {
      onopen(known.get(line.dataset.key).row);
    }
  }

  function onClick(event) {
    if (event.target.closest("a, button, input, select, label, summary") || String(getSelection())) return;
    const line = event.target.closest("tr");
    if (line) onopen(known.get(line.dataset.key).row);
  }

  draw();
  return {
    element,
    update(next) {
      rows = next;
      isKnown = true;
      draw();
    },
    get needle() {
      return needle;
    },
    filter(text) {
      needle = text;
      if (ctx) remember({ filter: text });
      draw();
    },
    get selected() {
      return [...chosen];
    },
    clearSelection() {
      choose([...chosen], false);
    },
    get rows() {
      return rows;
    },
  };
}

/** A column of a table that stays in the order of the broker, with a text in each cell. */
export function textColumn(id, title, cell, kind) {
  return { id, title, cell, kind, sort: false, value: () => "" };
}

/** The same with nodes, which are made once for each message. */
export function nodeColumn(id, title, cell, kind) {
  return { ...textColumn(id, title, cell, kind), mark: ({ timestamp }) => String(timestamp) };
}

/** How large a number is, roughly: so rows that are in order by it stay in their places while it moves a little. */
export function magnitude(number) {
  return Math.ceil(Math.log2(1 + Math.max(0, number || 0)));
}

const FOCUSABLE = "a[href], button, input, select, [tabindex='0']";

/** A field that filters a table while one types. */
export function filterField(target, label = "Filter") {
  return h("input", {
    type: "search", class: "filter", placeholder: label, "aria-label": label, value: target.needle,
    oninput: (event) => target.filter(event.target.value),
  });
}

function classOf({ kind = "text", minor = false }) {
  return minor ? `${kind} minor` : kind;
}

function compare(a, b) {
  const [left, right] = [a ?? -Infinity, b ?? -Infinity];
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left).localeCompare(String(right), "en", { numeric: true });
}
