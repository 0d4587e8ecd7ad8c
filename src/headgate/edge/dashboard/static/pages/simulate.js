// Draft rules against recorded traffic.
import { get, post } from "../api.js";
import { h, show } from "../dom.js";
import { simulationReport } from "../simulation_report.js";
import { button, card, empty, field, heading, later, problemList, select } from "../ui.js";

const SPANS = [["900", "15 minutes"], ["3600", "hour"], ["21600", "6 hours"], ["86400", "day"]];
const EXAMPLE = "rules:\n  - name: search\n    match:\n      endpoints: [/api/search]\n    per: [user]\n    limits: 30/minute\n";

export async function page({ main, signal }) {
  const yaml = h("textarea", { name: "draft", rows: 11, spellcheck: "false" });
  yaml.value = EXAMPLE;
  const span = select(SPANS, "3600", { name: "seconds" });
  const whole = select([["false", "added to the active rules"], ["true", "instead of all active rules"]], "false", { name: "whole" });
  const problems = h("div", { role: "status", "aria-live": "polite" });
  const out = h("div", {});
  let data = null;
  async function check() {
    const answer = await post("/v1/ruleset/draft", { yaml: yaml.value });
    data = answer.valid || whole.value === "true" ? answer.data : null;
    show(problems, answer.valid ? h("p", { class: "small quiet valid" }, "Valid.") : problemList(answer.problems));
  }
  yaml.addEventListener("input", later(check));
  const load = button("Start from the active rules", async () => {
    const active = await get("/v1/ruleset", {}, signal);
    yaml.value = (await post("/v1/ruleset/draft", { data: active })).yaml;
    whole.value = "true";
    await check();
  });
  const run = button("Replay", async () => {
    await check();
    if (!data) return;
    show(out, card("Result", h("p", { class: "quiet" }, "Replaying in a process of its own. It takes a few seconds for each 100,000 requests.")));
    try {
      const report = await post("/v1/simulate", data, { seconds: span.value, whole: whole.value, subjects: 20 });
      show(out, card("Result", { note: "what the draft would have decided" }, simulationReport(report)));
    } catch (error) {
      show(out, h("div", { class: "banner warn", role: "alert" }, h("span", {}, error.message)));
    }
  }, "main");
  show(
    main,
    heading("Simulate", { text: "Replay recorded traffic against draft rules, on virtual time. Nothing is stored, and no counter changes." }),
    card("Draft rules", field("Rules, as in a rules file", yaml), problems, h("div", { class: "filters" }, field("Traffic of the last", span), field("The draft is", whole), h("div", { class: "actions" }, run, load))),
    out,
  );
  show(out, card("Result", empty("Nothing was replayed yet", "Change the draft, choose how much traffic, and press Replay.")));
  await check();
}
