"use strict";
// Theme, figures, chapter marks and the sample browser. Everything comes from the JSON in the page; nothing is requested.

const root = document.documentElement;
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

// ---- theme ----
const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const setTheme = (name) => { root.dataset.theme = name; drawn.forEach(draw); };

// ---- figures: colours are names that the theme resolves ----
const figures = read("figures");
const drawn = new Set();
const NAMES = { ink: "--ink", muted: "--muted", paper: "--card" };

function colour(name) {
  const [key, alpha] = name.slice(1).split("/");
  const hex = css(NAMES[key] || `--s${key}`);
  if (!alpha) return hex;
  const [r, g, b] = [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function resolve(value) {
  if (typeof value === "string") return /^@(\d|ink|muted|paper)/.test(value) ? colour(value) : value;
  if (Array.isArray(value)) return typeof value[0] === "object" || typeof value[0] === "string" ? value.map(resolve) : value;
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v)]));
  return value;
}

const axis = (own) => ({
  gridcolor: css("--grid"), linecolor: css("--line"), zerolinecolor: css("--line"), tickcolor: css("--line"), automargin: true,
  ...own, title: { ...(own || {}).title, standoff: 8, font: { size: 12, color: css("--muted") } },
});

function draw(element) {
  const { data, layout } = resolve(figures[element.dataset.figure]);
  const base = {
    font: { family: css("--sans"), size: 12, color: css("--soft") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 34, r: 14, t: 10, b: 42 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } },
    hovermode: "closest",
  };
  const own = { ...base, ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) };
  Plotly.react(element, data, own, { responsive: true, displaylogo: false, displayModeBar: false });
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting && !drawn.has(entry.target)) { drawn.add(entry.target); draw(entry.target); }
  }
}, { rootMargin: "600px" });

// ---- chapter marks ----
function markChapter() {
  const links = [...document.querySelectorAll("nav li a")];
  const at = links.filter((link) => document.querySelector(link.hash).getBoundingClientRect().top < innerHeight * 0.35).pop() || links[0];
  if (!at.classList.contains("here")) {
    links.forEach((link) => link.classList.toggle("here", link === at));
    const list = at.closest("ol");
    if (list.scrollWidth > list.clientWidth) list.scrollLeft = at.offsetLeft - list.clientWidth / 3;
  }
}

// ---- sample browser: HTML in the data was made and escaped by pipeline/report/tex.py ----
const PAGE = 20;
const VERDICTS = {
  all: () => true,
  right: (a) => a.verdict === "right",
  wrong: (a) => a.verdict === "wrong",
  undecided: (a) => a.verdict === "undecided",
  "not right, other answer": (a, b) => b && a.verdict !== "right" && b.verdict !== "right" && a.extracted !== b.extracted,
  "flipped between the two": (a, b) => b && (a.verdict === "right") !== (b.verdict === "right"),
  "gained: right, other not": (a, b) => b && a.verdict === "right" && b.verdict !== "right",
  "lost: other right, this not": (a, b) => b && a.verdict !== "right" && b.verdict === "right",
};

function element(tag, name, content, html) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (html) made.innerHTML = content; else if (content !== undefined) made.textContent = content;
  return made;
}

function answerCard(model, answer) {
  const card = element("div", `answer ${answer.verdict}`);
  const who = element("div", "who");
  who.append(element("b", "", model), " · ", element("span", "mark", answer.verdict));
  if (answer.extracted) who.append(" · answer ", element("span", "", answer.extracted, true));
  if (answer.tokens) who.append(` · ${answer.tokens} tokens`);
  if (answer.remarks) who.append(` · ${answer.remarks}`);
  if (answer.reason) who.append(" · ", element("span", "muted", answer.reason));
  card.append(who, element("div", "text", answer.text, true));
  if (answer.drawn) {
    const votes = element("div", "votes", `${answer.right} of ${answer.drawn} samples right:`);
    answer.votes.forEach(([text, count, verdict]) => votes.append(element("span", verdict, `${text} × ${count}`, true)));
    card.append(votes);
  }
  return card;
}

function sampleCard(question, models) {
  const card = element("article", "sample");
  const head = element("div", "head");
  head.append(element("code", "", question.id));
  if (question.about) head.append(element("span", "", question.about));
  const reference = element("span", "", "reference ");
  reference.append(element("b", "", question.reference, true));
  head.append(reference);
  const answers = element("div", "answers");
  models.forEach((model) => answers.append(answerCard(model, question.answers[model])));
  card.append(head, element("div", "question", question.question, true), answers);
  return card;
}

function browser() {
  const form = document.getElementById("browser");
  if (!form) return;
  const tasks = read("samples-data").tasks;
  const fields = form.elements;
  const fill = (select, names, chosen) => {
    select.replaceChildren(...names.map(([value, label]) => new Option(label, value)));
    if (chosen !== undefined) select.value = chosen;
  };
  const text = (question) => {
    question.plain ??= JSON.stringify([question.id, question.question, Object.values(question.answers).map((a) => a.text)])
      .replace(/<[^>]+>/g, "").toLowerCase();
    return question.plain;
  };
  let shown = PAGE;

  function models() {
    const { models: names, pair } = tasks[fields.task.value];
    fill(fields.model, names.map((name) => [name, name]), pair[0]);
    fill(fields.other, [["", "none"], ...names.map((name) => [name, name])], pair[1] || "");
  }

  function list() {
    const task = tasks[fields.task.value], model = fields.model.value;
    const other = fields.other.value === model ? "" : fields.other.value;
    const passes = VERDICTS[fields.verdict.value], words = fields.search.value.toLowerCase().trim();
    const hits = task.questions.filter((question) => {
      const [a, b] = [question.answers[model], question.answers[other]];
      return a && passes(a, b) && (!words || text(question).includes(words));
    });
    const note = task.questions.length < task.total ? `, of the ${task.total} in the benchmark` : "";
    document.getElementById("browser-count").textContent = `${hits.length} of ${task.questions.length} questions${note}`;
    const cards = hits.slice(0, shown).map((q) => sampleCard(q, [model, other].filter((name) => name && q.answers[name])));
    document.getElementById("browser-list").replaceChildren(...cards);
    document.getElementById("browser-more").hidden = hits.length <= shown;
  }

  fill(fields.task, tasks.map((task, index) => [index, `${task.benchmark}, ${task.kind}`]));
  fill(fields.verdict, Object.keys(VERDICTS).map((name) => [name, name]));
  models();
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => { shown = PAGE; if (event.target === fields.task) models(); list(); });
  document.getElementById("browser-more").addEventListener("click", () => { shown += PAGE; list(); });
  list();
}

setTheme(stored() || (wantsDark.matches ? "dark" : "light"));
wantsDark.addEventListener("change", (event) => { if (!stored()) setTheme(event.matches ? "dark" : "light"); });
document.getElementById("theme").addEventListener("click", () => {
  const name = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* a page without storage forgets the choice */ }
  setTheme(name);
});
document.querySelectorAll(".plot").forEach((plot) => seen.observe(plot));
addEventListener("scroll", markChapter, { passive: true });
markChapter();
browser();
