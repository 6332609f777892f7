"use strict";
const $ = (id) => document.getElementById(id);
const NAMES = { math: "math", not_math: "not math", unsure: "unsure" };
let state = null, shown = [], current = null, path = null, detail = null, page = 0, read = new Set(), skipped = new Set(), given = [];

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function ask(route, values, save) {
  const query = save ? "" : "?" + new URLSearchParams(values);
  const options = save ? { method: "POST", body: JSON.stringify(values) } : {};
  try {
    const answer = await fetch(route + query, options);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    $("message").textContent = "";
    return found;
  } catch (error) {
    $("message").textContent = error instanceof TypeError ? "The program no longer answers: start it again. Nothing that it had saved is lost." : error.message;
    throw error;
  }
}

const plain = (prefix) => prefix.replace(/\/+$/, "");
const verdicts = (prefix) => state.verdicts[plain(prefix)] || { mine: "", others: {} };
const number = (value) => value.toLocaleString("en");
const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

function tag(verdict) {
  return element("span", { className: `tag ${verdict}` }, NAMES[verdict]);
}

function tags(prefix) {
  const { mine, others } = verdicts(prefix);
  const own = mine ? [tag(mine)] : [];
  return [...own, ...Object.entries(others).map(([name, verdict]) => element("small", { title: verdict ? `${name}: ${NAMES[verdict]}` : `${name} has judged it` }, ` ${name}${verdict && verdict !== mine ? ": " + NAMES[verdict] : ""}`))];
}

function belongs(row) {
  const { mine, others } = verdicts(row.prefix), by = Object.keys(others).length;
  const which = $("which").value;
  if (which === "open") return !mine && !by;
  if (which === "second") return !mine && by;
  if (which === "disputed") return mine && Object.values(others).some((verdict) => verdict !== mine);
  return which === "all" || mine;
}

function list() {
  const rows = state.queue.filter(belongs);
  shown = [...rows.filter((row) => !skipped.has(row.prefix)), ...rows.filter((row) => skipped.has(row.prefix))];
}

function drawQueue() {
  const judged = state.queue.filter((row) => verdicts(row.prefix).mine).length;
  $("progress").textContent = ` ${number(judged)} of ${number(state.queue.length)} judged`;
  const at = Math.max(0, shown.findIndex((row) => row.prefix === current));
  const first = Math.max(0, at - 100);  // of a long queue only the neighbourhood is drawn
  $("queue").replaceChildren(...shown.slice(first, first + 200).map((row) => {
    const button = element("button", { onclick: () => obey(() => open(row.prefix)) },
      element("span", {}, row.prefix, " ", ...tags(row.prefix)),
      element("small", {}, `${number(row.kept)} of ${number(row.pages)}`),
      element("progress", { className: "bar", max: row.pages, value: row.kept }));
    button.setAttribute("aria-current", row.prefix === current);
    button.title = `${number(row.kept)} of ${many(row.pages, "page")} kept`;
    return element("li", {}, button);
  }));
  $("queue").querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
}

function drawHead() {
  $("about").textContent = `${state.run}, iteration ${state.iteration}; you are ${state.annotator}; saved in ${state.output}`;
  const of = (verdict) => state.effect[verdict] || { pages: 0, kept: 0 };
  const all = state.reviewed === "all", seed = all ? of("math").pages : of("math").pages - of("math").kept;
  $("effect").textContent = `In effect: ${number(seed)} pages for the seed, ${number(of("not_math").kept)} kept pages to go`
    + (all ? `, ${number(of("not_math").pages)} negatives` : "");
  $("agreement").textContent = state.agreement.map((pair) => `${pair.annotators.join(" and ")} agree on ${pair.same} of ${pair.both}`
    + (pair.kappa === null ? "" : `, kappa ${pair.kappa.toFixed(2)}`)).join("; ");
}

