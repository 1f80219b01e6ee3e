#!/usr/bin/env node
// Writes src/api.ts, the types of the hub's API, from openapi/openapi.json.
//
//   node generate.mjs           writes the file
//   node generate.mjs --check   exits with 1 if the file differs from what would be written
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const METHODS = ["get", "put", "post", "delete", "patch"];

/** The whole file for an OpenAPI document. */
export function render(document) {
  const parts = [
    "// The types of the hub's API. Generated from openapi/openapi.json by generate.mjs: don't edit.",
    ...Object.entries(document.components.schemas).map(([name, schema]) => declaration(name, schema)),
    operations(document.paths),
    idempotent(document.paths),
  ];
  return parts.join("\n\n") + "\n";
}

function declaration(name, schema) {
  const isObject = schema.type === "object" && schema.properties;
  const body = isObject ? `interface ${name} ${object(schema, "")}` : `type ${name} = ${type(schema, "")};`;
  return `${comment(schema.description, "")}export ${body}`;
}

function type(schema, indent) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.enum) return union(schema.enum.map((value) => JSON.stringify(value)));
  if (schema.oneOf) return union(schema.oneOf.map((one) => type(one, indent)));
  if (schema.allOf) return schema.allOf.map((one) => type(one, indent)).join(" & ");
  const types = [schema.type ?? "unknown"].flat().map((name) => {
    switch (name) {
      case "integer":
      case "number":
        return "number";
      case "array":
        return `Array<${type(schema.items, indent)}>`;
      case "object":
        if (schema.properties) return object(schema, indent);
        return typeof schema.additionalProperties === "object"
          ? `Record<string, ${type(schema.additionalProperties, indent)}>`
          : "Record<string, unknown>";
      case "string":
      case "boolean":
      case "null":
      case "unknown":
        return name;
      default:
        throw new Error(`generate.mjs doesn't know the type ${name}: ${JSON.stringify(schema)}`);
    }
  });
  return union(types);
}

const union = (types) => [...new Set(types)].join(" | ");

function object(schema, indent) {
  const inner = `${indent}  `;
  const lines = Object.entries(schema.properties).map(([name, member]) => {
    const mark = schema.required?.includes(name) ? "" : "?";
    const about = member.description ?? member.oneOf?.find((one) => one.description)?.description;
    return `${comment(about, inner)}${inner}${key(name)}${mark}: ${type(member, inner)};`;
  });
  return `{\n${lines.join("\n")}\n${indent}}`;
}

const key = (name) => (/^[A-Za-z_]\w*$/.test(name) ? name : JSON.stringify(name));

function comment(text, indent) {
  if (!text) return "";
  return `${indent}/** ${text.trim().replaceAll("*/", "*\\/").replaceAll("\n", `\n${indent} * `)} */\n`;
}

function* each(paths) {
  for (const [path, methods] of Object.entries(paths)) {
    for (const method of METHODS) {
      if (methods[method]) yield [`${method.toUpperCase()} ${path}`, methods[method]];
    }
  }
}

/** One member per endpoint that speaks JSON: what it takes and what it answers. */
function operations(paths) {
  const lines = [];
  for (const [name, operation] of each(paths)) {
    const ok = Object.entries(operation.responses).filter(([status]) => status >= 200 && status < 300);
    const json = ok.map(([, response]) => response.content?.["application/json"]?.schema).filter(Boolean);
    const empty = ok.some(([, response]) => !response.content);
    const body = operation.requestBody?.content["application/json"]?.schema;
    if ((!json.length && !empty) || (operation.requestBody && !body)) continue;
    const members = [];
    const given = (place) => (operation.parameters ?? []).filter((parameter) => parameter.in === place);
    for (const place of ["path", "query"]) {
      const schema = {
        properties: Object.fromEntries(
          given(place).map((one) => [one.name, { ...one.schema, description: one.description }]),
        ),
        required: given(place)
          .filter((one) => one.required)
          .map((one) => one.name),
      };
      if (given(place).length) members.push(`    ${place}: ${object(schema, "    ")};`);
    }
    if (body) members.push(`    body${operation.requestBody.required ? "" : "?"}: ${type(body, "    ")};`);
    const answers = [...json.map((schema) => type(schema, "    ")), ...(empty ? ["undefined"] : [])];
    members.push(`    response: ${union(answers)};`);
    const about = operation.summary ?? operation.description;
    lines.push(`${comment(about, "  ")}  ${JSON.stringify(name)}: {\n${members.join("\n")}\n  };`);
  }
  return `/** Every endpoint of the hub. */\nexport interface Operations {\n${lines.join("\n")}\n}`;
}

/** The endpoints that accept an `Idempotency-Key`. */
function idempotent(paths) {
  const takesKey = ([, operation]) => operation.parameters?.some((one) => one.name.toLowerCase() === "idempotency-key");
  const names = [...each(paths)].filter(takesKey).map(([name]) => `  ${JSON.stringify(name)},`);
  return `/** The endpoints that accept an \`Idempotency-Key\`. */\nexport const IDEMPOTENT: ReadonlySet<string> = new Set([\n${names.join("\n")}\n]);`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const written = render(JSON.parse(readFileSync(here("../../openapi/openapi.json"), "utf8")));
  const file = here("src/api.ts");
  if (!process.argv.includes("--check")) {
    writeFileSync(file, written);
  } else if (readFileSync(file, "utf8") !== written) {
    console.error("src/api.ts differs from openapi/openapi.json. Run: node sdk/typescript/generate.mjs");
    process.exit(1);
  }
}
