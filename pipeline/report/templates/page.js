// Theme, figures and chapter marks, from the JSON in the page. explorer.js loads files beside it and nothing else.

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

// plotly.js is the largest part of the page, and to run it takes half a second: it stays text until the rest is there,
// then runs while nobody waits, not in the middle of a click that brings a figure into view.
function plotly() {
  if (!window.Plotly) {
    const script = element("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
  }
  return Plotly;
}

// A figure in the colours of the theme.
function coloured(name) {
  const { data, layout } = resolve(figures[name]);
  const base = {
    font: { family: css("--sans"), size: 12, color: css("--soft") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 34, r: 14, t: 10, b: 42 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } },
    hovermode: "closest",
  };
  return { data, layout: { ...base, ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) } };
}

function draw(element) {
  const { data, layout } = coloured(element.dataset.figure);
  plotly().react(element, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
}

// A figure alone is light on white and says what the page says around it: title and names of its lines.
function save(plot, title, format) {
  const theme = root.dataset.theme;
  root.dataset.theme = "light";
  const { data, layout } = coloured(plot.dataset.figure);
  Object.assign(layout, { paper_bgcolor: css("--card"), title: { text: title, x: 0.02, font: { size: 15, color: css("--ink") } }, margin: { ...layout.margin, t: 70 } });
  layout.showlegend = data.filter((trace) => trace.name && trace.showlegend !== false).length > 1;
  root.dataset.theme = theme;
  return plotly().downloadImage({ data, layout }, { format, filename: plot.dataset.figure, width: 720, height: 440, scale: format === "png" ? 2 : 1 });
}

const whenIdle = window.requestIdleCallback ?? ((task) => setTimeout(task, 50));
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) { seen.unobserve(target); whenIdle(() => { drawn.add(target); draw(target); }); }
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

setTheme(stored() || (wantsDark.matches ? "dark" : "light"));
wantsDark.addEventListener("change", (event) => { if (!stored()) setTheme(event.matches ? "dark" : "light"); });
document.getElementById("theme").addEventListener("click", () => {
  const name = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* a page without storage forgets the choice */ }
  setTheme(name);
});
document.querySelectorAll(".plot").forEach((plot) => seen.observe(plot));
if (document.querySelector(".plot")) whenIdle(plotly);

// Figures are saved as files by two buttons in their captions.
document.querySelectorAll("figure").forEach((figure) => {
  const plot = figure.querySelector(".plot"), saving = element("span", "save");
  for (const format of ["png", "svg"]) {
    const button = element("button", "", format.toUpperCase());
    button.type = "button";
    button.setAttribute("aria-label", `save the figure as ${format.toUpperCase()}`);
    button.addEventListener("click", () => save(plot, figure.querySelector("b").textContent, format));
    saving.append(button);
  }
  figure.querySelector("figcaption").append(saving);
});

document.querySelectorAll("[data-tex]").forEach((part) => part.replaceChildren(...formatted(part.textContent)));

// What scrolls inside the page can be reached by keyboard.
const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  if (target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight) target.tabIndex = 0;
  else target.removeAttribute("tabindex");
}));
document.querySelectorAll(".scroll, pre").forEach((box) => resized.observe(box));

// On paper: light, all figures drawn, everything unfolded but settings.
let before = null;
addEventListener("beforeprint", () => {
  const closed = [...document.querySelectorAll("section > details:not([open]), .claim:not([open])")];
  before = { theme: root.dataset.theme, closed };
  closed.forEach((part) => { part.open = true; });
  document.querySelectorAll(".plot").forEach((plot) => drawn.add(plot));
  setTheme("light");
});
addEventListener("afterprint", () => { before.closed.forEach((part) => { part.open = false; }); setTheme(before.theme); });
addEventListener("scroll", markChapter, { passive: true });
markChapter();
explorer();
rollouts();
