// The descriptions of both APIs, offline.
import { get } from "../api.js";
import { h, show } from "../dom.js";
import { badge, card, field, heading, later } from "../ui.js";

const SOURCES = [["admin", "Admin API", "/openapi.json"], ["decisions", "Decision API", "/ui/decision-api.json"]];

export async function page({ main, signal }) {
  const search = h("input", { type: "search", name: "search", placeholder: "path, word" });
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const out = h("div", {});
  let chosen = SOURCES[0];
  const loaded = new Map();
  async function draw() {
    const [name, , path] = chosen;
    if (!loaded.has(name)) loaded.set(name, await get(path, {}, signal));
    for (const each of tabs.children) each.setAttribute("aria-selected", String(each.dataset.name === name));
    show(out, description(loaded.get(name), search.value.trim().toLowerCase(), path));
  }
  for (const source of SOURCES) {
    tabs.append(h("button", { type: "button", role: "tab", "data-name": source[0], onclick: () => ((chosen = source), draw()) }, source[1]));
  }
  search.addEventListener("input", later(draw, 120));
  show(main, heading("API", { text: "All that the dashboard does goes through the admin API. Programs send Authorization: Bearer hgt_…; services ask the decision API." }), tabs, h("div", { class: "filters", role: "search" }, field("Search", search)), out);
  await draw();
}

function resolve(document, schema) {
  const path = schema?.$ref;
  return path ? path.replace("#/", "").split("/").reduce((at, name) => at?.[name], document) : schema;
}

function description(document, word, path) {
  const groups = new Map();
  for (const [route, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const text = `${method} ${route} ${operation.description ?? ""}`.toLowerCase();
      if (word && !text.includes(word)) continue;
      const tag = operation.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), [method, route, operation]]);
    }
  }
  const cards = [...groups].map(([tag, operations]) => card(tag[0].toUpperCase() + tag.slice(1), { note: operations.length === 1 ? "1 endpoint" : `${operations.length} endpoints` }, h("div", { class: "flush" }, operations.map((each) => operationNode(document, ...each)))));
  return h("div", { class: "grid" }, h("p", { class: "small quiet" }, `${document.info.title} ${document.info.version} · `, h("a", { href: path }, path)), cards.length ? cards : h("p", { class: "quiet" }, "Nothing matches."));
}

function operationNode(document, method, route, operation) {
  const body = h("div", {});
  const details = h("details", { class: "operation" }, h("summary", {}, h("span", { class: "method" }, method.toUpperCase()), h("code", {}, route), h("span", { class: "summary-text" }, (operation.description ?? operation.summary ?? "").split(/\n|(?<=\.) /)[0].replaceAll("`", ""))), body);
  details.addEventListener("toggle", () => details.open && !body.childElementCount && show(body, operationBody(document, operation)));
  return details;
}

function operationBody(document, operation) {
  const content = operation.requestBody?.content?.["application/json"];
  const schema = resolve(document, content?.schema?.anyOf?.find((each) => each.$ref) ?? content?.schema);
  const example = schema?.examples?.[0] ?? content?.examples?.[0] ?? content?.example;
  const parameters = operation.parameters ?? [];
  return [
    h("p", { class: "wrap" }, (operation.description ?? operation.summary ?? "").replaceAll("`", "")),
    parameters.length ? h("div", {}, h("h3", {}, "Parameters"), h("dl", {}, parameters.map((each) => [h("dt", {}, h("code", {}, each.name), each.required ? " *" : ""), h("dd", { class: "small" }, `${each.in}${each.description ? `: ${each.description.replaceAll("`", "")}` : ""}`)]))) : null,
    example ? h("div", {}, h("h3", {}, "Body"), h("pre", {}, JSON.stringify(example, null, 2))) : null,
    h("div", {}, h("h3", {}, "Answers"), h("dl", {}, Object.entries(operation.responses ?? {}).map(([status, answer]) => [h("dt", {}, badge(status, "")), h("dd", { class: "small" }, answer.description ?? "", answerExample(document, answer))]))),
  ];
}

function answerExample(document, answer) {
  const schema = answer.content?.["application/json"]?.schema;
  const found = resolve(document, schema?.allOf?.[0] ?? schema);
  return found?.examples?.[0] ? h("pre", { class: "small" }, JSON.stringify(found.examples[0], null, 2)) : null;
}
