const KINDS = {
  encoder: { title: "Encoder self-attention", rows: "source", columns: "source" },
  decoder: { title: "Decoder self-attention", rows: "target", columns: "read" },
  cross: { title: "Encoder-decoder attention", rows: "target", columns: "source" },
};
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
let sentences = [];      // those of the page
const state = { sentence: 0, kind: null, layer: 0, heads: new Set(), view: "heat", name: "written", scale: "whole" };
let weights = null;      // of the current sentence, by kind: layers * heads * rows * columns numbers from 0 to 1
let cursor = null;       // [row, column] of the heat map
let pinned = null;       // the only row whose lines are shown
let colours = [];        // [red, green, blue] of 256 weights

// Data

async function unpacked(sentence) {
  const bytes = Uint8Array.from(atob(sentence.weights), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const all = new Uint8Array(await new Response(stream).arrayBuffer());
  const result = {};
  let start = 0;
  for (const kind in sentence.shapes) {
    const size = sentence.shapes[kind].reduce((a, b) => a * b, 1);
    result[kind] = Float32Array.from(all.subarray(start, start += size), root => (root / 255) ** 2);
  }
  return result;
}

const current = () => sentences[state.sentence];
const shape = () => {
  const [layers, heads, rows, columns] = current().shapes[state.kind];
  return { layers, heads, rows, columns };
};
const matrix = (layer, head) => {
  const { heads, rows, columns } = shape();
  return weights[state.kind].subarray((layer * heads + head) * rows * columns, (layer * heads + head + 1) * rows * columns);
};
const chosenHeads = () => [...state.heads].sort((a, b) => a - b);
const rowTokens = () => current().tokens[KINDS[state.kind].rows === "source" ? "source" : state.name];
const columnTokens = () => current().tokens[KINDS[state.kind].columns];
const masked = (row, column) => state.kind === "decoder" && column > row;

function mean() {  // over the chosen heads
  const { rows, columns } = shape();
  const result = new Float32Array(rows * columns);
  for (const head of state.heads) matrix(state.layer, head).forEach((w, i) => { result[i] += w / state.heads.size; });
  return result;
}

// Text

const percent = w => w >= .0995 ? `${Math.round(100 * w)} %` : w > 0 && w < .0005 ? "<0.1 %" : `${(100 * w).toFixed(1)} %`;

function quoted([text, kind]) {  // a token within a sentence
  return element("b", { dir: "auto" }, kind === "mark" ? `⟨${text}⟩` : `“${kind === "part" ? "+" : ""}${text}”`);
}

function label([text, kind]) {  // a token at an axis
  const made = element("span", { className: `token ${kind}`, title: text });
  if (kind === "part") made.append(element("i", {}, "+"));
  made.append(element("bdi", {}, kind === "mark" ? `⟨${text}⟩` : text));
  return made;
}

function query(row) {
  const tokens = current().tokens;
  if (KINDS[state.kind].rows === "source") return [quoted(tokens.source[row]), " attends to "];
  return ["predicting ", quoted(tokens.written[row]), " after ", quoted(tokens.read[row]), " attends to "];
}

function showCell(row, column, values) {
  const share = masked(row, column) ? "masked" : percent(values[row * shape().columns + column]);
  $("readout").replaceChildren(...query(row), quoted(columnTokens()[column]), ": ", element("b", {}, share));
}

function showRow(row, values) {  // the largest weights
  const { columns } = shape();
  const sorted = [...values.subarray(row * columns, (row + 1) * columns)].map((w, i) => [w, i]).sort((a, b) => b[0] - a[0]);
  const parts = sorted.slice(0, 5).filter(([w]) => w >= .005)
    .flatMap(([w, i], n) => [n ? ", " : "", quoted(columnTokens()[i]), ` ${percent(w)}`]);
  $("readout").replaceChildren(...query(row), ...parts);
}

function showHint() {
  $("readout").replaceChildren(element("span", { className: "soft" }, state.view === "heat"
    ? "Point at a cell or a token, or use the arrow keys." : "Point at a token to show only its lines; click to keep them."));
}

// Colours

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const stops = style.getPropertyValue("--ramp").split(",").map(c => rgb(c.trim()));
  colours = Array.from({ length: 256 }, (_, i) => {
    const place = i / 255 * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((c, j) => Math.round(c + (stops[low + 1][j] - c) * (place - low)));
  });
  colours.masked = rgb(style.getPropertyValue("--masked").trim());
  document.querySelector(".ramp").style.background = `linear-gradient(to right, ${style.getPropertyValue("--ramp")})`;
}

