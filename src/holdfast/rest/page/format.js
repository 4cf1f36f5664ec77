/* Numbers, sizes and times as people read them. */

const NONE = "–";
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/** 1234567 is "1,234,567". */
export function count(number) {
  return number === null || number === undefined ? NONE : grouped.format(number);
}

/** 1234567 is "1.23M"; for places with little room. */
export function short(number) {
  if (number === null || number === undefined) return NONE;
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  while (Math.abs(number) >= 999.5 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return digits(number) + units[unit];
}

/** Three digits, no trailing zeros. */
function digits(number) {
  const size = Math.abs(number);
  const places = size >= 100 || Number.isInteger(number) ? 0 : size >= 10 ? 1 : 2;
  return String(Number(number.toFixed(places)));
}

export function rate(perSecond) {
  return `${short(perSecond)}/s`;
}

export function bytes(number) {
  if (number === null || number === undefined || number < 0) return NONE;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${digits(number)} ${units[unit]}`;
}

/** A duration in milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return NONE;
  if (ms < 1000) return `${digits(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${digits(seconds)} s`;
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [Math.floor(seconds) % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  return parts.slice(first, first + 2).map(([number, unit]) => `${number} ${unit}`).join(" ");
}

/** A duration with its largest unit only. */
function coarse(ms) {
  return ms < 60_000 ? duration(ms) : duration(ms).split(" ").slice(0, 2).join(" ");
}

/** The time of day; with the date if it is not today. */
export function time(ms) {
  if (ms === null || ms === undefined || ms <= 0) return NONE;
  const when = new Date(ms);
  const today = when.toDateString() === new Date().toDateString();
  return today ? clock.format(when) : `${day.format(when)}, ${clock.format(when)}`;
}

/** How far time is in the job, and how far that is behind now if it says something. */
export function watermark(ms, now) {
  if (ms === null || ms === undefined) return NONE;
  if (ms >= 2 ** 53) return "end";
  if (ms <= -(2 ** 53)) return NONE;
  const behind = now - ms;
  if (behind >= 0 && behind < 86_400_000) return `${coarse(behind)} behind`;
  return ms > 1e11 ? time(ms) : count(ms);
}

export function percent(share) {
  return `${Math.round(100 * share)} %`;
}
