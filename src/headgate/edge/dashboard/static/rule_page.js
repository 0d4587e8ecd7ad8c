// One rule: what it did, who is near it, its versions, and its switches.
import { get, part, post, send } from "./api.js";
import { columnChart, timeChart } from "./charts.js";
import { h, link, show, to } from "./dom.js";
import { ago, limits, moment, number, rate, share } from "./format.js";
import { counted, spanNames, spanOf } from "./spans.js";
import { ask, badge, button, card, diff, empty, half, heading, segments, table, tell, tile } from "./ui.js";
import { stateOf } from "./pages/rules.js";

export async function rulePage(context, name) {
  const { main, signal, every } = context;
  const path = `/v1/rules/${part(name)}`;
  let chosen = "1h";
  const [record, found, near, violators, history] = await Promise.all([
    send("GET", path, { signal }),
    counted(chosen, { rule: name }, signal),
    get("/v1/near-limits", { rule: name, share: 0, limit: 1000 }, signal),
    get("/v1/violators", { rule: name, by: "anybody", since: new Date(Date.now() - 3600e3).toISOString(), limit: 10 }, signal),
    get(`${path}/history`, {}, signal),
  ]);
  const rule = record.data;
  const data = rule.data ?? rule.draft;
  const chart = timeChart({ title: "Requests", series: KINDS.map(([kind, title, options]) => ({ name: title, color: kind, ...options })) });
  const tiles = h("div", { class: "tiles" });
  const outcomes = h("div", { class: "half" });
  const draw = (counts) => {
    const { label, words, per } = spanOf(chosen);
    show(requests.querySelector("h2"), `Requests per ${per}`);
    chart.update(counts.times, KINDS.map(([kind]) => counts.of(kind)), label);
    show(tiles, sums(counts, words, stateOf(rule)));
    show(outcomes, shadowCard(counts, words, data));
  };
  let counts = found;
  const load = async () => {
    const span = chosen;
    counts = await counted(span, { rule: name }, signal, counts);
    if (span === chosen) draw(counts);
  };
  const span = segments("Time span", spanNames, chosen, (each) => {
    chosen = each;
    return load();
  });
  const requests = card("Requests", { note: span }, chart.node);
  show(
    main,
    heading(name, { crumb: [link("Rules", "rules"), " / rule"], text: `${data.limits ? limits(data.limits) : data.action} per ${(data.per ?? []).join(", ") || "all together"}${where(data)}`, actions: actions(context, name, { record, history: history.items }, record.etag) }),
    rule.warning ? h("div", { class: "banner warn" }, h("strong", {}, `Owned by ${rule.owner}`), h("span", { class: "wrap" }, rule.warning)) : null,
    tiles,
    requests,
    h("div", { class: "grid" }, histogram(near.items), outcomes, nearCard(near.items), violatorCard(violators.items), half("Definition", definition(rule)), await versions(context, name, { record, history: history.items })),
  );
  draw(found);
  every(15000, async () => {
    try {
      await load();
    } catch {
      // The next one may succeed.
    }
  });
}

const KINDS = [["allowed", "Allowed", { area: true }], ["denied", "Denied", { area: true }], ["throttled", "Throttled", {}], ["shadow", "Shadow", { dashed: true }], ["blocked", "Blocked", {}]];

function where({ match }) {
  const words = [[match?.methods ?? []].flat().join(" "), [match?.endpoints ?? []].flat().join(", ")].filter(Boolean).join(" ");
  return words ? `, for ${words}` : "";
}

function sums(counts, words, state) {
  const all = counts.sum("total");
  return [
    h("div", { class: "tile" }, h("span", { class: "tile-name" }, "State"), h("span", { class: "actions" }, state)),
    tile(`Requests, ${words}`, number(all)),
    tile("Per second", rate(all / counts.seconds)),
    tile("Denied", number(counts.sum("denied")), { kind: "denied" }),
    tile("Share denied", share(all ? counts.sum("denied") / all : 0), { kind: "denied" }),
  ];
}

function histogram(near) {
  const counts = new Array(11).fill(0);
  for (const each of near) counts[Math.min(10, Math.floor(each.share * 10))] += 1;
  const columns = counts.map((count, index) => [index === 10 ? "full" : `${index * 10} %`, [[index === 10 ? "denied" : "allowed", count]]]);
  return half("How full the limit is", { note: "callers by used share, last hour" }, near.length ? columnChart({ title: "Callers by used share", columns, names: ["Callers"] }) : empty("No caller was recorded", "Denials and a sample of admissions are recorded; send some requests."));
}

function shadowCard(counts, words, data) {
  const isShadow = data.action === "log";
  const columns = [["Admitted", [["allowed", counts.sum("allowed") + counts.sum("throttled")]]], ["Denied", [["denied", counts.sum("denied") + counts.sum("blocked")]]], ["Would be denied", [["shadow", counts.sum("shadow")]]]];
  return card("Shadow against enforced", { note: `${isShadow ? "a shadow: it counts, and denies nothing" : "enforced"}; ${words}` }, columnChart({ title: "Requests by outcome", names: ["Requests"], columns }));
}

function caller(row) {
  return row.user ? link(row.user, "users", row.user) : h("code", {}, row.api_key ?? row.ip ?? "all together");
}

function nearCard(near) {
  return half(
    "Top keys, near the limit",
    { note: "last hour, as recorded" },
    table(
      "Callers near the limit",
      [
        { name: "Caller", cell: caller },
        { name: "Used", num: true, cell: (row) => `${number(row.count)} of ${number(row.limit)}` },
        { name: "Share", num: true, cell: (row) => h("span", { class: row.share >= 1 ? "is-denied" : null }, share(row.share)) },
        { name: "When", num: true, cell: (row) => ago(row.at) },
      ],
      near.slice(0, 10),
      empty("No caller was recorded"),
    ),
  );
}