const rgb = hex => hex.length === 4 ? [1, 2, 3].map(i => parseInt(hex[i] + hex[i], 16))
  : [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));

const headColour = (head, heads) => `hsl(${Math.round(head * 360 / heads + 210) % 360} 72% ${head % 2 ? 42 : 54}%)`;

const largest = values => state.scale === "whole" ? 1 : values.reduce((a, b) => Math.max(a, b), 1e-6);

function painted(canvas, values) {  // one pixel a cell
  const { rows, columns } = shape();
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  const most = largest(values);
  for (let i = 0; i < rows * columns; i++) {
    const colour = masked(Math.floor(i / columns), i % columns) ? colours.masked : colours[Math.round(255 * Math.sqrt(values[i] / most))];
    image.data.set([...colour, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// Overview

function drawOverview() {
  const { layers, heads } = shape(), grid = $("grid");
  $("overview").hidden = layers * heads === 1;
  const room = Math.min(480, document.body.clientWidth - 120);
  const side = Math.max(24, Math.min(64, Math.floor(room / heads) - 4));
  grid.style.gridTemplateColumns = `auto repeat(${heads}, ${side}px)`;
  grid.style.gridAutoRows = `minmax(18px, auto)`;
  const cells = [element("span", { className: "layer" }, "head")];
  for (let head = 0; head < heads; head++) cells.push(element("span", {}, head + 1));
  for (let layer = 0; layer < layers; layer++) {
    cells.push(element("span", { className: "layer" }, `layer ${layer + 1}`));
    for (let head = 0; head < heads; head++) {
      const button = element("button", { title: `layer ${layer + 1}, head ${head + 1}` }, painted(element("canvas"), matrix(layer, head)));
      button.setAttribute("aria-label", button.title);
      button.style.height = `${side}px`;
      button.dataset.layer = layer;
      button.dataset.head = head;
      cells.push(button);
    }
  }
  grid.replaceChildren(...cells);
  markOverview();
}

function markOverview() {
  const buttons = [...$("grid").querySelectorAll("button")];
  for (const button of buttons) {
    const chosen = +button.dataset.layer === state.layer && state.heads.has(+button.dataset.head);
    button.setAttribute("aria-pressed", chosen);
    button.tabIndex = -1;
  }
  const first = buttons.find(b => b.getAttribute("aria-pressed") === "true") ?? buttons[0];
  if (first) first.tabIndex = 0;
}

function moveInOverview(event) {
  const step = ARROWS[event.key];
  const button = event.target.closest("button");
  if (!step || !button) return;
  event.preventDefault();
  const { layers, heads } = shape();
  const layer = clamp(+button.dataset.layer + step[0], layers), head = clamp(+button.dataset.head + step[1], heads);
  choose(layer, [head]);
  $("grid").querySelector(`[data-layer="${layer}"][data-head="${head}"]`).focus();
}

function choose(layer, heads) {
  state.layer = layer;
  state.heads = new Set(heads);
  drawDetail();
}

// Detail

function drawDetail() {
  const { heads } = shape(), chosen = chosenHeads().map(head => head + 1);
  const which = chosen.length === heads && heads > 1 ? "all heads" : `head${chosen.length > 1 ? "s" : ""} ${chosen.join(", ")}`;
  const how = state.view === "heat" && chosen.length > 1 ? " (mean)" : "";
  $("detail-title").textContent = `${KINDS[state.kind].title}, layer ${state.layer + 1}, ${which}${how}`;
  $("heat").hidden = $("scale").hidden = state.view !== "heat";
  $("lines").hidden = state.view !== "lines";
  $("name").hidden = KINDS[state.kind].rows === "source";
  drawHeads();
  markOverview();
  cursor = pinned = null;
  showHint();
  if (state.view === "heat") drawHeat(); else drawLines();
  remember();
}

function drawTicks(most) {
  document.querySelector(".ticks").replaceChildren(...[0, .1, .25, .5, 1].map(share => placed(
    element("span", {}, `${+(100 * share * most).toPrecision(2)}${share < 1 ? "" : " %"}`), { left: `${Math.sqrt(share) * 100}%` })));
}

function drawHeads() {
  const { heads } = shape();
  $("heads").hidden = heads === 1;
  const focused = [...$("heads").children].indexOf(document.activeElement);
  const all = element("button", { onclick: () => choose(state.layer, Array.from({ length: heads }, (_, i) => i)) }, "all heads");
  all.setAttribute("aria-pressed", state.heads.size === heads);
  const buttons = Array.from({ length: heads }, (_, head) => {
    const button = element("button", { title: `head ${head + 1}` }, head + 1);
    button.setAttribute("aria-label", `head ${head + 1}`);
    button.setAttribute("aria-pressed", state.heads.has(head));
    if (state.view === "lines") {
      button.style.setProperty("--head", headColour(head, heads));
      button.style.setProperty("--head-ink", "#fff");
    }
    button.onclick = () => {
      const changed = new Set(state.heads);
      if (!changed.delete(head)) changed.add(head);
      if (changed.size) choose(state.layer, changed);
    };
    return button;
  });
  $("heads").replaceChildren(all, ...buttons);
  $("heads").children[focused]?.focus();
}

function widest(tokens, size) {  // label, in pixels
  const context = element("canvas").getContext("2d");
  context.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  const widths = tokens.map(([text, kind]) => context.measureText(kind === "word" ? text : `⟨${text}⟩`).width);
  return Math.min(150, Math.max(...widths) + 12);
}

function drawHeat() {
  const { rows, columns } = shape(), heat = $("heat"), values = mean();
  const room = Math.max(300, $("detail").clientWidth - 190);
  const cell = Math.max(11, Math.min(34, Math.floor(room / columns))), size = Math.min(14, cell - 1);
  const slope = cell < 18 ? 80 : 55, sine = Math.sin(slope * Math.PI / 180), cosine = Math.cos(slope * Math.PI / 180);
  const left = widest(rowTokens(), size) + 10, tall = widest(columnTokens(), size);
  const top = tall * sine + size + 18;
  placed(heat, { width: Math.max(480, left + columns * cell + tall * cosine + 10), height: top + rows * cell + 2 });
  const canvas = placed(painted(element("canvas"), values), {
    left, top, width: columns * cell, height: rows * cell, imageRendering: "pixelated", outline: "1px solid var(--line)" });
  const rowLabels = rowTokens().map((token, row) => placed(label(token), {
    right: `calc(100% - ${left - 5}px)`, top: top + (row + .5) * cell, fontSize: size, transform: "translateY(-50%)" }));
  const columnLabels = columnTokens().map((token, column) => placed(label(token), {
    left: left + (column + .5) * cell, top: top - 6, fontSize: size,
    transform: `translateY(-50%) rotate(-${slope}deg)`, transformOrigin: "0 50%" }));
  const marker = element("div", { id: "cursor", hidden: true });
  const caption = element("span", { className: "axis" }, `rows (queries): ${axis("rows")} · columns (keys): ${axis("columns")}`);
  drawTicks(largest(values));
  heat.replaceChildren(caption, canvas, ...rowLabels, ...columnLabels, marker);

  const show = (row, column) => {
    rowLabels.forEach((made, i) => made.classList.toggle("on", i === row));
    columnLabels.forEach((made, i) => made.classList.toggle("on", i === column));
    marker.hidden = row === null || column === null;
    if (!marker.hidden) placed(marker, { left: left + column * cell - 2, top: top + row * cell - 2, width: cell + 4, height: cell + 4 });
    if (row === null) showHint();
    else if (column === null) showRow(row, values);
    else showCell(row, column, values);
  };
  canvas.onmousemove = event => {
    cursor = [clamp(Math.floor(event.offsetY / cell), rows), clamp(Math.floor(event.offsetX / cell), columns)];
    show(...cursor);
  };
  canvas.onmouseleave = () => { if (document.activeElement !== heat) show(null, null); };
  rowLabels.forEach((made, row) => {
    made.onmouseenter = () => show(row, null);
    made.onmouseleave = () => show(null, null);
  });
  heat.onkeydown = event => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    cursor = cursor ? [clamp(cursor[0] + step[0], rows), clamp(cursor[1] + step[1], columns)] : [0, 0];
    show(...cursor);
  };
}

function axis(side) {
  const tokens = KINDS[state.kind][side];
  return tokens === "source" ? "source" : tokens === "read" ? "output so far"
    : state.name === "written" ? "output, predicted token" : "output, input token";
}

function drawLines() {
  const { heads, rows, columns } = shape(), lines = $("lines");
  const step = Math.max(15, Math.min(26, Math.floor(620 / Math.max(rows, columns)))), size = Math.min(14, step - 2);
  const left = widest(rowTokens(), size) + 10, between = 300, top = 24, height = Math.max(rows, columns) * step;
  placed(lines, { width: Math.max(480, left + between + widest(columnTokens(), size) + 10), height: top + height + 4 });
  const canvas = placed(element("canvas"), { left, top, width: between, height });
  const ratio = window.devicePixelRatio || 1;
  canvas.width = between * ratio;
  canvas.height = height * ratio;
  const rowLabels = rowTokens().map((token, row) => placed(label(token), {
    right: `calc(100% - ${left - 3}px)`, top: top + (row + .5) * step, fontSize: size, transform: "translateY(-50%)" }));
  const columnLabels = columnTokens().map((token, column) => placed(label(token), {
    left: left + between + 3, top: top + (column + .5) * step, fontSize: size, transform: "translateY(-50%)" }));
  const caption = element("span", { className: "axis" }, `left (queries): ${axis("rows")} · right (keys): ${axis("columns")}`);
  lines.replaceChildren(caption, canvas, ...rowLabels, ...columnLabels);
  const values = mean(), chosen = chosenHeads();

  const show = (side, place) => {
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, between, height);
    chosen.forEach((head, n) => {
      const w = matrix(state.layer, head);
      const shift = chosen.length > 1 ? (n / (chosen.length - 1) - .5) * step * .6 : 0;
      context.strokeStyle = headColour(head, heads);
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          const share = w[row * columns + column];
          if (share < .02 || (side === "row" && row !== place) || (side === "column" && column !== place)) continue;
          context.globalAlpha = Math.min(1, .08 + share);
          context.lineWidth = .5 + share * Math.max(2.5, 7 / Math.sqrt(chosen.length));
          context.beginPath();
          context.moveTo(0, (row + .5) * step + shift);
          context.lineTo(between, (column + .5) * step + shift);
          context.stroke();
        }
      }
    });
    rowLabels.forEach((made, i) => made.classList.toggle("on", side === "row" && i === place));
    columnLabels.forEach((made, i) => {
      made.classList.toggle("on", side === "column" && i === place);
      const share = side === "row" ? values[place * columns + i] : 0;
      made.style.boxShadow = share >= .05 ? `inset 0 -${Math.round(1 + share * 4)}px var(--accent)` : "";
    });
    if (side === "row") showRow(place, values); else showHint();
  };
  const rest = () => pinned === null ? show(null, null) : show("row", pinned);
  rowLabels.forEach((made, row) => {
    made.onmouseenter = () => show("row", row);
    made.onmouseleave = rest;
    made.onclick = () => { pinned = pinned === row ? null : row; rest(); };
  });
  columnLabels.forEach((made, column) => {
    made.onmouseenter = () => show("column", column);
    made.onmouseleave = rest;
  });
  lines.onkeydown = event => {
    const direction = { ArrowUp: -1, ArrowDown: 1, Escape: 0 }[event.key];
    if (direction === undefined) return;
    event.preventDefault();
    pinned = direction ? clamp((pinned ?? -direction) + direction, rows) : null;
    rest();
  };
  rest();
}

