// A little Markdown -> DOM nodes. Text only ever becomes text nodes, so nothing can be injected.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const BULLET = /^\s*[-*+](?:\s+(.*))?$/;
const NUMBER = /^\s*\d{1,9}[.)](?:\s+(.*))?$/;
const MARK = /`+|\*\*?/g;

export function renderMarkdown(text) {
  const fragment = document.createDocumentFragment();
  const lines = text.split("\n");
  let at = 0;
  while (at < lines.length) {
    const fence = lines[at].match(FENCE);
    const heading = lines[at].match(HEADING);
    if (fence) {
      at = codeBlock(fragment, lines, at, fence);
    } else if (heading) {
      const level = Math.min(heading[1].length + 1, 4);
      fragment.append(inline(document.createElement(`h${level}`), heading[2]));
      at += 1;
    } else if (BULLET.test(lines[at])) {
      at = list(fragment, lines, at, "ul", BULLET);
    } else if (NUMBER.test(lines[at])) {
      at = list(fragment, lines, at, "ol", NUMBER);
    } else if (lines[at].trim() === "") {
      at += 1;
    } else {
      at = paragraph(fragment, lines, at);
    }
  }
  return fragment;
}

function codeBlock(parent, lines, at, fence) {
  const isEnd = (line) => line.trim().startsWith(fence[1]) && /^[`~]+$/.test(line.trim());
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  const source = lines.slice(at + 1, end).join("\n");
  const block = element("div", "block");
  const code = element("code", "", source);
  if (fence[2]) code.dataset.language = fence[2];
  const pre = element("pre");
  pre.tabIndex = 0;
  pre.append(code);
  const copy = element("button", "", "Copy");
  copy.type = "button";
  copy.dataset.copy = "";
  block.append(pre, copy);
  parent.append(block);
  return end + 1;
}

function list(parent, lines, at, tag, pattern) {
  const items = element(tag);
  if (tag === "ol") items.start = parseInt(lines[at], 10) || 1;
  while (at < lines.length && pattern.test(lines[at])) {
    let text = lines[at].match(pattern)[1] ?? "";
    at += 1;
    while (at < lines.length && /^\s{2,}\S/.test(lines[at]) && !startsBlock(lines[at])) {
      text += `\n${lines[at].trim()}`;
      at += 1;
    }
    items.append(inline(element("li"), text));
  }
  parent.append(items);
  return at;
}

function paragraph(parent, lines, at) {
  const start = at;
  at += 1;
  while (at < lines.length && lines[at].trim() !== "" && !startsBlock(lines[at])) at += 1;
  parent.append(inline(element("p"), lines.slice(start, at).join("\n")));
  return at;
}

function startsBlock(line) {
  return [FENCE, HEADING, BULLET, NUMBER].some((pattern) => pattern.test(line));
}

// Linear in the text however many marks have no partner: each kind is looked for in vain once.
function inline(node, text) {
  const marks = new RegExp(MARK);
  const unpaired = new Set();
  let drawn = 0;
  for (let found = marks.exec(text); found; found = marks.exec(text)) {
    const mark = found[0];
    const start = marks.lastIndex;
    const opens = mark[0] === "`" || /\S/.test(text[start] ?? " ");
    if (!opens || unpaired.has(mark)) continue;
    const end = partner(text, mark, start);
    if (end < 0) {
      unpaired.add(mark);
      continue;
    }
    const inside = text.slice(start, end);
    node.append(text.slice(drawn, found.index));
    if (mark[0] === "`") node.append(element("code", "", inside));
    else node.append(inline(element(mark === "**" ? "strong" : "em"), inside));
    drawn = marks.lastIndex = end + mark.length;
  }
  node.append(text.slice(drawn));
  return node;
}

// Where the mark comes again as a run of the same length, after something that is no blank.
function partner(text, mark, start) {
  let end = text.indexOf(mark, start + 1);
  while (end >= 0) {
    let after = end + mark.length;
    while (text[after] === mark[0]) after += 1;
    const fits = after === end + mark.length && text[end - 1] !== mark[0];
    if (fits && (mark[0] === "`" || /\S/.test(text[end - 1]))) return end;
    end = text.indexOf(mark, after);
  }
  return -1;
}

export function element(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}
