// ---- explorer: answers and rollouts, from files beside the page (pipeline/report/shards.py) ----
const PAGE = 20;
const FLIPPED = "flipped between the two";
const VERDICTS = {
  all: () => true,
  right: (a) => a.verdict === "right",
  wrong: (a) => a.verdict === "wrong",
  undecided: (a) => a.verdict === "undecided",
  "not right, other answer": (a, b) => b && a.verdict !== "right" && b.verdict !== "right" && a.extracted !== b.extracted,
  [FLIPPED]: (a, b) => b && (a.verdict === "right") !== (b.verdict === "right"),
  "gained: right, other not": (a, b) => b && a.verdict === "right" && b.verdict !== "right",
  "lost: other right, this not": (a, b) => b && a.verdict !== "right" && b.verdict === "right",
};

// An evaluation file's questions: properties from its index, texts when they are asked for.
class Answers {
  static opened = new Map();

  static async open(model, folder) {
    if (!Answers.opened.has(folder)) Answers.opened.set(folder, new Answers(model, folder, (await load(`${folder}/index`))[0]));
    return Answers.opened.get(folder);
  }

  constructor(model, folder, index) {
    Object.assign(this, { model, folder, index, place: new Map(index.ids.map((id, at) => [id, at])) });
  }

  row(at) {
    if (at === undefined) return null;
    const { index } = this, row = { at, id: index.ids[at] };
    for (const key of ["subject", "level", "verdict", "reason", "remarks"]) row[key] = index[key].names[index[key].codes[at]];
    for (const key of ["tokens", "extracted", "right", "drawn"]) row[key] = index[key][at];
    return row;
  }

  async text(at) {  // question, reference, greedy text, most frequent sampled answers
    return (await load(`${this.folder}/text-${Math.floor(at / this.index.texts)}`))[at % this.index.texts];
  }

  async whole(at) {
    const { starts } = this.index, number = starts.findLastIndex((start) => start <= at);
    return (await loadOnce(`${this.folder}/all-${number}`))[at - starts[number]];
  }

  async plain() {  // all texts in lower case, for the search
    const all = await Promise.all(this.index.ids.map((_, at) => this.text(at)));
    this.words ??= all.map(([question, reference, text], at) => `${this.index.ids[at]} ${question} ${reference} ${text ?? ""}`.toLowerCase());
    return this.words;
  }
}

function head(model, answer) {
  const who = element("div", "who");
  who.append(element("b", "", model), " · ", element("span", "mark", answer.verdict));
  if (answer.extracted) who.append(" · answer ", element("span", "", formatted(answer.extracted)));
  if (answer.reward !== undefined) who.append(` · reward ${Number(answer.reward.toFixed(3))}`);
  if (answer.tokens) who.append(` · ${answer.tokens} tokens`);
  if (answer.remarks) who.append(` · ${answer.remarks}`);
  if (answer.reason) who.append(" · ", element("span", "muted", answer.reason));
  return who;
}

const textBox = (text) => { const box = element("div", "text scroll", formatted(text || "")); resized.observe(box); return box; };
const answerBox = (model, answer, text) => element("div", `answer ${answer.verdict}`, [head(model, answer), textBox(text)]);
const remarks = (answer) => [{ stop: "", length: "cut off" }[answer.finish_reason] ?? answer.finish_reason.replaceAll("_", " "), answer.program && `program: ${answer.program}`].filter(Boolean).join(" · ");

function votes(row, top) {
  const made = element("div", "votes", `${row.right} of ${row.drawn} samples right:`);
  for (const [text, count, verdict] of top) made.append(element("span", verdict[0], [...formatted(text || "no answer"), ` × ${count}`]));
  return made;
}

async function answerCard(answers, row) {
  const [, , text, top] = await answers.text(row.at);
  const card = answerBox(answers.model, row, text);
  if (!row.drawn) return card;
  const button = element("button", "all", `Show the ${row.drawn} samples`), list = element("div", "drawn");
  button.type = "button";
  button.addEventListener("click", async () => {
    button.hidden = true;
    try {
      const { samples } = await answers.whole(row.at);
      list.replaceChildren(...samples.map((sample, number) => answerBox(`${number + 1}`, { ...sample, remarks: remarks(sample) }, sample.text)));
    } catch (error) { list.textContent = error.message; }
  });
  card.append(votes(row, top), button, list);
  return card;
}