// Page

async function showSentence(index) {
  state.sentence = index;
  const sentence = current(), fresh = await unpacked(sentence);
  if (sentence !== current()) return;  // superseded
  weights = fresh;
  fit();
  $("sentence").value = index;
  $("before").disabled = index === 0;
  $("next").disabled = index === sentences.length - 1;
  $("source").textContent = sentence.source;
  $("target").textContent = sentence.target;
  drawAll();
}

function drawAll() {
  for (const [id, value] of [["kind", state.kind], ["view", state.view], ["name", state.name], ["scaling", state.scale]]) {
    $(id).querySelector(`[value=${value}]`).checked = true;
  }
  drawOverview();
  drawDetail();
}

function remember() {
  const { sentence, kind, layer, view, name, scale } = state, heads = chosenHeads().map(head => head + 1).join(",");
  const address = `#sentence=${sentence + 1}&kind=${kind}&layer=${layer + 1}&heads=${heads}&view=${view}&name=${name}&scale=${scale}`;
  try { history.replaceState(null, "", address); } catch { /* some viewers do not allow it */ }
  document.documentElement.dataset.shown = address;
}

function fit() {  // the view to the kinds, layers and heads of the sentence's model
  const kinds = Object.keys(current().shapes);
  if (!kinds.includes(state.kind)) state.kind = kinds.at(-1);
  for (const part of document.querySelectorAll("[data-kind]")) part.hidden = !kinds.includes(part.dataset.kind);
  $("kind").parentElement.hidden = kinds.length === 1;
  const { layers, heads } = shape();
  state.layer = Math.min(state.layer, layers - 1);
  state.heads = new Set([...state.heads].filter(head => head < heads));
  if (!state.heads.size) state.heads.add(0);
}

