// Who changed what.
import { get } from "../api.js";
import { h, show, to } from "../dom.js";
import { moment } from "../format.js";
import { badge, card, diff, empty, field, heading, later, pages, select } from "../ui.js";

const KINDS = ["", "rule", "tier", "user", "api_key", "block", "token"];

export async function page({ main, signal }) {
  const kind = select(KINDS.map((each) => [each, each || "all"]), "", { name: "kind" });
  const name = h("input", { type: "search", name: "name", placeholder: "any" });
  const all = pages((after) => get("/v1/changes", { kind: kind.value, name: name.value, after, limit: 50 }, signal), rows);
  kind.addEventListener("change", later(all.reload, 0));
  name.addEventListener("input", later(all.reload));
  show(main, heading("Changes", { text: "Every change of rules, tiers, users, keys, blocks and tokens, with what was before and after." }), h("div", { class: "filters", role: "search" }, field("Of a", kind), field("Name or id", name)), card("All changes", all.node));
  await all.reload();
}

// Keys, blocks and tokens have ids that say nothing.
function called({ kind, name, before, after }) {
  const of = after ?? before ?? {};
  if (kind === "api_key") return [of.name, of.prefix ? `${of.prefix}…` : null, of.user ? `of ${of.user}` : null].filter(Boolean).join(" ") || name;
  if (kind === "block") return of.user ?? of.network ?? of.api_key ?? name;
  if (kind === "token") return of.name ?? name;
  return name === "*" ? "all" : name;
}

const text = (value) => (value === null || value === undefined ? "" : JSON.stringify(value, null, 2));

function rows(items) {
  if (!items.length) return empty("No change yet", "Whatever is changed here, by the API or by the command line is listed with who did it.");
  return h("div", { class: "flush" }, items.map((each) => {
    const body = h("div", {});
    const details = h("details", { class: "operation" }, h("summary", { class: "change" }, h("span", { class: "num-left" }, moment(each.at)), h("span", {}, each.who.replace(/^token:/, "")), badge(each.kind.replace("api_", ""), ""), h("span", { class: "change-what" }, called(each)), h("span", { class: "quiet" }, each.verb.replaceAll("_", " "))), body);
    details.addEventListener("toggle", () => {
      if (!details.open || body.childElementCount) return;
      const where = { rule: "rules", user: "users", tier: "tiers" }[each.kind];
      show(body, diff(text(each.before), text(each.after)), where && each.name !== "*" ? h("a", { href: to(where, each.name) }, `Open the ${each.kind}`) : null);
    });
    return details;
  }));
}
