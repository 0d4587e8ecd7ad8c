// The editor of a rule: as a form and as YAML, side by side, checked by the service while typing.
import { get, part, post, send } from "./api.js";
import { h, link, show, to } from "./dom.js";
import { limits } from "./format.js";
import { ask, button, card, diff, field, heading, later, problemList, select, tell } from "./ui.js";
import { simulationReport } from "./simulation_report.js";

const ALGORITHMS = ["sliding_window_counter", "sliding_window_log", "fixed_window", "token_bucket", "leaky_bucket", "concurrency"];
const ACTIONS = [["reject", "reject: deny what is too much"], ["throttle", "throttle: let it wait"], ["log", "log: shadow, only count"], ["allow", "allow: exempt"], ["block", "block: always deny"]];
const STORE_ERRORS = [["allow", "allow"], ["deny", "deny"], ["local", "local: a share of the limit"]];
const START = { name: "", per: ["user"], limits: "100/minute" };

const words = (text) => text.split(/[,\s]+/).filter(Boolean);

export async function editor({ main, signal, may }, name) {
  const there = name === null ? null : await send("GET", `/v1/rules/${part(name)}`, { signal });
  const record = there?.data ?? null;
  let data = record ? (record.draft ?? record.data) : START;
  let valid = false;
  const published = record?.data ? (await post("/v1/ruleset/draft", { data: record.data })).yaml : "";
  const inputs = formInputs(record !== null);
  const yaml = h("textarea", { name: "yaml", spellcheck: "false", rows: 18, "aria-describedby": "problems" });
  const problems = h("div", { id: "problems", role: "status", "aria-live": "polite" });
  const preview = h("div", { class: "grid" });
  const publish = button("Publish", save(false), "main");
  const draft = button("Save as draft", save(true));

  function read(answer) {
    valid = answer.valid;
    publish.disabled = draft.disabled = compare.disabled = !valid;
    yaml.setAttribute("aria-invalid", String(!valid));
    show(problems, valid ? h("p", { class: "small quiet valid" }, "Valid against all published rules.") : problemList(answer.problems));
    if (answer.data) data = answer.data;
  }
  let turn = 0;
  async function check(body, after) {
    const mine = ++turn;
    const answer = await post("/v1/ruleset/draft", body);
    if (mine !== turn) return;
    read(answer);
    after(answer);
  }
  const fromForm = later(() => check({ data: formData(inputs, data) }, (answer) => (yaml.value = answer.yaml ?? "")));
  const fromText = later(() => check({ yaml: yaml.value }, (answer) => answer.data && fillForm(inputs, answer.data)));
  for (const input of Object.values(inputs)) input.addEventListener("input", fromForm);
  yaml.addEventListener("input", fromText);

  function save(asDraft) {
    return async () => {
      const query = asDraft ? "?draft=true" : "";
      if (!asDraft && record?.owner && !(await ask("Publish a rule that a file owns?", { text: record.warning, yes: "Publish" }))) return;
      const sent = record ? await send("PUT", `/v1/rules/${part(name)}${query}`, { body: data, etag: there.etag }) : await send("POST", `/v1/rules${query}`, { body: data });
      const applied = sent.data.applied;
      tell(asDraft ? "Saved as a draft" : `Published${applied ? `: ${applied.have_it} of ${applied.processes} processes have it` : ""}`);
      location.hash = to("rules", sent.data.name);
    };
  }

  const compare = button("Preview", async () => {
    show(
      preview,
      card("What changes", { note: published ? "against what is published" : "a new rule" }, diff(published, yaml.value)),
      affected(data),
    );
    preview.scrollIntoView({ block: "nearest" });
  });

  show(
    main,
    heading(record ? name : "New rule", { crumb: record ? [link("Rules", "rules"), " / ", link(name, "rules", name), " / edit"] : [link("Rules", "rules"), " / new"], actions: may("admin") ? [compare, draft, publish] : [compare] }),
    record?.warning ? h("div", { class: "banner warn" }, h("strong", {}, `Owned by ${record.owner}`), h("span", {}, record.warning)) : null,
    may("admin") ? null : h("div", { class: "banner" }, h("span", {}, "Your role may try a change here; to publish it takes the role admin.")),
    h("div", { class: "sides" }, card("As a form", formNode(inputs)), card("As YAML", field("Everything that a rule can say; both sides follow each other", yaml), problems)),
    preview,
  );
  fillForm(inputs, data);
  await check({ data }, (answer) => {
    yaml.value = answer.yaml ?? "";
    if (answer.data) fillForm(inputs, answer.data);
  });
}

