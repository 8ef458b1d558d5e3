// What each job did: waits, starts, sizes and moves, and when it should end; the use of the cluster above.

import { age, clock, colour, does, el, fetched, left, link, many, nodes, page, runs, shown, svg, unit } from "/base.js";

const MOST = 60, WIDTH = 1400, LEFT = 210, ROW = 22, TOP = 100;
export const SIGNS = {
  up: "M0 4h8l-4-7z", down: "M0-3h8l-4 7z", move: "M4-4l4 4-4 4-4-4z", other: "M4-3a3 3 0 1 0 .1 0z",
};
const SPANS = [[0.5, "30 min"], [1, "1 h"], [6, "6 h"], [24, "24 h"]];
const STEPS = [60, 300, 600, 1800, 3600, 7200, 14400, 86400];

// Returns what a job did as bands { from, to, does, workers, words }, and its changes as marks.
export function course(job, history, now) {
  const bands = [{ from: job.created, does: "waits", workers: 0, words: "" }], marks = [];
  for (const entry of history ?? []) {
    const last = bands.at(-1), number = many(entry.workers, "worker"), where = entry.nodes && ` on ${entry.nodes}`;
    const times = entry.times > 1 ? `, ${entry.times} times` : "", why = entry.why && `\n${entry.why}`;
    const words = `${number}${where}${times}${why}`;
    if (!entry.does) {
      const sign = entry.what === "Migrated" ? "move" : entry.what !== "Scaled" ? "other" : entry.workers < last.workers ? "down" : "up";
      marks.push({ t: entry.t, sign, words: `${entry.what}: ${words}`, what: entry.what });
    } else marks.push({ t: entry.t, words: entry.does === "waits" ? entry.why : words, what: entry.what });
    if (entry.does === last.does && entry.does === "waits") Object.assign(last, { words });
    else bands.push({ from: entry.t, does: entry.does || (last.does === "waits" ? "trains" : last.does), workers: entry.workers, words });
  }
  if (!history?.length && does(job) !== "waits") bands[0] = { from: job.created, does: does(job), workers: job.workers, words: "no history" };
  bands.forEach((band, i) => { band.to = bands[i + 1]?.from ?? now; });
  return { bands, marks };
}
export const ticks = (from, to, most) => {
  const step = STEPS.find((size) => (to - from) / size <= most) ?? 86400 * Math.ceil((to - from) / 86400 / most);
  return Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, i) => (Math.ceil(from / step) + i) * step);
};
export const drawn = (mark, x, y) =>
  svg("path", { d: SIGNS[mark.sign], transform: `translate(${x - 4} ${y})`, class: "mark", tip: `${clock(mark.t)} ${mark.words}` });

export function timeline() {
  const now = page.state.at, span = page.hours * 3600, from = now - span, to = now + span / 5;
  const all = shown(), of = fetched("/history", all), did = new Map(all.map((job) => [job, course(job, of(job), now)]));
  const rank = (job) => (runs(job) ? 0 : job.phase === "Queued" ? 1 : 2);
  const began = (job) => did.get(job).bands.find((band) => band.does !== "waits")?.from ?? job.created;
  const jobs = all.filter((job) => job.phase !== "Finished" || did.get(job).bands.at(-1).from > from)
    .sort((a, b) => rank(a) - rank(b) || (rank(a) === 1 ? a.ahead - b.ahead : began(b) - began(a)));
  const x = (t) => LEFT + ((WIDTH - LEFT - 10) * (Math.min(Math.max(t, from), to) - from)) / (to - from);
  const height = TOP + Math.min(jobs.length, MOST) * ROW + 4, old = all.some((job) => of(job)?.length === 0);
  const line = (t, name) => svg("line", { class: name, x1: x(t), x2: x(t), y1: 18, y2: height });
  return el("section", { class: "card" }, el("h2", {}, "What each job did",
    el("span", { role: "group", "aria-label": "Time shown" }, SPANS.map(([hours, words]) =>
      el("button", { type: "button", "data-hours": hours, "aria-pressed": String(hours === page.hours) }, words)))),
  el("p", { class: "key" }, key("waits", "waits"), key("starts", "pods start"), key("trains", "trains, as high as it has workers"),
    key("soon", "should end"), sign("up", "more workers"), sign("down", "fewer"), sign("move", "other nodes"), sign("other", "other change"),
    el("span", {}, "times are UTC")),
  old && el("p", { class: "soft" }, "Some jobs have no history: their TrainingPlan was written by kfext 0.3, or deleted since."),
  svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "group", "aria-label": `${many(jobs.length, "job")} in the last ${age(span)}` },
    ticks(from, to, 12).map((t) => [line(t, "grid"), svg("text", { x: x(t), y: 12, "text-anchor": "middle" }, clock(t))]),
    use([...did], x, from, now), jobs.slice(0, MOST).map((job, i) => row(job, did.get(job), TOP + i * ROW, x, from)), line(now, "now")),
  left(jobs, MOST));
}
const look = (kind, fill) => ({ waits: { class: "waits" }, starts: { fill, "fill-opacity": 0.4 }, trains: { fill },
  soon: { fill, "fill-opacity": 0.16, stroke: fill, "stroke-dasharray": "2 2" } })[kind];
