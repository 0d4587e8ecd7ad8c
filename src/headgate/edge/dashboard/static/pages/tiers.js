// Tiers: what they allow, what they cost, who is on them and which rules use them.
import { get, part, send } from "../api.js";
import { h, link, show, to } from "../dom.js";
import { day, limits, number } from "../format.js";
import { ask, badge, button, card, empty, field, half, heading, pages, table, tell, tile } from "../ui.js";

const PER_PAGE = 25;

export async function page(context) {
  const [name] = context.parts;
  return name === undefined || name === "" ? list(context) : one(context, name);
}

const price = (value) => (value ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : "free");
// A name that differs by more than letter case.
const shownAs = (tier) => (tier.display_name && tier.display_name.toLowerCase() !== tier.name.toLowerCase() ? tier.display_name : null);
const useOf = (name, signal) => get(`/v1/tiers/${part(name)}/use`, {}, signal);

async function list({ main, signal, may }) {
  const all = pages((after) => get("/v1/tiers", { after, limit: PER_PAGE }, signal), (rows) => tierTable(rows, signal));
  const create = button("New tier", () => edit(null, (name) => (location.hash = to("tiers", name))), "main");
  show(main, heading("Tiers", { text: "Plans that users and keys are on. A rule with the limits tier:NAME takes the limits of that name from the caller's tier.", actions: may("admin") ? create : null }), card("All tiers", all.node));
  await all.reload();
}

function tierTable(rows, signal) {
  const counts = new Map(rows.map((row) => [row.name, { users: h("span", { class: "quiet" }, "…"), keys: h("span", { class: "quiet" }, "…"), rules: h("span", { class: "quiet" }, "…") }]));
  fill([...counts], signal);
  return table(
    "Tiers",
    [
      { name: "Tier", cell: (row) => [h("div", { class: "actions" }, link(row.name, "tiers", row.name), row.is_default ? badge("default", "up") : null), shownAs(row) ? h("div", { class: "small quiet" }, shownAs(row)) : null] },
      { name: "Limits", cell: (row) => limitLines(row.limits, 3) },
      { name: "Price", num: true, cell: (row) => price(row.price) },
      { name: "Users", num: true, cell: (row) => counts.get(row.name).users },
      { name: "Keys", num: true, cell: (row) => counts.get(row.name).keys },
      { name: "Rules", num: true, cell: (row) => counts.get(row.name).rules },
    ],
    rows,
    empty("No tiers yet", "Without tiers every caller has the limits that rules name themselves. Create the first one here; it becomes the default."),
  );
}

// One after the other: there may be many users to count.
async function fill(waiting, signal) {
  for (const [name, { users, keys, rules }] of waiting) {
    try {
      const use = await useOf(name, signal);
      show(users, number(use.users));
      show(keys, number(use.api_keys));
      show(rules, `${number(use.rules.length)}${use.has_more_rules ? "+" : ""}`);
      for (const each of [users, keys, rules]) each.classList.remove("quiet");
    } catch {
      return;
    }
  }
}

function limitLines(given, most) {
  const names = Object.keys(given);
  if (!names.length) return h("span", { class: "quiet" }, "none of its own");
  const more = names.length - most;
  return [names.slice(0, most).map((name) => h("div", {}, h("span", { class: "quiet" }, `${name} `), limits(given[name]))), more > 0 ? h("div", { class: "small quiet" }, `and ${more} more`) : null];
}

async function one(context, name) {
  const { main, signal, may } = context;
  const [record, use] = await Promise.all([send("GET", `/v1/tiers/${part(name)}`, { signal }), useOf(name, signal)]);
  const tier = record.data;
  const again = () => window.dispatchEvent(new HashChangeEvent("hashchange"));
  const remove = button("Delete", () => ask("Delete this tier?", { text: `"${name}" can be deleted only if no user, key or rule needs it.`, yes: "Delete", danger: true, act: async () => {
    await send("DELETE", `/v1/tiers/${part(name)}`, { etag: record.etag });
    tell("Deleted");
    location.hash = to("tiers");
  } }), "danger");
  show(
    main,
    heading(name, { crumb: [link("Tiers", "tiers"), " / tier"], text: `${shownAs(tier) ? `${shownAs(tier)}. ` : ""}Changed ${day(tier.updated_at)}.`, actions: may("admin") ? [button("Edit", () => edit(record, again)), remove] : null }),
    h("div", { class: "tiles" }, tile("Users", number(use.users), { below: h("a", { class: "small", href: `${to("users")}?tier=${encodeURIComponent(name)}` }, tier.is_default ? "Show them (those without a tier count too)" : "Show them") }), tile("Keys", number(use.api_keys)), tile("Price", price(tier.price)), tile("Default", tier.is_default ? "yes" : "no")),
    h("div", { class: "grid" }, limitsCard(tier, use.rules), rulesCard(name, use)),
  );
}

