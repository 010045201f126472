// An answer as it comes: what its chunks add up to, and how fast they came.

export class Answer {
  constructor(now) {
    this.text = "";
    this.reasoning = "";
    this.calls = []; // {id, name, arguments}
    this.tokens = 0;
    this.finish = "";
    this.freshTokens = []; // entries of logprobs that have not been drawn
    this.hasLogprobs = false;
    this.start = now;
    this.first = 0; // when the first token came
    this.last = 0;
  }

  take(chunk, now) {
    if (chunk.usage) this.tokens = chunk.usage.completion_tokens;
    const choice = chunk.choices[0];
    if (!choice) return;
    const delta = choice.delta ?? {};
    if (delta.content || delta.reasoning_content || delta.tool_calls) {
      this.first ||= now;
      this.last = now;
    }
    this.text += delta.content ?? "";
    this.reasoning += delta.reasoning_content ?? "";
    for (const part of delta.tool_calls ?? []) {
      const call = (this.calls[part.index] ??= { id: "", name: "", arguments: "" });
      if (part.id) call.id = part.id;
      call.name += part.function?.name ?? "";
      call.arguments += part.function?.arguments ?? "";
    }
    if (choice.logprobs?.content?.length) {
      this.hasLogprobs = true;
      this.freshTokens.push(...choice.logprobs.content);
    }
    if (choice.finish_reason) this.finish = choice.finish_reason;
  }

  get isEmpty() {
    return !(this.text || this.reasoning || this.calls.length);
  }

  // As a message of the next request.
  message() {
    const message = { role: "assistant", content: this.text || null };
    if (this.calls.length) {
      message.tool_calls = this.calls.map(({ id, ...called }) => ({
        id,
        type: "function",
        function: called,
      }));
    }
    if (!message.tool_calls) message.content = this.text;
    return message;
  }

  // Time to the first token, speed after it, length, and why it ended if not by itself.
  summary() {
    if (!this.first) return "";
    const parts = [`first token ${Math.round(this.first - this.start)} ms`];
    const seconds = (this.last - this.first) / 1000;
    if (this.tokens > 1 && seconds > 0) {
      parts.push(`${((this.tokens - 1) / seconds).toFixed(1)} tokens/s`);
    }
    if (this.tokens) parts.push(`${this.tokens} tokens`);
    if (this.finish === "length") parts.push("cut at the token limit");
    if (this.finish === "stopped") parts.push("stopped");
    return parts.join(" · ");
  }
}
