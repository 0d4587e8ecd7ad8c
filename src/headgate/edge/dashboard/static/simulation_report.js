// The report of a replay: what would have been denied, over time, by rule and by caller.
import { timeChart } from "./charts.js";
import { h, link } from "./dom.js";
import { minute, moment, number, share } from "./format.js";
import { badge, empty, table, tile } from "./ui.js";

const MAX_CALLERS = 15;

const changed = (row) => row.denied - (row.denied_against ?? row.denied);
function signed(value) {
  if (!value) return h("span", { class: "quiet" }, "0");
  return h("span", { class: value > 0 ? "is-denied" : null }, `${value > 0 ? "+" : "−"}${number(Math.abs(value))}`);
}

export function simulationReport(report) {
  if (!report.requests) return empty("No recorded request in this span", "Decisions are recorded as they happen: denials, and a sample of admissions. Choose a longer span, or send some traffic.");
  const { draft, against, difference, timeline } = report;
  const chart = timeChart({
    title: "Requests and denials",
    label: minute,
    series: [
      { name: "Requests", color: "allowed", area: true },
      { name: "Denied by the draft", color: "denied", area: true },
      { name: "Denied by the active rules", color: "shadow", dashed: true },
    ],
  });
  chart.update(
    timeline.steps.map((step) => step.at),
    ["requests", "denied", "denied_against"].map((kind) => timeline.steps.map((step) => step[kind] ?? 0)),
  );
  return h(
    "div",
    { class: "pile simulation" },
    h("div", { class: "tiles" }, difference ? tile("Newly denied", number(difference.newly_denied), { kind: "denied" }) : null, difference ? tile("No longer denied", number(difference.no_longer_denied), { kind: "allowed" }) : null, tile("Denied by the draft", share(draft.share_denied), { kind: "denied" }), against ? tile("Denied by the active rules", share(against.share_denied), { kind: "shadow" }) : null, tile("Requests replayed", number(report.requests))),
    chart.node,
    h("p", { class: "small quiet" }, `${moment(report.first)} to ${moment(report.last)}`, report.sampled ? "; admissions were recorded by sample, so shares are estimates" : ""),
    h("h3", {}, difference ? "By caller, those with the largest change first" : "By caller"),
    table(
      "Callers",
      [
        { name: "Caller", cell: (row) => (row.kind === "user" ? link(row.name, "users", row.name) : h("code", {}, row.name ?? "unknown")) },
        { name: "Kind", cell: (row) => row.kind },
        { name: "Denied by", cell: (row) => Object.keys(row.rules ?? {}).join(", ") },
        { name: "Requests", num: true, cell: (row) => number(row.requests) },
        { name: "Denied now", num: true, cell: (row) => number(row.denied_against) },
        { name: "Denied by the draft", num: true, cell: (row) => h("span", { class: row.denied ? "is-denied" : null }, number(row.denied)) },
        ...(difference ? [{ name: "Change", num: true, cell: (row) => signed(changed(row)) }] : []),
      ],
      [...report.subjects.worst].sort((one, other) => Math.abs(changed(other)) - Math.abs(changed(one))).slice(0, MAX_CALLERS),
      empty("No caller would be denied"),
    ),
    h("h3", {}, "By rule"),
    table(
      "Rules",
      [
        { name: "Rule", cell: (row) => link(row.rule, "rules", row.rule) },
        { name: "Requests", num: true, cell: (row) => number(row.requests) },
        { name: "Throttled", num: true, cell: (row) => number(row.throttled) },
        { name: "Shadow", num: true, cell: (row) => number(row.shadow) },
        { name: "Denied", num: true, cell: (row) => h("span", { class: row.denied ? "is-denied" : null }, number(row.denied)) },
      ],
      draft.by_rule,
      empty("No rule applied"),
    ),
    report.notes?.length ? h("details", {}, h("summary", {}, "What is not exact"), h("ul", {}, report.notes.map((note) => h("li", {}, note)))) : badge("exact", "up"),
  );
}
