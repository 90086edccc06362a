// Charts on uPlot, in the page's colours: series over time, and time-lines of lanes.

import { present } from "./api.js";
import { clock, folded } from "./dom.js";

const style = () => getComputedStyle(document.documentElement);
export const colour = (name) => style().getPropertyValue(`--${name}`).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");
const MONTH_DAY = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });
const FONT = "12px system-ui, sans-serif";

function axis(more) {
  return { stroke: () => colour("dim"), font: FONT, grid: { stroke: () => colour("line"), width: 1 }, ticks: { stroke: () => colour("line"), width: 1 }, ...more };
}

/** The axis of local time, with the day where it changes. */
const TIME = axis({
  space: 70, size: 44,
  values: (chart, splits) => splits.map((at, number) => {
    const day = new Date(at * 1000).toDateString() !== new Date((splits[number - 1] ?? at) * 1000).toDateString();
    const close = splits.length > 1 && splits[1] - splits[0] < 60;
    return clock(at, close) + (day ? `\n${MONTH_DAY.format(at * 1000)}` : "");
  }),
});

/** Keep a chart as wide as its box, and in the colours of the colour scheme. `make(width)` creates it. */
function living(box, make) {
  let chart = null;
  const width = () => Math.max(200, Math.floor(box.clientWidth));
  const sized = new ResizeObserver(() => {
    if (chart && box.clientWidth && chart.width !== width()) chart.setSize({ width: width(), height: chart.height });
  });
  const turned = () => chart?.redraw(false, true);
  sized.observe(box);
  dark.addEventListener("change", turned);
  return {
    get chart() {
      return (chart ??= make(width()));
    },
    end() {
      sized.disconnect();
      dark.removeEventListener("change", turned);
      chart?.destroy();
    },
  };
}

/** Stacked bars. `series`: label, colour's name, `value(index)` -> text. Data: seconds and a list of counts per series. */
export function stacked(box, label, series) {
  let raw = [[]];
  box.classList.add("stacked");
  const held = living(box, (width) => new globalThis.uPlot({
    width, height: 220, padding: [8, 18, 0, 0],
    scales: { x: { time: true }, y: { range: (chart, low, high) => [0, Math.max(4, (high ?? 0) * 1.1)] } },
    axes: [TIME, axis({ size: 52, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6], values: (chart, splits) => splits.map((each) => new Intl.NumberFormat("en", { notation: "compact" }).format(each)) })],
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    legend: { live: true },
    series: [
      { label: "minute", value: (chart, at) => (at == null ? "–" : clock(at)) },
      // The tallest bar is drawn first, so that each bar covers the lower part of the one behind it.
      ...series.map((each, number) => ({
        label: each.label, fill: () => colour(each.colour), stroke: () => colour(each.colour), width: 0, points: { show: false },
        paths: globalThis.uPlot.paths.bars({ size: [0.8, 60], align: 1, gap: 0 }),
        value: (chart, sum, at, index) => (index == null ? "–" : new Intl.NumberFormat("en").format(raw[number + 1]?.[index] ?? 0)),
      })),
    ],
    hooks: { draw: [nowLine] },
  }, [[]], box));
  box.setAttribute("role", "img");
  return {
    show(data, from, to) {
      raw = data;
      const sums = data.slice(1).map((_, first) => data[0].map((_, at) => data.slice(1 + first).reduce((sum, each) => sum + each[at], 0)));
      held.chart.setData([data[0], ...sums], false);
      held.chart.setScale("x", { min: from, max: to });
      box.setAttribute("aria-label", label(data));
    },
    end: held.end,
  };
}

const SCALE = [1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 86_400_000, 864_000_000, 8_640_000_000]; // ms that the axis names
const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"], [1, "ms"]];
/** Format a value of the scale: 1 s, 10 min, 1 h. */
function scaleText(ms) {
  const [unit, name] = UNITS.find(([unit]) => ms >= unit);
  return `${ms / unit} ${name}`;
}

/** Return the indexes of values without neighbours, which no line would show. */
function alone(chart, series) {
  const values = chart.data[series];
  return values.flatMap((value, at) => (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : []));
}

/** Lines over a logarithmic scale of milliseconds. */
export function lines(box, label, series, text) {
  let raw = [[]];
  const held = living(box, (width) => new globalThis.uPlot({
    width, height: 220, padding: [8, 18, 0, 0],
    scales: { x: { time: true }, y: { distr: 3, range: (chart, low, high) => [1, SCALE.find((each) => each >= Math.max(10, (high ?? 10) * 1.05)) ?? SCALE.at(-1)] } },
    axes: [TIME, axis({ size: (chart, values) => Math.max(62, Math.ceil(widest(["", ...(values ?? []).map((each) => each ?? "")])) + 20), splits: (chart, number, low, high) => SCALE.filter((each) => low <= each && each <= high), filter: (chart, splits) => splits, grid: { stroke: () => colour("line"), width: 1 }, values: (chart, splits) => splits.map(scaleText) })],
    cursor: { drag: { x: false, y: false } },
    series: [
      { label: "minute", value: (chart, at) => (at == null ? "–" : clock(at)) },
      ...series.map((each, number) => ({
        label: each.label, stroke: () => colour(each.colour), width: 1.5, dash: each.dash, points: { show: true, size: 5, fill: () => colour(each.colour), filter: alone },
        value: (chart, value, at, index) => (index == null ? "–" : text(raw[number + 1]?.[index])),
      })),
    ],
    hooks: { draw: [nowLine] },
  }, [[]], box));
  box.setAttribute("role", "img");
  return {
    show(data, from, to) {
      raw = data;
      held.chart.setData([data[0], ...data.slice(1).map((each) => each.map((value) => (value === null ? null : Math.max(1, value))))], false);
      held.chart.setScale("x", { min: from, max: to });
      box.setAttribute("aria-label", label(data));
    },
    end: held.end,
  };
}

