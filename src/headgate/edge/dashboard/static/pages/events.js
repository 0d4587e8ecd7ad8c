// Recorded decisions: filter, follow, open one.
import { get, part, post } from "../api.js";
import { addressLink, deciderLink, h, link, show, to } from "../dom.js";
import { moment, number, seconds, span } from "../format.js";
import { badge, card, empty, field, heading, later, pages, select, table } from "../ui.js";

const KINDS = ["", "denied", "blocked", "throttled", "shadow", "allowed"];

export async function page(context) {
  const [id] = context.parts;
  return id ? one(context, id) : list(context);
}

function rows(items) {
  return table(
    "Recorded decisions",
    [
      { name: "When", tight: true, cell: (row) => h("a", { href: to("events", row.id) }, moment(row.at)) },
      { name: "Decision", cell: (row) => badge(row.decision) },
      { name: "Caller", cell: (row) => (row.user ? link(row.user, "users", row.user) : row.api_key || !row.ip ? h("code", {}, row.api_key ?? "–") : addressLink(row.ip)) },
      { name: "Request", cell: (row) => [row.method, row.endpoint].filter(Boolean).join(" ") },
      { name: "Rule", cell: (row) => (row.rule ? deciderLink(row.rule, row.source) : "") },
      { name: "Used", num: true, cell: (row) => (row.limit === null ? "–" : `${number(row.count)} of ${number(row.limit)}`) },
      { name: "Requests", num: true, cell: (row) => h("span", { title: "how many requests this one stands for" }, number(row.stands_for)) },
    ],
    items,
    empty("No decision was recorded", "Denials are recorded, and a sample of admissions. Send a request above a limit, or widen the filter."),
  );
}

async function list({ main, signal, every, query }) {
  const user = h("input", { type: "search", name: "user", placeholder: "any", value: query.get("user") ?? "" });
  const rule = h("input", { type: "search", name: "rule", placeholder: "any", value: query.get("rule") ?? "" });
  const decision = select(KINDS.map((each) => [each, each || "all"]), query.get("decision") ?? "", { name: "decision" });
  const hours = select([["1", "hour"], ["24", "day"], ["168", "week"]], "24", { name: "span" });
  const follow = h("input", { type: "checkbox", name: "follow" });
  const chosen = () => ({ user: user.value, rule: rule.value, decision: decision.value, since: new Date(Date.now() - 3600e3 * Number(hours.value)).toISOString() });
  const all = pages((after) => get("/v1/events", { ...(after ? { ...chosen(), since: undefined } : chosen()), after, limit: 50 }, signal), rows);
  const reload = later(all.reload);
  for (const each of [user, rule]) each.addEventListener("input", reload);
  for (const each of [decision, hours]) each.addEventListener("change", reload);
  show(
    main,
    heading("Events", { text: "Recorded decisions, newest first: denials, and a sample of admissions." }),
    h("div", { class: "filters", role: "search" }, field("User", user), field("Rule", rule), field("Decision", decision), field("Within the last", hours), h("label", { class: "check follow" }, follow, "Follow live")),
    card("Decisions", all.node),
  );
  await all.reload();
  every(1000, async () => {
    if (!follow.checked) return;
    try {
      await all.reload();
    } catch {
      // The next one may succeed.
    }
  });
}

async function one({ main, signal }, id) {
  const event = await get(`/v1/events/${part(id)}`, {}, signal);
  const facts = [
    ["When", moment(event.at)],
    ["Decision", badge(event.decision)],
    ["Status", event.status],
    ["User", event.user ? link(event.user, "users", event.user) : null],
    ["Tenant", event.tenant],
    ["Key", event.api_key],
    ["Address", event.ip ? addressLink(event.ip) : null],
    ["Tier", event.tier],
    ["Request", [event.method, event.endpoint].filter(Boolean).join(" ")],
    ["Rule", event.rule ? deciderLink(event.rule, event.source) : null],
    ["Used", event.limit === null ? null : `${number(event.count)} of ${number(event.limit)}`],
    ["Cost", event.cost],
    ["Try again in", event.retry_after === null ? null : span(event.retry_after)],
    ["Source", event.source],
    ["Decided in", event.latency === null ? null : seconds(event.latency)],
    ["Stands for", number(event.stands_for)],
    ["Server", event.server],
    ["Region", event.region],
    ["Snapshot", event.snapshot],
  ];
  const then = h("pre", {});
  if (event.rule_then) then.textContent = await post("/v1/ruleset/draft", { data: event.rule_then }).then((answer) => answer.yaml, () => JSON.stringify(event.rule_then, null, 2));
  const again = new URLSearchParams(Object.entries({ user: event.user, method: event.method, path: event.endpoint, ip: event.ip, tier: event.tier }).filter(([, value]) => value));
  show(
    main,
    heading("One decision", { crumb: [link("Events", "events"), " / ", h("code", {}, id)], actions: h("a", { class: "button", href: `${to("explain")}?${again}` }, "Explain it now") }),
    card("What happened", h("dl", { class: "facts" }, facts.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))),
    event.extra ? card("More of the request", h("pre", {}, JSON.stringify(event.extra, null, 2))) : null,
    card("The rule as it was then", event.rule_then ? then : empty("Not known", "No snapshot of that time has the rule.")),
  );
}