// The last hour; where there was too much traffic to replay that in time, a quarter of it.
async function replayed(data) {
  try {
    return [await post("/v1/simulate", { rules: [data] }, { seconds: 3600, subjects: 100 }), "the last hour"];
  } catch (error) {
    if (error.status !== 422) throw error;
    return [await post("/v1/simulate", { rules: [data] }, { seconds: 900, subjects: 100 }), "the last 15 minutes"];
  }
}

function affected(data) {
  const out = h("div", {}, h("p", { class: "quiet", role: "status" }, "Replaying the last hour…"));
  const note = h("span", { class: "small quiet" }, "replay of the last hour");
  replayed(data).then(
    ([report, span]) => {
      note.textContent = `replay of ${span}`;
      show(out, simulationReport(report));
    },
    (error) => show(out, h("div", { class: "banner warn", role: "alert" }, h("span", {}, error.message))),
  );
  return card("Who is affected", { note }, out);
}

function formInputs(exists) {
  const text = (name, placeholder) => h("input", { name, placeholder, autocomplete: "off", spellcheck: "false" });
  const name = text("name", "search");
  name.disabled = exists;
  return {
    name,
    endpoints: text("endpoints", "/api/search, /api/items/*"),
    methods: text("methods", "any"),
    tiers: text("tiers", "any"),
    per: text("per", "user"),
    limits: text("limits", "10/second, 600/minute"),
    algorithm: select(["", ...ALGORITHMS].map((each) => [each, each || "sliding_window_counter (usual)"]), "", { name: "algorithm" }),
    action: select(ACTIONS, "reject", { name: "action" }),
    priority: h("input", { name: "priority", type: "number", placeholder: "100" }),
    on_store_error: select([["", "allow (usual)"], ...STORE_ERRORS.slice(1)], "", { name: "on_store_error" }),
    enabled: select([["true", "yes"], ["false", "no"]], "true", { name: "enabled" }),
  };
}

function formNode(inputs) {
  return h(
    "div",
    { class: "form" },
    field("Name", inputs.name),
    field("Enabled", inputs.enabled),
    h("div", { class: "whole" }, field("Endpoints", inputs.endpoints, "paths; * stands for any part, empty for everywhere")),
    field("Methods", inputs.methods),
    field("Tiers", inputs.tiers),
    field("Counted per", inputs.per, "user, ip, api_key, tenant, endpoint, method, global or attribute:NAME"),
    field("Limits", inputs.limits, "one or several, tier:NAME or unlimited"),
    field("Algorithm", inputs.algorithm),
    field("Action", inputs.action),
    field("Priority", inputs.priority, "the lowest wins its layer"),
    field("If Redis is unavailable", inputs.on_store_error),
  );
}

function fillForm(inputs, data) {
  const put = (input, value) => {
    if (document.activeElement !== input) input.value = value ?? "";
  };
  const match = data.match ?? {};
  put(inputs.name, data.name);
  put(inputs.endpoints, [match.endpoints ?? []].flat().join(", "));
  put(inputs.methods, [match.methods ?? []].flat().join(", "));
  put(inputs.tiers, [match.tiers ?? []].flat().join(", "));
  put(inputs.per, [data.per ?? []].flat().join(", "));
  put(inputs.limits, data.limits ? limits(data.limits) : "");
  put(inputs.algorithm, data.algorithm);
  put(inputs.action, data.action ?? "reject");
  put(inputs.priority, data.priority);
  put(inputs.on_store_error, data.on_store_error === "allow" ? "" : data.on_store_error);
  put(inputs.enabled, String(data.enabled ?? true));
}

// What the form says, on top of what only the text can say.
function formData(inputs, before) {
  const data = { ...before, name: inputs.name.value.trim() };
  const set = (target, name, value, isThere) => {
    if (isThere) target[name] = value;
    else delete target[name];
  };
  const match = { ...(before.match ?? {}) };
  for (const name of ["endpoints", "methods", "tiers"]) {
    const given = words(inputs[name].value);
    set(match, name, given, given.length);
  }
  set(data, "match", match, Object.keys(match).length);
  const per = words(inputs.per.value);
  set(data, "per", per, per.length);
  const given = inputs.limits.value.split(",").map((each) => each.trim()).filter(Boolean);
  set(data, "limits", given.length === 1 ? given[0] : given, given.length);
  for (const name of ["algorithm", "on_store_error"]) set(data, name, inputs[name].value, inputs[name].value);
  set(data, "action", inputs.action.value, inputs.action.value !== "reject");
  set(data, "priority", Number(inputs.priority.value), inputs.priority.value !== "");
  set(data, "enabled", false, inputs.enabled.value === "false");
  return data;
}
