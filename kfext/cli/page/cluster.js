// The nodes and their jobs, the next jobs in the queue, and the progress of the running jobs.

import { age, clock, colour, does, el, held, link, many, more, nodes, page, percent, running, short, title, unit,
  waiting } from "/base.js";

const MAX_ROWS = 40, MAX_JOBS = 200, NEXT = 6;
const RESERVED = "reserved for the first job that has waited long enough";

export function cluster() {
  const all = nodes(), jobs = running(), waits = waiting();
  return el("div", {}, sums(all, jobs, waits), el("div", { class: "two" },
    el("div", { class: "stack" }, map(all), waits.length > 0 && next(waits)),
    el("section", { class: "card" }, el("h2", {}, `${many(jobs.length, "job")} with nodes, the first to end first`),
      table({ Job: "", Workers: "num", Progress: "", Metric: "num", "Steps a second": "num", Left: "num" },
        jobs.slice(0, MAX_JOBS).map(line)),
      more(jobs, MAX_JOBS))));
}

// `heads`: the class of each column by its head.
export const table = (heads, rows) => el("table", {},
  el("thead", {}, el("tr", {}, Object.entries(heads).map(([head, name]) => el("th", { scope: "col", class: name }, head)))),
  rows[0]?.nodeName === "TBODY" ? rows : el("tbody", {}, rows));

function sums(all, jobs, waits) {
  const sum = (value, ...words) => el("div", { class: "card sum" }, el("b", {}, value), el("span", {}, words));
  const counted = all.filter((node) => node.resource === page.state.unit);
  const has = add(counted, "has"), free = add(counted, "free"), noun = unit(page.state.unit);
  const first = jobs.find((job) => job.ends > page.state.at), stuck = jobs.filter((job) => job.cells.STATE === "Stalled");
  const longest = Math.min(...waits.map((job) => job.created));
  const taken = jobs.reduce((total, job) => total + held(job), 0);
  return el("section", { class: "sums", "aria-label": "Summary" },
    free !== null ? sum(`${short(has - free)} of ${short(has)}`, `${noun}s in use, ${short(free)} free`)
      : sum(short(taken), `${noun}s in use by these jobs`),
    sum(jobs.length, jobs.length === 1 ? "job runs with " : "jobs run with ", many(jobs.reduce((total, job) => total + job.workers, 0), "worker")),
    sum(waits.length, waits.length === 1 ? "job waits" : "jobs wait",
      waits.length > 0 && `, the oldest for ${age(page.state.at - longest)}`),
    first ? sum(`${clock(first.ends)} UTC`, "next end: ", el("a", { href: link(first) }, first.name), `, ${many(held(first), noun)}`)
      : sum("–", "no end is known"),
    stuck.length ? sum(stuck.length, stuck.length === 1 ? "job" : "jobs", " stalled: ", stuck.slice(0, 2).map(title))
      : sum(jobs.reduce((total, job) => total + job.changes, 0), "changes of running jobs by kfext"));
}
const add = (list, field) => // null if a term is unknown
  list.length && list.every((node) => node[field] !== null) ? list.reduce((sum, node) => sum + node[field], 0) : null;

function map(all) {
  const dense = all.length > MAX_ROWS, cards = all.some((node) => node.cards.length);
  const known = all.some((node) => node.has !== null), most = Math.max(...all.map((node) => useOf(node).used));
  const key = (kind, words) => el("span", {}, el("span", { class: `cell ${kind}`, c: "#5a6675" }), words);
  return el("section", { class: "card", id: "map" }, el("h2", {}, many(all.length, "node"), known || !all.length ? "" : " with these jobs"),
    el("p", { class: "key" }, key("run", "trains"), key("run starts", "starts"), known && key("free", "free"),
      known && key("other", "other pods"), cards && key("run shared", "shared GPU"), page.state.reserved && key("kept", "reserved")),
    dense ? el("div", { class: "tiles" }, all.map(tile)) : all.map((node) => row(node, most)));
}

// How the capacity of a node is used: by each job and by other pods; the rest is free, null if unknown.
function useOf(node) {
  const sharers = new Set(node.cards.flatMap((card) => card.sharers.map(({ job }) => job)));
  const jobs = page.taken.get(node.name).filter(({ job }) => !sharers.has(job.id))
    .map(({ job, pods }) => ({ job, pods, amount: (pods ?? 0) * (job.requests[node.resource] ?? 0) }));
  const used = jobs.reduce((sum, { amount }) => sum + amount, 0) + node.cards.length;
  const rest = node.has === null ? 0 : Math.max(0, node.has - used);
  const free = node.free === null ? null : Math.min(node.free, rest);
  return { jobs: jobs.sort((a, b) => b.amount - a.amount), used, free, other: free === null ? rest : rest - free };
}
const reserved = (node) => page.state.reserved?.nodes.includes(node.name);
const stateText = (node) => node.state || (reserved(node) ? "reserved" : node.free === null ? "" : node.free ? `${short(node.free)} free` : "full");

