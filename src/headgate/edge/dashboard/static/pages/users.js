// Users and keys: find them, see their limits, change what holds for them.
import { get, part, send } from "../api.js";
import { columnChart } from "../charts.js";
import { h, link, show, to } from "../dom.js";
import { ago, day, moment, number, span } from "../format.js";
import { ask, badge, button, card, empty, field, half, heading, later, pages, select, table, tell, tile } from "../ui.js";
import { blockForm } from "../block_forms.js";
import { keysCard } from "../user_forms.js";

const PER_PAGE = 25;

export async function page(context) {
  const [id] = context.parts;
  return id === undefined || id === "" ? list(context) : user(context, id);
}

async function list({ main, signal, may, query }) {
  const search = h("input", { type: "search", name: "search", placeholder: "first characters of an id or a key", value: query.get("search") ?? "" });
  const tiers = (await get("/v1/tiers", { limit: 1000 }, signal)).items.map((each) => each.name);
  const tier = select([["", "any"], ...tiers.map((each) => [each, each])], query.get("tier") ?? "", { name: "tier" });
  const keys = h("div", { hidden: true });
  const users = pages(
    (after) => get("/v1/users", { prefix: search.value, tier: tier.value, after, limit: PER_PAGE }, signal),
    (rows) => userTable(rows, search.value),
  );
  async function reload() {
    await users.reload();
    const prefix = search.value.trim();
    const found = prefix.length >= 3 ? (await get("/v1/keys", { prefix, limit: PER_PAGE }, signal)).items : [];
    keys.hidden = !found.length;
    show(keys, found.length ? card("Keys that begin so", keyTable(found)) : null);
  }
  const change = later(reload);
  search.addEventListener("input", change);
  tier.addEventListener("change", change);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && search.value.trim()) location.hash = to("users", search.value.trim());
  });
  const create = button("New user", async () => {
    const id = h("input", { name: "id", required: true });
    const of = select([["", "the default tier"], ...tiers.map((each) => [each, each])], "", { name: "tier" });
    await ask("New user", { fields: [field("Id", id), field("Tier", of)], yes: "Create", act: async () => {
      await send("POST", "/v1/users", { body: { id: id.value, ...(of.value ? { tier: of.value } : {}) } });
      location.hash = to("users", id.value);
    } });
  }, "main");
  show(
    main,
    heading("Users and keys", { text: "Users with a record of their own. Any other caller has the limits of the default tier; type its id and press Enter.", actions: may("operator") ? create : null }),
    h("div", { class: "filters", role: "search" }, field("Find", search), field("Tier", tier)),
    keys,
    card("Users", users.node),
  );
  await reload();
}

function userTable(rows, search) {
  return table(
    "Users",
    [
      { name: "User", cell: (row) => link(row.id, "users", row.id) },
      { name: "Tier", cell: (row) => (row.tier ? link(row.tier, "tiers", row.tier) : "default") },
      { name: "Own limits", num: true, cell: (row) => number(Object.keys(row.overrides).length) },
      { name: "Today", num: true, cell: (row) => number(row.requests_today) },
      { name: "This month", num: true, cell: (row) => number(row.requests_month) },
      { name: "Times denied", num: true, cell: (row) => h("span", { class: row.times_exceeded ? "is-denied" : null }, number(row.times_exceeded)) },
      { name: "Last request", num: true, cell: (row) => ago(row.last_request) },
    ],
    rows,
    search ? empty("No record of such a user", "Callers without a record are limited too; open the page of this id to see its limits.", h("a", { class: "button", href: to("users", search) }, "Open this id")) : empty("No users have a record yet", "A record is needed for a tier, own limits or keys. Create one here, or with headgate users set."),
  );
}

function keyTable(rows) {
  return table(
    "Keys",
    [
      { name: "Key", cell: (row) => h("code", {}, `${row.prefix}…`) },
      { name: "Name", cell: (row) => row.name ?? "" },
      { name: "User", cell: (row) => (row.user ? link(row.user, "users", row.user) : "–") },
      { name: "State", cell: (row) => badge(row.state, row.state === "active" ? "up" : "") },
      { name: "Last used", num: true, cell: (row) => ago(row.last_used) },
    ],
    rows,
  );
}

