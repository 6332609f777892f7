"use strict";
const given = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let state = given.state;
let entered = false;
let picked = sessionStorage.getItem("model");

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawing(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function duration(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), pad = (n) => String(n).padStart(2, "0");
  if (hours) return `${hours}h${pad(minutes % 60)}m`;
  return minutes ? `${minutes}m${pad(Math.round(seconds) % 60)}s` : `${Math.round(seconds)}s`;
}

function short(value) {
  const size = Math.abs(value);
  return size && (size < 0.001 || size >= 100000) ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

function header() {
  const counts = state.counts, total = Object.values(counts).reduce((a, b) => a + b, 0);
  const others = Object.entries(counts).filter(([name, count]) => name !== "done" && count);
  const parts = [`${counts.done} of ${total} jobs done`, ...others.map(([name, count]) => `${count} ${name}`)];
  if (state.left && counts.running) parts.push(`about ${duration(state.left)} left`);
  document.title = `${state.run}: ${counts.done} of ${total}`;
  byId("run").textContent = state.run;
  byId("overall").textContent = parts.join(", ");
  byId("seen").textContent = `seen ${state.time} on ${state.host}`;
  byId("bar").replaceChildren(...Object.entries(counts).filter(([name, count]) => count && name !== "waiting").map(
    ([name, count]) => {
      const part = element("i", { class: name });
      part.style.width = `${(100 * count) / total}%`;
      return part;
    }));
}

function errors() {
  byId("errors").hidden = !state.errors.length;
  byId("errors").querySelector("ul").replaceChildren(
    ...state.errors.map((error) => element("li", {}, element("b", {}, error.name), `: ${error.why}`)));
}

function graph() {
  const holder = byId("graph"), left = holder.scrollLeft;
  const stages = state.stages.map((stage) => element("div", { class: "stage" }, element("h3", {}, stage.title),
    ...state.groups.filter((group) => group.stage === stage.name).map(box)));
  holder.replaceChildren(holder.querySelector("svg"), ...stages);
  holder.scrollLeft = left;
  const first = entered ? null : holder.querySelector(".running, .failed, .stopped");
  if (first) holder.scrollLeft = first.offsetLeft + first.parentElement.offsetLeft - holder.clientWidth / 2;
  entered = true;
  edges();
}

function box(group) {
  const count = group.total > 1 ? ` ${group.done} of ${group.total}` : "";
  const made = element("div", { class: `box ${group.state}`, "data-name": group.name },
    element("b", {}, group.name.split("/").slice(1).join("/") || group.name), element("span", {}, group.state + count));
  if (group.said) made.append(element("small", {}, group.said));
  return made;
}

function edges() {
  const holder = byId("graph"), svg = holder.querySelector("svg"), origin = holder.getBoundingClientRect();
  for (const name of ["width", "height"]) svg.setAttribute(name, 0);  // its own size is part of what is measured
  const { scrollWidth, scrollHeight } = holder;
  svg.setAttribute("width", scrollWidth);
  svg.setAttribute("height", scrollHeight);
  const places = {};
  for (const node of holder.querySelectorAll(".box")) {
    const at = node.getBoundingClientRect(), x = at.left - origin.left + holder.scrollLeft, y = at.top - origin.top;
    places[node.dataset.name] = { left: x, right: x + at.width, top: y, bottom: y + at.height, middle: y + at.height / 2 };
  }
  svg.replaceChildren(...state.edges.map(([before, after]) => {
    const from = places[before], to = places[after];
    if (!from || !to) return "";
    if (to.left < from.right)
      return drawing("path", { d: `M${from.left + 24},${from.bottom} L${to.left + 24},${to.top}` });
    const bend = Math.max(16, Math.min(40, (to.left - from.right) / 2));
    return drawing("path", { d: `M${from.right},${from.middle} C${from.right + bend},${from.middle} ${to.left - bend},${to.middle} ${to.left},${to.middle}` });
  }).filter(Boolean));
}

function curve(name, points) {
  const [first, last] = [points[0], points[points.length - 1]];
  const values = points.map(([, value]) => value), low = Math.min(...values), high = Math.max(...values);
  const width = Math.max(1, last[0] - first[0]), height = high - low || 1;
  const svg = drawing("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img",
    "aria-label": `${name}: from ${short(first[1])} to ${short(last[1])}` });
  for (const y of [4, 50, 96]) svg.append(drawing("line", { x1: 0, x2: 300, y1: y, y2: y }));
  svg.append(drawing("polyline", { points: points.map(([step, value]) =>
    `${((step - first[0]) / width * 300).toFixed(1)},${(96 - (value - low) / height * 92).toFixed(1)}`).join(" ") }));
  return element("figure", {}, element("figcaption", {}, element("b", {}, name.replace("_", " ")), short(last[1])), svg,
    element("div", { class: "range" }, element("span", {}, `${short(low)} to ${short(high)}`),
      element("span", {}, `step ${first[0]} to ${last[0]}`)));
}

