// Small charts in SVG: lines and areas over time, columns, sparklines. Each has its figures as a table too.
import { h, show, svg } from "./dom.js";
import { clock, mark, number } from "./format.js";

const HEIGHT = 200;
const LEFT = 44;
const BELOW = 22;

// A round number that is at least as large as the largest value.
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value) ?? 10 * power;
}

function asTable(title, names, rows) {
  const head = h("tr", {}, ["Time", ...names].map((name, index) => h("th", { scope: "col", class: index ? "num" : null }, name)));
  const body = rows.map(([at, ...values]) => h("tr", {}, h("td", {}, at), values.map((value) => h("td", { class: "num" }, value))));
  return h("div", { class: "table-wrap" }, h("table", {}, h("caption", { class: "visually-hidden" }, title), h("thead", {}, head), h("tbody", {}, body)));
}

function frame(width, height, most) {
  const lines = [0, 0.5, 1].map((share) => {
    const y = height - BELOW - share * (height - BELOW - 10);
    return [svg("line", { class: "rule-line", x1: LEFT, x2: width, y1: y, y2: y }), svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, mark(most * share))];
  });
  return lines.flat();
}

// A chart over time: `series` are {name, color, dashed, area}; `update` takes times and a list of values for each.
export function timeChart({ title, series, format = number, label = clock, height = HEIGHT, values = true }) {
  let labelled = label;
  const picture = svg("svg", { role: "img", tabindex: 0 });
  const legend = h("div", { class: "legend" });
  const table = h("details", {}, h("summary", {}, "Show as table"));
  const node = h("div", { class: "chart" }, legend, picture, table);
  let times = [];
  let rows = series.map(() => []);
  let chosen = null;

  function draw() {
    const width = Math.max(280, Math.round(node.clientWidth || 640));
    const most = ceiling(Math.max(0, ...rows.flat()));
    const x = (index) => LEFT + (index * (width - LEFT)) / Math.max(1, times.length - 1);
    const y = (value) => height - BELOW - (value / most) * (height - BELOW - 10);
    const steps = Math.min(times.length, width < 480 ? 3 : 6);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const last = rows.map((row) => row.at(-1) ?? 0);
    picture.setAttribute("aria-label", `${title}: ${series.map((each, index) => `${each.name} ${format(last[index])}`).join(", ")}`);
    const marks = [...Array(Math.max(0, steps)).keys()].map((step) => {
      const index = Math.round((step * (times.length - 1)) / Math.max(1, steps - 1));
      const anchor = step === 0 ? "start" : step === steps - 1 ? "end" : "middle";
      return svg("text", { x: x(index), y: height - 4, "text-anchor": anchor }, labelled(times[index]));
    });
    const lines = series.map((each, index) => {
      const points = rows[index].map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
      if (!points.length) return [];
      const area = each.area ? svg("path", { class: `area c-${each.color}`, d: `M${LEFT},${y(0)}L${points.join("L")}L${x(points.length - 1)},${y(0)}Z` }) : null;
      return [area, svg("path", { class: `line c-${each.color}${each.dashed ? " dashed" : ""}`, d: `M${points.join("L")}` })].filter(Boolean);
    });
    const cursor = chosen === null || !times.length ? [] : [svg("line", { class: "cursor", x1: x(chosen), x2: x(chosen), y1: 6, y2: height - BELOW })];
    show(picture, frame(width, height, most), marks, lines.flat(), cursor);
    const at = chosen === null ? times.length - 1 : chosen;
    show(
      legend,
      series.map((each, index) => h("span", {}, h("i", { class: `dot c-${each.color}` }), each.name, values && times.length ? h("b", {}, format(rows[index][at] ?? 0)) : null)),
      chosen !== null && times.length ? h("span", { class: "quiet" }, labelled(times[at])) : null,
    );
    if (table.open) fillTable();
  }

  function fillTable() {
    const body = asTable(title, series.map((each) => each.name), times.map((time, index) => [labelled(time), ...rows.map((row) => format(row[index] ?? 0))]));
    show(table, h("summary", {}, "Show as table"), body);
  }

  function choose(index) {
    chosen = index === null || !times.length ? null : Math.min(times.length - 1, Math.max(0, index));
    draw();
  }
  table.addEventListener("toggle", () => table.open && fillTable());
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const width = Number(picture.getAttribute("viewBox").split(" ")[2]);
    const at = ((event.clientX - box.left) / box.width) * width;
    choose(Math.round(((at - LEFT) / (width - LEFT)) * (times.length - 1)));
  });
  picture.addEventListener("pointerleave", () => choose(null));
  picture.addEventListener("blur", () => choose(null));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      choose((chosen ?? times.length - 1) + step);
    }
  });
  new ResizeObserver(() => draw()).observe(node);
  return {
    node,
    update(newTimes, newRows, newLabel = label) {
      labelled = newLabel;
      times = newTimes;
      rows = newRows;
      if (chosen !== null && chosen >= times.length) chosen = null;
      draw();
    },
  };
}

