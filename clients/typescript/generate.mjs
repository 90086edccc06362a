// Writes src/openapi.ts from docs/reference/openapi.json: `make openapi`. With --stdout it prints instead.
// It takes the operations that the client calls, without their problems, which all have one shape.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const TAGS = new Set(["events", "dead letters", "schedules", "jobs", "locks", "long work", "tenants", "channels", "fleets"]);
const HEAD = "// Written by `make openapi` from docs/reference/openapi.json. Do not edit it.\n\n";

const here = new URL(".", import.meta.url);
const document = JSON.parse(await readFile(new URL("../../docs/reference/openapi.json", here), "utf8"));

const paths = {};
for (const [path, operations] of Object.entries(document.paths)) {
  for (const [method, operation] of Object.entries(operations)) {
    if (!TAGS.has(operation.tags[0])) continue;
    const answers = Object.entries(operation.responses).filter(([status]) => status < "300");
    paths[path] = { ...paths[path], [method]: { ...operation, responses: Object.fromEntries(answers) } };
  }
}

const schemas = {};
function keep(part) {
  if (part === null || typeof part !== "object") return;
  const name = typeof part.$ref === "string" ? part.$ref.split("#/components/schemas/")[1] : undefined;
  if (name !== undefined && !(name in schemas)) {
    schemas[name] = document.components.schemas[name];
    keep(schemas[name]);
  }
  Object.values(part).forEach(keep);
}
keep(paths);
keep({ $ref: "#/components/schemas/ProblemOut" });
const sorted = Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1)));

const types = await openapiTS({ ...document, paths, components: { ...document.components, schemas: sorted } });
const text = HEAD + astToString(types);
if (process.argv.includes("--stdout")) process.stdout.write(text);
else await writeFile(new URL("src/openapi.ts", here), text);
