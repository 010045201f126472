// The chat page: keeps the conversation, sends it, and streams answers into the log.

import { Answer } from "./answer.js";
import { element } from "./markdown.js";
import { apiKey, keepSettings, requestFields, SettingError, systemPrompt } from "./settings.js";
import { ApiError, asCurl, chatStream, listModels } from "./stream.js";
import { Turn } from "./turn.js";

const find = (id) => document.getElementById(id);
const log = find("log");
const message = find("message");
const wide = matchMedia("(min-width: 64rem)");

let messages = []; // what the next request sends, without the system prompt
let running = null; // the AbortController of the answer being streamed
let waiting = null; // {turn, calls}: calls whose results have not been given
let lastBody = null; // the last request

function requestBody() {
  const system = systemPrompt();
  return {
    ...requestFields(),
    messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
}

// Adds messages to the conversation and has it answered; false if that can't be sent.
async function send(added, turn) {
  const before = messages;
  messages = [...messages, ...added];
  let body;
  try {
    body = requestBody();
  } catch (error) {
    messages = before;
    if (!(error instanceof SettingError)) throw error;
    complain(error);
    return false;
  }
  if (turn) show(turn);
  await answer(body, before);
  return true;
}

async function answer(body, before) {
  const turn = show(new Turn("assistant", find("model").textContent || "assistant"));
  const state = new Answer(performance.now());
  lastBody = body;
  running = new AbortController();
  showRunning(true);
  const draw = drawSoon(turn, state);
  try {
    for await (const chunk of chatStream(body, { apiKey: apiKey(), signal: running.signal })) {
      state.take(chunk, performance.now());
      draw();
    }
  } catch (error) {
    report(error, turn, state);
  }
  draw(true);
  running = null;
  showRunning(false);
  conclude(turn, state, before);
}

function conclude(turn, state, before) {
  const asked = messages;
  let next = message;
  if (state.isEmpty) {
    if (state.finish === "error" || state.finish === "stopped") takeBack(before);
    if (state.finish === "stopped") turn.root.remove();
  } else {
    messages = [...messages, state.message()];
    turn.finish([
      ["Copy", (node) => copy(node, state.text)],
      ["Try again", () => tryAgain(turn, asked, before)],
    ]);
    if (state.calls.length && state.finish !== "stopped") {
      waiting = { turn, calls: state.calls };
      next = turn.askForResults(state.calls, giveResults);
    }
  }
  find("export").disabled = !messages.length;
  find("copy-curl").disabled = false;
  find("status").textContent = state.finish === "stopped" ? "Stopped." : "";
  // Screen readers get the whole answer once, not every token.
  const calls = state.calls.map((call) => `Call of ${call.name}.`);
  find("announcer").textContent = [state.text, ...calls, state.summary()].join(" ");
  next.focus({ preventScroll: true });
  follow(true);
}

// A question that got no answer goes back into the field, to be tried again.
function takeBack(before) {
  const asked = messages.at(-1);
  messages = before;
  if (asked?.role === "user" && !message.value) message.value = asked.content;
  fit();
}

function giveResults(results) {
  if (running) return;
  const { turn } = waiting;
  const shown = results.map((one) => one.content || "(empty)").join("\n");
  send(results, new Turn("user", "tool results", shown));
  if (running) settleCalls(turn);
}

function settleCalls(turn) {
  waiting = null;
  turn?.closeResults();
}

function tryAgain(turn, asked, before) {
  if (running) return;
  while (turn.root.nextSibling) turn.root.nextSibling.remove();
  turn.root.remove();
  waiting = null;
  messages = asked;
  let body;
  try {
    body = requestBody();
  } catch (error) {
    complain(error);
    return;
  }
  answer(body, before);
}

function complain(error) {
  showSettings(true);
  const field = find(error.field);
  for (let node = field; node; node = node.parentElement) {
    if (node.tagName === "DETAILS") node.open = true;
  }
  find("status").textContent = error.message;
  field.focus();
}

function report(error, turn, state) {
  if (error.name === "AbortError") {
    state.finish = "stopped";
    return;
  }
  state.finish = "error";
  const hint = error.status === 401 ? " Enter the API key in the settings." : "";
  const known = error instanceof ApiError;
  const text = known ? error.message + hint : `The server can't be reached (${error.message}).`;
  show(new Turn("assistant", "error", text, "failed"));
  if (state.isEmpty) turn.root.remove();
}

function show(turn) {
  find("welcome")?.remove();
  log.append(turn.root);
  follow(true);
  return turn;
}

// Redrawing once per frame keeps long answers cheap however fast tokens come.
function drawSoon(turn, state) {
  let frame = 0;
  const draw = () => {
    frame = 0;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    turn.draw(state);
    follow(isAtEnd);
  };
  return (now = false) => {
    if (now) {
      cancelAnimationFrame(frame);
      draw();
    } else {
      frame ||= requestAnimationFrame(draw);
    }
  };
}

function follow(wanted) {
  if (wanted) log.scrollTop = log.scrollHeight;
}

function showRunning(on) {
  find("send").hidden = on;
  find("stop").hidden = !on;
  find("new-chat").disabled = on;
  if (on) find("status").textContent = "Answering…";
}

function fit() {
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight + 2}px`;
}

function newChat() {
  messages = [];
  waiting = null;
  log.replaceChildren(element("p", "", "Ask something to begin."));
  log.firstChild.id = "welcome";
  find("status").textContent = "";
  find("export").disabled = true;
  message.focus();
}

async function copy(node, text) {
  const label = node.textContent;
  let done = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = "Copying is not allowed";
  }
  node.textContent = done;
  find("status").textContent = `${done}.`;
  setTimeout(() => {
    node.textContent = label;
  }, 1500);
}

function exportConversation() {
  const { messages: _, ...fields } = lastBody;
  const system = systemPrompt();
  const all = system ? [{ role: "system", content: system }, ...messages] : messages;
  const text = JSON.stringify({ ...fields, messages: all }, null, 2);
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "conversation.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

async function loadModels() {
  try {
    const names = await listModels(apiKey());
    find("model-choice").replaceChildren(...names.map((name) => new Option(name, name)));
    const saved = sessionStorage.getItem("model-choice");
    if (names.includes(saved)) find("model-choice").value = saved;
    find("model").textContent = find("model-choice").value;
    find("status").textContent = "";
  } catch (error) {
    if (error.status === 401) {
      find("status").textContent = "This server asks for an API key: enter it in the settings.";
      showSettings(true);
      find("api_key").placeholder = "needed by this server";
      find("api_key").focus();
    } else {
      find("status").textContent = `The server can't be reached (${error.message}).`;
    }
  }
}

