// Elements. Whatever is handed in as content becomes text: nothing here ever reads a string as markup.

const SVG = "http://www.w3.org/2000/svg";

// Set as properties, because their attributes mean the value at the beginning, or are there or not.
const PROPERTIES = new Set([
  "checked", "disabled", "hidden", "indeterminate", "open", "readOnly", "required", "selected", "value",
]);

// What would run, embed or lead to something that is not ours.
const REFUSED = new Set(["innerHTML", "outerHTML", "srcdoc", "src", "action", "formAction"]);

/** An element with properties and children: nodes, texts, numbers, or lists of these; null and false are nothing. */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function s(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

/** Put these in the place of all children of a node. */
export function fill(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

/** Change the text of a node, if it is another one: so a selection in it stays where it can. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Set or change properties of an element, as `h` does. */
export function set(element, props) {
  for (const [name, value] of Object.entries(props || {})) setOne(element, name, value);
  return element;
}

function build(element, props, children) {
  set(element, props);
  element.append(...flat(children));
  return element;
}

function setOne(element, name, value) {
  if (REFUSED.has(name)) throw new Error(`${name} is not set from here`);
  if (name.startsWith("on")) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value) throw new Error(`${name} takes a function`);
  } else if (name === "class") {
    element.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value || "");
  } else if (name === "dataset") {
    Object.assign(element.dataset, value);
  } else if (name === "style") {
    // Through the object model: the content security policy knows no style attributes.
    for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
  } else if (name === "href") {
    if (!/^[#/]/.test(value) || value.startsWith("//")) throw new Error("links lead to this broker only");
    element.setAttribute("href", value);
  } else if (PROPERTIES.has(name)) {
    element[name] = value;
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

function flat(children) {
  const found = [];
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    found.push(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return found;
}

/** A text in which `words` between backticks are shown as code. */
export function marked(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

let ids = 0;

/** A name for an element that no other element has, for labels and descriptions. */
export function freshId(prefix = "e") {
  ids += 1;
  return `${prefix}-${ids}`;
}
