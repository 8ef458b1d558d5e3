// The waiting jobs: the reason, the position in the queue and the expected start of each.

import { age, el, held, many, more, page, running, title, unit, waiting } from "/base.js";
import { needs, table } from "/cluster.js";

const MOST = 200, NEXT = 10;
const USUAL = ["NoRoom", "Reserved"];

export function queue() {
  const waits = waiting(), kept = page.state.reserved;
  if (!waits.length) return el("p", { class: "card" }, page.namespace ? `No job waits in ${page.namespace}.` : "No job waits.");
  return el("div", { class: "two most" }, el("section", { class: "card queued" },
    el("h2", {}, "Waiting jobs, in the order of the queue"),
    el("p", { class: "soft" }, "A job of higher priority comes first, then the older; a job that should be short has a head start. ",
      "A policy may put the namespace with less usage first. ",
      "A job that fits starts, also past jobs that do not fit."),
    kept && el("p", { class: "note" }, `${many(kept.nodes.length, "node")} reserved for the first job that has waited long enough: `,
      kept.nodes.slice(0, 8).join(", "), kept.nodes.length > 8 && " and others",
      ". Jobs start there only if they end in time."),
    table({ Place: "num", Job: "", Needs: "", Waits: "num", Starts: "", Reason: "" }, waits.slice(0, MOST).map(line)),
    more(waits, MOST)), ends());
}

export const rank = ({ ahead }) => (ahead === null ? "new" : ahead >= 20 ? `about ${ahead + 1}` : ahead + 1);
function line(job) {
  const [number, all] = needs(job);
  return el("tbody", { "data-job": job.id, "data-key": job.id },
    el("tr", {}, el("td", { class: "num" }, rank(job)), el("td", { class: "name" }, title(job)),
      el("td", { class: "name" }, number, all && el("span", { class: "soft" }, `, ${all}`)),
      el("td", { class: "num" }, age(page.state.at - job.created)),
      el("td", { class: "name", tip: job.starts }, job.startsShort || "unknown"),
      el("td", {}, el("span", { class: `pill ${USUAL.includes(job.reason) ? "soft" : "warn"}` }, job.reason))),
    el("tr", {}, el("td", {}), el("td", { colspan: 5, tip: job.why.join("\n") }, missing(job).join("; "),
      el("span", { class: "soft" }, job.place.slice(1).map((clause) => `; ${clause}`)))));
}
// The first clause, the needs, has its own column.
const missing = ({ reason, why }) => (reason === "NoRoom" && why.length > 1 ? why.slice(1, 2) : why.slice(0, 2));

function ends() {
  const jobs = running().filter((job) => job.ends !== null).slice(0, NEXT);
  return el("section", { class: "card side" }, el("h2", {}, "The next to end"),
    jobs.length ? table({ Job: "", Has: "num", Left: "num" }, jobs.map((job) => el("tr", { "data-job": job.id, "data-key": job.id },
      el("td", { class: "name" }, title(job)), el("td", { class: "num" }, many(held(job), unit(page.state.unit))),
      el("td", { class: "num" }, job.cells.LEFT)))) : el("p", { class: "soft" }, "No running job says when it ends."));
}
