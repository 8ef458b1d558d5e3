// The history of each job: waits, starts, sizes, moves, expected end; above it, the use of the cluster.

import { age, clock, colour, does, el, fetched, link, many, more, nodes, page, runs, shown, svg, unit } from "/base.js";

const MOST = 60, LEFT = 210, ROW = 22, TALL = 16, TOP = 100;
const SPANS = [[0.5, "30 min"], [1, "1 h"], [6, "6 h"], [24, "24 h"]];
const STEPS = [60, 300, 600, 1800, 3600, 7200, 14400, 86400];
const SIGNS = {
  up: "M0 4h8l-4-7z", down: "M0-3h8l-4 7z", move: "M4-4l4 4-4 4-4-4z", other: "M4-3a3 3 0 1 0 .1 0z",
};

// Returns the states of a job over time as bands { from, to, does, workers, words }, and its events as marks.
export function course(job, history, now) {
  const bands = [{ from: job.created, does: "waits", workers: 0, words: "" }], marks = [];
  for (const { t, what, does: next, workers, nodes: on, why, times } of history ?? []) {
    const last = bands.at(-1), where = on && ` on ${on}`;
    const size = `${many(workers, "worker")}${where}${times > 1 ? `, ${times} times` : ""}`;
    const words = next === "waits" ? why : [size, why].filter(Boolean).join("\n");
    const scaled = workers < last.workers ? "down" : workers > last.workers ? "up" : "other";
    const sign = what === "Moved" ? "move" : what === "Scaled" ? scaled : "other";
    marks.push({ t, what, words, sign: next ? null : sign });
    if (next === "waits" && last.does === "waits") last.words = words;
    else bands.push({ from: t, does: next || (last.does === "waits" ? "trains" : last.does), workers, words });
  }
  if (!marks.length) Object.assign(bands[0], { does: does(job), workers: job.workers ?? 0 });
  bands.forEach((band, i) => { band.to = bands[i + 1]?.from ?? now; });
  return { bands, marks };
}

export function ticks(from, to, most) {
  const step = STEPS.find((size) => (to - from) / size <= most) ?? 86400 * Math.ceil((to - from) / 86400 / most);
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, i) => (first + i) * step);
}
export const drawn = ({ t, sign, what, words }, x, y) => svg("path", {
  d: SIGNS[sign], transform: `translate(${x - 4} ${y})`, class: "mark", tip: `${clock(t)} UTC ${what}: ${words}`,
});

export function timeline() {
  const now = page.state.at, span = page.hours * 3600, from = now - span, to = now + span / 5, width = innerWidth - 72;
  const history = fetched("/history", shown());
  const all = shown().map((job) => ({ job, ...course(job, history(job), now) }));
  const rank = ({ job }) => (runs(job) ? 0 : job.phase === "Queued" ? 1 : 2);
  const began = ({ job, bands }) => bands.find((band) => band.does !== "waits")?.from ?? job.created;
  const rows = all
    .filter(({ job, bands }) => job.phase !== "Finished" || bands.at(-1).from > from)
    .sort((a, b) => rank(a) - rank(b) || (rank(a) === 1 ? a.job.ahead - b.job.ahead : began(b) - began(a)));
  const x = (t) => LEFT + ((width - LEFT - 10) * (Math.min(Math.max(t, from), to) - from)) / (to - from);
  const height = TOP + Math.min(rows.length, MOST) * ROW + 4;
  const line = (t, name) => svg("line", { class: name, x1: x(t), x2: x(t), y1: 18, y2: height });
  return el("section", { class: "card" },
    el("h2", {}, "What each job did", el("span", { role: "group", "aria-label": "Time shown" },
      SPANS.map(([hours, words]) => el("button", {
        type: "button", "data-hours": hours, "aria-pressed": String(hours === page.hours),
      }, words)))),
    keys(),
    all.some(({ job }) => history(job)?.length === 0) && el("p", { class: "soft" },
      "Some jobs have no history: their TrainingPlan was written by kfext 0.3, or deleted since."),
    svg("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${many(rows.length, "job")} in the last ${age(span)}`,
    },
    ticks(from, to, 12).map((t) => [
      line(t, "grid"), svg("text", { x: x(t), y: 12, "text-anchor": "middle" }, clock(t)),
    ]),
    use(all, x, from, now),
    rows.slice(0, MOST).map((found, i) => row(found, TOP + i * ROW, x, from)), line(now, "now")),
    more(rows, MOST));
}