async function sampleCard(pairs, link) {
  const [first, row] = pairs[0], [question, reference] = await first.text(row.at);
  const permalink = element("a", "permalink", "link");
  permalink.href = link(row.id);
  permalink.setAttribute("aria-label", `link to question ${row.id}`);
  const about = element("div", "head", [element("code", "", row.id), permalink]);
  const labels = [row.subject, row.level].filter(Boolean).join(" · ");
  if (labels) about.append(element("span", "", labels));
  about.append(element("span", "", ["reference ", element("b", "", formatted(String(reference)))]));
  const answers = element("div", "answers", await Promise.all(pairs.map(([of, found]) => answerCard(of, found))));
  return element("article", "sample", [about, element("div", "question", formatted(question)), answers]);
}

function fill(select, names, chosen) {
  const before = chosen ?? select.value;
  select.replaceChildren(...names.map((name) => { const [value, label] = Array.isArray(name) ? name : [name, name]; return new Option(label, value); }));
  select.value = [...select.options].some((option) => option.value === before) ? before : select.options[0]?.value ?? "";
}

const ANY = ["", "any"];
const FIELDS = ["task", "model", "other", "verdict", "reason", "subject", "level", "least", "most", "search", "id"];

function explorer() {
  const form = document.getElementById("browser");
  if (!form) return;
  const { tasks } = read("samples-data"), fields = form.elements;
  const count = document.getElementById("browser-count"), list = document.getElementById("browser-list"), more = document.getElementById("browser-more");
  let shown = PAGE, turn = 0, own = false;  // own: the page chose what is shown first, not the reader

  function choose(values) {
    const known = tasks.findIndex((task) => task.name === values.task);
    fill(fields.task, tasks.map((task) => [task.name, `${task.benchmark}, ${task.kind}`]), tasks[Math.max(known, 0)].name);
    models(values);
    fill(fields.verdict, Object.keys(VERDICTS), values.verdict);
    for (const key of ["least", "most", "search", "id"]) fields[key].value = values[key] ?? "";
  }

  function models(values = {}) {
    const { models: folders, pair } = tasks.find((task) => task.name === fields.task.value), names = Object.keys(folders);
    fill(fields.model, names, values.model ?? pair[0]);
    fill(fields.other, [["", "none"], ...names], values.other ?? pair[1] ?? "");
  }

  function link(id) {
    const values = { task: fields.task.value, model: fields.model.value, other: fields.other.value, id };
    return `#samples?${new URLSearchParams(values)}`;
  }

  function remember() {
    const values = FIELDS.map((key) => [key, fields[key].value]).filter(([key, value]) => value && !(key === "verdict" && value === "all"));
    try { history.replaceState(null, "", `#samples?${new URLSearchParams(values)}`); } catch { /* a page that may not change its address */ }
  }

  async function hits(answers, other) {
    const passes = VERDICTS[fields.verdict.value], words = fields.search.value.toLowerCase().trim();
    const [least, most] = [Number(fields.least.value || 0), Number(fields.most.value || Infinity)];
    const texts = words ? await Promise.all([answers, other].filter(Boolean).map(async (of) => [of, await of.plain()])) : [];
    const found = [];
    for (let at = 0; at < answers.index.ids.length; at += 1) {
      const a = answers.row(at), b = other?.row(other.place.get(a.id)) ?? null;
      const same = ["reason", "subject", "level"].every((key) => !fields[key].value || fields[key].value === a[key]);
      if (!same || !passes(a, b) || a.tokens < least || a.tokens > most || (fields.id.value && fields.id.value !== a.id)) continue;
      if (words && !texts.some(([of, plain]) => plain[of.place.get(a.id)]?.includes(words))) continue;
      found.push(b ? [[answers, a], [other, b]] : [[answers, a]]);
    }
    return found;
  }

  async function update(values = {}) {
    const mine = ++turn, { models: folders } = tasks.find((task) => task.name === fields.task.value);
    const name = fields.model.value, against = fields.other.value === name ? "" : fields.other.value;
    try {
      const [answers, other] = await Promise.all([name, against].map((key) => (key ? Answers.open(key, folders[key]) : null)));
      if (mine !== turn) return;
      const names = (key) => [ANY, ...answers.index[key].names.filter(Boolean).sort((a, b) => a.localeCompare(b, "en", { numeric: true }))];
      for (const key of ["reason", "subject", "level"]) {
        fill(fields[key], names(key), values[key]);
        fields[key].parentElement.hidden = fields[key].options.length < 3;
      }
      let found = await hits(answers, other);
      if (!found.length && own) {
        fields.verdict.value = "all";
        found = await hits(answers, other);
      }
      const cards = await Promise.all(found.slice(0, shown).map((pairs) => sampleCard(pairs, link)));
      if (mine !== turn) return;
      count.textContent = `${found.length} of ${answers.index.ids.length} questions`;
      list.replaceChildren(...cards);
      more.hidden = found.length <= shown;
    } catch (error) { count.textContent = error.message; list.replaceChildren(); more.hidden = true; }
  }

  function fromAddress() {
    const [chapter, query] = location.hash.split("?");
    if (chapter !== "#samples" || !query) return false;
    const values = Object.fromEntries(new URLSearchParams(query));
    shown = PAGE;
    choose(values);
    document.getElementById("samples").scrollIntoView();
    update(values);
    return true;
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    shown = PAGE;
    if (event.target === fields.task) models();
    if (event.target === fields.verdict) own = false;
    if (event.target !== fields.id) fields.id.value = "";
    update().then(remember);
  });
  form.addEventListener("reset", () => setTimeout(() => { choose({}); update({ reason: "", subject: "", level: "" }).then(remember); }));
  more.addEventListener("click", () => { shown += PAGE; update(); });
  addEventListener("hashchange", fromAddress);
  if (!fromAddress()) {
    choose({});
    if (fields.other.value) { fields.verdict.value = FLIPPED; own = true; }
    new IntersectionObserver((entries, own) => { if (entries.some((entry) => entry.isIntersecting)) { own.disconnect(); if (!turn) update(); } }, { rootMargin: "800px" }).observe(form);
  }
}