function limitsCard(tier, rules) {
  const users = (name) => rules.filter((each) => each.limits.includes(name));
  return half("Limits", { note: "rules refer to them as tier:NAME" }, table(
    "Limits",
    [
      { name: "Name", cell: ([name]) => name },
      { name: "Limits", cell: ([, given]) => limits(given) },
      { name: "Used by", cell: ([name]) => users(name).map((each, index) => [index ? ", " : null, link(each.rule, "rules", each.rule)]) },
    ],
    Object.entries(tier.limits),
    empty("No limits of its own", "Give it one with Edit, such as api: 10/second, and use it in a rule as tier:api."),
  ));
}

function rulesCard(name, use) {
  const why = ({ matches_tier, limits: names }) => [matches_tier ? "only for some tiers, this one among them" : null, names.length ? `takes ${names.map((each) => `tier:${each}`).join(", ")}` : null].filter(Boolean).join("; ");
  return half("Rules that use it", use.has_more_rules ? { note: `the first ${use.rules.length}` } : { note: "" }, table(
    "Rules that use it",
    [
      { name: "Rule", cell: (row) => link(row.rule, "rules", row.rule) },
      { name: "How", cell: why },
    ],
    use.rules,
    empty("No rule names this tier", `A rule uses it with match: {tiers: [${name}]}, or with limits: tier:NAME for one of its limits.`),
  ));
}

const asLines = (given) => Object.entries(given).map(([name, each]) => `${name}: ${limits(each)}`).join("\n");

function fromLines(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`"${line}" has no name; write for example api: 10/second`);
    const given = line.slice(at + 1).split(",").map((each) => each.trim()).filter(Boolean);
    found[line.slice(0, at).trim()] = given.length === 1 ? given[0] : given;
  }
  return found;
}

async function edit(record, after) {
  const tier = record?.data ?? { name: "", display_name: "", price: 0, limits: {}, is_default: false };
  const name = h("input", { name: "name", required: true, value: tier.name, disabled: Boolean(record), placeholder: "pro", autocomplete: "off" });
  const display = h("input", { name: "display_name", value: tier.display_name ?? "", placeholder: "optional" });
  const cost = h("input", { name: "price", type: "number", min: 0, step: "any", value: String(tier.price) });
  const given = h("textarea", { name: "limits", class: "short", rows: 5, spellcheck: "false", value: asLines(tier.limits), placeholder: "api: 10/second, 600/minute\nsearch: 100/hour" });
  const first = h("input", { name: "is_default", type: "checkbox" });
  first.checked = tier.is_default;
  first.disabled = tier.is_default;
  await ask(record ? `Edit ${tier.name}` : "New tier", {
    fields: [record ? null : field("Name", name), field("Shown as", display), field("Price", cost, "0 is free"), field("Limits", given, "one name for each line"), h("label", { class: "check" }, first, tier.is_default ? "The default; to change that, make another tier the default" : "The default, for users and keys without a tier")],
    yes: record ? "Publish" : "Create",
    act: async () => {
      const body = { price: Number(cost.value || 0), limits: fromLines(given.value), is_default: first.checked, ...(display.value.trim() ? { display_name: display.value.trim() } : {}) };
      if (record) await send("PUT", `/v1/tiers/${part(tier.name)}`, { body, etag: record.etag });
      else await send("POST", "/v1/tiers", { body: { name: name.value.trim(), ...body } });
      tell(record ? "Published" : "Created");
      after(name.value.trim());
    },
  });
}
