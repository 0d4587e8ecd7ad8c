// All rules, in pages that the server makes; one rule; its editor.
import { get } from "../api.js";
import { sparkline } from "../charts.js";
import { h, link, show, to } from "../dom.js";
import { limits, share } from "../format.js";
import { counted } from "../spans.js";
import { badge, card, empty, field, heading, later, pages, select, table } from "../ui.js";
import { editor } from "../rule_editor.js";
import { rulePage } from "../rule_page.js";

const PER_PAGE = 25;
const AT_ONCE = 4;
const STATES = ["", "enforced", "shadow", "disabled", "draft"];

export async function page(context) {
  const [name, verb] = context.parts;
  if (name === "" || name === undefined) return list(context);
  if (name === "new" && verb === "rule") return editor(context, null);
  return verb === "edit" ? editor(context, name) : rulePage(context, name);
}

export function stateOf(rule) {
  const data = rule.data;
  if (!data) return [badge("draft")];
  const found = [];
  if (data.enabled === false) found.push(badge("disabled", ""));
  else if (data.action === "log") found.push(badge("shadow"));
  else found.push(badge(data.action === "reject" || !data.action ? "enforced" : data.action, "up"));
  if (rule.draft) found.push(badge("draft"));
  return found;
}

async function list({ main, signal, may, query }) {
  const search = h("input", { type: "search", name: "search", placeholder: "part of the name", value: query.get("search") ?? "" });
  const tier = h("input", { type: "search", name: "tier", placeholder: "any" });
  const endpoint = h("input", { type: "search", name: "endpoint", placeholder: "any" });
  const state = select(STATES.map((each) => [each, each || "any"]), query.get("state") ?? "", { name: "state" });
  let used = new Map();
  const all = pages(
    (after) => get("/v1/rules", { search: search.value, tier: tier.value, endpoint: endpoint.value, state: state.value, after, limit: PER_PAGE }, signal),
    (rules) => rows(rules, used, signal, [search, tier, endpoint, state].some((each) => each.value)),
  );
  const reload = later(all.reload);
  for (const each of [search, tier, endpoint]) each.addEventListener("input", reload);
  state.addEventListener("change", reload);
  show(
    main,
    heading("Rules", { text: "Each rule limits the requests that it matches. Changes are active in all processes within a second.", actions: may("admin") ? h("a", { class: "button main new-rule", href: to("rules", "new", "rule") }, "New rule") : null }),
    h("div", { class: "filters", role: "search" }, field("Search", search), field("Tier", tier), field("Endpoint", endpoint), field("State", state)),
    card("All rules", all.node),
  );
  const since = new Date(Date.now() - 3600e3).toISOString();
  // The list is there without it; it may fail, or be dropped with the page.
  const loading = get("/v1/utilisation", { since, limit: 1000 }, signal).then((found) => (used = new Map(found.items.map((each) => [each.rule, each]))), () => null);
  await all.reload();
  if (await loading) await all.again();
}

function rows(rules, used, signal, isFiltered) {
  const hours = new Map(rules.map((rule) => [rule.name, { spark: h("span", {}, sparkline([])), denied: h("span", { class: "quiet" }, "–") }]));
  fill([...hours], signal);
  return table(
    "Rules",
    [
      { name: "Rule", cell: (rule) => link(rule.name, "rules", rule.name) },
      { name: "State", cell: (rule) => h("span", { class: "actions" }, stateOf(rule)) },
      { name: "Limits", cell: (rule) => limits((rule.data ?? rule.draft).limits) },
      { name: "Counted per", cell: (rule) => ((rule.data ?? rule.draft).per ?? []).join(", ") || "all together" },
      { name: "Last hour", cell: (rule) => hours.get(rule.name).spark },
      { name: "Denied", num: true, cell: (rule) => hours.get(rule.name).denied },
      { name: "Fullest", num: true, cell: (rule) => utilisation(used.get(rule.name), rule.data?.action === "log") },
      ...(rules.some((rule) => rule.owner) ? [{ name: "Owned by", cell: (rule) => rule.owner ?? "" }] : []),
    ],
    rules,
    isFiltered ? empty("No such rule", "Search for another part of a name, or clear the filters.") : empty("No rules yet", "Without a rule every request is admitted. Create one here, or apply a file with headgate rules apply."),
  );
}

function utilisation(found, isShadow) {
  if (!found) return "–";
  return h("span", { class: found.highest >= 1 && !isShadow ? "is-denied" : null, title: `${found.subjects} callers recorded, ${found.near} of them near the limit` }, share(found.highest));
}

// The last hour of each rule, a few at a time.
async function fill(waiting, signal) {
  async function next() {
    for (let each = waiting.shift(); each; each = waiting.shift()) {
      const [rule, { spark, denied }] = each;
      try {
        const found = await counted("1h", { rule }, signal);
        show(spark, sparkline(found.of("total"), "allowed", false, found.of("denied")));
        const total = found.sum("total");
        if (total) show(denied, h("span", { class: found.sum("denied") ? "is-denied" : null }, share(found.sum("denied") / total)));
      } catch {
        return;
      }
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, next));
}
