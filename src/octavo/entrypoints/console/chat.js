// The chat page: keeps the conversation, draws it, and streams answers into it.

import { element, renderMarkdown } from "./markdown.js";
import { ApiError, chatStream, listModels } from "./stream.js";

const find = (id) => document.getElementById(id);
const log = find("log");
const message = find("message");
const kept = ["system", "temperature", "top_p", "max_tokens", "api_key", "model-choice"];

let turns = []; // {role, content}: what the next request sends
let running = null; // the AbortController of the answer being streamed

function settings() {
  const number = (id) => (find(id).value === "" ? undefined : Number(find(id).value));
  return {
    model: find("model-choice").value || undefined,
    temperature: number("temperature"),
    top_p: number("top_p"),
    max_tokens: number("max_tokens"),
  };
}

async function send(text) {
  addTurn("user", text);
  turns.push({ role: "user", content: text });
  const answer = addTurn("assistant", "");
  running = new AbortController();
  showRunning(true);
  const state = { text: "", tokens: 0, start: performance.now(), first: 0, finish: "" };
  const draw = drawSoon(answer, state);
  try {
    const system = find("system").value.trim();
    const messages = system ? [{ role: "system", content: system }, ...turns] : turns;
    const options = { apiKey: find("api_key").value, signal: running.signal };
    for await (const chunk of chatStream({ ...settings(), messages }, options)) {
      take(chunk, state);
      draw();
    }
  } catch (error) {
    report(error, answer, state);
  }
  draw(true);
  if (state.text) {
    turns.push({ role: "assistant", content: state.text });
  } else {
    turns.pop();
    if (state.finish === "error" && !message.value) message.value = text; // to try again
    fit();
  }
  running = null;
  showRunning(false);
  find("status").textContent = state.finish === "stopped" ? "Stopped." : "";
  announce(state);
  message.focus();
}

function take(chunk, state) {
  const choice = chunk.choices[0];
  if (choice?.delta?.content) {
    state.first ||= performance.now();
    state.last = performance.now();
    state.text += choice.delta.content;
  }
  if (choice?.finish_reason) state.finish = choice.finish_reason;
  if (chunk.usage) state.tokens = chunk.usage.completion_tokens;
}

function report(error, answer, state) {
  if (error.name === "AbortError") {
    state.finish = "stopped";
    return;
  }
  state.finish = "error";
  const hint = error.status === 401 ? " Enter the API key in the settings." : "";
  const known = error instanceof ApiError;
  const text = known ? error.message + hint : `The server can't be reached (${error.message}).`;
  const turn = addTurn("assistant", text, "failed");
  turn.who.textContent = "error";
  if (!state.text) answer.root.remove();
}

function summary(state) {
  if (!state.first) return "";
  const parts = [`first token ${Math.round(state.first - state.start)} ms`];
  const seconds = (state.last - state.first) / 1000;
  if (state.tokens > 1 && seconds > 0) {
    parts.push(`${((state.tokens - 1) / seconds).toFixed(1)} tokens/s`);
  }
  if (state.tokens) parts.push(`${state.tokens} tokens`);
  if (state.finish === "length") parts.push("cut at the token limit");
  if (state.finish === "stopped") parts.push("stopped");
  return parts.join(" · ");
}

// Redrawing once per frame keeps long answers cheap however fast tokens come.
function drawSoon(turn, state) {
  let frame = 0;
  const draw = () => {
    frame = 0;
    const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    turn.text.replaceChildren(renderMarkdown(state.text));
    turn.meta.textContent = summary(state);
    if (follow) log.scrollTop = log.scrollHeight;
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

function addTurn(role, text, more = "") {
  find("welcome")?.remove();
  const root = element("article", `turn ${role} ${more}`.trim());
  const turn = {
    root,
    who: element("div", "who", role === "user" ? "you" : find("model").textContent || "assistant"),
    text: element("div", "text", text),
    meta: element("div", "meta"),
  };
  root.append(turn.who, turn.text, turn.meta);
  log.append(root);
  log.scrollTop = log.scrollHeight;
  return turn;
}

// Screen readers get the whole answer once, not every token.
function announce(state) {
  find("announcer").textContent = state.text;
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
  turns = [];
  log.replaceChildren(element("p", "", "Ask something to begin."));
  log.firstChild.id = "welcome";
  find("status").textContent = "";
  message.focus();
}

async function loadModels() {
  try {
    const names = await listModels(find("api_key").value);
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

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = message.value.trim();
  if (!text || running) return;
  message.value = "";
  fit();
  send(text);
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
  if (event.key === "Escape") running?.abort();
});
find("stop").addEventListener("click", () => running?.abort());
find("new-chat").addEventListener("click", newChat);
find("toggle-settings").addEventListener("click", () => showSettings(find("settings").hidden));
log.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  navigator.clipboard?.writeText(button.previousSibling.textContent);
  button.textContent = "Copied";
});
for (const id of kept) {
  find(id).value = sessionStorage.getItem(id) ?? find(id).value;
  find(id).addEventListener("change", () => {
    sessionStorage.setItem(id, find(id).value);
    if (id === "api_key") loadModels();
    if (id === "model-choice") find("model").textContent = find(id).value;
  });
}
loadModels();
