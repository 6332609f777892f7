// ---- the pages of a crawl, from files beside the page (pipeline/report/pages.py) ----
const find = (selector) => document.querySelector(selector);
const LISTED = 200;
const WHY = { opt_out: "its owner opted out", not_math: "a reviewer found its prefix not mathematical", blocklist: "a blocklist names its domain" };
const EXCLUDED = { "-1": WHY.opt_out, "-2": WHY.not_math, "-3": WHY.blocklist };
const FATES = {
  kept: () => "In the corpus.",
  below_cut: () => "Not in the corpus: its score is below the cut of the last iteration.",
  excluded: (reason) => `Not in the corpus: ${WHY[reason]}.`,
  contaminated: (reason, item) => `Not in the corpus: it shares text with the benchmark item ${item} (${reason}).`,
  duplicate: (reason, _, original) => `A duplicate (${reason}) of ${original}, which stands for it.`,
  rejected: (reason) => `Rejected when it was extracted: ${String(reason).replaceAll("_", " ")}.`,
};
let index, current = -1, search = 0;

function made(tag, content, properties) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...[content].flat().map((part) => part ?? "–"));
  return found;
}

const inPool = () => index.iterations[0].score.length;
const file = (at) => `pages/text-${Math.floor(at / index.texts)}`;
const score = (at) => at < inPool() ? index.iterations.at(-1).score[at].toFixed(2) : "";

function result(iteration, at) {
  const outcome = iteration.outcome[at];
  return outcome > 0 ? "kept" : outcome < 0 ? `never kept: ${EXCLUDED[outcome]}` : "below the cut";
}

async function show(at) {
  current = at;
  for (const button of document.querySelectorAll("#list button")) button.setAttribute("aria-current", Number(button.value) === at);
  const url = index.url[at], pool = inPool();
  find("#page").hidden = false;
  find("#page h2").replaceChildren(/^https?:\/\//.test(url) ? made("a", url, { href: url, target: "_blank", rel: "noopener noreferrer" }) : url);
  const about = FATES[index.status[at]]?.(index.reason[at], index.contaminated[at], index.original[at - pool]) || "";
  const removed = index.status[at] === "kept" && index.reason[at] ? ` ${index.reason[at]}: it shared them with ${index.contaminated[at]}.` : "";
  find("#fate").textContent = `${about}${removed}${index.language[at] ? ` Language: ${index.language[at]}.` : ""}`;
  find("#page table").hidden = at >= pool;
  find("#page tbody").replaceChildren(...(at < pool ? index.iterations.map((iteration) => made("tr", [
    made("th", String(iteration.number)), made("td", iteration.score[at].toFixed(2)),
    made("td", iteration.cut?.toFixed(2)), made("td", result(iteration, at)),
  ])) : []));
  find("#text").textContent = "";
  try { history.replaceState(null, "", `#${encodeURIComponent(url)}`); } catch { /* a page that may not change its address */ }
  try {
    const found = at < pool ? formatted((await load(file(at)))[at % index.texts]) : ["Its text is not kept."];
    if (current === at) find("#text").replaceChildren(...found);
  } catch (error) { find("#text").textContent = error.message; }
}

async function list() {
  const mine = ++search, fields = find("#search").elements;
  const address = fields.url.value.trim().toLowerCase(), words = fields.words.value.trim().toLowerCase(), status = fields.status.value;
  let hits = index.url.map((_, at) => at).filter((at) => (!status || index.status[at] === status) && (!address || index.url[at].toLowerCase().includes(address)));
  if (words) {
    find("#about").textContent = "Reading the texts.";
    const found = [];
    for (const [name, places] of Map.groupBy(hits.filter((at) => at < inPool()), file)) {
      const texts = await loadOnce(name);
      if (mine !== search) return;
      found.push(...places.filter((at) => texts[at % index.texts].toLowerCase().includes(words)));
    }
    hits = found;
  }
  const some = index.records > index.url.length ? ` The crawl has ${index.records.toLocaleString("en")} records; corpus/pages.parquet, or the tables in corpus/pages, say what became of each.` : "";
  find("#about").textContent = `${hits.length.toLocaleString("en")} of ${index.url.length.toLocaleString("en")} pages${hits.length > LISTED ? `, the first ${LISTED} listed` : ""}.${some}`;
  find("#list").replaceChildren(...hits.slice(0, LISTED).map((at) => made("li", made("button", [
    made("span", index.url[at]), made("small", `${String(index.status[at]).replaceAll("_", " ")} ${score(at)}`, { className: "muted" }),
  ], { value: at, onclick: () => show(at) }))));
  if (hits.length) await show(hits.includes(current) ? current : hits[0]);
  else find("#page").hidden = true;
}

function fromAddress() {
  const url = decodeURIComponent(location.hash.slice(1));
  if (!url) return false;
  find("#search").elements.url.value = url;
  current = index.url.indexOf(url);
  return true;
}

if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark";
load("pages/index").then(([found]) => {
  index = found;
  const statuses = [...new Set(index.status)].filter(Boolean).sort();
  find("#search").elements.status.append(...statuses.map((status) => new Option(status.replaceAll("_", " "), status)));
  find("#search").addEventListener("submit", (event) => event.preventDefault());
  find("#search").addEventListener("input", (event) => event.target.name !== "words" && list());
  find("#search").elements.words.addEventListener("change", list);
  addEventListener("hashchange", () => fromAddress() && list());
  fromAddress();
  return list();
}).catch((error) => { find("#about").textContent = error.message; });
