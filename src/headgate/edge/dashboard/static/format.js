// Numbers and times as people read them, in the browser's time zone.
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1e6 ? compact.format(value) : whole.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  return value < 100 ? value.toFixed(1) : number(value);
}

// For the marks of an axis: no more digits than needed.
export function mark(value) {
  return value >= 1e4 ? compact.format(value) : String(Number(value.toPrecision(3)));
}

export function share(value) {
  if (value === null || value === undefined) return "–";
  const percent = 100 * value;
  return `${percent > 0 && percent < 1 ? percent.toFixed(1) : Math.round(percent)} %`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return `${value.toFixed(1)} s`;
}

export function span(value) {
  if (value === null || value === undefined) return "–";
  const left = Math.max(0, Math.ceil(value));
  if (left < 60) return `${left} s`;
  if (left < 3600) return `${Math.floor(left / 60)} min ${String(left % 60).padStart(2, "0")} s`;
  if (left < 86400) return `${Math.floor(left / 3600)} h ${String(Math.floor((left % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(left / 86400)} d ${Math.floor((left % 86400) / 3600)} h`;
}

const two = (value) => String(value).padStart(2, "0");
export function clock(time) {
  const at = new Date(time);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
export function minute(time) {
  const at = new Date(time);
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
}
export function day(time) {
  const at = new Date(time);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}
export function moment(time) {
  return time ? `${day(time)} ${clock(time)}` : "–";
}
export function ago(time) {
  if (!time) return "never";
  const passed = (Date.now() - new Date(time)) / 1000;
  if (passed < 2) return "now";
  if (passed < 60) return `${Math.floor(passed)} s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86400)} d ago`;
}
export const limits = (given) => (given ? [given].flat().join(", ") : "–");
