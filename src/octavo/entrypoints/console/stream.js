// The chat API as a stream of events: one request, one async iterator of parsed chunks.

export const PATH = "v1/chat/completions";

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function* chatStream(body, { apiKey, signal }) {
  const response = await fetch(PATH, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...authorization(apiKey) },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await errorOf(response);
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, chunk.error.code);
    yield chunk;
  }
  throw new ApiError("The connection ended before the answer did.", 0);
}

export async function listModels(apiKey) {
  const response = await fetch("v1/models", { headers: authorization(apiKey) });
  if (!response.ok) throw await errorOf(response);
  return (await response.json()).data.map((model) => model.id);
}

// The request as a command for a POSIX shell; the key stays out of it.
export function asCurl(body, hasKey) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const words = [
    `curl -N ${quoted(new URL(PATH, document.baseURI).href)}`,
    `-H 'Content-Type: application/json'`,
    ...(hasKey ? [`-H "Authorization: Bearer $OCTAVO_API_KEY"`] : []),
    `-d ${quoted(JSON.stringify(body, null, 2))}`,
  ];
  return words.join(" \\\n  ");
}

function authorization(apiKey) {
  return apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
}

async function errorOf(response) {
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not one of the API's own answers, so the status has to do.
  }
  return new ApiError(message, response.status);
}

async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}
