// Parts that several pages use: tables, dialogs, messages, badges.
import { h, show } from "./dom.js";

export function card(title, ...content) {
  const note = content[0] && typeof content[0] === "object" && content[0].note !== undefined ? content.shift().note : null;
  const flush = content.some((each) => each?.classList?.contains("table-wrap") || each?.classList?.contains("flush"));
  const beside = note === null ? null : typeof note === "string" ? h("span", { class: "small quiet" }, note) : h("div", { class: "actions" }, note);
  return h("section", { class: "card", "aria-label": title }, h("div", { class: "card-head" }, h("h2", {}, title), beside), h("div", { class: `card-body${flush ? " flush" : ""}` }, content));
}

// The same, half as wide as the page where there is room.
export function half(title, ...content) {
  const node = card(title, ...content);
  node.classList.add("half");
  return node;
}

export function tile(name, value, { kind, unit, below } = {}) {
  const isWord = typeof value === "string" && !/[0-9–]/.test(value[0] ?? "");
  return h("div", { class: "tile" }, h("span", { class: "tile-name" }, kind ? h("i", { class: `dot c-${kind}` }) : null, name), h("span", { class: `tile-value${isWord ? " word" : ""}` }, value, unit ? h("small", {}, unit) : null), below ?? null);
}

// One of a few, chosen with a press; `choose(value)` is called with the new one.
export function segments(label, options, value, choose) {
  const node = h("div", { class: "segments", role: "group", "aria-label": label });
  const mark = (chosen) => {
    for (const each of node.children) each.setAttribute("aria-pressed", String(each.dataset.value === chosen));
  };
  for (const [key, text] of options) {
    node.append(h("button", { type: "button", "data-value": key, onclick: () => {
      mark(key);
      Promise.resolve(choose(key)).catch(fail);
    } }, text));
  }
  mark(value);
  return node;
}

export function heading(title, { text, crumb, actions } = {}) {
  return h("div", { class: "page-head" }, h("div", {}, crumb ? h("div", { class: "crumbs" }, crumb) : null, h("h1", { tabindex: -1 }, title), text ? h("p", {}, text) : null), actions ? h("div", { class: "actions" }, actions) : null);
}

export function empty(title, text, action) {
  return h("div", { class: "empty flush" }, h("strong", {}, title), text ? h("p", {}, text) : null, action ?? null);
}

export const badge = (word, kind = word) => h("span", { class: `badge ${kind}` }, String(word).replaceAll("_", " "));

// `columns` are {name, cell(row), num, tight}.
export function table(caption, columns, rows, nothing) {
  if (!rows.length) return nothing ?? empty("Nothing here yet");
  return h(
    "div",
    { class: "table-wrap", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      { class: "stack" },
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col", class: each.num ? "num" : null }, each.name || h("span", { class: "visually-hidden" }, "Actions"))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((each) => h("td", { "data-name": each.name, class: [each.num ? "num" : "", each.tight ? "tight" : ""].join(" ").trim() || null }, each.cell(row)))))),
    ),
  );
}

export function field(label, input, hint) {
  return h("label", {}, h("span", {}, label), input, hint ? h("span", { class: "hint" }, hint) : null);
}

export function select(options, value, properties = {}) {
  const node = h("select", properties, options.map((each) => (Array.isArray(each) ? each : [each, each])).map(([key, text]) => h("option", { value: key }, text)));
  node.value = value ?? "";
  return node;
}

export function button(text, onclick, kind = "") {
  const node = h("button", { type: "button", class: kind || null }, text);
  node.addEventListener("click", async () => {
    node.disabled = true;
    try {
      await onclick(node);
    } catch (error) {
      fail(error);
    } finally {
      node.disabled = false;
    }
  });
  return node;
}

const toasts = h("div", { class: "toasts", role: "status", "aria-live": "polite" });
document.body.append(toasts);
export function tell(text, kind = "") {
  const node = h("div", { class: `toast ${kind}` }, text);
  toasts.append(node);
  setTimeout(() => node.remove(), kind ? 9000 : 4500);
}
export function fail(error) {
  if (error?.name === "AbortError") return;
  tell(error?.message ?? String(error), "bad");
}