async function user(context, id) {
  const { main, signal, may, every } = context;
  const path = `/v1/users/${part(id)}`;
  const again = () => window.dispatchEvent(new HashChangeEvent("hashchange"));
  const [record, story, keys] = await Promise.all([
    recordOf(id, signal),
    get(`${path}/story`, {}, signal),
    get("/v1/keys", { user: id, limit: 50 }, signal),
  ]);
  const limitsNode = h("div", { class: "flush" });
  const counting = countdowns(limitsNode);
  const draw = (items) => {
    show(limitsNode, items.length ? items.map((each) => limitRow(context, path, each, record, again)) : empty("No limit applies", "No published rule can match this user."));
    counting();
  };
  const known = record?.data;
  const actions = may("operator") ? userActions(context, id, known, record?.etag, again) : null;
  const blocked = story.blocks.filter((each) => !each.until || new Date(each.until) > Date.now());
  show(
    main,
    heading(id, { crumb: [link("Users and keys", "users"), " / user"], text: known ? [`Tier `, known.tier ? link(known.tier, "tiers", known.tier) : "default", known.tier_since ? ` since ${day(known.tier_since)}` : ""] : "This caller has no record: the limits of the default tier hold.", actions }),
    blocked.map((each) => h("div", { class: "banner bad", role: "alert" }, h("strong", {}, "Blocked"), h("span", {}, `${each.until ? `until ${moment(each.until)}` : "until it is unblocked"}${each.reason ? `: ${each.reason}` : ""}`), may("operator") ? h("div", { class: "actions" }, button("Unblock", () => ask("Unblock this user?", { yes: "Unblock", act: async () => {
      await send("DELETE", `/v1/blocks/${part(each.id)}`);
      tell("Unblocked");
      again();
    } }))) : null)),
    known ? h("div", { class: "tiles" }, tile("Requests today", number(known.requests_today)), tile("This month", number(known.requests_month)), tile("Times denied", number(known.times_exceeded), { kind: "denied" }), tile("Last request", ago(known.last_request)), tile("Quota reset", known.quota_reset ? ago(known.quota_reset) : "never")) : null,
    card("Limits that apply", { note: story.limits_are_all ? "as of now; the fullest first" : "as of now; the fullest, of rules for all paths or that have counted this user lately" }, limitsNode),
    keysCard(context, id, keys.items, again),
    h("div", { class: "grid" }, usageCard(story.days), eventsCard(story.events)),
    changesCard(story.changes),
  );
  draw(story.limits);
  every(5000, async () => {
    try {
      draw((await get(`${path}/story`, {}, signal)).limits);
    } catch {
      // The next one may succeed.
    }
  });
  every(1000, counting);
}

// A caller without a record is no error.
async function recordOf(id, signal) {
  const { items } = await get("/v1/users", { prefix: id, limit: 1 }, signal);
  return items[0]?.id === id ? send("GET", `/v1/users/${part(id)}`, { signal }) : null;
}

function limitRow({ may }, path, entry, record, again) {
  const counted = entry.used !== null;
  const total = counted ? entry.used + entry.remaining : 0;
  const full = total ? entry.used / total : 0;
  const until = counted ? Date.now() + 1000 * entry.reset_after : null;
  const attributes = Object.entries(entry.attributes).map(([name, value]) => `${name}=${value}`);
  const where = [entry.methods.join(" "), entry.endpoints.join(", "), entry.ip_ranges.join(", "), ...attributes].filter(Boolean).join(" ") || "everywhere";
  const color = full >= 1 ? "denied" : "allowed";
  const override = button("Own limit", () => setOverride(path, entry, again), "plain");
  const reset = button("Reset", () => ask("Reset this counter?", { text: `What this user has used under "${entry.rule}" is forgotten.`, yes: "Reset", danger: true, act: async () => {
    await send("POST", `${path}/quota/reset`.concat(`?rule=${encodeURIComponent(entry.rule)}`));
    tell("The counter is empty");
    again();
  } }), "plain");
  return h(
    "div",
    { class: "limit" },
    h("div", {}, h("div", {}, link(entry.rule, "rules", entry.rule), " ", entry.action === "log" ? badge("shadow") : null), h("div", { class: "small quiet wrap" }, `${entry.limit ?? entry.action} · ${where}${entry.shared ? " · shared with others" : ""}`)),
    h(
      "div",
      { class: "meter" },
      counted ? [h("div", { class: "bar", role: "img", "aria-label": `${entry.used} of ${total} used` }, h("i", { class: `c-${color}`, "width%": Math.min(100, 100 * full) })), h("div", { class: "small quiet" }, h("b", { class: full >= 1 ? "is-denied" : null }, `${number(entry.used)} used`), `, ${number(entry.remaining)} remaining · full again in `, h("span", { class: "countdown", "data-until": until }, span(entry.reset_after)))] : h("span", { class: "small quiet" }, entry.depends_on.length ? `counted per ${entry.depends_on.join(", ")}, so there is no one counter of this user` : "nothing is counted"),
    ),
    h("div", { class: "actions" }, may("operator") && record && entry.limit ? [override, counted && !entry.shared ? reset : null] : null),
  );
}