function recall() {  // the view in the address
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name, most, otherwise) => { const n = parseInt(given.get(name)); return n >= 1 && n <= most ? n - 1 : otherwise; };
  const one = (name, known) => { if (known.includes(given.get(name))) state[name] = given.get(name); };
  state.sentence = number("sentence", sentences.length, 0);
  one("kind", Object.keys(current().shapes));
  one("view", ["heat", "lines"]);
  one("name", ["written", "read"]);
  one("scale", ["whole", "own"]);
  fit();
  const { layers, heads } = shape();
  state.layer = number("layer", layers, layers - 1);
  const chosen = (given.get("heads") ?? "").split(",").map(h => parseInt(h) - 1).filter(h => h >= 0 && h < heads);
  state.heads = new Set(chosen.length ? chosen : Array.from({ length: heads }, (_, i) => i));
}

function startAttention(given) {  // a list of sentences
  sentences = given;
  if (!sentences.length) throw new Error("No sentence to show: the input has none that is short enough.");
  if (!window.DecompressionStream) throw new Error("This page needs a browser of 2023 or later.");
  $("sentence").append(...sentences.map((sentence, i) => element("option", { value: i }, `${sentence.model ?? i + 1}. ${sentence.source}`)));
  readColours();
  recall();
  $("attention").hidden = false;
  $("sentence").onchange = () => showSentence(+$("sentence").value);
  $("before").onclick = () => showSentence(state.sentence - 1);
  $("next").onclick = () => showSentence(state.sentence + 1);
  $("kind").onchange = event => {
    state.kind = event.target.value;
    fit();
    drawAll();
  };
  $("view").onchange = event => { state.view = event.target.value; drawDetail(); };
  $("name").onchange = event => { state.name = event.target.value; drawDetail(); };
  $("scaling").onchange = event => { state.scale = event.target.value; drawAll(); };
  $("grid").onclick = event => {
    const button = event.target.closest("button");
    if (button) choose(+button.dataset.layer, [+button.dataset.head]);
  };
  $("grid").onkeydown = moveInOverview;
  matchMedia("(prefers-color-scheme: dark)").onchange = () => { readColours(); drawAll(); };
  window.onhashchange = () => { recall(); showSentence(state.sentence); };
  let resized;
  window.onresize = () => { clearTimeout(resized); resized = setTimeout(drawAll, 150); };
  return showSentence(state.sentence);
}

if (DATA.sentences) run(() => startAttention(DATA.sentences));
