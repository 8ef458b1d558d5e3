// One job: its metric, steps and workers over time, where and why there, and what happened to it.

import { age, clock, colour, does, el, fetched, many, page, percent, runs, short, svg, unit } from "/base.js";
import { course, drawn, SIGNS, ticks } from "/timeline.js";

const WIDTH = 860, HEIGHT = 380, LEFT = 56, RIGHT = 58, BOTTOM = 22, TOP = 10, SIZES = 70;
const TEXT = { up: "▲", down: "▼", move: "◆", other: "●" };

export function job(namespace, name, kind) {
  const found = page.jobs.find((job) => job.namespace === namespace && job.name === name && (!kind || job.kind === kind));
  if (!found) return el("p", { class: "card" }, `There is no job ${name} in ${namespace}, or you may not see it.`);
  const details = fetched("/details", [found])(found), { cells } = found, { at } = page.state;
  const did = course(found, details?.history, at), state = cells.STATE;
  const sum = (value, words) => el("div", { class: "card sum" }, el("b", {}, value || "–"), el("span", {}, words));
  const waits = did.bands.filter((band) => band.does === "waits").reduce((total, band) => total + band.to - band.from, 0);
  const command = `kubectl kfext explain -n ${found.namespace} ${found.name}`;
  return el("div", {}, el("h2", { class: "title" }, el("span", { class: "chip", c: colour(found) }), found.name,
    el("span", { class: "soft" }, `${found.kind} in ${found.namespace}`), el("span", { class: "pill" }, does(found)),
    state && el("span", { class: `pill ${state === "Stalled" ? "bad" : "soft"}` }, state),
    el("span", { class: "soft" }, `submitted ${clock(found.created)} UTC, ${age(at - found.created)} ago`)),
  el("section", { class: "sums", "aria-label": "Summary" },
    sum(found.done === null ? "" : percent(found.done), cells.STEP ? `step ${cells.STEP}` : "no step is known"),
    sum(cells.LEFT, found.ends ? `left; should end at ${clock(found.ends)} UTC` : "left: not known"),
    sum(cells.VALUE, cells.METRIC || "no metric is known"), sum(found.speed, "steps a second"),
    sum(cells.WORKERS, cells.WORKERS === "1" ? "worker" : "workers"), sum(age(waits), "waited")),
  el("div", { class: "two wide" },
    el("section", { class: "card" }, el("h2", {}, `${cells.METRIC || "Metric"}, steps and workers`), curve(found, details, did)),
    el("div", { class: "stack" }, place(found), says(details), happened(did))),
  el("section", { class: "card" }, el("h2", {}, "The same as text"), el("p", {}, el("code", {}, command)), text(found)));
}

const place = (job) => el("section", { class: "card" }, el("h2", {}, runs(job) ? "Where, and why there" : "Why"),
  job.places.length > 0 && el("dl", {}, job.places.slice(0, 12).map(([node, pods]) => [el("dt", {}, node),
    el("dd", {}, pods === null ? "" : `${many(pods, "pod")}, ${many(pods * (job.requests[page.state.unit] ?? 0), unit(page.state.unit))}`)])),
  el("ul", {}, el("li", { class: "pill soft" }, job.reason || job.phase), job.why.map((clause) => el("li", {}, clause)),
    job.starts && el("li", {}, job.starts)));
const says = (details) => details?.conditions.length > 0 && el("section", { class: "card" }, el("h2", {}, "What kfext says"),
  el("dl", {}, details.conditions.map(([type, words]) => [el("dt", {}, type), el("dd", {}, words)])));
const happened = ({ marks }) => el("section", { class: "card" }, el("h2", {}, "What happened"),
  marks.length ? el("ol", { class: "log" }, [...marks].reverse().map((mark) => el("li", {}, el("time", {}, clock(mark.t)),
    el("span", { "aria-hidden": "true" }, TEXT[mark.sign] ?? ""), el("span", {}, mark.sign ? mark.words : `${mark.what}: ${mark.words}`))))
    : el("p", { class: "soft" }, "No history: the TrainingPlan was written by kfext 0.3, or deleted since."));

function text(job) {
  const lines = page.open === job.id && (fetched("/explain", [job])(job) ?? ["Reading …"]);
  return el("details", { "data-job": job.id }, el("summary", {}, "Show it here, with pods, changes and the newest lines of its log"),
    lines && el("pre", { tabindex: 0, "aria-label": "The job as text" }, lines.join("\n")));
}