const key = (kind, words) => el("span", {}, svg("svg", { width: 26, height: 12 },
  svg("rect", { x: 0.5, y: kind === "starts" ? 6.5 : 0.5, width: 25, height: kind === "starts" ? 5 : 11, ...look(kind, "#5a6675") })), words);
const sign = (name, words) => el("span", {}, svg("svg", { width: 10, height: 12, viewBox: "-1 -6 10 12" },
  svg("path", { d: SIGNS[name], class: "mark" })), words);

function row(job, { bands, marks }, y, x, from) {
  const most = Math.max(1, ...bands.map(({ workers }) => workers)), tall = ROW - 6, bottom = y + tall, fill = colour(job);
  const shapes = bands.filter((band) => band.to >= from && band.does !== "ended" && band.does !== "suspended").map((band) => {
    const size = { trains: Math.max(4, (tall * band.workers) / most), starts: tall * 0.45 }[band.does] ?? tall;
    return svg("rect", { x: x(band.from), y: bottom - size, width: Math.max(1, x(band.to) - x(band.from)), height: size,
      ...look(band.does, fill) ?? look("trains", fill), tip: `${job.namespace}/${job.name} ${clock(band.from)}–${clock(band.to)} UTC\n${band.does}: ${band.words}` });
  });
  const end = bands.at(-1).does === "ended" && bands.at(-1).from;
  const soon = runs(job) && job.ends > page.state.at && svg("rect", { x: x(page.state.at), y, height: tall,
    width: x(job.ends) - x(page.state.at), ...look("soon", fill), tip: `${job.name} should end at ${clock(job.ends)} UTC` });
  return svg("g", { "data-key": job.id, "data-job": job.id },
    svg("a", { href: link(job) }, svg("text", { x: LEFT - 8, y: bottom - 3, "text-anchor": "end" }, job.name)),
    svg("text", { x: 4, y: bottom - 3 }, job.namespace), shapes, soon,
    end && svg("text", { x: x(end) + 3, y: bottom - 3 }, "✓"),
    marks.filter((mark) => mark.sign && mark.t >= from).map((mark) => drawn(mark, x(mark.t), y + tall / 2)));
}

// What the jobs had of the cluster, and how many waited: the sum of what each did.
function use(did, x, from, now) {
  const steps = did.flatMap(([job, { bands }]) => bands.flatMap((band) => {
    const takes = band.does === "trains" ? band.workers * (job.requests[page.state.unit] ?? 0) : 0, waits = Number(band.does === "waits");
    return [[band.from, takes, waits], ...(band.to < now ? [[band.to, -takes, -waits]] : [])];
  })).sort((a, b) => a[0] - b[0]);
  let taken = 0, wait = 0;
  const sums = steps.map(([t, takes, waits]) => [t, (taken += takes), (wait += waits)]);
  const has = nodes().reduce((sum, node) => sum + (node.resource === page.state.unit ? node.has ?? 0 : 0), 0);
  const path = (at, most) => {
    const y = (value) => 20 + 64 * (1 - Math.min(1, value / most)), before = sums.filter(([t]) => t < from).at(-1)?.[at] ?? 0;
    return `M${x(from)} ${y(before)}${sums.filter(([t]) => t >= from).map((sum) => `H${x(sum[0]).toFixed(1)}V${y(sum[at]).toFixed(1)}`).join("")}H${x(now)}`;
  };
  const top = has || Math.max(1, ...sums.map((sum) => sum[1])), most = Math.max(5, ...sums.map((sum) => sum[2]));
  const label = (y, name, words) => svg("text", { x: LEFT - 8, y, "text-anchor": "end", class: name }, words);
  return svg("g", {}, svg("path", { class: "use", d: `${path(1, top)}V84H${x(from)}Z` }), svg("path", { class: "waiting", d: path(2, most) }),
    label(36, "use", `${unit(page.state.unit)}s in use, of ${top}`), label(54, "waiting", `jobs that wait, of ${most}`));
}
