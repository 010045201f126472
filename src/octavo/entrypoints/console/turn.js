// A turn of the conversation on the page: who, reasoning, text or tokens, tool calls, figures.

import { element, renderMarkdown } from "./markdown.js";
import { TokenView } from "./tokens.js";

export class Turn {
  constructor(role, who, text = "", more = "") {
    this.root = element("article", `turn ${role} ${more}`.trim());
    this.text = element("div", "text", text);
    this.meta = element("div", "meta");
    this.root.append(element("div", "who", who), this.text, this.meta);
  }

  // Draws an answer as it stands; cheap enough for once a frame.
  draw(answer) {
    if (answer.reasoning) this.#drawReasoning(answer);
    this.text.replaceChildren(renderMarkdown(answer.text));
    if (answer.hasLogprobs) {
      this.tokens ??= this.#addTokens();
      this.tokens.add(answer.freshTokens.splice(0));
    }
    this.#drawCalls(answer);
    this.meta.textContent = answer.summary();
  }

  // Buttons under a complete answer.
  finish(actions) {
    const bar = element("div", "actions");
    if (this.tokens) bar.append(this.#tokenSwitch());
    for (const [label, act] of actions) bar.append(button(label, act));
    this.root.append(bar);
  }

  // Fields for the results of tool calls; `send` gets a message per call.
  askForResults(calls, send) {
    const form = element("form", "results");
    form.setAttribute("aria-label", "Results of the calls");
    const fields = calls.map((call) => {
      const label = element("label", "", `Result of ${call.name}`);
      const field = element("textarea");
      field.rows = 2;
      label.append(field);
      form.append(label);
      return field;
    });
    const submit = button("Send results");
    submit.type = "submit";
    form.append(submit);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(
        calls.map((call, i) => ({
          role: "tool",
          tool_call_id: call.id,
          content: fields[i].value,
        })),
      );
    });
    this.results = form;
    this.root.append(form);
    return fields[0];
  }

  // The results are known, or will never be.
  closeResults() {
    this.results?.remove();
    this.results = undefined;
  }

  #drawReasoning(answer) {
    if (!this.reasoning) {
      this.reasoning = element("details", "reasoning");
      this.reasoning.open = true;
      this.thoughts = element("div");
      this.reasoning.append(element("summary", "", "Reasoning"), this.thoughts);
      this.text.before(this.reasoning);
    }
    this.thoughts.textContent = answer.reasoning;
    // It makes room once for what follows; what the reader does with it after that stays.
    const isOver = answer.text !== "" || answer.calls.length > 0;
    if (isOver && !this.reasoningIsOver) this.reasoning.open = false;
    this.reasoningIsOver = isOver;
  }

  #drawCalls(answer) {
    if (!answer.calls.length) return;
    if (!this.calls) {
      this.calls = element("div", "calls");
      this.meta.before(this.calls);
    }
    this.calls.replaceChildren(
      ...answer.calls.map((call) => {
        const card = element("section", "call");
        card.setAttribute("aria-label", `Call of ${call.name}`);
        const code = element("pre");
        code.tabIndex = 0;
        code.append(element("code", "", pretty(call.arguments)));
        card.append(element("div", "call-name", call.name), code);
        return card;
      }),
    );
  }

  #addTokens() {
    const view = new TokenView();
    this.text.after(view.root);
    this.text.hidden = true;
    return view;
  }

  #tokenSwitch() {
    const toggle = button("Tokens", () => {
      const on = this.text.hidden;
      this.text.hidden = !on;
      this.tokens.root.hidden = on;
      toggle.setAttribute("aria-pressed", String(!on));
    });
    toggle.setAttribute("aria-pressed", "true");
    return toggle;
  }
}

export function button(label, act) {
  const node = element("button", "", label);
  node.type = "button";
  if (act) node.addEventListener("click", () => act(node));
  return node;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still being written, or cut
  }
}