function curve(job, details, { bands, marks }) {
  const points = (details?.curve ?? []).filter(([, step, value]) => value !== null || step !== null);
  if (points.length < 2) return el("p", { class: "soft" }, details && runs(job) ? "No progress is known yet: figures come within a minute of the first step."
    : details ? "It has not trained yet, or its TrainingPlan has no curve: it was written by kfext 0.3, or deleted since." : "Reading …");
  const { at } = page.state, from = job.created, last = points.at(-1), [, done, final] = last;
  const end = runs(job) && job.ends > at ? job.ends : last[0], to = Math.min(Math.max(end, last[0]), at + 0.4 * (at - from)) + 1;
  const base = HEIGHT - SIZES, x = (t) => LEFT + ((WIDTH - LEFT - RIGHT) * (t - from)) / (to - from);
  const values = points.map(([, , value]) => value).filter((value) => value !== null), low = Math.min(...values), high = Math.max(...values);
  const log = low > 0 && high / low > 20, f = log ? Math.log : (value) => value, flat = high === low;
  const scale = (part) => TOP + (base - BOTTOM - TOP) * (1 - part), y = (value) => scale(flat ? 0.5 : (f(value) - f(low)) / (f(high) - f(low)));
  const steps = points.map(([, step]) => step ?? 0), total = job.done ? done / job.done : Math.max(1, ...steps), ys = (step) => scale(Math.min(1, step / total));
  const path = (list) => list.map(([t, height], i) => `${i ? "L" : "M"}${x(t).toFixed(1)} ${height.toFixed(1)}`).join("");
  const most = Math.max(1, ...bands.map(({ workers }) => workers)), yw = (number) => HEIGHT - BOTTOM - ((SIZES - 36) * number) / most;
  const sizes = bands.map((band, i) => `${i ? "L" : "M"}${x(band.from)} ${yw(band.does === "trains" ? band.workers : 0)}H${x(band.to)}`).join("");
  const ends = values.length ? [0, 0.5, 1].map((part) => (log ? low * (high / low) ** part : low + (high - low) * part)) : [];
  const left = (height, words) => svg("text", { x: LEFT - 6, y: height, "text-anchor": "end" }, words);
  const words = `${job.cells.METRIC} ${values.length ? `from ${short(values[0])} to ${short(values.at(-1))}` : ""}, ${many(done ?? 0, "step")}`;
  return el("div", {}, el("p", { class: "key" }, el("span", { class: "metric" }, `━ ${job.cells.METRIC || "metric"}${log ? " (log scale)" : ""}`),
    el("span", {}, "┅ steps, on the right"), el("span", {}, "━ workers, below"), el("span", {}, "grey: it waits or starts"), el("span", {}, "times are UTC")),
  svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words },
    bands.filter((band) => ["waits", "starts"].includes(band.does)).map((band) => svg("rect", { class: "band", x: x(band.from), y: TOP,
      width: Math.max(1, x(Math.min(band.to, to)) - x(band.from)), height: HEIGHT - TOP - BOTTOM, tip: `${band.does} ${band.words}` })),
    ticks(from, to, 8).map((t) => [svg("line", { class: "grid", x1: x(t), x2: x(t), y1: TOP, y2: HEIGHT - BOTTOM }),
      svg("text", { x: x(t), y: HEIGHT - 6, "text-anchor": "middle" }, clock(t))]),
    (flat ? ends.slice(0, 1) : ends).map((value) => [svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }), left(y(value) + 4, short(value))]),
    [0, 0.5, 1].map((part) => svg("text", { x: WIDTH - RIGHT + 6, y: scale(part) + 4 }, percent(part))),
    svg("path", { class: "steps", d: path(points.map(([t, step]) => [t, ys(step ?? 0)])) }),
    end > last[0] && [svg("path", { class: "steps coming", d: path([[last[0], ys(done)], [Math.min(end, to), ys(done + ((total - done) * (Math.min(end, to) - last[0])) / (end - last[0]))]]) }),
      svg("text", { x: WIDTH - RIGHT - 6, y: TOP + 12, "text-anchor": "end" }, `should end at ${clock(end)}`)],
    svg("path", { class: "metric", d: path(points.filter(([, , value]) => value !== null).map(([t, , value]) => [t, y(value)])) }),
    final !== null && svg("circle", { class: "metric", cx: x(last[0]), cy: y(final), r: 4 }),
    marks.filter((mark) => mark.sign).map((mark) => drawn(mark, x(mark.t), base - 8)),
    svg("path", { class: "sizes", d: sizes, c: colour(job) }), left(yw(most) + 4, most), left(yw(0) + 3, 0),
    runs(job) && svg("line", { class: "now", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM })));
}
