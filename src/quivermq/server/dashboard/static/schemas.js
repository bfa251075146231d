// Schemas of the broker's description: what they refer to, how they are said in a word, and an example of each.

const DEPTH_MAX = 6;

export class Schemas {
  constructor(api) {
    this.api = api;
  }

  /** What a reference leads to; anything else as it is. */
  resolved(schema) {
    let found = schema;
    while (found?.$ref) found = found.$ref.slice(2).split("/").reduce((node, part) => node[part], this.api);
    return found;
  }

  /** A schema without its references, as far as that has an end. */
  unfolded(schema, depth = 0) {
    if (Array.isArray(schema)) return schema.map((item) => this.unfolded(item, depth));
    if (!schema || typeof schema !== "object") return schema;
    if (schema.$ref) return depth > DEPTH_MAX ? {} : this.unfolded(this.resolved(schema), depth + 1);
    return Object.fromEntries(Object.entries(schema).map(([name, item]) => [name, this.unfolded(item, depth + 1)]));
  }

  /** In a few words: "integer 0 … 1023", "high | normal | low". */
  told(schema) {
    const found = this.resolved(schema) || {};
    if (found.enum) return found.enum.join(" | ");
    const kinds = found.anyOf || found.oneOf;
    if (kinds) return kinds.map((kind) => this.told(kind)).join(" | ");
    const bounds = "minimum" in found ? ` ${found.minimum} … ${found.maximum}` : "";
    return (found.type || "anything") + bounds;
  }

  /** Something to begin with: the first example there is, or what is required. */
  example(schema, depth = 0) {
    const found = this.resolved(schema) || {};
    if (found.examples?.length) return found.examples[0];
    if (found.default !== undefined) return found.default;
    if (found.enum) return found.enum[0];
    const kinds = found.anyOf || found.oneOf;
    if (kinds) return this.example(kinds[0], depth);
    if (found.type === "object" && depth <= DEPTH_MAX) {
      return Object.fromEntries((found.required || []).map((name) => [name, this.example(found.properties?.[name], depth + 1)]));
    }
    if (found.type === "array") return found.minItems && depth <= DEPTH_MAX ? [this.example(found.items, depth + 1)] : [];
    return { string: "", integer: found.minimum > 0 ? found.minimum : 0, number: 0, boolean: false }[found.type] ?? {};
  }
}