function violatorCard(violators) {
  return half(
    "Denied most",
    { note: "last hour" },
    table(
      "Callers that this rule denied most",
      [
        { name: "Caller", cell: caller },
        { name: "Last", num: true, cell: (row) => ago(row.last) },
        { name: "Denials", num: true, cell: (row) => h("span", { class: "is-denied" }, number(row.violations)) },
      ],
      violators,
      empty("This rule denied no caller"),
    ),
  );
}

function definition(rule) {
  const node = h("pre", {});
  const load = (data) => post("/v1/ruleset/draft", { data }).then((answer) => (node.textContent = answer.yaml), () => (node.textContent = JSON.stringify(data, null, 2)));
  load(rule.data ?? rule.draft);
  return h("div", {}, rule.draft && rule.data ? h("p", { class: "small quiet" }, "The published version; there is a draft beside it.") : null, node);
}

function actions({ may }, name, { record, history }, etag) {
  const rule = record.data;
  const path = `/v1/rules/${part(name)}`;
  const again = () => window.dispatchEvent(new HashChangeEvent("hashchange"));
  const done = (text) => (sent) => {
    const applied = sent?.data?.applied;
    tell(applied ? `${text}: ${applied.have_it} of ${applied.processes} processes have it` : text);
    again();
  };
  const list = [h("a", { class: "button edit-rule", href: to("rules", name, "edit") }, may("admin") ? "Edit" : "Try a change")];
  if (may("admin") && rule.data) {
    const isShadow = rule.data.action === "log";
    const enforced = history.map((each) => each.data?.action).find((action) => action && action !== "log") ?? "reject";
    const body = { ...rule.data, action: isShadow ? enforced : "log" };
    list.push(
      button(isShadow ? "Enforce" : "Make it a shadow", async () => {
        const text = isShadow ? `From now on "${name}" denies what is above its limits.` : `From now on "${name}" only counts, and denies nothing.`;
        if (await ask(isShadow ? "Enforce this rule?" : "Make this rule a shadow?", { text, yes: isShadow ? "Enforce" : "Make it a shadow", act: () => send("PUT", path, { body, etag }).then(done(isShadow ? "Enforced" : "Shadow")) })) return;
      }, isShadow ? "main" : ""),
    );
  }
  if (may("operator") && rule.data) {
    const verb = rule.data.enabled ? "disable" : "enable";
    list.push(button(rule.data.enabled ? "Disable" : "Enable", async () => {
      await ask(`${rule.data.enabled ? "Disable" : "Enable"} this rule?`, { text: rule.data.enabled ? `"${name}" limits nothing until it is enabled again.` : `"${name}" is active again at once.`, yes: rule.data.enabled ? "Disable" : "Enable", danger: rule.data.enabled, act: () => send("POST", `${path}/${verb}`, { etag }).then(done(`Rule ${verb}d`)) });
    }));
  }
  if (may("admin") && rule.draft) {
    list.push(
      button("Publish the draft", () => send("POST", `${path}/publish`, { etag }).then(done("Published")), "main"),
      button("Discard the draft", () => ask("Discard the draft?", { text: rule.data ? "The published version stays." : "The rule was never published; it is deleted.", yes: "Discard", danger: true, act: () => send("POST", `${path}/discard`, { etag }).then((sent) => (sent.data ? done("Draft discarded")(sent) : (location.hash = to("rules")))) })),
    );
  }
  if (may("admin")) {
    list.push(button("Delete", () => ask("Delete this rule?", { text: `"${name}" limits nothing any more. Its history stays, and it can be restored from there.`, yes: "Delete", danger: true, act: async () => {
      await send("DELETE", path, { etag });
      tell("Deleted");
      location.hash = to("rules");
    } }), "danger"));
  }
  return list;
}

async function versions({ may }, name, { record, history }) {
  if (!history.length) return half("History", empty("Never published", "Publish the draft, and its versions are listed here."));
  const texts = new Map();
  const text = async (data) => {
    if (data === null || data === undefined) return "";
    const key = JSON.stringify(data);
    if (!texts.has(key)) texts.set(key, (await post("/v1/ruleset/draft", { data })).yaml);
    return texts.get(key);
  };
  return half(
    "History",
    { note: history.length === 1 ? "1 version" : `${history.length} versions` },
    h("div", { class: "flush" }, history.slice(0, 50).map((each, index) => {
      const body = h("div", {});
      const details = h("details", { class: "operation" }, h("summary", {}, `${moment(each.at)} · ${each.who.replace(/^token:/, "")} · change ${each.change}${each.data ? "" : " · deleted"} `, index === 0 ? badge("newest", "up") : null), body);
      details.addEventListener("toggle", async () => {
        if (!details.open || body.childElementCount) return;
        const before = history[index + 1]?.data;
        const rollback = may("admin") && index > 0 && each.data ? button("Roll back to this version", () => ask("Roll back?", { text: `"${name}" becomes what it was at change ${each.change}.`, yes: "Roll back", act: async () => {
          await send("POST", `/v1/rules/${part(name)}/rollback`, { body: { change: each.change }, etag: record.etag });
          tell("Rolled back");
          window.dispatchEvent(new HashChangeEvent("hashchange"));
        } })) : null;
        show(body, diff(await text(before), await text(each.data)), rollback ? h("div", { class: "actions" }, rollback) : null);
      });
      return details;
    })),
  );
}
