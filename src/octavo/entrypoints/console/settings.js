// The settings: kept for this tab, checked as they are entered, read as fields of a request.

const find = (id) => document.getElementById(id);

const NUMBERS = [
  "temperature", "max_tokens", "top_p", "top_k", "min_p", "seed",
  "presence_penalty", "frequency_penalty", "repetition_penalty",
];
const TEXTS = [
  "system", "stop_strings", "model-choice", "thinking", "format", "schema", "tools", "tool_choice",
  "top_logprobs", "theme", "api_key",
];
const JSON_FIELDS = { schema: "an object", tools: "a list" };
const EXAMPLE_TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city now.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
    },
  },
};
const EXAMPLE_SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};

// A field that can't be sent as it is; `field` is the id of its element.
export class SettingError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

// What a request carries besides its messages. Throws SettingError.
export function requestFields() {
  const fields = { model: find("model-choice").value || undefined };
  for (const id of NUMBERS) fields[id] = number(id);
  const stops = find("stop_strings").value.split("\n").filter((line) => line !== "");
  if (stops.length) fields.stop = stops;
  const thinking = find("thinking").value;
  if (thinking) fields.chat_template_kwargs = { enable_thinking: thinking === "on" };
  if (find("format").value) fields.response_format = responseFormat();
  const tools = json("tools");
  if (tools?.length) {
    fields.tools = tools;
    if (find("tool_choice").value) fields.tool_choice = find("tool_choice").value;
  }
  if (find("logprobs").checked) {
    fields.logprobs = true;
    fields.top_logprobs = number("top_logprobs") ?? 5;
  }
  return fields;
}

export function systemPrompt() {
  return find("system").value.trim();
}

export function apiKey() {
  return find("api_key").value;
}

// Restores what this tab has kept, and follows changes; `changed(id)` hears of them.
export function keepSettings(changed) {
  for (const id of [...NUMBERS, ...TEXTS]) {
    const field = find(id);
    field.value = sessionStorage.getItem(id) ?? field.value;
    field.addEventListener("change", () => {
      sessionStorage.setItem(id, field.value);
      refresh(id);
      changed(id);
    });
  }
  const box = find("logprobs");
  box.checked = sessionStorage.getItem("logprobs") === "true";
  box.addEventListener("change", () => sessionStorage.setItem("logprobs", box.checked));
  find("example-tool").addEventListener("click", addExampleTool);
  for (const id of ["format", "theme", "schema", "tools"]) refresh(id);
}

function refresh(id) {
  if (id === "theme") document.documentElement.dataset.theme = find("theme").value;
  if (id === "format") {
    const wanted = find("format").value === "json_schema";
    find("schema-field").hidden = !wanted;
    if (wanted && !find("schema").value) {
      find("schema").value = JSON.stringify(EXAMPLE_SCHEMA, null, 2);
    }
  }
  if (id in JSON_FIELDS) {
    try {
      json(id);
      showFault(id, "");
    } catch (error) {
      showFault(id, error.message);
    }
  }
}

function showFault(id, text) {
  find(`${id}-error`).textContent = text;
  find(id).setAttribute("aria-invalid", String(text !== ""));
}

function addExampleTool() {
  const field = find("tools");
  let tools = [];
  try {
    tools = json("tools") ?? [];
  } catch {
    return; // what is wrong with the field is told beside it
  }
  field.value = JSON.stringify([...tools, EXAMPLE_TOOL], null, 2);
  field.dispatchEvent(new Event("change"));
}

function responseFormat() {
  const kind = find("format").value;
  if (kind !== "json_schema") return { type: kind };
  const schema = json("schema");
  if (schema === undefined) throw new SettingError("schema", "Enter the JSON schema first.");
  return { type: kind, json_schema: { name: "answer", schema } };
}

function number(id) {
  const field = find(id);
  if (field.validity.badInput || !field.checkValidity()) {
    throw new SettingError(id, `${field.labels[0].textContent.trim()}: ${field.validationMessage}`);
  }
  return field.value === "" ? undefined : Number(field.value);
}

function json(id) {
  const text = find(id).value.trim();
  if (!text) return undefined;
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new SettingError(id, `Not valid JSON: ${error.message}`);
  }
  const fits = id === "tools" ? Array.isArray(value) : value?.constructor === Object;
  if (!fits) throw new SettingError(id, `This has to be ${JSON_FIELDS[id]}.`);
  return value;
}