function nowLine(chart) {
  const at = Math.round(chart.valToPos(present() / 1000, "x", true));
  const { left, top, width, height } = chart.bbox;
  if (at < left || at > left + width) return;
  chart.ctx.save();
  chart.ctx.strokeStyle = colour("accent");
  chart.ctx.setLineDash([4, 4]);
  chart.ctx.beginPath();
  chart.ctx.moveTo(at, top);
  chart.ctx.lineTo(at, top + height);
  chart.ctx.stroke();
  chart.ctx.restore();
}

const LANE = 26;
const NARROW = 14; // height of a lane in pixels when there are many
const TALL = 420; // height of all lanes in pixels, unless a lane would become narrower than that
const NAME = 18; // most characters of a lane's name

const ruler = document.createElement("canvas").getContext("2d");
/** Return the width of the widest text, in pixels. */
function widest(texts) {
  ruler.font = FONT;
  return Math.max(...texts.map((each) => ruler.measureText(each).width));
}

/**
 * A time-line: lanes with spans `{lane, from, to, colour, text, mark}` in seconds; `mark`: a moment in it. `onPoint(span)` is called with the
 * span under the pointer, with the lane's whole name as `about` where there is none, or with null.
 */
export function timeline(box, onPoint) {
  let lanes = [];
  let spans = [];
  const draw = (chart) => {
    const { ctx } = chart;
    const ratio = devicePixelRatio;
    const { left, top, width, height } = chart.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const each of spans) {
      const x = chart.valToPos(each.from, "x", true);
      const end = Math.max(x + 3 * ratio, chart.valToPos(each.to, "x", true));
      const middle = chart.valToPos(each.lane, "y", true);
      const tall = Math.min(16, lane() - 4) * ratio;
      ctx.fillStyle = colour(each.colour);
      ctx.fillRect(x, middle - tall / 2, end - x, tall);
      if (each.mark) {
        ctx.fillStyle = colour("text");
        ctx.fillRect(chart.valToPos(each.mark, "x", true) - ratio, middle - tall / 2 - 3 * ratio, 2 * ratio, tall + 6 * ratio);
      }
      if (each.text && tall >= 14 * ratio && end - x > ctx.measureText(each.text).width + 8 * ratio) {
        ctx.fillStyle = colour("on");
        ctx.fillText(each.text, Math.max(x, left) + 4 * ratio, middle);
      }
    }
    ctx.restore();
  };
  const found = (chart) => {
    const { left, top } = chart.cursor;
    if (left < 0 || top < 0) return onPoint(null);
    const under = Math.round(chart.posToVal(top, "y"));
    const at = chart.posToVal(left, "x");
    const near = chart.posToVal(left + 4, "x") - at;
    const name = lanes[under] && { about: lanes[under] };
    onPoint(spans.findLast((each) => each.lane === under && each.from - near <= at && at <= each.to + near) ?? name ?? null);
  };
  const lane = () => Math.max(NARROW, Math.min(LANE, Math.floor(TALL / Math.max(1, lanes.length))));
  const height = () => Math.max(2, lanes.length) * lane() + 42;
  const shown = (name) => folded(name, NAME);
  const held = living(box, (width) => new globalThis.uPlot({
    width, height: height(), padding: [4, 18, 0, 0],
    scales: { x: { time: true }, y: { dir: -1, range: () => [-0.5, Math.max(2, lanes.length) - 0.5] } },
    axes: [TIME, axis({ size: () => Math.ceil(widest(["0000", ...lanes.map(shown)])) + 24, splits: () => lanes.map((_, lane) => lane), values: (chart, splits) => splits.map((each) => shown(lanes[each] ?? "")), grid: { show: false } })],
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    legend: { show: false },
    series: [{}, { paths: () => null, points: { show: false } }],
    hooks: { draw: [draw, nowLine], setCursor: [found] },
  }, [[], []], box));
  box.setAttribute("role", "img");
  return {
    show(names, found, from, to, label) {
      [lanes, spans] = [names, found];
      const chart = held.chart;
      if (chart.height !== height()) chart.setSize({ width: chart.width, height: height() });
      chart.setData([[from, to], [0, 0]], false);
      chart.setScale("x", { min: from, max: to });
      box.setAttribute("aria-label", label);
    },
    end: held.end,
  };
}
