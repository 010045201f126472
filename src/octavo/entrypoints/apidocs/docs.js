// Draws openapi.json: paths by group, each with the fields of its body and its answer.

const paths = document.getElementById("paths");

function make(tag, text = "", attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  return element;
}

function typeName(schema, doc) {
  if (!schema || Object.keys(schema).length === 0) return "anything";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((part) => typeName(part, doc)).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `list of ${typeName(schema.items, doc)}`;
  if (schema.type === "object" && schema.additionalProperties)
    return `object of ${typeName(schema.additionalProperties, doc)}`;
  return schema.type ?? "anything";
}

function resolve(schema, doc) {
  return schema.$ref ? doc.components.schemas[schema.$ref.split("/").pop()] : schema;
}

function fieldTable(schema, doc) {
  const whole = resolve(schema, doc);
  const part = document.createElement("div");
  if (whole.description) part.append(make("p", whole.description));
  if (!whole.properties) {
    part.append(make("p", typeName(whole, doc)));
    return part;
  }
  const table = make("table");
  const required = new Set(whole.required ?? []);
  for (const [name, field] of Object.entries(whole.properties)) {
    const row = table.insertRow();
    const label = row.insertCell();
    label.append(make("code", name));
    if (required.has(name)) label.append(make("span", " required", { className: "dim" }));
    row.insertCell().append(make("code", typeName(field, doc)));
  }
  part.append(table);
  return part;
}

function operation(path, method, entry, doc) {
  const details = make("details");
  const summary = make("summary");
  summary.append(make("b", method.toUpperCase()), make("code", path), ` ${entry.summary}`);
  details.append(summary);
  const body = entry.requestBody?.content["application/json"].schema;
  if (body) {
    details.append(make("h3", "Body"));
    for (const schema of body.anyOf ?? [body]) details.append(fieldTable(schema, doc));
  }
  const answer = entry.responses["200"].content["application/json"]?.schema;
  if (answer) details.append(make("h3", "Answer"), fieldTable(answer, doc));
  return details;
}

function draw(doc) {
  const groups = new Map();
  for (const [path, methods] of Object.entries(doc.paths))
    for (const [method, entry] of Object.entries(methods)) {
      const group = entry.tags[0];
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(operation(path, method, entry, doc));
    }
  paths.replaceChildren();
  for (const [group, operations] of groups) paths.append(make("h2", group), ...operations);
}

async function load(key) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const reply = await fetch("openapi.json", { headers });
  if (reply.ok) draw(await reply.json());
  else {
    const told = await reply.json().catch(() => null);
    paths.replaceChildren(make("p", told?.error?.message ?? `The server answered ${reply.status}.`));
  }
}

document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  load(document.getElementById("key").value);
});
load("");