// Columns with a name below each: a histogram, or counts by day. `columns` are [name, [[color, value], …]].
export function columnChart({ title, columns, format = number, height = 180, names = ["Value"] }) {
  const picture = svg("svg", { role: "img" });
  const node = h("div", { class: "chart" }, picture);
  const most = ceiling(Math.max(0, ...columns.map(([, parts]) => parts.reduce((sum, [, value]) => sum + value, 0))));
  picture.setAttribute("aria-label", `${title}: ${columns.map(([name, parts]) => `${name} ${parts.map(([, value]) => format(value)).join(" and ")}`).join(", ")}`);
  function draw() {
    const width = Math.max(240, Math.round(node.clientWidth || 480));
    const step = (width - LEFT) / Math.max(1, columns.length);
    const longest = Math.max(...columns.map(([name]) => name.length));
    const every = Math.ceil((columns.length * (longest * 6.5 + 10)) / (width - LEFT));
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const drawn = columns.map(([name, parts], index) => {
      let base = height - BELOW;
      const pieces = parts.map(([color, value]) => {
        const tall = (value / most) * (height - BELOW - 10);
        base -= tall;
        const wide = Math.min(56, step * 0.72);
        return svg("rect", { class: `column c-${color}`, x: LEFT + (index + 0.5) * step - wide / 2, width: wide, y: base, height: Math.max(value > 0 ? 1 : 0, tall), rx: 1.5 }, svg("title", {}, `${name}: ${format(value)}`));
      });
      const mark = index % every === 0 ? svg("text", { x: LEFT + (index + 0.5) * step, y: height - 4, "text-anchor": "middle" }, name) : null;
      return [...pieces, mark].filter(Boolean);
    });
    show(picture, frame(width, height, most), drawn.flat());
  }
  new ResizeObserver(draw).observe(node);
  const table = h("details", {}, h("summary", {}, "Show as table"), asTable(title, names, columns.map(([name, parts]) => [name, ...parts.map(([, value]) => format(value))])));
  node.append(table);
  draw();
  return node;
}

// `over` are parts of the values, such as denials, drawn in red.
export function sparkline(values, color = "allowed", wide = false, over = []) {
  const most = Math.max(...values, 1e-9);
  const path = (given) => given.map((value, index) => `${((index * 100) / Math.max(1, given.length - 1)).toFixed(1)},${(23 - (22 * value) / most).toFixed(1)}`);
  const points = path(values);
  const picture = svg("svg", { class: `spark c-${color}${wide ? " wide" : ""}`, viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (points.length > 1) picture.append(svg("path", { class: "area", d: `M0,24L${points.join("L")}L100,24Z` }), svg("path", { d: `M${points.join("L")}` }));
  if (over.some((value) => value > 0)) picture.append(svg("path", { class: "over", d: `M0,23L${path(over).join("L")}L100,23Z` }));
  return picture;
}

export function bar(parts, label) {
  const total = Math.max(1e-9, parts.reduce((sum, [, value]) => sum + value, 0));
  return h("div", { class: "bar", role: "img", "aria-label": label }, parts.map(([color, value]) => h("i", { class: `c-${color}`, "width%": (100 * value) / total })));
}
