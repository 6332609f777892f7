// ---- text with TeX as nodes: formulas become MathML, everything else is text; what is not understood stays TeX source ----
const MATHML = "http://www.w3.org/1998/Math/MathML";
const SPAN = /\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<![\\$\w])\$(?=[^\s$])([^$\n]*?[^\s\\$])\$(?!\d)|\\boxed\s*\{/gs;
const NAMED = Object.fromEntries((
  "alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ " +
  "sigma σ tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω " +
  "infty ∞ ell ℓ partial ∂ nabla ∇ emptyset ∅ varnothing ∅ angle ∠ triangle △ degree ° circ ∘ dots … ldots … cdots ⋯ vdots ⋮ ddots ⋱ prime ′ " +
  "times × cdot · div ÷ pm ± mp ∓ ast ∗ star ⋆ bullet • oplus ⊕ otimes ⊗ cup ∪ cap ∩ setminus ∖ wedge ∧ land ∧ vee ∨ lor ∨ neg ¬ lnot ¬ " +
  "le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ propto ∝ ll ≪ gg ≫ mid ∣ nmid ∤ parallel ∥ perp ⊥ " +
  "in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ to → rightarrow → longrightarrow ⟶ leftarrow ← leftrightarrow ↔ Rightarrow ⇒ " +
  "implies ⟹ Leftarrow ⇐ Leftrightarrow ⇔ iff ⟺ mapsto ↦ uparrow ↑ downarrow ↓ forall ∀ exists ∃ therefore ∴ because ∵ checkmark ✓ " +
  "langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lbrace { rbrace } vert | Vert ‖ lvert | rvert | backslash \\ " +
  "sum ∑ prod ∏ int ∫ iint ∬ oint ∮ bigcup ⋃ bigcap ⋂").split(" ").reduce((pairs, word, i, all) => i % 2 ? pairs : [...pairs, [word, all[i + 1]]], []));
const FUNCTIONS = /^(sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln|lg|exp|lim|max|min|sup|inf|gcd|lcm|deg|det|dim|ker|arg|Pr|mod)$/;
const SPACES = { ",": ".17em", ":": ".22em", ";": ".28em", " ": ".25em", "!": "0", quad: "1em", qquad: "2em", "~": ".25em" };
const ACCENTS = { hat: "^", widehat: "^", bar: "‾", overline: "‾", vec: "→", overrightarrow: "→", dot: "˙", tilde: "~", widetilde: "~", overbrace: "⏞" };
const BRACKETS = { matrix: "", pmatrix: "()", bmatrix: "[]", Bmatrix: "{}", vmatrix: "||", cases: "{", array: "", aligned: "", align: "", "align*": "", split: "", gathered: "" };
const SCRIPTED = /^[∑∏⋃⋂]$|^(lim|max|min|sup|inf)$/;

function math(tag, children = [], attributes = {}) {
  const made = document.createElementNS(MATHML, tag);
  made.append(...children);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const word = (tag, text) => math(tag, [text]);
const spaced = (text) => word("mtext", text.replace(/ /g, "\u00a0"));

class Tex {
  constructor(source) { this.tokens = source.match(/\\[a-zA-Z]+\s*|\\[^]|[^]/g) || []; this.at = 0; this.depth = 0; }
  peek() { return this.tokens[this.at]?.replace(/(?<=.)\s+$/, ""); }
  next() { const token = this.peek(); if (token === undefined) throw new Error("TeX ends early"); this.at += 1; return token; }
  skip() { while (/^\s+$/.test(this.peek() ?? "")) this.at += 1; return this.peek(); }
  take(token) { if (this.skip() !== token) return false; this.at += 1; return true; }
  need(token) { if (!this.take(token)) throw new Error(`TeX lacks ${token}`); }

  row(...ends) {  // nodes up to one of `ends`, or to the end of the formula where there are none
    if (++this.depth > 60) throw new Error("TeX is nested too deeply");
    const nodes = [];
    while (this.skip() !== undefined && !ends.includes(this.peek())) nodes.push(this.scripted());
    if (ends.length && this.peek() === undefined) throw new Error("TeX ends early");
    this.depth -= 1;
    return nodes;
  }

  group() {  // what a command or script takes: a group, a command or one character
    if (/^\d$/.test(this.skip() ?? "")) return word("mn", this.next());
    return this.atom();
  }

  raw() {  // the text of a group, as it is
    this.need("{");
    let depth = 1, text = "";
    for (;;) {
      const token = this.tokens[this.at++];
      if (token === undefined) throw new Error("TeX ends early");
      depth += { "{": 1, "}": -1 }[token] || 0;
      if (!depth) return text;
      text += token;
    }
  }

  scripted() {
    const base = this.skip() === "^" || this.peek() === "_" ? math("mrow") : this.atom();
    let below, above;
    for (;;) {
      if (this.skip() === "_" && !below) { this.at += 1; below = this.group(); }
      else if (this.peek() === "^" && !above) { this.at += 1; above = this.group(); }
      else if (this.peek() === "'" && !above) { let primes = ""; while (this.take("'")) primes += "′"; above = word("mo", primes); }
      else break;
    }
    const over = SCRIPTED.test(base.textContent);
    if (below && above) return math(over ? "munderover" : "msubsup", [base, below, above]);
    if (below) return math(over ? "munder" : "msub", [base, below]);
    return above ? math(over ? "mover" : "msup", [base, above]) : base;
  }

  atom() {
    this.skip();
    const token = this.next();
    if (token === "{") { const nodes = this.row("}"); this.need("}"); return math("mrow", nodes); }
    if (/^[\d.]$/.test(token)) { let number = token; while (/^[\d.]$/.test(this.tokens[this.at] ?? "")) number += this.tokens[this.at++]; return word("mn", number); }
    if (/^[a-zA-Z]$/.test(token)) return word("mi", token);
    if (token === "~") return math("mspace", [], { width: SPACES["~"] });
    if (/^[}&#^_]$/.test(token) || token === "\\\\") throw new Error(`TeX has ${token} here`);
    if (token[0] !== "\\") return word(/\p{L}/u.test(token) ? "mtext" : "mo", token === "-" ? "−" : token);
    return this.command(token.slice(1));
  }

  command(name) {
    if (/^[{}%$&#_]$/.test(name)) return word(/[{}]/.test(name) ? "mo" : "mtext", name);
    if (name === "|") return word("mo", "‖");
    if (name in SPACES) return math("mspace", [], { width: SPACES[name] });
    if (/^[dtc]?frac$/.test(name)) return math("mfrac", [this.group(), this.group()]);
    if (/^[dt]?binom$/.test(name)) return math("mrow", [word("mo", "("), math("mfrac", [this.group(), this.group()], { linethickness: "0" }), word("mo", ")")]);
    if (name === "sqrt") {
      if (!this.take("[")) return math("msqrt", [this.group()]);
      const index = math("mrow", this.row("]"));
      this.need("]");
      return math("mroot", [this.group(), index]);
    }
    if (/^(boxed|fbox)$/.test(name)) return math("mrow", [this.group()], { class: "boxed" });
    if (/^(text|textbf|textit|textrm|mbox|hbox)$/.test(name)) { const text = this.raw(); if (/[\\{}$]/.test(text)) throw new Error("TeX inside text"); return spaced(text); }
    if (/^(mathrm|mathbf|mathit|mathcal|mathbb|mathsf|operatorname|boldsymbol|bm|rm)$/.test(name)) {
      const inside = this.group();
      if (/^(mathrm|operatorname)$/.test(name) && inside.textContent.length > 1) return word("mi", inside.textContent);
      return math("mrow", [inside], /bf|bold|bm/.test(name) ? { mathvariant: "bold" } : {});
    }
    if (FUNCTIONS.test(name)) return word("mi", name);
    if (name === "pmod") return math("mrow", [word("mo", "("), word("mi", "mod"), math("mspace", [], { width: ".3em" }), this.group(), word("mo", ")")]);
    if (name === "bmod") return word("mo", "mod");
    if (name in ACCENTS) return math("mover", [this.group(), word("mo", ACCENTS[name])], { accent: "true" });
    if (name === "underline") return math("munder", [this.group(), word("mo", "_")]);
    if (/^(stackrel|overset)$/.test(name)) { const above = this.group(); return math("mover", [this.group(), above]); }
    if (name === "left") {
      const open = this.fence(), inside = this.row("\\right");
      this.need("\\right");
      return math("mrow", [open, ...inside, this.fence()]);
    }
    if (/^([bB]ig|[bB]igg)[lrm]?$/.test(name)) return this.fence();
    if (/^(displaystyle|textstyle|limits|nolimits|nonumber)$/.test(name)) return math("mrow");
    if (name === "begin") return this.environment(this.raw());
    if (Object.hasOwn(NAMED, name)) return word(/^\p{L}$/u.test(NAMED[name]) ? "mi" : "mo", NAMED[name]);
    throw new Error(`unknown TeX \\${name}`);
  }

  fence() {
    this.skip();
    const token = this.next(), named = NAMED[token.slice(1)];
    if (token === ".") return math("mrow");
    if (token[0] !== "\\") return word("mo", token);
    if (/^\\[{}|]$/.test(token)) return word("mo", token === "\\|" ? "‖" : token[1]);
    if (!named) throw new Error(`unknown TeX ${token}`);
    return word("mo", named);
  }

  environment(name) {
    if (!Object.hasOwn(BRACKETS, name)) throw new Error(`unknown TeX environment ${name}`);
    if (name === "array") this.raw();
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(math("mtd", this.row("&", "\\\\", "\\end", "\\hline"), /^(al|split|cases)/.test(name) ? { columnalign: rows.at(-1).length % 2 ? "left" : name === "cases" ? "left" : "right" } : {}));
      const end = this.next();
      if (end === "\\\\") rows.push([]);
      if (end === "\\end") break;
    }
    if (this.raw() !== name) throw new Error("TeX environments do not match");
    const [open, close] = BRACKETS[name];
    const table = math("mtable", rows.filter((cells) => cells.some((cell) => cell.textContent)).map((cells) => math("mtr", cells)));
    return math("mrow", [...(open ? [word("mo", open)] : []), table, ...(close ? [word("mo", close)] : [])]);
  }
}

function formula(source, display) {
  try {
    return math("math", new Tex(source.replace(/(?<!\\)%/g, "\\%")).row(), display ? { display: "block" } : {});
  } catch {
    return Object.assign(document.createElement("code"), { className: "tex", textContent: source });
  }
}

function closing(text, start) {  // index after the brace that closes the one before `start`, or -1
  for (let depth = 1, at = start; at < text.length; at += 1) {
    depth += { "{": 1, "}": -1 }[text[at]] || 0;
    if (!depth) return at + 1;
  }
  return -1;
}

function formatted(text) {
  const nodes = [];
  let at = 0;
  SPAN.lastIndex = 0;
  for (let match; (match = SPAN.exec(text));) {
    let end = SPAN.lastIndex, source = match[1] ?? match[2] ?? match[3] ?? match[4];
    if (source === undefined) {  // \boxed{ outside a formula
      if ((end = closing(text, end)) < 0) break;
      source = text.slice(match.index, end);
    }
    nodes.push(text.slice(at, match.index), formula(source, match[1] !== undefined || match[2] !== undefined));
    at = SPAN.lastIndex = end;
  }
  return [...nodes, text.slice(at)];
}
