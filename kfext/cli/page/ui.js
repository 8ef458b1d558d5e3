// The page: its views, filters and keys, and the stream of changes from the server.

import { age, applyChange, clock, el, many, page, runs, running, show, shown, waiting } from "/base.js";
import { cluster } from "/cluster.js";
import { job } from "/job.js";
import { queue } from "/queue.js";
import { timeline } from "/timeline.js";

const $ = (id) => document.getElementById(id);
const VIEWS = { cluster, queue, timeline };
const SILENT = 15; // seconds without news that the page reports
let received = 0;

// --- drawing: only differences are written, to keep the focus, the selection and the scroll position

function draw() {
  if (!page.state || document.hidden) return;
  const [view, ...rest] = (location.hash.slice(1) || "cluster").split("/").map(decodeURIComponent);
  const counts = { cluster: running().length, queue: waiting().length };
  const links = Object.keys(VIEWS).map((name) =>
    el("a", { href: `#${name}`, "aria-current": name === view && "page" }, `${name} `, el("b", {}, counts[name])));
  const names = [...new Set(["", ...page.namespaces, page.namespace])]
    .map((name) => el("option", { value: name, "data-key": name }, name || "all"));
  const focused = document.activeElement;
  become($("nav"), links);
  become($("namespace"), names);
  const notes = page.state.notes.filter(({ views }) => !views.length || views.includes(view));
  become($("main"), [
    ...notes.map(({ text }) => el("p", { class: "note" }, text)),
    el("div", { "data-key": [view, ...rest].join("/") }, view === "job" ? job(...rest) : (VIEWS[view] ?? cluster)()),
  ]);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  light();
  document.title = view === "job" ? `${rest[1]} · kfext` : `${counts.cluster} run, ${counts.queue} wait · kfext`;
  document.body.dataset.drawn ??= performance.now(); // for the bench
}

// Makes the children of a node equal to `wanted`; a child with data-key stays the same element.
function become(parent, wanted) {
  const keys = new Set(wanted.map((child) => child.dataset?.key));
  const keyed = new Map();
  for (const child of [...parent.children])
    if (child.dataset.key && keys.has(child.dataset.key)) keyed.set(child.dataset.key, child);
    else if (child.dataset.key) child.remove();
  let at = parent.firstChild;
  for (const next of wanted) {
    const same = next.dataset?.key ? keyed.get(next.dataset.key) : at && alike(at, next) && at;
    if (!same) parent.insertBefore(next, at);
    else {
      if (same === at) at = at.nextSibling;
      else parent.insertBefore(same, at);
      if (same.nodeType === Node.TEXT_NODE) same.data === next.data || (same.data = next.data);
      else become(copyAttributes(same, next), [...next.childNodes]);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}
const alike = (old, next) => old.nodeName === next.nodeName && !old.dataset?.key;
function copyAttributes(old, next) {
  for (const { name } of [...old.attributes])
    if (!["style", "open"].includes(name) && !next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes)
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  return old;
}
page.redraw = draw;

// --- the stream -----------------------------------------------------------------------------------

let source = null;
function listen() {
  source = new EventSource("/events");
  const receive = (state) => {
    show(state);
    received = Date.now();
    draw();
    showAge();
  };
  source.addEventListener("state", ({ data }) => receive(JSON.parse(data)));
  source.addEventListener("change", ({ data }) => receive(applyChange(page.state, JSON.parse(data))));
}
// A hidden page reads nothing: a browser allows few connections to a server.
document.addEventListener("visibilitychange", () => {
  source.close();
  if (!document.hidden) listen();
});
function showAge() {
  const { at, heard } = page.state ?? {};
  const silent = received ? (Date.now() - received) / 1000 + (heard === null ? 1e9 : at - heard) : 0;
  $("live").classList.toggle("old", silent > SILENT);
  if (source.readyState === EventSource.CLOSED) $("live").textContent = "Ended: open the new address";
  else if (received)
    $("live").textContent = silent > SILENT ? `No news for ${silent > 1e8 ? "long" : age(silent)}` : `As of ${clock(heard)} UTC`;
}
setInterval(showAge, 1000);

// --- filters, keys and tooltips ---------------------------------------------------------------------

addEventListener("hashchange", () => {
  draw();
  if (document.activeElement !== $("find")) $("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
$("namespace").addEventListener("change", ({ target }) => { page.namespace = target.value; draw(); });
$("find").addEventListener("input", ({ target }) => {
  page.word = target.value.trim();
  if (location.hash.startsWith("#job/")) location.hash = "cluster"; // the page of a job has no list
  else draw();
});
$("theme").addEventListener("click", () => {
  const root = document.documentElement.dataset;
  const dark = root.theme ? root.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.theme = localStorage.theme = dark ? "light" : "dark";
});
if (localStorage.theme) document.documentElement.dataset.theme = localStorage.theme;
addEventListener("click", ({ target }) => {
  const hours = target.closest("[data-hours]")?.dataset.hours;
  if (hours) { page.hours = Number(hours); draw(); }
});
addEventListener("toggle", ({ target }) => { page.open = target.open ? target.dataset.job : null; draw(); }, true);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select")) return event.key === "Escape" && event.target.blur();
  const view = { 1: "cluster", 2: "queue", 3: "timeline", Escape: "cluster" }[event.key];
  if (view) location.hash = view;
  if (event.key === "/") { event.preventDefault(); $("find").focus(); }
});
let pointed; // the id of the job that is hovered or focused
const light = () => {
  for (const cell of document.querySelectorAll("#map [data-job]")) cell.classList.toggle("lit", cell.dataset.job === pointed);
};
function point({ target }) {
  const at = target.closest?.("[data-tip]"), tip = $("tip");
  pointed = target.closest?.("[data-job]")?.dataset.job;
  tip.hidden = !at;
  if (at) {
    tip.textContent = at.dataset.tip;
    const box = at.getBoundingClientRect(), below = box.bottom + tip.offsetHeight + 6 < innerHeight;
    tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${below ? box.bottom + 6 : box.top - tip.offsetHeight - 6}px`;
  }
  light();
}
addEventListener("resize", draw);
addEventListener("mouseover", point);
addEventListener("focusin", point);
listen();