function below(url) {  // an address without what the chosen path says already
  const bare = url.replace(/^https?:\/\//, "");
  return bare.startsWith(path) ? bare.slice(path.length) || bare : bare;
}

function drawSide() {
  const chosen = detail.paths.find((row) => plain(row.path) === plain(path));
  const { mine } = verdicts(path);
  for (const button of $("verdict").children) button.setAttribute("aria-pressed", button.dataset.verdict === mine);
  const all = state.reviewed === "all", seed = chosen && (all ? chosen.pages : chosen.pages - chosen.kept);
  $("preview").replaceChildren(...(chosen ? [
    element("strong", {}, path), ` math: ${many(seed, "page")} more for the seed; not math: ${many(chosen.kept, "kept page")} less`
      + (all ? `, ${many(chosen.pages, "negative")}` : "")] : []));
  const depth = plain(detail.paths[0]?.path || "").split("/").length;
  $("paths").replaceChildren(...detail.paths.map((row) => {
    const parts = plain(row.path).split("/"), level = Math.min(4, parts.length - depth);
    const button = element("button", { onclick: () => obey(() => choose(row.path)) },
      element("span", {}, level ? `${parts.at(-1)}/` : row.path, " ", ...tags(row.path)),
      element("small", {}, `${number(row.kept)} of ${number(row.pages)}`));
    button.setAttribute("aria-current", plain(row.path) === plain(path));
    return element("li", { className: `depth${level}` }, button);
  }));
  $("samples").replaceChildren(...detail.samples.map((row, index) => {
    const button = element("button", { onclick: () => obey(() => show(index)) },
      element("span", { className: read.has(row.id) ? "muted" : "", title: row.url }, below(row.url)),
      element("small", {}, row.kept ? `kept ${row.score.toFixed(1)}` : row.score.toFixed(1)));
    button.setAttribute("aria-current", index === page);
    return element("li", {}, button);
  }));
  for (const id of ["paths", "samples"]) $(id).querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
}

async function open(prefix) {
  current = prefix;
  drawQueue();
  await choose(prefix);
}

async function choose(wanted) {
  const asked = current;
  path = wanted; page = 0;
  const found = await ask("prefix", { prefix: asked, path: wanted });
  if (current !== asked || path !== wanted) return;  // another one was chosen meanwhile
  detail = found;
  await show(0);
}

async function show(index) {
  page = index;
  const row = detail.samples[index], asked = path;
  if (row) read.add(row.id);
  drawSide();
  if (!row) return $("text").replaceChildren();
  const link = /^https?:\/\//.test(row.url)
    ? element("a", { href: row.url, target: "_blank", rel: "noopener noreferrer" }, row.url) : row.url;
  $("page").replaceChildren(link, ` ${row.kept ? "kept" : "not kept"}, score ${row.score.toFixed(2)}`);
  const { text } = await ask("page", { prefix: current, path: asked, id: row.id });
  if (detail.samples[page] !== row) return;
  $("text").replaceChildren(...formatted(text));
  $("text").parentElement.scrollTop = 0;
}

function after(prefix) {
  const at = shown.findIndex((row) => row.prefix === prefix);
  return shown.slice(at + 1).find(belongs) || shown.find((row) => row.prefix !== prefix && belongs(row));
}

async function next(prefix) {
  const row = after(prefix);
  list();
  if (row) return open(row.prefix);
  drawQueue();
  drawSide();
  $("page").textContent = "No prefix is left in this list.";
  $("text").replaceChildren();
}

async function save(prefix, where, verdict) {
  const seen = detail.samples.filter((row) => read.has(row.id)).length;
  const chosen = detail.paths.find((row) => plain(row.path) === plain(where));
  const evidence = chosen ? `${seen} of ${many(chosen.pages, "page")} read, ${chosen.kept} kept` : "";
  const changed = await ask("verdict", { prefix, path: where, verdict, evidence }, true);
  Object.assign(state, changed);
  drawHead();
}

async function judge(verdict) {
  if (!detail || !current) return;
  const prefix = current, where = path;
  if (verdict === "skip") {
    skipped.add(prefix);
    return next(prefix);
  }
  given.push({ prefix, path: where, before: verdicts(where).mine });
  await save(prefix, where, verdict);
  if (plain(where) === plain(prefix)) return next(prefix);
  drawQueue();
  drawSide();
}

async function undo() {
  const last = given.pop();
  if (!last) return;
  await save(last.prefix, last.path, last.before);
  skipped.delete(last.prefix);
  list();
  current = last.prefix;
  drawQueue();
  await choose(last.path);
}

const step = (rows, at, by) => rows[Math.min(rows.length - 1, Math.max(0, at + by))];
function move(by) {
  const row = step(shown, shown.findIndex((row) => row.prefix === current), by);
  if (row) return open(row.prefix);
}
function walk(by) {
  const row = step(detail.paths, detail.paths.findIndex((row) => plain(row.path) === plain(path)), by);
  if (row && plain(row.path) !== plain(path)) return choose(row.path);
}
function help() {
  $("keys").hidden = !$("keys").hidden;
  $("help").setAttribute("aria-expanded", !$("keys").hidden);
}

const KEYS = {
  m: () => judge("math"), n: () => judge("not_math"), u: () => judge("unsure"), s: () => judge("skip"), z: undo,
  j: () => detail && page + 1 < detail.samples.length && show(page + 1), k: () => detail && page > 0 && show(page - 1),
  "]": () => move(1), "[": () => move(-1), ArrowDown: () => detail && walk(1), ArrowUp: () => detail && walk(-1), "?": help,
};
let busy = Promise.resolve();  // keys are obeyed one after the other, however fast they come
function obey(action) {
  busy = busy.then(action).catch(() => {});
}
document.addEventListener("keydown", (event) => {
  const action = KEYS[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  event.preventDefault();
  obey(action);
});
for (const button of $("verdict").children) button.onclick = () => obey(() => judge(button.dataset.verdict));
$("help").onclick = help;
$("which").onchange = () => {
  $("which").blur();
  list();
  if (shown.length) obey(() => open(shown[0].prefix));
  else drawQueue();
};

ask("start", {}).then((found) => {
  state = found;
  drawHead();
  list();
  if (shown.length) return open(shown[0].prefix);
  drawQueue();
  $("page").textContent = state.queue.length ? "All prefixes are judged." : "The queue of this iteration is empty.";
});
