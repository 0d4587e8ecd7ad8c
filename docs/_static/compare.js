// The page algorithms/compare.md: one stream of requests, sent through all six algorithms, drawn as SVG.
"use strict";

(() => {
  const SECOND = 1e6, SPAN = 60, WIDTH = 700, HEIGHT = 34, SVG = "http://www.w3.org/2000/svg";
  const place = document.getElementById("algorithm-comparison");
  if (!place) return;

  const CONTROLS = [
    ["rate", "requests a second", 0.1, 8, 0.1, 1.5],
    ["bursts", "in bursts of", 1, 20, 1, 6],
    ["amount", "limit: how many", 1, 30, 1, 10],
    ["period", "… in seconds", 2, 30, 1, 10],
    ["hold", "a request takes, in seconds (slots)", 1, 20, 1, 6],
    ["seed", "another traffic", 1, 50, 1, 1],
  ];

  function element(name, attributes = {}, text = "") {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }
  function shape(name, attributes, parent) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  // A small generator with a seed, so that the same sliders always show the same traffic.
  function random(seed) {
    let state = seed * 2654435761 >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
    };
  }
  function arrivals({ rate, bursts, seed }) {
    const next = random(seed), times = [];
    for (let at = 0; at < SPAN;) {
      at += -Math.log(1 - next()) * bursts / rate;
      for (let each = 0, time = at; each < bursts; each += 1, time += 0.05 + next() * 0.1) times.push(time);
    }
    return times.filter((time) => time < SPAN).sort((one, other) => one - other).map((time) => Math.round(time * SECOND));
  }

  function mostWithin(times, period) {
    let most = 0;
    for (let first = 0, last = 0; last < times.length; last += 1) {
      while (times[last] - times[first] >= period) first += 1;
      most = Math.max(most, last - first + 1);
    }
    return most;
  }

  const sliders = {}, form = element("div", { class: "compare-controls" });
  for (const [name, label, min, max, step, value] of CONTROLS) {
    const row = element("label", {}, `${label} `), shown = element("output");
    const slider = element("input", { type: "range", min, max, step, value, "aria-label": label });
    slider.addEventListener("input", draw);
    row.append(shown, slider);
    form.append(row);
    sliders[name] = { slider, shown };
  }
  const result = element("div", { class: "compare-result" });
  place.replaceChildren(form, result);

  function row(name, answers, period, amount) {
    const passed = answers.filter((each) => each.allowed);
    const out = passed.map((each) => each.at + each.delay).sort((one, other) => one - other);
    const longest = Math.max(0, ...passed.map((each) => each.delay)) / SECOND;
    const box = element("figure", { "data-algorithm": name, "data-admitted": passed.length });
    const text = `${passed.length} of ${answers.length} admitted; at most ${mostWithin(out, period)} in any ${period / SECOND} s` +
      (longest ? `; longest delay ${longest.toFixed(1)} s` : "");
    const caption = element("figcaption");
    caption.append(element("strong", {}, name), ` ${text}`);
    const drawing = document.createElementNS(SVG, "svg");
    drawing.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", `${name}: ${text}`);
    const x = (time) => (time / SECOND / SPAN) * WIDTH;
    if (name === "fixed_window" || name === "sliding_window_counter")
      for (let at = 0; at < SPAN * SECOND; at += period)
        shape("line", { x1: x(at), x2: x(at), y1: 0, y2: HEIGHT, class: "boundary" }, drawing);
    for (const { at, allowed, delay } of answers) {
      if (!allowed) { shape("path", { d: `M${x(at) - 3} 24l6 6m0 -6l-6 6`, class: "refused" }, drawing); continue; }
      if (delay) shape("line", { x1: x(at), x2: x(at + delay), y1: 10, y2: 10, class: "waiting" }, drawing);
      shape("circle", { cx: x(at + delay), cy: 10, r: 3.2, class: "admitted" }, drawing);
    }
    box.append(caption, drawing);
    return box;
  }

  function draw() {
    const chosen = {};
    for (const [name, { slider, shown }] of Object.entries(sliders)) shown.textContent = chosen[name] = Number(slider.value);
    const period = chosen.period * SECOND;
    const meter = { amount: chosen.amount, period, burst: chosen.amount, maxDelay: period, hold: chosen.hold * SECOND };
    const times = arrivals(chosen);
    result.replaceChildren(...Object.entries(ALGORITHMS).map(([name, make]) => {
      const take = make(meter);
      return row(name, times.map((at) => ({ at, ...take(at) })), period, chosen.amount);
    }));
  }
  draw();
})();
