const SIZE = { width: 420, height: 190, left: 52, right: 20, top: 8, bottom: 24 };
const CHARTS = [  // title, names of the columns, logarithmic
  ["loss", ["loss", "validation_loss"]], ["perplexity", ["perplexity", "validation_perplexity"], true],
  ["learning rate", ["lr"]], ["target tokens per second", ["target_tokens_per_second"]],
  ["gradient norm", ["gradient_norm"], true],
];
const UNITS = { step: "update", hours: "hours", tokens: "target tokens" };
const colour = run => `var(--run-${run % 6})`;
const short = value => Math.abs(value) >= 1e4 || (value && Math.abs(value) < 1e-3)
  ? Intl.NumberFormat("en", { notation: Math.abs(value) < 1 ? "scientific" : "compact", maximumSignificantDigits: 3 }).format(value)
  : String(+value.toPrecision(4));
const written = value => typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : value;

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function table(id, head, rows) {  // a row's first cell is its title; a cell is text, or an element
  const cell = (value, i) => element(i ? "td" : "th", { scope: i ? "" : "row" }, value ?? "");
  const titles = head.map(title => element("th", { scope: "col" }, title));
  (typeof id === "string" ? $(id) : id).replaceChildren(
    element("thead", {}, element("tr", {}, ...titles)),
    element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map(cell)))));
}

const key = run => placed(element("i", { className: "key" }, DATA.runs.length > 1 ? run + 1 : ""), { background: colour(run) });
const named = (run, text = DATA.runs[run].name) => element("span", {}, key(run), text);
const number = name => DATA.runs.findIndex(run => run.name === name);

// Curves

