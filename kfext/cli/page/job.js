// One job: its metric, steps and workers over time, its placement with the reason, and its history.

import { age, clock, colour, does, el, fetched, many, page, percent, runs, short, svg, unit } from "/base.js";
import { needs } from "/cluster.js";
import { rank } from "/queue.js";
import { course, drawn, ticks } from "/timeline.js";

const WIDTH = 860, HEIGHT = 380, LEFT = 56, RIGHT = WIDTH - 58, TOP = 10, BOTTOM = HEIGHT - 22, BASE = BOTTOM - 60;
const STATES = {
  Watching: "its metric has grown by less than 3 % of its best growth",
  Completing: "its metric has hardly grown for several minutes; it may train for long yet",
};
const TEXT = { up: "▲", down: "▼", move: "◆", other: "●" };

export function job(namespace, name, kind) {
  const job = page.jobs.find((job) =>
    job.namespace === namespace && job.name === name && (!kind || job.kind === kind));
  if (!job) return el("p", { class: "card" }, `There is no job ${name} in ${namespace}, or you may not see it.`);
  const details = fetched("/details", [job])(job), { cells } = job, { at } = page.state, waits = does(job) === "waits";
  const past = course(job, details?.history, at);
  const sum = (value, words) => el("div", { class: "card sum" }, el("b", {}, value || "–"), el("span", {}, words));
  const waited = past.bands.reduce((total, { does, from, to }) => total + (does === "waits" ? to - from : 0), 0);
  const [number, all] = needs(job), ended = past.bands.findLast(({ does }) => does === "ended" && past.marks.length);
  return el("div", {},
    el("h2", { class: "title" }, el("span", { class: "chip", c: colour(job) }), job.name,
      el("span", { class: "soft" }, `${job.kind} in ${job.namespace}`), el("span", { class: "pill" }, does(job)),
      cells.STATE && cells.STATE !== "New" && el("span", { class: `pill ${cells.STATE === "Stalled" ? "bad" : "soft"}`, tip: STATES[cells.STATE] }, cells.STATE),
      el("span", { class: "soft" }, `submitted ${clock(job.created)} UTC, ${age(at - job.created)} ago`)),
    el("section", { class: "sums", "aria-label": "Summary" }, waits ? [
      sum(age(waited), "waited"), sum(rank(job), "its place in the queue"), sum(number, all && `need ${all}`),
      sum(job.startsShort || "unknown", "expected start")] : [
      sum(job.done === null ? "" : percent(job.done), cells.STEP ? `step ${cells.STEP}` : "no step is known"),
      ended ? sum(`${clock(ended.from)} UTC`, "ended") : sum(cells.LEFT, job.ends ? `left; should end at ${clock(job.ends)} UTC` : "left: not known"),
      sum(cells.VALUE, cells.METRIC || "no metric is known"), sum(job.speed, "steps a second"),
      sum(cells.WORKERS, cells.WORKERS === "1" ? "worker" : "workers"), sum(age(waited), "waited")]),
    el("div", { class: "two wide" },
      el("div", { class: "stack" }, waits && place(job),
        (!waits || details?.curve.length > 1) && el("section", { class: "card" },
          el("h2", {}, `${cells.METRIC || "Metric"}, steps and workers`), curve(job, details, past)),
        el("section", { class: "card" }, el("h2", {}, "The same as text"),
          el("p", {}, el("code", {}, `kubectl kfext explain -n ${job.namespace} ${job.name}`)), text(job))),
      el("div", { class: "stack" }, !waits && place(job), happened(past), says(details))));
}

function place(job) {
  const amount = (pods) => many(pods * (job.requests[page.state.unit] ?? 0), unit(page.state.unit));
  return el("section", { class: "card" },
    el("h2", {}, runs(job) ? "Where, and why there" : does(job) === "waits" ? "Why it waits" : job.places.length ? "Where it was" : "Why", el("span", { class: "pill soft" }, job.reason || job.phase)),
    el("dl", {}, job.places.slice(0, 12).map(([node, pods]) => [
      el("dt", {}, node), el("dd", {}, pods === null ? "" : `${many(pods, "pod")}, ${amount(pods)}`)])),
    el("ul", {}, [...job.why, ...job.place, job.starts && `expected start: ${job.starts}`].filter(Boolean).map((clause) => el("li", {}, clause))));
}

const says = (details) => details?.conditions.length > 0 && el("section", { class: "card" },
  el("h2", {}, "What kfext says"),
  el("dl", {}, details.conditions.map(([type, words]) => [el("dt", {}, type), el("dd", {}, words)])));

const happened = ({ marks }) => el("section", { class: "card" }, el("h2", {}, "What happened"),
  marks.length ? el("ol", { class: "log", tabindex: 0, "aria-label": "What happened, the newest first" }, [...marks].reverse().map(({ t, sign, what, words }) => el("li", {},
    el("time", {}, clock(t, 8)), el("span", { "aria-hidden": "true" }, TEXT[sign] ?? ""), el("span", {}, `${what}: ${words}`))))
    : el("p", { class: "soft" }, "No history: the TrainingPlan was written by kfext 0.3, or deleted since."));

