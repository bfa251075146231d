"""How a report looks: calm, as wide as reading is comfortable, light or dark as the reader has it."""

STYLE = """
:root {
  --paper: #fbfbfa; --card: #ffffff; --ink: #1d232b; --muted: #5c6773; --line: #dde1e6;
  --series-1: #2f6fb7; --series-2: #d9822b; --series-3: #3b9c6b; --series-4: #b5477c;
  --series-5: #7a62c4; --series-6: #2a9aa8; --series-7: #8a8f98;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --card: #1c2026; --ink: #e6e9ed; --muted: #9aa5b1; --line: #333a43;
    --series-1: #6ea8e6; --series-2: #eda35a; --series-3: #67c294; --series-4: #dc7fab;
    --series-5: #a793e8; --series-6: #5cc3d0; --series-7: #9ba1aa;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
header p { margin: 0.15rem 0; color: var(--muted); }
h1 { font-size: 1.9rem; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 1.2rem; margin: 0 0 0.75rem; }
.where { font-family: ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.facts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.75rem; margin: 1.5rem 0;
}
.facts div, section {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
}
.facts div { padding: 0.8rem 1rem; display: flex; flex-flow: column-reverse; justify-content: flex-end; }
.facts dt { color: var(--muted); font-size: 0.85rem; }
.facts dd { margin: 0; font-size: 1.45rem; font-weight: 600; font-variant-numeric: tabular-nums; }
section { padding: 1.25rem 1.4rem 1rem; margin: 1rem 0; }
figure { margin: 0; }
/* On a narrow screen a plot is moved sideways, and its text stays large enough to be read. */
.plot { overflow-x: auto; }
.plot svg { display: block; width: 100%; min-width: 560px; height: auto; }
figure svg text { font-family: inherit; }
figcaption { color: var(--muted); font-size: 0.92rem; margin: 0.35rem 0 0.6rem; }
.nothing { color: var(--muted); margin: 0.3rem 0 0.8rem; }
details { margin: 0 0 0.8rem; }
summary { cursor: pointer; color: var(--muted); font-size: 0.92rem; }
.table { overflow-x: auto; max-height: 26rem; overflow-y: auto; margin: 0.4rem 0 0.6rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: left; padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid var(--line); }
td { overflow-wrap: break-word; }
th { color: var(--muted); font-weight: 600; white-space: nowrap; }
@media print { details { display: none; } section { break-inside: avoid; } }
"""
