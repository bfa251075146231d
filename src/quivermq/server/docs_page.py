"""The page at /docs: it shows /openapi.json, and asks nobody but this broker for anything."""

# What the page may do, so that nothing in a document could make it do more.
DOCS_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

DOCS_PAGE = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Quiver: HTTP</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; }
h2 { margin: 2.5rem 0 .5rem; text-transform: capitalize; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; border-radius: .4rem; }
details { border-top: 1px solid var(--line); }
summary { padding: .6rem 0; cursor: pointer; }
summary > code { font-weight: 600; }
summary > .method { display: inline-block; min-width: 4.5rem; }
summary > span { opacity: .75; }
section { padding: 0 0 1rem 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; }
</style>
</head>
<body>
<h1>Quiver</h1>
<p id="about">The description is at <a href="/openapi.json">/openapi.json</a>.</p>
<main id="calls"></main>
<noscript><p>This page needs scripts; the document does not.</p></noscript>
<script>
"use strict";
const make = (tag, text, ...children) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};
const code = (text, name) => {
  const element = make("code", text);
  if (name) element.className = name;
  return element;
};
let api;
const resolved = (schema) => {
  while (schema && schema.$ref) {
    schema = schema.$ref.slice(2).split("/").reduce((node, part) => node[part], api);
  }
  return schema;
};
// A schema without its references, as far as that has an end.
const unfolded = (schema, depth = 0) => {
  if (Array.isArray(schema)) return schema.map((item) => unfolded(item, depth));
  if (!schema || typeof schema !== "object") return schema;
  if (schema.$ref) return depth > 6 ? {} : unfolded(resolved(schema), depth + 1);
  return Object.fromEntries(
    Object.entries(schema).map(([name, item]) => [name, unfolded(item, depth + 1)]));
};
const told = (schema) => {
  const found = resolved(schema) || {};
  if (found.enum) return found.enum.join(" | ");
  const kinds = found.anyOf || found.oneOf;
  if (kinds) return kinds.map(told).join(" | ");
  const bounds = "minimum" in found ? ` ${found.minimum} ... ${found.maximum}` : "";
  return (found.type || "anything") + bounds;
};
const parameters = (given) => {
  const rows = given.map((parameter) => make("tr", "",
    make("td", "", code(parameter.name)),
    make("td", parameter.in),
    make("td", told(parameter.schema)),
    make("td", parameter.description)));
  return make("table", "", ...rows);
};
const content = (media) => Object.entries(media || {}).flatMap(([type, { schema }]) => {
  const parts = [make("p", "", code(type))];
  if (!schema) return parts;
  const found = resolved(schema);
  const examples = (found.examples || []).map((example) => make("pre", JSON.stringify(example, null, 2)));
  const full = make("details", "", make("summary", "schema"));
  full.append(make("pre", JSON.stringify(unfolded(schema), null, 2)));
  return [...parts, ...examples, full];
});
const operation = (path, method, call) => {
  const body = make("section", "", make("p", call.description));
  if (call.parameters) body.append(make("h4", "Parameters"), parameters(call.parameters));
  if (call.requestBody) body.append(make("h4", "Body"), ...content(call.requestBody.content));
  body.append(make("h4", "Answers"));
  for (const [status, reference] of Object.entries(call.responses)) {
    const answer = resolved(reference);
    const line = make("p", "", code(status), ` ${answer.description}`);
    body.append(line, ...(status < 300 ? content(answer.content) : []));
  }
  const summary = make("summary", "",
    code(method.toUpperCase(), "method"), code(path), " ", make("span", call.summary));
  return make("details", "", summary, body);
};
const show = () => {
  const main = document.getElementById("calls");
  for (const { name } of api.tags) {
    main.append(make("h2", name));
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, call] of Object.entries(methods)) {
        if (call.tags.includes(name)) main.append(operation(path, method, call));
      }
    }
  }
  document.getElementById("about").prepend(`${api.info.summary} Release ${api.info.version}. `);
};
fetch("/openapi.json").then((answer) => answer.json()).then((document_) => { api = document_; show(); })
  .catch((error) => document.getElementById("calls").append(make("p", `It cannot be shown: ${error}`)));
</script>
</body>
</html>
"""
