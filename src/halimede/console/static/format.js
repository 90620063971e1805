// Numbers as people read them.

const UNITS = ["B", "KB", "MB", "GB", "TB"];

/** A count or rate with at most three digits that matter. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e4) return `${trim(value / 1e3)} k`;
  return trim(value);
}

function trim(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 10 ? 1 : size === 0 ? 0 : 2);
}

/** Microseconds as µs, ms or s. */
export function duration(us) {
  if (us === null || us === undefined || Number.isNaN(us)) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e4 ? 2 : us < 1e5 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
}

/** Bytes as KB, MB or GB of powers of ten. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** A share from 0 to 1 as a percentage. */
export function percent(share) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** Seconds since something, in words. */
export function age(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}
