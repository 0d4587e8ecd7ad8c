// What happens now.
import { get } from "../api.js";
import { bar, sparkline, timeChart } from "../charts.js";
import { addressLink, h, link, show } from "../dom.js";
import { ago, clock, number, rate, seconds, share } from "../format.js";
import { counted, spanNames, spanOf } from "../spans.js";
import { badge, card, empty, half, heading, segments, table, tile } from "../ui.js";

const KINDS = ["allowed", "denied", "throttled", "shadow", "blocked", "degraded"];
const STATES = {
  normal: "Normal: every part answers, and every request is counted.",
  degraded: "Degraded: decisions go on, something else does not.",
  overloaded: "Overloaded: some checks are refused because Redis does not keep up.",
  failing_open: "Failing open: requests are admitted without being counted.",
};
const MAX_POINTS = 300;

export async function page({ main, signal, every, me }) {
  const state = h("div", { class: "state" });
  const tiles = h("div", { class: "tiles" });
  const chart = timeChart({
    title: "Requests per second",
    format: rate,
    series: [
      { name: "Allowed", color: "allowed", area: true },
      { name: "Denied", color: "denied", area: true },
      { name: "Throttled", color: "throttled" },
      { name: "Shadow", color: "shadow", dashed: true },
      { name: "Blocked", color: "blocked" },
      { name: "Degraded", color: "degraded", dashed: true },
    ],
  });
  const order = ["allowed", "denied", "throttled", "shadow", "blocked", "degraded"];
  const health = h("section", { class: "card", "aria-label": "Health" });
  const lists = h("div", { class: "grid" });
  const updated = h("span", {});
  const live = h("span", { class: "small quiet live" }, h("i", { class: "dot" }), updated);
  let history = [];
  let chosen = "live";

  let hot = { counters: [], missing: true };
  async function loadHot() {
    if (!me.offers.includes("hot")) return;
    try {
      hot = await get("/v1/hot", {}, signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      hot = { counters: [], missing: error.status === 404 };
    }
  }

  function draw(now) {
    show(
      state,
      h("div", { class: `banner ${now.state}`, role: now.state === "normal" ? null : "alert" }, h("strong", {}, h("i", { class: "dot" }), STATES[now.state]), now.reasons.length ? h("ul", {}, now.reasons.map((each) => h("li", {}, `${each.part}: ${each.message}`))) : null),
    );
    const last = history.slice(-60);
    show(
      tiles,
      KINDS.map((kind) => h("div", { class: "tile" }, h("span", { class: "tile-name" }, h("i", { class: `dot c-${kind}` }), kind[0].toUpperCase() + kind.slice(1)), h("span", { class: `tile-value rate-${kind}` }, rate(now.rates[kind]), h("small", {}, "/s")), sparkline(last.map((point) => point[kind]), kind, true))),
      tile("Decision time", seconds(now.latency.p50), { unit: "p50", below: h("span", { class: "small quiet", title: "of the last minute" }, "p99 ", h("b", { class: "p99" }, seconds(now.latency.p99))) }),
    );
    if (chosen === "live") chart.update(history.map((point) => point.at), order.map((kind) => history.map((point) => point[kind])));
    show(health, h("div", { class: "health" }, healthParts(now)));
    show(lists, busiest(now), hottest(hot), violators(now), processes(now));
    live.classList.remove("stale");
    updated.textContent = `Updated ${clock(now.at)}`;
  }

  // Longer spans are counts by minute, hour or day, as rates.
  let found = null;
  async function past() {
    const name = chosen;
    found = await counted(name, {}, signal, found);
    if (name === chosen) chart.update(found.times, order.map((kind) => found.of(kind).map((count) => count / found.step)), spanOf(name).label);
  }
  const span = segments("Time span", [["live", "Live, 5 min"], ...spanNames], chosen, async (name) => {
    chosen = name;
    if (name === "live") await refresh(MAX_POINTS);
    else await past();
  });

  async function refresh(points) {
    const now = await get("/v1/overview", { history: points }, signal);
    history = points > 1 ? now.history : [...history, { at: now.at, ...now.rates }].slice(-MAX_POINTS);
    draw(now);
  }

  await loadHot();
  show(main, heading("Overview", { text: "All processes of this service, as of now.", actions: live }), state, tiles, card("Requests per second", { note: span }, chart.node), health, lists);
  await refresh(MAX_POINTS);
  every(1000, async () => {
    try {
      await refresh(1);
    } catch (error) {
      if (error.name === "AbortError") return;
      live.classList.add("stale");
      updated.textContent = `Not updated: ${error.message}`;
    }
  });
  every(60000, async () => {
    if (chosen !== "live") await past();
  });
  every(10000, loadHot);
}

function part(title, state, figures) {
  return h("section", { "aria-label": title }, h("h2", {}, title, badge(state)), h("dl", {}, figures.map(([name, value]) => [h("dt", {}, name), h("dd", { class: "num" }, value)])));
}

function healthParts({ health }) {
  const { redis, postgres, kafka, spool } = health;
  const worst = redis.servers.filter((each) => each.breaker !== "closed").length;
  const lag = (sinks) => seconds(Math.max(0, ...sinks.map((each) => each.lag_seconds)));
  return [
    part("Redis", redis.state, [["Servers", redis.servers.length ? `${redis.servers.length - worst} of ${redis.servers.length} up` : "in memory"], ["Checks in flight", number(redis.in_flight)], ["Checks waiting", number(redis.waiting)]]),
    part("PostgreSQL", postgres.state, [["Answers", postgres.state === "up" ? "yes" : "no"], ["Changes by", redis.feed_up === false ? "database" : "feed"]]),
    part("Kafka", kafka.state, kafka.sinks.length ? [["Waiting", number(kafka.sinks.reduce((sum, each) => sum + each.spooled, 0))], ["Behind", lag(kafka.sinks)]] : [["Events", "not sent to Kafka"]]),
    part("Spool", spool.state, [["On disk", number(spool.spooled)], ["Behind", lag(spool.sinks)], ["Lost", number(spool.dropped)]]),
  ];
}

function busiest(now) {
  const rows = table(
    "Busiest rules of the last minute",
    [
      { name: "Rule", cell: (row) => (row.rule === "(other)" ? row.rule : link(row.rule, "rules", row.rule)) },
      { name: "Outcome", cell: (row) => bar([["allowed", row.allowed], ["throttled", row.throttled], ["shadow", row.shadow], ["denied", row.denied], ["blocked", row.blocked]], `${share(row.rate ? row.denied / row.rate : 0)} denied`) },
      { name: "Denied", num: true, cell: (row) => h("span", { class: row.denied > 0 ? "is-denied" : null }, share(row.rate ? row.denied / row.rate : 0)) },
      { name: "Per second", num: true, cell: (row) => rate(row.rate) },
    ],
    now.rules,
    empty("No decisions in the last minute", "Send a request to the decision service, and its rules appear here within two seconds."),
  );
  return half("Busiest rules", { note: "last minute" }, rows);
}

function hottest(hot) {
  const nothing = hot.missing ? empty("Not known here", "This version of the service does not tell which counters are hot.") : empty("No hot counters", "No counter is used often enough to be listed.");
  const rows = table(
    "Hottest counters",
    [
      { name: "Counter of", cell: (row) => subject(row) },
      { name: "Rule", tight: true, cell: (row) => (row.rule ? link(row.rule, "rules", row.rule) : "–") },
      { name: "Mode", cell: (row) => badge(row.mode ?? "exact", "") },
      { name: "Share", num: true, cell: (row) => share(row.share) },
      { name: "Per second", num: true, cell: (row) => rate(row.rate) },
    ],
    hot.counters.slice(0, 10),
    nothing,
  );
  return half("Hottest counters", { note: "last minute" }, rows);
}

// Whose counter it is, by the part of its key that stands in braces.
const SUBJECTS = { u: "user", k: "key", t: "tenant", i: "address" };
function subject({ key, rule }) {
  const [, kind, sign, value] = /^rl:\{([gukti])([=@])([^{}%]*)\}:/.exec(key) ?? [];
  if (!rule || kind === undefined) return h("code", { title: key }, key);
  if (kind === "g") return h("span", { title: key }, "all callers");
  const words = sign === "@" ? "address" : SUBJECTS[kind];
  return h("span", { title: key }, h("span", { class: "quiet" }, `${words} `), words === "user" ? link(value, "users", value) : value);
}

function violators(now) {
  const rows = table(
    "Top violators of the last 15 minutes",
    [
      { name: "Caller", cell: (row) => (row.user ? link(row.user, "users", row.user) : row.api_key || !row.ip ? h("code", {}, row.api_key ?? "unknown") : addressLink(row.ip)) },
      { name: "Kind", cell: (row) => (row.user ? "user" : row.api_key ? "key" : "address") },
      { name: "Last", num: true, cell: (row) => ago(row.last) },
      { name: "Denials", num: true, cell: (row) => h("span", { class: "is-denied" }, number(row.violations)) },
    ],
    now.violators ?? [],
    now.violators === null ? empty("Not known now", "The database has not answered yet.") : empty("No caller was denied", "In the last 15 minutes every caller kept to its limits."),
  );
  return half("Top violators", { note: "last 15 minutes" }, rows);
}

function processes(now) {
  const newest = now.snapshot?.number ?? 0;
  return half(
    "Processes",
    { note: newest ? `newest rules: snapshot ${newest}` : "no rules were published" },
    table(
      "Processes",
      [
        { name: "Process", cell: (row) => [`${row.host}:${row.pid}`, h("div", { class: "small quiet" }, row.role)] },
        { name: "Rules", cell: (row) => (row.behind ? badge(`snapshot ${row.rules}, behind`, "degraded") : badge(`snapshot ${row.rules}`, "up")) },
        { name: "From", cell: (row) => row.rules_from },
        { name: "Blocks", num: true, cell: (row) => number(row.blocks) },
        { name: "Started", num: true, cell: (row) => ago(row.started) },
      ],
      now.processes,
      empty("No process has reported", "Processes report to the database every three seconds."),
    ),
  );
}
