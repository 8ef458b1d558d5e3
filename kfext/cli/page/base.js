// Shared by the views: elements, words, colours, and the state that the server sends.

const SVG = "http://www.w3.org/2000/svg";
export const el = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// Each text becomes a text node, never markup. `c`: the colour. `tip`: the text that hovering shows.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "c") node.style.setProperty("--c", value);
    else if (name === "style") node.style.cssText += value; // the page's policy refuses the attribute
    else node.setAttribute(name === "tip" ? "data-tip" : name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((child) => child || child === 0));
  return node;
}

// --- words ----------------------------------------------------------------------------------------

export function age(seconds) {
  if (seconds === null) return "";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]])
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)}${unit}`;
  return `${Math.max(0, Math.floor(seconds))}s`;
}
// A time of day in UTC, with its date if it is over 12 hours away. `digits`: 5 or, with seconds, 8.
export function clock(at, digits = 5) {
  const [, day, month, , time] = new Date(at * 1000).toUTCString().split(" ");
  return `${Math.abs(at - page.state.at) > 12 * 3600 ? `${month} ${day} ` : ""}${time.slice(0, digits)}`;
}
export const short = (number) => String(+number.toPrecision(4));
export const many = (number, noun) => `${short(number)} ${noun}${number === 1 ? "" : "s"}`;
export const unit = (resource) =>
  resource === "cpu" ? "CPU" : resource.endsWith("/gpu") ? "GPU" : resource;
export const percent = (fraction) => `${Math.round(100 * fraction)} %`;
const DOES = { Queued: "waits", Placed: "trains", Suspended: "suspended", Released: "released" };
export const does = (job) => DOES[job.phase] ?? (job.phase === "Finished" ? "ended" : "starts");

// --- colours: a hue for each namespace (Okabe and Ito), a shade for a job ----------------------------
// Dark enough under white text where the page is light, light enough under black text where it is dark.

const HUES = ["#0072b2", "#b84a00", "#007a5a", "#a8417f", "#6a51a3", "#7d6200", "#b3261e", "#3d6b7d"];
const hash = (text) => [...text].reduce((sum, char) => (sum * 31 + char.charCodeAt(0)) >>> 0, 7);
export function colour(job) {
  const hue = HUES[page.namespaces.indexOf(job.namespace) % HUES.length], shade = hash(job.name);
  const mixed = (other, least) => `color-mix(in oklab, ${hue}, ${other} ${least + 8 * (shade % 4)}%)`;
  return `light-dark(${mixed("black", 0)}, ${mixed("white", 30)})`;
}

// --- the state ------------------------------------------------------------------------------------

// The shown data: the state, its jobs as a list, their namespaces, node -> its jobs (`taken`), and the filters.
export const page = {
  state: null, jobs: [], namespaces: [], taken: new Map(),
  namespace: "", word: "", hours: 1, redraw: () => {},
};

export function applyChange(state, change) {
  const next = { ...state, ...change, jobs: { ...state.jobs }, nodes: { ...state.nodes } };
  for (const part of ["jobs", "nodes"])
    for (const [key, value] of Object.entries(change[part] ?? {}))
      if (value === null) delete next[part][key];
      else next[part][key] = value;
  return next;
}

export function show(state) {
  page.state = state;
  page.jobs = Object.entries(state.jobs).map(([id, job]) => ({ id, ...job }));
  page.namespaces = [...new Set(page.jobs.map((job) => job.namespace))].sort();
  page.taken = new Map(Object.keys(state.nodes).map((name) => [name, []]));
  for (const job of page.jobs)
    if (does(job) !== "ended" && does(job) !== "waits")
      for (const [node, pods] of job.places) page.taken.get(node)?.push({ job, pods });
}

export const runs = (job) => !["Queued", "Suspended", "Finished"].includes(job.phase);
const matches = (text) => text.includes(page.word);
export const shown = () =>
  page.jobs.filter(
    (job) =>
      (!page.namespace || job.namespace === page.namespace) &&
      (matches(`${job.namespace}/${job.name}`) || job.places.some(([node]) => matches(node))),
  );
export const running = () =>
  shown().filter(runs).sort((a, b) => (a.ends ?? 1e12) - (b.ends ?? 1e12) || a.created - b.created);
export const waiting = () =>
  shown()
    .filter((job) => job.phase === "Queued")
    .sort((a, b) => (a.ahead ?? 1e9) - (b.ahead ?? 1e9) || a.created - b.created);
const collator = new Intl.Collator("en", { numeric: true });
export const nodes = () =>
  Object.entries(page.state.nodes)
    .map(([name, node]) => ({ name, ...node }))
    .filter(({ name }) => !page.word || matches(name) || page.taken.get(name).some(({ job }) => matches(job.name)))
    .sort((a, b) => collator.compare(a.name, b.name));

// A job's amount of the resource that the page counts.
export const held = (job) =>
  job.places.reduce((sum, [, pods]) => sum + (pods ?? 0), 0) * (job.requests[page.state.unit] ?? 0);
export const link = (job) => `#job/${[job.namespace, job.name, job.kind].map(encodeURIComponent).join("/")}`;
export const title = (job) => [
  el("span", { class: "chip", c: colour(job) }),
  el("a", { href: link(job) }, job.name),
  el("span", { class: "soft" }, ` ${job.namespace}`),
];
export const more = (list, most) =>
  list.length > most && el("p", { class: "soft" }, `and ${list.length - most} more: find a job by its name`);

// --- details, which are fetched on demand ---------------------------------------------------------

const cache = new Map(); // path and id -> { version, body } of the last answer
const fetching = new Set(); // the paths that are being fetched
// Returns a function from a job to its body, undefined until it is known. Fetches missing and old bodies, then redraws.
export function fetched(path, jobs) {
  const old = jobs.filter((job) => cache.get(path + job.id)?.version !== job.version);
  if (old.length && !fetching.has(path)) {
    fetching.add(path);
    const ids = old.length < 50 ? `?id=${old.map(({ id }) => encodeURIComponent(id)).join("&id=")}` : "";
    fetch(path + ids)
      .then((answer) => answer.json())
      .then((bodies) => {
        for (const { id, version } of old) cache.set(path + id, { version, body: bodies[id] });
        fetching.delete(path);
        page.redraw();
      })
      .catch(() => fetching.delete(path)); // the next change on the stream asks again
  }
  return (job) => cache.get(path + job.id)?.body;
}