function showSettings(on) {
  find("settings").hidden = !on;
  find("toggle-settings").setAttribute("aria-expanded", String(on));
  find("toggle-settings").textContent = on ? "Close" : "Settings";
}

find("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = message.value.trim();
  if (!text || running) return;
  // Calls that nobody answers would leave the conversation open.
  const { turn, calls } = waiting ?? { calls: [] };
  const unanswered = calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "" }));
  message.value = "";
  fit();
  const sending = send([...unanswered, { role: "user", content: text }], new Turn("user", "you", text));
  if (running) settleCalls(turn);
  if (!(await sending)) {
    message.value = text;
    fit();
  }
});
find("settings-form").addEventListener("submit", (event) => event.preventDefault());
message.addEventListener("input", fit);
message.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    find("composer").requestSubmit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (running) {
    running.abort();
  } else if (!wide.matches && !find("settings").hidden) {
    showSettings(false);
    find("toggle-settings").focus();
  }
});
find("stop").addEventListener("click", () => running?.abort());
find("new-chat").addEventListener("click", newChat);
find("export").addEventListener("click", exportConversation);
find("copy-curl").addEventListener("click", (event) => {
  copy(event.currentTarget, asCurl(lastBody, apiKey() !== ""));
});
find("toggle-settings").addEventListener("click", () => showSettings(find("settings").hidden));
log.addEventListener("click", (event) => {
  const node = event.target.closest("[data-copy]");
  if (node) copy(node, node.previousSibling.textContent);
});
keepSettings((id) => {
  if (id === "api_key") loadModels();
  if (id === "model-choice") find("model").textContent = find(id).value;
});
showSettings(wide.matches);
loadModels();