function models() {
  byId("models").hidden = !state.models.length;
  if (!state.models.length) return;
  const model = state.models.find(({ name }) => name === picked) || state.models[0];
  const focus = document.activeElement?.dataset?.name;
  byId("picks").replaceChildren(...state.models.map(({ name, state: at, step, steps }) => {
    const button = element("button", { class: at, "data-name": name, "aria-pressed": name === model.name },
      `${name}, ${at}${step ? ` at step ${step}${steps ? ` of ${steps}` : ""}` : ""}`);
    button.addEventListener("click", () => { picked = name; sessionStorage.setItem("model", name); models(); });
    return button;
  }));
  if (focus) [...byId("picks").children].find((button) => button.dataset.name === focus)?.focus();
  const drawn = Object.entries(model.curves).map(([name, points]) => curve(name, points));
  byId("curves").replaceChildren(...(drawn.length ? drawn : ["One step is logged."]));
  samples(model);
}

function samples(model) {
  byId("samples").hidden = !model.samples.length;
  byId("samples").querySelector("h2").textContent = `Latest samples of ${model.name}, step ${model.step}`;
  byId("samples").querySelector("div").replaceChildren(...model.samples.map((sample) => {
    const kind = { right: "done", undecided: "stopped" }[sample.verdict] || "failed";
    return element("article", { class: kind }, element("p", {}, sample.question), element("pre", {}, sample.text || "(no text)"),
      element("p", { class: "facts" }, element("b", {}, sample.verdict),
        `, reward ${short(sample.reward)}; rule: ${sample.reason}; reference ${sample.reference}; ended by ${sample.finish_reason}`));
  }));
}

function table(caption, head, rows) {
  const line = (kind, cells) => element("tr", {}, ...cells.map((cell) => element(kind, {}, cell)));
  return element("div", { class: "table" }, element("table", {}, element("caption", {}, caption),
    element("thead", {}, line("th", head)), element("tbody", {}, ...rows.map((row) => line("td", row)))));
}

function machines() {
  byId("machines").hidden = !(state.gpus.length || state.queue.length);
  const found = [];
  if (state.gpus.length) found.push(table("GPUs of this machine", ["GPU", "busy", "memory", "of", "°C"], state.gpus));
  if (state.queue.length) found.push(table("Slurm's queue", ["job", "state", "time", "nodes", "where or why", "rule"], state.queue));
  byId("machines").querySelector("div").replaceChildren(...found);
}

function show() {
  for (const part of [header, errors, graph, models, machines]) part();
}

async function look() {
  try {
    const answer = await fetch("state.json");
    state = await answer.json();
    show();
  } catch (error) {
    byId("seen").textContent = "pipeline.pages.watch does not answer: it was ended, or cannot be reached.";
  }
  setTimeout(look, given.seconds * 1000);
}

addEventListener("resize", () => state && edges());
if (state) show(); else look();
