// Counts over the last hour, day or month, with zeros where nothing was counted.
import { get } from "./api.js";
import { day, minute } from "./format.js";

const HOUR = 3600;
const DAY = 24 * HOUR;
const hour = (time) => `${day(time).slice(5)} ${minute(time)}`;
const SPANS = {
  "1h": { seconds: HOUR, step: 60, granularity: "minute", text: "1 h", per: "minute", words: "last hour", label: minute },
  "6h": { seconds: 6 * HOUR, step: 60, granularity: "minute", text: "6 h", per: "minute", words: "last 6 hours", label: minute },
  "1d": { seconds: DAY, step: HOUR, granularity: "hour", text: "1 day", per: "hour", words: "last day", label: hour },
  "7d": { seconds: 7 * DAY, step: HOUR, granularity: "hour", text: "7 days", per: "hour", words: "last 7 days", label: hour },
  "30d": { seconds: 30 * DAY, step: DAY, granularity: "day", text: "30 days", per: "day", words: "last 30 days", label: (time) => new Date(time).toISOString().slice(5, 10) },
};
const MAX_POINTS = 1000;

export const spanNames = Object.entries(SPANS).map(([name, { text }]) => [name, text]);
export const spanOf = (name) => SPANS[name];

// How many of the newest points are asked for again: counts arrive some seconds late.
const UNSETTLED = 2;

// The points of a span: `times`, and `of(kind)` for the counts of each; `sum(kind)` of all.
// With what was found `before`, only what came since then is asked for.
export async function counted(name, filter, signal, before) {
  const { seconds, step, granularity } = SPANS[name];
  const last = Math.floor(Date.now() / 1000 / step) * step;
  const first = last - seconds + step;
  const known = before?.name === name ? before : null;
  const from = known ? Math.max(first, known.last - UNSETTLED * step) : first;
  const since = new Date(from * 1000).toISOString();
  const { items } = await get("/v1/metrics", { granularity, since, limit: MAX_POINTS, quantiles: false, ...filter }, signal);
  const found = new Map([...(known?.found ?? []), ...items.map((item) => [Math.floor(new Date(item.at) / 1000 / step) * step, item])]);
  const times = Array.from({ length: Math.round(seconds / step) }, (_, index) => first + index * step);
  const of = (kind) => times.map((time) => found.get(time)?.[kind] ?? 0);
  return { name, found, last, step, seconds, of, times: times.map((time) => time * 1000), sum: (kind) => of(kind).reduce((sum, count) => sum + count, 0) };
}