function countdowns(node) {
  return () => {
    for (const each of node.querySelectorAll(".countdown")) each.textContent = span((Number(each.dataset.until) - Date.now()) / 1000);
  };
}

async function setOverride(path, entry, again) {
  const given = h("input", { name: "limits", value: entry.limit ?? "", required: true });
  await ask(`Own limit under "${entry.rule}"`, {
    text: "It replaces the rule's own limits for this user.",
    fields: [field("Limits", given, "such as 5/second, 100/minute")],
    act: async () => {
      const list = given.value.split(",").map((each) => each.trim()).filter(Boolean);
      await send("PUT", `${path}/overrides/${part(entry.rule)}`, { body: { limits: list.length === 1 ? list[0] : list } });
      tell("Own limit set");
      again();
    },
  });
}

function userActions(context, id, known, etag, again) {
  const path = `/v1/users/${part(id)}`;
  const list = [];
  if (known) {
    list.push(
      button("Change tier", async () => {
        const tiers = (await get("/v1/tiers", { limit: 1000 }, context.signal)).items.map((each) => each.name);
        const chosen = select([["", "default"], ...tiers.map((each) => [each, each])], known.tier ?? "", { name: "tier" });
        await ask("Change tier", { fields: [field("Tier", chosen)], act: async () => {
          await send("PUT", path, { body: { ...(chosen.value ? { tier: chosen.value } : {}), overrides: known.overrides }, etag });
          tell("Tier changed");
          again();
        } });
      }),
      button("Reset quota", () => ask("Reset all counters of this user?", { text: "What this user has used is forgotten. Counters that are shared with others stay.", yes: "Reset", danger: true, act: async () => {
        const answer = await send("POST", `${path}/quota/reset`);
        tell(`${answer.data.counters} counters are empty`);
        again();
      } })),
    );
  } else {
    list.push(button("Create a record", async () => {
      await send("POST", "/v1/users", { body: { id } });
      again();
    }, "main"));
  }
  if (known && Object.keys(known.overrides).length) list.push(button("Remove own limits", () => removeOverrides(path, known, again)));
  list.push(button("Block", () => blockForm({ user: id }, again), "danger"));
  return list;
}

async function removeOverrides(path, known, again) {
  const names = Object.keys(known.overrides);
  const chosen = select(names.map((each) => [each, `${each}: ${[known.overrides[each]].flat().join(", ")}`]), names[0]);
  await ask("Remove an own limit", { fields: [field("Rule", chosen)], yes: "Remove", danger: true, act: async () => {
    await send("DELETE", `${path}/overrides/${part(chosen.value)}`);
    tell("Removed");
    again();
  } });
}

function usageCard(days) {
  const found = new Map(days.map((each) => [each.day, each]));
  const columns = Array.from({ length: 30 }, (_, index) => {
    const at = new Date(Date.now() - (29 - index) * 86400e3).toISOString().slice(0, 10);
    const { requests, denied } = found.get(at) ?? { requests: 0, denied: 0 };
    return [at.slice(5), [["allowed", Math.max(0, requests - denied)], ["denied", denied]]];
  });
  return half("Usage by day", { note: "requests, last 30 days" }, days.length ? columnChart({ title: "Requests by day", columns, names: ["Admitted", "Denied"] }) : empty("No usage yet", "Usage is counted by day, and shows here a minute after the first request."));
}

function eventsCard(events) {
  return half("Newest decisions", { note: "denials, and a sample of admissions" }, table("Newest decisions", [
    { name: "When", cell: (row) => h("a", { href: to("events", row.id) }, moment(row.at)) },
    { name: "Decision", cell: (row) => badge(row.decision) },
    { name: "Rule", cell: (row) => row.rule ?? "" },
    { name: "Endpoint", cell: (row) => row.endpoint ?? "" },
  ], events.slice(0, 8), empty("Nothing was recorded", "Denials are recorded, and a sample of admissions.")));
}

function changesCard(changes) {
  return card("Changes of this user", table("Changes", [
    { name: "When", cell: (row) => moment(row.at) },
    { name: "What", cell: (row) => row.verb.replaceAll("_", " ") },
    { name: "By", cell: (row) => row.who.replace(/^token:/, "") },
  ], changes, empty("Never changed")));
}
