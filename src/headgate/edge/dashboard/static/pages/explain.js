// Why a request would get its verdict. Nothing is counted.
import { post } from "../api.js";
import { bar } from "../charts.js";
import { deciderLink, h, link, show } from "../dom.js";
import { number, span } from "../format.js";
import { badge, button, card, empty, field, heading, select, table } from "../ui.js";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

export async function page({ main, query }) {
  const input = (name, placeholder) => h("input", { name, placeholder, value: query.get(name) ?? "", autocomplete: "off", spellcheck: "false" });
  const inputs = { method: select(METHODS, query.get("method") ?? "GET", { name: "method" }), path: input("path", "/api/search"), user: input("user", "u1"), tier: input("tier", "of the user"), ip: input("ip", "203.0.113.7"), api_key: input("api_key", "hg_…"), tenant: input("tenant", ""), cost: h("input", { name: "cost", type: "number", min: 0, placeholder: "1" }) };
  const attributes = h("input", { name: "attributes", placeholder: "plan=gold, region=eu" });
  const out = h("div", { class: "grid", "aria-live": "polite" });
  async function run() {
    const body = {};
    for (const [name, node] of Object.entries(inputs)) if (node.value.trim()) body[name] = name === "cost" ? Number(node.value) : node.value.trim();
    const pairs = attributes.value.split(",").map((each) => each.split("=").map((word) => word.trim())).filter(([name]) => name);
    if (pairs.length) body.attributes = Object.fromEntries(pairs.map(([name, value]) => [name, value ?? ""]));
    try {
      show(out, explained(await post("/v1/explain", body)));
    } catch (error) {
      show(out, h("div", { class: "banner warn", role: "alert" }, h("span", {}, error.message)));
    }
  }
  const go = button("Explain", run, "main");
  const form = h("form", { class: "form" }, field("Method", inputs.method), field("Path", inputs.path), field("User", inputs.user), field("Tier", inputs.tier), field("Address", inputs.ip), field("API key", inputs.api_key), field("Tenant", inputs.tenant), field("Cost", inputs.cost), h("div", { class: "whole" }, field("Attributes", attributes)), h("div", { class: "actions" }, go));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go.click();
  });
  show(main, heading("Explain", { text: "Compose a request, and see every layer, the rule that won it, why the others lost, and the verdict. Nothing is counted." }), card("The request", form), out);
  show(out, card("The verdict", empty("Nothing was asked yet", "Fill in what the request says, and press Explain. Everything is optional.")));
  if ([...query.keys()].length) await run();
}

const SENTENCES = {
  allowed: () => "The request is admitted.",
  throttled: ({ delay }) => `The request is admitted after ${span(delay)}.`,
  denied: ({ policy, retry_after }) => `The rule ${policy} denies it${retry_after === null ? ", for good" : `; it would pass in ${span(retry_after)}`}.`,
  blocked: ({ policy }) => (policy ? `The rule ${policy} blocks it.` : "A block comes before all rules."),
};

function explained(found) {
  const { verdict } = found;
  const word = verdict.allowed ? (verdict.delay ? "throttled" : "allowed") : verdict.source === "block" ? "blocked" : "denied";
  const facts = [["Decided by", verdict.policy ? deciderLink(verdict.policy, verdict.source) : "no rule"], ["Limit", number(verdict.limit)], ["Remaining", number(verdict.remaining)], ["Full again in", span(verdict.reset_after)], ["Source", verdict.source], ["Snapshot", String(verdict.snapshot)]];
  const matching = found.layers.filter((each) => each.winner || each.watched);
  const others = found.layers.filter((each) => !each.winner && !each.watched);
  return [
    card("The verdict", { note: "not counted" }, h("div", { class: "verdict" }, h("span", { class: `badge large ${word}` }, word), h("p", {}, SENTENCES[word](verdict))), h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))), found.block ? h("div", { class: "banner bad" }, h("strong", {}, "Blocked by an operator"), h("span", { class: "wrap" }, found.block.reason ?? "no reason was given")) : null, (found.notes ?? []).map((note) => h("div", { class: "banner" }, h("span", { class: "wrap" }, note)))),
    card("Layers that apply", { note: "in each layer one rule wins; all of them must pass" }, matching.length ? matching.map(layer) : empty("No rule applies", "Without a rule a request is admitted.")),
    others.length || found.gates?.length ? card("What does not apply", { note: "and why" }, lostList(others, found.gates ?? [])) : null,
  ];
}

function lostList(layers, gates) {
  const rows = [...gates.map((each) => [each.rule, each.action, each.why]), ...layers.flatMap((each) => each.lost.map((lost) => [lost.rule, `layer ${each.layer}`, lost.why]))];
  return table("Rules that do not apply", [{ name: "Rule", cell: ([rule]) => link(rule ?? "", "rules", rule ?? "") }, { name: "Of", cell: ([, of]) => of ?? "" }, { name: "Why not", cell: ([, , why]) => why ?? "" }], rows);
}

function layer(each) {
  const winner = each.winner;
  return h(
    "div",
    { class: "layer" },
    h("div", { class: "actions" }, h("h3", {}, `Layer ${each.layer}`), winner ? h("span", {}, "won by ", link(winner.rule, "rules", winner.rule)) : h("span", { class: "quiet" }, "no rule matches"), winner && winner.limits.some((limit) => !limit.allowed) ? badge("denied") : winner ? badge("allowed") : null),
    winner ? counters(winner) : null,
    each.watched ? h("div", {}, h("span", { class: "small" }, "Watched: ", link(each.watched.rule, "rules", each.watched.rule), " "), badge("shadow"), counters(each.watched)) : null,
    each.lost.length ? h("details", {}, h("summary", {}, `${each.lost.length} ${each.lost.length === 1 ? "rule" : "rules"} lost`), h("ul", {}, each.lost.map((lost) => h("li", { class: "small wrap" }, link(lost.rule, "rules", lost.rule), `: ${lost.why}`)))) : null,
  );
}

function counters(rule) {
  return h("div", { class: "counters" }, h("p", { class: "small quiet" }, `${rule.algorithm ?? ""} · limits from ${rule.limits_from ?? "the rule itself"} · ${rule.action}`), (rule.limits ?? []).map((each) => h("div", { class: "limit" }, h("div", {}, each.limit, h("div", { class: "small quiet wrap" }, h("code", {}, each.counter ?? ""))), h("div", { class: "meter" }, each.used === null || each.used === undefined ? h("span", { class: "small quiet" }, "not counted yet") : [bar([[each.allowed ? "allowed" : "denied", each.used], ["quiet", each.remaining]], `${each.used} used`), h("div", { class: "small quiet" }, `${number(each.used)} used with this one, ${number(each.remaining)} remaining, full again in ${span(each.reset_after)}`)]), badge(each.allowed === false ? "denied" : "allowed"))));
}
