// Charts: lines over time, drawn by uPlot, and bars, which are elements.

import { h, setAttribute, setText } from "./dom.js";

const HEIGHT = 170;
const SHORTEST_S = 60;
const LONGEST_S = 300;
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * Lines over the last minutes.
 * `lines` are {name, series, colour, fill}, `format` writes values; with `log` a step up is ten times as much.
 * `update(columns)` draws what a History has.
 */
export function timeChart(title, lines, format, { log = false } = {}) {
  const place = h("div", { class: "plot", role: "img" });
  const values = lines.map((line) => h("span", { class: "value" }, "–"));
  const legend = h("div", { class: "legend" },
    lines.map((line, i) => h("span", { class: `key ${line.colour}` }, line.name, " ", values[i])));
  const node = h("section", { class: "card chart" }, h("h2", {}, title), legend, place);
  let plot = null;
  let columns = null;
  let cursor = null;

  function make() {
    plot?.destroy();
    const axis = { stroke: colour("--faint"), font: "11px system-ui", ticks: { show: false }, grid: { stroke: colour("--line"), width: 1 } };
    plot = new uPlot({
      width: Math.max(place.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      padding: [8, 22, 0, 0],
      cursor: { y: false, points: { size: 6 } },
      scales: { x: { time: true, range: lastMinutes }, y: log ? { distr: 3, range: decades } : { range: fromZero } },
      axes: [
        { ...axis, grid: { show: false }, space: 90, size: 28, values: "{HH}:{mm}:{ss}" },
        { ...axis, size: 62, space: log ? 20 : 36, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(format(tick)))), ...(log && { filter: powers, grid: { ...axis.grid, filter: powers } }) },
      ],
      series: [{}, ...lines.map((line) => {
        const stroke = colour(`--${line.colour}`);
        return { stroke, width: 1.75, spanGaps: false, points: { show: false }, fill: line.fill ? `${stroke}22` : undefined };
      })],
      hooks: { setCursor: [(u) => { cursor = u.cursor.idx ?? null; write(); }] },
    }, data(), place);
  }

  function data() {
    return columns ? [columns.times, ...lines.map((line) => columns.series[line.series])] : [[], ...lines.map(() => [])];
  }

  function write() {
    if (!columns) return;
    const at = cursor ?? columns.times.length - 1;
    lines.forEach((line, i) => setText(values[i], format(columns.series[line.series][at] ?? null)));
    const last = columns.times.length - 1;
    const now = lines.map((line) => `${line.name} ${format(columns.series[line.series][last] ?? null)}`);
    setAttribute(place, "aria-label", `${title}, now: ${now.join(", ")}`);
  }

  const resized = new ResizeObserver(() => {
    if (!place.isConnected || !place.clientWidth) return;
    if (plot) plot.setSize({ width: place.clientWidth, height: HEIGHT });
    else make();
  });
  resized.observe(place);
  const themed = () => plot && make();
  dark.addEventListener("change", themed);
  setAttribute(place, "aria-label", title);
  return {
    node,
    update(newColumns) {
      columns = newColumns ?? null;
      if (!columns || !plot) return;
      plot.setData(data());
      place.dataset.points = columns.times.length;
      write();
    },
    close() {
      resized.disconnect();
      dark.removeEventListener("change", themed);
      plot?.destroy();
    },
  };
}

const short = (text) => text.replace(/\.0+(?= )/, "");
const powers = (_, ticks) => ticks.map((tick) => (Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-6 ? tick : null));

/** All points of the last five minutes, and at least one minute. */
function lastMinutes(plot) {
  const times = plot.data[0];
  const high = times[times.length - 1] ?? Date.now() / 1000;
  return [Math.max(high - LONGEST_S, Math.min(times[0] ?? high, high - SHORTEST_S)), high];
}

const fromZero = (_, low, high) => [0, high > 0 ? high * 1.15 : 1];

/** From one power of ten to another, around what is drawn. */
function decades(_, low, high) {
  if (!(high > 0)) return [100, 1e5];
  const bottom = 10 ** Math.floor(Math.log10(Math.max(low, 1)));
  return [bottom, Math.max(10 ** Math.ceil(Math.log10(high)), bottom * 10)];
}

/** Horizontal bars: `update([[label, value], …])`; `format` writes the values, `empty` is said when there are none. */
export function bars(title, format, empty, { tint = "blue" } = {}) {
  const list = h("dl", { class: `bars ${tint}` });
  const none = h("p", { class: "faint" }, empty);
  const node = h("section", { class: "card" }, h("h2", {}, title), list, none);
  return { node, update: (rows) => drawBars(list, none, rows, format) };
}

export function drawBars(list, none, rows, format) {
  const most = Math.max(...rows.map(([, value]) => value), 0);
  list.hidden = !most;
  none.hidden = Boolean(most);
  while (list.childElementCount > rows.length) list.lastElementChild.remove();
  while (list.childElementCount < rows.length) {
    list.append(h("div", { class: "bar" }, h("dt"), h("dd", {}, h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "fill" })), h("span", { class: "value" }))));
  }
  rows.forEach(([label, value], i) => {
    const row = list.children[i];
    setText(row.querySelector("dt"), label);
    setText(row.querySelector(".value"), format(value));
    row.querySelector(".fill").style.width = `${most ? Math.max(0, (value / most) * 100) : 0}%`;
  });
}