// ---- rollouts of RL, step by step ----
const REWARDS = {
  all: () => true,
  "rewards differ": (rewards) => new Set(rewards).size > 1,
  "all equal": (rewards) => new Set(rewards).size === 1,
  "none rewarded": (rewards) => rewards.every((reward) => reward <= 0),
};

function rollouts() {
  const form = document.getElementById("rollouts");
  if (!form) return;
  const found = read("samples-data").rollouts, fields = form.elements;
  const count = document.getElementById("rollouts-count"), list = document.getElementById("rollouts-list"), more = document.getElementById("rollouts-more");
  let shown = 5, turn = 0;

  function groupCard(group, name) {
    const about = element("div", "head", [element("code", "", group.id), element("span", "", ["reference ", element("b", "", formatted(String(group.reference)))])]);
    const answers = group.outputs.map((output, number) => answerBox(`${number + 1}`, { ...output, remarks: remarks(output) }, output.text));
    about.append(element("span", "", `${name}, ${group.outputs.length} outputs`));
    return element("article", "sample", [about, element("div", "question", formatted(group.question)), element("div", "answers", answers)]);
  }

  async function update() {
    const mine = ++turn, { folder, steps } = found[fields.policy.value];
    fields.step.max = steps.length - 1;
    const [step, reward, files] = steps[Math.min(fields.step.value, steps.length - 1)];
    form.querySelector("output").textContent = step;
    try {
      const parts = await Promise.all(Array.from({ length: files }, (_, number) => loadOnce(`${folder}/${step}-${number}`)));
      if (mine !== turn) return;
      const groups = parts.flat(), passes = REWARDS[fields.rewards.value];
      const hits = groups.filter((group) => passes(group.outputs.map((output) => output.reward)));
      count.textContent = `Step ${step}: ${hits.length} of ${groups.length} questions, mean reward ${reward.toFixed(3)}`;
      list.replaceChildren(...hits.slice(0, shown).map((group) => groupCard(group, fields.policy.value)));
      more.hidden = hits.length <= shown;
    } catch (error) { count.textContent = error.message; list.replaceChildren(); more.hidden = true; }
  }

  fill(fields.policy, Object.keys(found));
  fill(fields.rewards, Object.keys(REWARDS));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { shown = 5; update(); });
  more.addEventListener("click", () => { shown += 5; update(); });
  new IntersectionObserver((entries, own) => { if (entries.some((entry) => entry.isIntersecting)) { own.disconnect(); update(); } }, { rootMargin: "800px" }).observe(form);
}
