// Forms that block a caller: for how long, and why.
import { get, send } from "./api.js";
import { h } from "./dom.js";
import { ask, field, select, tell } from "./ui.js";

const SPANS = [["3600", "one hour"], ["86400", "one day"], ["604800", "one week"], ["", "for good"], ["at", "until a time"]];
const KINDS = [["network", "address or network"], ["user", "user"], ["api_key", "key"]];
const HINTS = { network: ["203.0.113.7 or 203.0.113.0/24", "an address, or a range in CIDR notation"], user: ["u1", "the id, with or without a record"], api_key: ["hg_…", "the first characters of the key, or its id"] };
const ADDRESS = /^[\da-f]*[.:][\da-f.:]*(\/\d+)?$/i;
const ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;

const two = (value) => String(value).padStart(2, "0");
function local(time) {
  const at = new Date(time);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Inputs for the end of a block, and what they say; `until` is the end of one that exists.
export function ending(until) {
  const chosen = select(SPANS, until === undefined ? "3600" : until ? "at" : "", { name: "until" });
  const at = h("input", { name: "at", type: "datetime-local", step: 1, value: until ? local(until) : "" });
  const when = field("Until", at, "in your time zone");
  const look = () => {
    when.hidden = chosen.value !== "at";
    at.required = !when.hidden;
  };
  chosen.addEventListener("change", look);
  look();
  return {
    nodes: [field("For", chosen), when],
    value: () => {
      if (!chosen.value) return {};
      return { until: (chosen.value === "at" ? new Date(at.value) : new Date(Date.now() + 1000 * Number(chosen.value))).toISOString() };
    },
  };
}

// One kind of caller, or any if `subject` is null.
async function form(title, text, { subject, nodes = [] }, after) {
  const reason = h("input", { name: "reason", placeholder: "scraping" });
  const end = ending();
  await ask(title, {
    text,
    fields: [nodes, end.nodes, field("Reason", reason, "operators see it, and so does the caller")],
    yes: "Block",
    danger: true,
    act: async () => {
      await send("POST", "/v1/blocks", { body: { ...(await subject()), ...end.value(), ...(reason.value ? { reason: reason.value } : {}) } });
      tell("Blocked");
      await after();
    },
  });
}

export const blockForm = (subject, after) => form("Block this caller?", "Every request is denied, in all processes within a second.", { subject: () => subject }, after);

// `found` is what was searched for; if it can be an address, it is the one to block.
export async function newBlock(after, found = "") {
  const kind = select(KINDS, "network", { name: "kind" });
  const who = h("input", { name: "who", required: true, autocomplete: "off", spellcheck: "false", value: ADDRESS.test(found) ? found : "" });
  const hint = h("span", { class: "hint" });
  const look = () => {
    [who.placeholder, hint.textContent] = HINTS[kind.value];
  };
  kind.addEventListener("change", look);
  look();
  const subject = async () => ({ [kind.value]: kind.value === "api_key" ? await keyId(who.value.trim()) : who.value.trim() });
  await form("New block", "Every request is denied, in all processes within a second.", { subject, nodes: [field("Block a", kind), h("label", {}, h("span", {}, "Which"), who, hint)] }, after);
}

async function keyId(given) {
  if (ID.test(given)) return given;
  const { items } = await get("/v1/keys", { prefix: given, limit: 2 });
  if (items.length !== 1) throw new Error(items.length ? "several keys begin so; give more characters, or the key's id" : "no key begins so");
  return items[0].id;
}