const styleOf = (kind, fill) => ({
  waits: { class: "waits" }, starts: { fill, "fill-opacity": 0.4 }, trains: { fill },
  soon: { fill, "fill-opacity": 0.16, stroke: fill, "stroke-dasharray": "2 2" },
})[kind];
function keys() {
  const key = (kind, words) => el("span", {}, svg("svg", { width: 26, height: 12 }, svg("rect", {
    x: 0.5, y: kind === "starts" ? 6.5 : 0.5, width: 25, height: kind === "starts" ? 5 : 11, ...styleOf(kind, "#5a6675"),
  })), words);
  const sign = (name, words) => el("span", {}, svg("svg", { width: 10, height: 12, viewBox: "-1 -6 10 12" },
    svg("path", { d: SIGNS[name], class: "mark" })), words);
  return el("p", { class: "key" }, key("waits", "waits"), key("starts", "pods start"),
    key("trains", "trains, as high as it has workers"), key("soon", "expected end, or start"), sign("up", "more workers"),
    sign("down", "fewer"), sign("move", "other nodes"), sign("other", "other change"), el("span", {}, "Times are UTC. Deleted jobs are not shown."));
}

function row({ job, bands, marks }, y, x, from) {
  const most = Math.max(1, ...bands.map(({ workers }) => workers)), bottom = y + TALL, fill = colour(job);
  const band = (kind, since, until, part, tip) => svg("rect", {
    x: x(since), width: Math.max(1, x(until) - x(since)), y: bottom - TALL * part, height: TALL * part, ...styleOf(kind, fill), tip,
  });
  const last = bands.at(-1), { at } = page.state;
  return svg("g", { "data-key": job.id, "data-job": job.id },
    svg("a", { href: link(job) }, svg("text", { x: LEFT - 8, y: bottom - 3, "text-anchor": "end" }, job.name)),
    svg("text", { x: 4, y: bottom - 3 }, job.namespace),
    bands.filter((period) => period.to >= from && styleOf(period.does)).map((period) => band(period.does, period.from, period.to,
      { trains: Math.max(0.25, period.workers / most), starts: 0.45 }[period.does] ?? 1,
      `${job.name} ${period.does} ${clock(period.from)}–${clock(period.to)} UTC\n${period.words}`)),
    runs(job) && job.ends > at && [
      band("soon", at, job.ends, 1, `${job.name} should end at ${clock(job.ends)} UTC`),
      x(job.ends) - x(at) > 50 && svg("text", { x: x(at) + 6, y: bottom - 4 }, `${job.cells.LEFT} left${x(job.ends) < x(Infinity) ? "" : " →"}`)],
    job.startsIn?.[1] > at && x(job.startsIn[0]) < x(Infinity)
      && band("soon", Math.max(at, job.startsIn[0]), job.startsIn[1], 1, `${job.name}: ${job.starts}`),
    last.does === "ended" && svg("text", { x: x(last.from) + 3, y: bottom - 3 }, "✓"),
    marks.filter((mark) => mark.sign && mark.t >= from).map((mark) => drawn(mark, x(mark.t), y + TALL / 2)));
}

// The use of the cluster and the number of waiting jobs over time: sums over all jobs.
function use(all, x, from, now) {
  const steps = all.flatMap(({ job, bands }) => bands.flatMap((band) => {
    const takes = ["trains", "starts"].includes(band.does) ? band.workers * (job.requests[page.state.unit] ?? 0) : 0;
    const waits = Number(band.does === "waits");
    return [[band.from, takes, waits], [band.to, -takes, -waits]];
  })).filter(([t]) => t < now).sort((a, b) => a[0] - b[0]);
  const sum = [0, 0], sums = steps.map(([t, takes, waits]) => [t, (sum[0] += takes), (sum[1] += waits)]);
  const has = nodes().reduce((total, node) => total + (node.resource === page.state.unit ? (node.has ?? 0) : 0), 0);
  const path = (at, most) => {
    const y = (value) => 84 - 64 * Math.min(1, value / most), before = sums.filter(([t]) => t < from).at(-1)?.[at] ?? 0;
    const later = sums.filter(([t]) => t >= from).map((now) => `H${x(now[0]).toFixed(1)}V${y(now[at]).toFixed(1)}`);
    return `M${x(from)} ${y(before)}${later.join("")}H${x(now)}`;
  };
  const peak = (at, least) => sums.reduce((most, now) => Math.max(most, now[at]), least);
  const top = has || peak(1, 1), waited = peak(2, 0), most = Math.max(5, waited);
  const label = (y, name, words) => svg("text", { x: LEFT - 8, y, "text-anchor": "end", class: name }, words);
  return svg("g", {}, svg("path", { class: "area", d: `${path(1, top)}V84H${x(from)}Z` }), svg("path", { class: "use", d: path(1, top) }),
    svg("path", { class: "waiting", d: path(2, most) }),
    label(36, "use", `${unit(page.state.unit)}s of these jobs, of ${top}`), label(54, "waiting", `jobs that wait, at most ${waited}`));
}