export function problemList(problems) {
  return h("ul", { class: "problems" }, problems.map((each) => h("li", {}, each.field ? `${each.field}: ${each.message}` : each.message)));
}

// A dialog with a form; resolves with what `read` returns, or null. What goes wrong is shown in it.
export function ask(title, { text, fields = [], yes = "Save", danger = false, act }) {
  return new Promise((resolve) => {
    const wrong = h("div", { role: "alert" });
    const confirm = h("button", { type: "submit", class: danger ? "danger" : "main" }, yes);
    const cancel = h("button", { type: "button" }, "Cancel");
    const form = h("form", { method: "dialog" }, h("h2", {}, title), text ? h("p", { class: "wrap" }, text) : null, fields, wrong, h("div", { class: "actions" }, cancel, confirm));
    const dialog = h("dialog", { "aria-label": title }, form);
    let result = null;
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      try {
        result = (await act?.()) ?? true;
        dialog.close();
      } catch (error) {
        const many = error.problems?.length ? problemList(error.problems) : h("p", { class: "is-denied wrap" }, error.message);
        show(wrong, many);
      } finally {
        confirm.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A secret is shown once, until the dialog is closed.
export function showSecret(title, secret) {
  const dialog = h("dialog", { "aria-label": title });
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(secret);
    tell("Copied");
  });
  show(dialog, h("div", { class: "stack" }, h("h2", {}, title), h("p", {}, "Keep it now: it is stored as a hash only, and cannot be shown again."), h("div", { class: "secret" }, h("code", { class: "secret-value" }, secret), copy), h("div", { class: "actions" }, button("Done", () => dialog.close(), "main"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// A list in pages that the server makes; `load(after)` gives {items, next}, `render(items)` a node.
export function pages(load, render) {
  const body = h("div", { class: "flush" });
  const before = h("button", { type: "button" }, "Previous");
  const next = h("button", { type: "button" }, "Next");
  const where = h("span", { class: "small quiet" });
  const pager = h("div", { class: "pager", hidden: true }, where, before, next);
  let cursors = [null];
  let following = null;
  async function turn() {
    const page = await load(cursors.at(-1));
    following = page.next;
    show(body, render(page.items));
    where.textContent = `Page ${cursors.length}`;
    before.disabled = cursors.length === 1;
    next.disabled = !following;
    pager.hidden = cursors.length === 1 && !following;
  }
  const go = (change) => async () => {
    try {
      change();
      await turn();
    } catch (error) {
      fail(error);
    }
  };
  before.addEventListener("click", go(() => cursors.length > 1 && cursors.pop()));
  next.addEventListener("click", go(() => following && cursors.push(following)));
  return {
    node: h("div", { class: "flush" }, body, pager),
    async reload() {
      cursors = [null];
      await turn();
    },
    again: turn,
  };
}

export function later(action, milliseconds = 250) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => Promise.resolve(action()).catch(fail), milliseconds);
  };
}

// The lines that two texts do not share, as a list of [sign, line].
export function difference(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  const common = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push([" ", a[i++], j++]);
    else if (j < b.length && (i === a.length || common[i][j + 1] > common[i + 1][j])) lines.push(["+", b[j++]]);
    else lines.push(["-", a[i++]]);
  }
  return lines.map(([sign, line]) => [sign, line]);
}

export function diff(before, after) {
  const lines = difference(before.trimEnd(), after.trimEnd()).filter(([sign, line]) => sign === " " || line);
  if (lines.every(([sign]) => sign === " ")) return h("p", { class: "quiet" }, "No difference.");
  return h("div", { class: "diff" }, lines.map(([sign, line]) => h("div", { class: { "+": "added", "-": "removed" }[sign] ?? null }, `${sign} ${line}`)));
}