function text(job) {
  const lines = page.open === job.id && (fetched("/explain", [job])(job) ?? ["Reading …"]);
  return el("details", { "data-job": job.id },
    el("summary", {}, "Show it here, with pods, changes and the newest lines of its log"),
    lines && el("pre", { tabindex: 0, "aria-label": "The job as text" }, lines.join("\n")));
}

function curve(job, details, { bands, marks }) {
  const points = (details?.curve ?? []).map(([t, step, value]) => ({ t, step, value }));
  if (points.length < 2) return el("p", { class: "soft" }, !details ? "Reading …"
    : runs(job) ? "No progress is known yet: figures come within a minute of the first step."
      : "It has not trained yet, or its TrainingPlan has no curve: it was written by kfext 0.3, or deleted since.");
  const lives = bands.filter(({ does }) => does !== "ended"), at = lives.at(-1).to, from = job.created, last = points.at(-1), ends = runs(job) && job.ends > last.t;
  const to = Math.max(last.t, at, ends ? Math.min(job.ends, at + 0.4 * (at - from)) : 0) + 1;
  const x = (t) => LEFT + ((RIGHT - LEFT) * (t - from)) / (to - from), metricY = (fraction) => BASE - (BASE - TOP) * fraction;
  const path = (list) => list.map(([t, y], i) => `${i ? "L" : "M"}${x(t).toFixed(1)} ${y.toFixed(1)}`).join("");

  const values = points.filter(({ value }) => value !== null), numbers = values.map(({ value }) => value);
  const low = Math.min(...numbers), high = Math.max(...numbers), log = low > 0 && high / low > 20;
  const scale = (value) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low || 1));
  const marked = [...new Set(numbers.length ? [0, 0.5, 1].map((part) =>
    (log ? low * (high / low) ** part : low + (high - low) * part)) : [])];
  const total = job.done ? last.step / job.done : Math.max(1, ...points.map(({ step }) => step ?? 0));
  const stepY = (step) => metricY(Math.min(1, (step ?? 0) / total));
  const most = Math.max(1, ...bands.map(({ workers }) => workers)), sizeY = (number) => BOTTOM - (34 * number) / most;
  const size = ({ does, workers }) => sizeY(does === "trains" ? workers : 0);

  const left = (y, words) => svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, words);
  const line = (name, x1, y1, x2, y2) => svg("line", { class: name, x1, y1, x2, y2 });
  const said = numbers.length ? `from ${short(numbers[0])} to ${short(numbers.at(-1))}` : "unknown";
  return el("div", {},
    el("p", { class: "key" }, el("span", { class: "metric" }, `━ ${job.cells.METRIC || "metric"}${log ? " (log scale)" : ""}`),
      el("span", {}, "┅ steps, on the right"), el("span", {}, el("i", { class: "chip", c: colour(job) }), "workers, below"),
      el("span", {}, "grey: it waits or starts"), el("span", {}, "Times are UTC.")),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${job.cells.METRIC} ${said}, step ${job.cells.STEP}` },
      bands.filter(({ does }) => ["waits", "starts"].includes(does)).map((band) => svg("rect", {
        class: "band", x: x(band.from), width: Math.max(1, x(band.to) - x(band.from)), y: TOP, height: BOTTOM - TOP,
        tip: `${band.does}: ${band.words}`,
      })),
      ticks(from, to, 8).map((t) => [line("grid", x(t), TOP, x(t), BOTTOM),
        svg("text", { x: x(t), y: HEIGHT - 6, "text-anchor": "middle" }, clock(t))]),
      marked.map((value) => [line("grid", LEFT, metricY(scale(value)), RIGHT, metricY(scale(value))), left(metricY(scale(value)), short(value))]),
      [0, 0.5, 1].map((part) => svg("text", { x: RIGHT + 6, y: metricY(part) + 4 }, percent(part))),
      svg("path", { class: "steps", d: path(points.map(({ t, step }) => [t, stepY(step)])) }),
      ends && [svg("path", { class: "steps coming", d: path([[last.t, stepY(last.step)], [to,
        stepY(last.step + ((total - last.step) * (to - last.t)) / (job.ends - last.t))]]) }),
      svg("text", { x: RIGHT - 6, y: TOP + 12, "text-anchor": "end" }, `should end at ${clock(job.ends)}${job.ends > to ? " →" : ""}`)],
      svg("path", { class: "metric", d: path(values.map(({ t, value }) => [t, metricY(scale(value))])) }),
      svg("path", { class: "sizes", c: colour(job), d: lives.map((band, i) =>
        `${i ? "V" : `M${x(band.from)} `}${size(band)}H${x(band.to)}`).join("") }),
      left(sizeY(most), most), left(sizeY(0), 0),
      marks.filter(({ sign }) => sign).map((mark) => drawn(mark, x(mark.t), BASE + 12)),
      runs(job) && line("now", x(at), TOP, x(at), BOTTOM)));
}