function ticks(low, high, logarithmic) {
  if (low === high) return [low];
  if (logarithmic) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
    if (last > first) return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
  }
  const rough = (high - low) / 4 || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find(factor => factor * unit >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

function chart(title, names, logarithmic = false) {
  const along = document.querySelector("[name=along]:checked").value;
  const lines = DATA.runs.flatMap(({ curves }, run) => names.filter(name => curves[name]).map(name => ({
    run, name, validation: name.startsWith("validation_"),
    points: curves[name].map((y, i) => [curves[along][i], y]).filter(([, y]) => y !== null && (!logarithmic || y > 0)),
  }))).filter(line => line.points.length);
  if (!lines.length) return [];
  const all = lines.flatMap(line => line.points), range = k => [Math.min(...all.map(p => p[k])), Math.max(...all.map(p => p[k]))];
  const [left, right] = range(0), [low, high] = range(1), scaled = y => logarithmic ? Math.log(y) : y;
  const { width, height } = SIZE, bottom = height - SIZE.bottom;
  const x = value => SIZE.left + (value - left) / (right - left || 1) * (width - SIZE.left - SIZE.right);
  const y = value => bottom - (scaled(value) - scaled(low)) / (scaled(high) - scaled(low) || 1) * (bottom - SIZE.top);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const value of ticks(low, high, logarithmic)) drawn.append(
    svg("line", { class: "grid", x1: SIZE.left, x2: width - SIZE.right, y1: y(value), y2: y(value) }),
    svg("text", { x: SIZE.left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  for (const value of ticks(left, right)) drawn.append(
    svg("text", { x: x(value), y: height - 6, "text-anchor": "middle" }, short(value)));
  for (const { run, validation, points } of lines) {
    const dashed = !validation && names.length > 1 ? " dashed" : "";
    drawn.append(svg("polyline", { class: `curve${dashed}`, stroke: colour(run), points: points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
    if (points.length < 40 && !dashed) drawn.append(...points.map(([a, b]) => svg("circle", { cx: x(a), cy: y(b), r: 2.5, fill: colour(run) })));
  }
  const marker = svg("line", { class: "marker", y1: SIZE.top, y2: bottom, visibility: "hidden" });
  const readout = element("figcaption", { className: "soft" });
  drawn.append(marker);
  const show = event => {
    const box = drawn.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
    const place = left + (at - SIZE.left) / (width - SIZE.left - SIZE.right) * (right - left);
    const nearest = points => points.reduce((a, b) => Math.abs(b[0] - place) < Math.abs(a[0] - place) ? b : a);
    const found = lines.map(line => [line, nearest(line.points)]), [[, [where]]] = found;
    for (const end of ["x1", "x2"]) marker.setAttribute(end, x(where));
    marker.setAttribute("visibility", "visible");
    readout.replaceChildren(`${UNITS[along]} ${short(where)}: `, ...found.map(([{ run, name }, [, value]]) =>
      element("span", { className: "value" }, named(run, `${names.length > 1 ? name.replaceAll("_", " ") : ""} ${short(value)}`))));
  };
  drawn.addEventListener("pointermove", show);
  drawn.addEventListener("pointerdown", show);
  drawn.addEventListener("pointerleave", () => { marker.setAttribute("visibility", "hidden"); readout.replaceChildren(); });
  return [element("figure", {}, element("h3", {}, title), drawn, readout)];
}

function drawCharts() {
  const known = CHARTS.flatMap(([, names]) => names).concat("validation_nll", "nll", "step", "hours", "tokens");
  const more = [...new Set(DATA.runs.flatMap(run => Object.keys(run.curves)))].filter(name => !known.includes(name));
  const measures = more.map(name => [name.replace("validation_", "").replaceAll("_", " ") + " of the validation set", [name]]);
  $("charts").replaceChildren(...[...CHARTS.slice(0, 2), ...measures, ...CHARTS.slice(2)].flatMap(each => chart(...each)));
}

// Tables

function sideBySide(id, key) {  // rows of all names, a column for each run
  const names = [...new Set(DATA.runs.flatMap(run => Object.keys(run[key])))];
  table(id, ["", ...DATA.runs.map((_, run) => named(run))], names.map(name => [name, ...DATA.runs.map(run => run[key][name])]));
}

function drawSettings() {
  const names = [...new Set(DATA.runs.flatMap(run => Object.keys(run.settings)))].sort();
  const differs = name => new Set(DATA.runs.map(run => run.settings[name])).size > 1;
  const row = name => [name.replace("training.", ""), ...DATA.runs.map(run => run.settings[name])];
  const different = names.filter(differs), one = DATA.runs.length === 1;
  const head = ["", ...DATA.runs.map((_, run) => named(run))];
  $("about-settings").textContent = one ? "" : different.length ? "The runs differ in these." : "The runs have the same settings.";
  $("settings").hidden = one || !different.length;
  table("settings", head, different.map(row));
  table($("same").querySelector("table"), head, names.filter(name => !differs(name)).map(row));
  if (one) $("same").querySelector("summary").textContent = "All settings";
}

function drawPrepared() {
  const rows = new Map();  // runs may have the same data
  for (const run of DATA.runs) for (const [name, about] of Object.entries(run.prepared)) rows.set(name, about);
  const dropped = reasons => Object.entries(reasons).map(([reason, count]) => `${written(count)} ${reason}`).join(", ") || "none";
  const head = ["read", "dropped", "kept", "source tokens", "target tokens", "unknown"];
  const cells = about => head.map(name => name === "dropped" ? dropped(about.dropped) : written(about[name]));
  table("prepared", ["", ...head], [...rows].map(([name, about]) => [name, ...cells(about)]));
}

function bars(id, runs, rows, unit) {
  const most = Math.max(...rows.flatMap(row => row.values), 1e-9);
  const bar = (value, i) => {
    const made = element("span", { className: "bar-of" }, value.toFixed(1));
    made.style.setProperty("--share", `${100 * Math.max(0, value) / most}%`);
    made.style.setProperty("--colour", colour(runs[i]));
    return made;
  };
  table(id, ["", unit, ...runs.map(run => named(run))], rows.map(row => [row.group, written(row.count), ...row.values.map(bar)]));
}

function drawOutputs({ runs, scores, sentences, p, measure, lengths, frequencies, counted }) {
  const numbers = runs.map(number), names = Object.keys(scores[0]);
  $("outputs").hidden = false;
  $("about-outputs").textContent = `${written(sentences)} sentences. ` + (p?.length > 1
    ? "p: probability of a difference in BLEU from the first run this large, if both are equally good." : "");
  table("scores", ["", ...names, ...(p?.length > 1 ? ["p"] : [])], scores.map((each, i) =>
    [named(numbers[i]), ...names.map(name => each[name].toFixed(2)), ...(p?.length > 1 ? [i ? p[i].toFixed(4) : ""] : [])]));
  $("lengths-title").textContent = `${measure === "bleu" ? "BLEU" : measure} by the tokens of the reference`;
  bars("lengths", numbers, lengths, "sentences");
  $("by-frequency").hidden = !frequencies;
  $("counted").textContent = written(counted);
  if (frequencies) bars("frequencies", numbers, frequencies, "words");
}

function drawExamples() {
  $("examples").hidden = !DATA.examples.length;
  $("improving").replaceChildren(...DATA.examples.map(({ source, reference, runs }) => {
    const rows = runs.flatMap(({ run, stages, output }) => [
      ...stages.map(([step, text]) => [named(number(run), `update ${written(step)}`), text]),
      ...(output === stages.at(-1)?.[1] ? [] : [[named(number(run), "output"), output]])]);
    const made = element("table", { className: "example" });
    table(made, ["source", element("bdi", {}, source)], [["reference", element("bdi", {}, reference)], ...rows.map(([name, text]) => [name, element("bdi", {}, text || "(empty)")])]);
    const looks = runs.flatMap(({ run }) => {
      const place = (DATA.sentences ?? []).findIndex(sentence => sentence.source === source && sentence.model === run);
      const onclick = () => { showSentence(place); $("attention-title").scrollIntoView(); };
      return place < 0 ? [] : [element("button", { onclick }, named(number(run), "attention")), " "];
    });
    return element("div", { className: "wide" }, made, ...looks);
  }));
}

function startReport() {
  $("legend").replaceChildren(...(DATA.runs.length > 1 ? DATA.runs.map((_, run) => named(run)) : []));
  $("dashes").hidden = !DATA.runs.some(run => run.curves.validation_loss);
  $("along").onchange = drawCharts;
  $("attention-title").hidden = !DATA.sentences;
  sideBySide("figures", "figures");
  drawCharts();
  if (DATA.outputs) drawOutputs(DATA.outputs);
  drawExamples();
  drawPrepared();
  drawSettings();
}

run(startReport);
