// Tokens coloured by their probability; what else was likely shows on hover, focus or tap.

import { element } from "./markdown.js";

const LEVELS = [0.9, 0.6, 0.3, 0.1]; // probabilities from which a token is of class p0, p1, ...

// The tokens of an answer that grows: `add` takes entries of the API's logprobs.content.
export class TokenView {
  constructor() {
    this.root = element("div", "tokens");
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", "Tokens; arrow keys move between them");
    this.line = element("p", "token-text");
    this.panel = element("div", "alternatives");
    this.panel.setAttribute("aria-live", "polite");
    this.panel.textContent = "Point at a token, or move to it with the arrow keys.";
    this.root.append(this.line, this.panel);
    this.entries = [];
    this.line.addEventListener("mouseover", (event) => this.#show(event.target));
    this.line.addEventListener("focusin", (event) => this.#show(event.target));
    this.line.addEventListener("click", (event) => event.target.closest(".token")?.focus());
    this.line.addEventListener("keydown", (event) => this.#move(event));
  }

  add(entries) {
    for (const entry of entries) {
      const node = element("span", `token p${level(Math.exp(entry.logprob))}`);
      // A line's end shows and still breaks the line; a part of a character shows as a dot.
      node.textContent = entry.token.replaceAll("\n", "⏎\n") || "·";
      node.dataset.at = this.entries.length;
      node.tabIndex = this.entries.length ? -1 : 0;
      this.entries.push(entry);
      this.line.append(node);
    }
  }

  #move(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const at = Number(event.target.dataset.at);
    const last = this.entries.length - 1;
    const to = { Home: 0, End: last }[event.key] ?? at + (steps[event.key] ?? NaN);
    const next = this.line.children[to];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  #show(node) {
    const entry = this.entries[node.dataset?.at];
    if (!entry) return;
    this.line.querySelector(".shown")?.classList.remove("shown");
    node.classList.add("shown");
    const others = entry.top_logprobs.filter((other) => other.token !== entry.token);
    const list = element("ol");
    for (const one of [entry, ...others]) list.append(row(one, one === entry));
    this.panel.replaceChildren(list);
  }
}

function row(entry, isChosen) {
  const item = element("li", isChosen ? "chosen" : "");
  const probability = Math.exp(entry.logprob);
  const bar = element("meter");
  bar.max = 1;
  bar.value = probability;
  bar.setAttribute("aria-hidden", "true");
  item.append(
    element("code", "", spelled(entry)),
    bar,
    element("span", "share", `${(probability * 100).toFixed(probability < 0.1 ? 2 : 1)}%`),
  );
  if (isChosen) item.append(element("span", "hidden", "chosen"));
  return item;
}

// The token as a string, or the bytes of one that is a part of a character.
function spelled({ token, bytes }) {
  if (token || !bytes?.length) return JSON.stringify(token);
  return bytes.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
}

function level(probability) {
  const at = LEVELS.findIndex((least) => probability >= least);
  return at < 0 ? LEVELS.length : at;
}