// `most`: the largest use of a node by jobs, for the width of a node of unknown size.
function row(node, most) {
  const { jobs, used, free, other } = useOf(node), kept = reserved(node), noun = unit(node.resource);
  const cells = jobs.map(({ job, pods, amount }) => el("a", {
    href: link(job), "data-job": job.id, "data-key": job.id, c: colour(job), style: `flex:${amount || 0.15} 0 0`,
    class: `cell run ${does(job) === "starts" ? "starts" : ""}`, tip: about(job, node, pods, amount),
    "aria-label": `${job.name}: ${many(amount, noun)} of ${node.name}`,
  }, amount > (node.has ?? 1) / 10 && job.name));
  if (other > 1e-6) cells.push(el("span", { class: "cell other", style: `flex:${other} 0 0`,
    tip: free === null ? `${many(other, noun)} free, or used by pods that you do not see` : `${many(other, noun)} used by other pods` }));
  cells.push(...node.cards.map(card));
  if (node.has === null) cells.push(el("span", { style: `flex:${most - used} 0 0` }));
  const whole = Number.isInteger(free) && free <= 16, size = whole ? 1 : free;
  for (let number = 0; number < (whole ? free : free > 1e-6); number += 1)
    cells.push(el("span", { class: `cell ${kept ? "kept" : "free"}`, style: `flex:${size} 0 0`, tip: kept ? RESERVED : `${many(size, noun)} free` }));
  return el("div", { class: `node ${kept ? "reserved" : ""}`, "data-key": node.name },
    el("span", { class: "clip", tip: kept ? `${node.name}: ${RESERVED}` : node.name }, node.name),
    el("div", { class: "cells" }, cells), el("span", { class: "soft" }, node.has === null ? many(used, noun) : stateText(node)));
}
const about = (job, node, pods, amount) => [
  `${job.namespace}/${job.name}`,
  pods === null ? "its TrainingPlan does not say how many pods are here: it is of kfext 0.3"
    : `${many(pods, "pod")} here: ${many(amount, unit(node.resource))}; ${many(job.workers, "worker")} in all`,
  [job.done === null ? "" : percent(job.done), job.cells.LEFT && `${job.cells.LEFT} left`].filter(Boolean).join(", "),
].join("\n");

// A shared GPU: a band for each sharer, as high as its share.
function card({ slot, state, sharers }) {
  const shares = sharers.map(({ pod, percent }) => `${pod} ${percent} %`).join(", ");
  return el("span", { class: "cell shares", style: "flex:1 0 0", role: "img", "aria-label": `shared GPU ${slot}: ${shares}` },
    sharers.map(({ job: id, percent, cells }) => {
      const job = page.jobs.find((job) => job.id === id), words = Object.entries(cells);
      return el("span", {
        "data-job": id, class: `run ${cells.priority}`, c: job ? colour(job) : "#5a6675", style: `height:${percent}%`,
        tip: [`shared GPU ${slot}, ${state}`, ...words.map(([name, value]) => `${name}: ${value}`)].join("\n"),
      });
    }));
}

function tile(node) {
  const { jobs, free } = useOf(node), words = `${node.name}: ${stateText(node) || "free capacity unknown"}`;
  let at = 0;
  const stops = jobs.flatMap(({ job, amount }) => {
    const from = at;
    at += (100 * amount) / (node.has || 1);
    return [`${colour(job)} ${from}% ${at - 2}%`, `var(--card) ${at - 2}% ${at}%`];
  });
  const busy = free === null || !node.has ? at : 100 * (1 - free / node.has);
  stops.push(`var(--other) ${at}% ${busy}%`, `var(--free) ${busy}%`);
  const list = jobs.map(({ job, amount }) => `${job.namespace}/${job.name}: ${many(amount, unit(node.resource))}`);
  return el("span", { role: "img", "data-key": node.name, "aria-label": words, tip: [words, ...list].join("\n"),
    class: reserved(node) && "kept", style: `background:linear-gradient(90deg,${stops})` });
}

function line(job) {
  const { cells } = job, starts = does(job) !== "trains" && el("span", { class: "soft" }, does(job));
  return el("tr", { "data-job": job.id, "data-key": job.id },
    el("td", { class: "name" }, title(job), cells.STATE === "Stalled" && el("span", { class: "pill bad" }, cells.STATE)),
    el("td", { class: "num" }, cells.WORKERS),
    el("td", {}, job.done === null ? starts || cells.STEP || el("span", { class: "soft" }, "no step yet") : bar(job)),
    el("td", { class: "num" }, `${cells.METRIC} ${cells.VALUE}`),
    el("td", { class: "num" }, job.speed), el("td", { class: "num" }, cells.LEFT));
}
export const bar = (job) =>
  el("div", { class: "bar", role: "img", "aria-label": percent(job.done), tip: `step ${job.cells.STEP}` },
    el("i", { c: colour(job), style: `width:${100 * job.done}%` }));

const next = (waits) => el("section", { class: "card" },
  el("h2", {}, "Next in the queue ", el("a", { href: "#queue" }, `all ${waits.length}`)),
  table({ Job: "", Needs: "", Waits: "num", Starts: "" }, waits.slice(0, NEXT).map((job) =>
    el("tr", { "data-job": job.id, "data-key": job.id, tip: [...job.why, ...job.place].join("\n") },
      el("td", { class: "name" }, title(job)), el("td", { class: "name" }, needs(job)[0]),
      el("td", { class: "num" }, age(page.state.at - job.created)), el("td", { class: "name" }, job.startsShort || "unknown")))));

// The demand of a waiting job: its workers, from the minimum to the requested size, and their resources.
export function needs({ least, workers, requests, asks }) {
  const each = requests[page.state.unit], minimum = least ?? workers;
  const number = minimum < workers ? `${minimum} to ${many(workers, "worker")}` : many(workers ?? 0, "worker");
  return [number, each ? many(each * workers, unit(page.state.unit)) : asks.join(", ")];
}
