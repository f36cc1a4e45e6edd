// The page: its parts, the view, pointer and keyboard. Text from a run reaches the document as text only (textContent).
"use strict";

const $ = id => document.getElementById(id);
const KEYS = [["← →", "move in time"], ["↑ ↓", "move over units"], ["+ −", "zoom in time"], ["shift + −", "zoom over units"], ["0", "the whole run"],
  ["[ ]", "the decision before, the next one"], ["c", "colour by something else"], ["/", "find a job"], ["s", "save the view as SVG"],
  ["t", "dark or light"], ["esc", "close"], ["wheel", "zoom in time; with shift, over units"], ["drag", "move; with shift, zoom to what is marked"]];
const HEADLINES = ["utilisation %", "wait mean", "wait p95", "bounded slowdown mean", "makespan s", "backfilled %", "energy J", "idle slot hours"];
const GANTT_HEIGHT = 340, LINE_HEIGHT = 92;

const page = { runs: [], panels: [], view: null, colours: new Map(), chosen: null, cursor: null, redrawMs: 0, sorts: new Map() };

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made[key] = value;
  return made;
}

function lookNow() {
  const style = getComputedStyle(document.documentElement), look = {};
  for (const name of ["card", "ink", "soft", "grid", "rule", "accent", "bad"]) look[name] = style.getPropertyValue(`--${name}`).trim();
  return look;
}

// The first blue of the boxes is too dark for a thin line on black.
const firstLine = () => document.documentElement.dataset.theme === "dark" ? "#6db7f2" : CATEGORIES[0];
const lineOf = place => ({ colour: place % CATEGORIES.length ? CATEGORIES[place % CATEGORIES.length] : firstLine(), dash: place ? [[5, 3], [2, 2], [7, 2, 2, 2]][(place - 1) % 3] : null });

// ---- showing runs

function show(runs) {
  const before = page.view, wasAtEnd = !before || before.end >= page.whole.end;
  page.runs = runs;
  page.chosen = page.chosen && runs[0].ids[page.chosen.row] === page.chosen.id ? { ...page.chosen, run: runs[page.chosen.place] } : null;
  const begin = Math.min(...runs.map(run => run.begin)), end = Math.max(...runs.map(run => run.end));
  page.whole = { begin, end: end > begin ? end : begin + 1, low: 0, high: Math.max(1, ...runs.map(run => run.units)) };
  page.view = !before ? { ...page.whole } : wasAtEnd ? { ...before, end: page.whole.end, high: Math.max(before.high, before.low ? 0 : page.whole.high) } : before;
  $("loading").hidden = true;
  $("title").textContent = runs.map(run => run.name).join(" against ");
  $("subtitle").textContent = runs.length === 1 ? `${number(runs[0].count)} ${runs[0].live ? "tasks" : "jobs"} on ${number(runs[0].units)} units` + (runs[0].over ? "" : ", going on")
    : runs.map(run => `${run.name}: ${number(run.count)} jobs`).join("; ");
  fillColours();
  fillCards();
  fillStage();
  fillCurves();
  fillTables();
  paint();
  redraw();
  if (!before) warmUp();
}

// The first drawings of a large run are slow, as the browser compiles what they call: these are done before anyone looks.
function warmUp() {
  const { view } = page, third = (view.end - view.begin) / 3;
  if (page.runs.every(run => run.boxCount <= MOST_FINE_BOXES)) return;
  const parts = [{ ...view, begin: view.begin + third, end: view.end - third }, { ...view, high: view.low + (view.high - view.low) / 2 }];
  const nearlyAll = [{ ...view, end: view.end - third / 99 }, { ...view, end: view.end - third / 49 }];
  for (const part of [...parts, ...nearlyAll, view]) {
    page.view = part;
    redraw();
  }
}

function fillColours() {
  const modes = ["user", "width", "wait", "state", "backfilled"], chosen = $("colour").value;
  if (page.runs.length > 1) modes.push("moved");
  if (!page.runs.some(run => run.userNames.some(Boolean))) modes.shift();
  if ($("colour").options.length === modes.length) return;
  $("colour").replaceChildren(...modes.map(mode => element("option", mode, { value: mode })));
  $("colour").value = modes.includes(chosen) ? chosen : page.runs.length > 1 ? "moved" : page.runs[0].live ? "state" : modes[0];
}

function paint() {
  page.colours = new Map(page.runs.map(run => [run, colourRows(run, $("colour").value, page.runs)]));
  const legend = [], { names, ramp } = page.colours.get(page.runs[page.runs.length - 1]);
  for (const [name, colour] of names || []) {
    const item = element("span", null), swatch = element("i", null, { className: "swatch" });
    swatch.style.background = colour;
    item.append(swatch, name);
    legend.push(item);
  }
  if (ramp) {
    const bar = element("i", null, { className: "ramp" });
    bar.style.background = `linear-gradient(90deg, ${RAMP.map(colour => `rgb(${colour})`).join(",")})`;
    const item = element("span", ramp[0]);
    item.append(bar, ramp[1]);
    legend.push(item);
  }
  legend.push(element("span", page.runs.some(run => boxesShown(run, page.whole) > MOST_VECTOR_BOXES) ? "Pale: less busy. Zoom in to see single jobs." : "A red stroke: did not succeed."));
  $("legend").replaceChildren(...legend);
}

function fillCards() {
  const cards = [];
  const card = (title, values) => {
    const made = element("div", null, { className: "card" });
    made.append(...values.map((value, place) => {
      const shown = element("b", value);
      if (page.runs.length > 1) shown.append(element("i", page.runs[place].name));
      return shown;
    }), element("span", title));
    cards.push(made);
  };
  const lookUp = (run, name) => (run.summary.find(([known]) => known === name) || [name, undefined])[1];
  card(page.runs[0].live ? "tasks" : "jobs", page.runs.map(run => number(run.count) + (run.total !== null && run.total > run.count ? ` of ${number(run.total)}` : "")));
  for (const name of HEADLINES) {
    const values = page.runs.map(run => lookUp(run, name));
    if (values.every(value => value === undefined)) continue;
    const unit = / (%|s|J)$/.exec(name);
    card(name.replace(/ (%|s|J)$/, "") + (name.startsWith("wait") ? " s" : unit && unit[1] !== "%" ? ` ${unit[1]}` : ""),
      values.map(value => value === undefined || value === null ? "-" : number(Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3))) + (unit && unit[1] === "%" ? " %" : "")));
  }
  const bad = page.runs.map(run => run.states.reduce((count, state) => count + ["failed", "timed out", "killed", "lost", "refused"].includes(run.stateNames[state]), 0));
  card("did not succeed", bad.map(number));
  $("cards").className = page.runs.length > 1 ? "several" : "";
  $("cards").replaceChildren(...cards);
}

// ---- panels

function fillStage() {
  const panels = [], { runs } = page;
  runs.forEach((run, place) => panels.push({ kind: "gantt", run, place, title: runs.length > 1 ? run.name : "Units", height: runs.length > 1 ? GANTT_HEIGHT * .75 : GANTT_HEIGHT }));
  const curves = name => runs.map((run, place) => ({ run, steps: run[name], ...lineOf(place), limit: name === "busy" ? run.units : 0 })).filter(curve => curve.steps);
  const busy = curves("busy");
  for (const run of runs) if (run.capacity) busy.push({ run, steps: run.capacity, colour: OTHER, dash: [3, 3] });
  panels.push({ kind: "timeline", title: "Units in use", curves: busy, height: LINE_HEIGHT });
  if (runs.some(run => run.idle)) panels.push({ kind: "timeline", title: "Idle slots", curves: curves("idle"), height: LINE_HEIGHT });
  panels.push({ kind: "timeline", title: "Jobs waiting", curves: curves("waiting"), height: LINE_HEIGHT });
  if (runs.some(run => run.power)) panels.push({ kind: "timeline", title: "Power (W)", curves: curves("power"), height: LINE_HEIGHT });
  runs.filter(run => run.machines.length).forEach(run => panels.push({ kind: "timeline", title: `Machines${runs.length > 1 ? ` of ${run.name}` : ""}`, names: true,
    curves: run.machines.map(({ name, steps }, place) => ({ run, steps, name, ...lineOf(place) })), height: LINE_HEIGHT }));
  panels[panels.length - 1].withTimes = true;
  panels[panels.length - 1].height += 18;
  const old = page.panels;
  const nodes = [];
  panels.forEach((panel, place) => {
    panel.canvas = old[place] && old[place].kind === panel.kind ? old[place].canvas : element("canvas");
    panel.canvas.className = panel.kind;
    panel.canvas.dataset.place = place;
    const heading = element("div", null, { className: "heading" });
    heading.append(element("b", panel.title));
    if (panel.kind === "timeline" && (runs.length > 1 || panel.names)) {
      for (const curve of panel.curves) {
        const label = element("span", `${curve.name || (curve.colour === OTHER ? "offered" : curve.run.name)}`);
        label.style.color = curve.colour;
        heading.append(label);
      }
    }
    nodes.push(heading, panel.canvas);
  });
  page.panels = panels;
  $("stage").replaceChildren(...nodes);
}

function drawPanel(panel, pen, look, width) {
  if (panel.kind === "gantt") drawGantt(pen, look, panel.run, page.view, width, panel.height, panel.withTimes, page);
  else drawTimeline(pen, look, panel.curves, page.view, width, panel.height, panel.withTimes, page);
}

function redraw() {
  const began = performance.now(), look = lookNow(), width = $("stage").clientWidth;
  for (const panel of page.panels) drawPanel(panel, new CanvasPen(panel.canvas, width, panel.height), look, width);
  page.redrawMs = performance.now() - began;
  return page.redrawMs;
}

let asked = false;
function redrawSoon() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; redraw(); });
}

function fillCurves() {
  const specs = [["Waits (s)", "waits", 1], ["Bounded slowdowns", "slowdowns", 1]], cards = [];
  page.curves = specs.map(([title, name, low]) => {
    const made = element("div", null, { className: "card" }), canvas = element("canvas");
    made.append(element("h2", `${title}: share of jobs that are not above`), canvas);
    cards.push(made);
    return { canvas, name, low };
  });
  $("curves").replaceChildren(...cards);
  drawCurves();
}

function drawCurves() {
  const look = lookNow();
  for (const curve of page.curves) {
    const width = curve.canvas.parentNode.clientWidth - 28, curves = page.runs.map((run, place) => ({ values: run[curve.name], ...lineOf(place) }));
    const valueOf = drawDistribution(new CanvasPen(curve.canvas, width, 190), look, curves, curve.low, width, 190);
    curve.canvas.onmousemove = event => {
      const value = valueOf(event.offsetX);
      if (value < curve.low * .9) return;
      tell(event, [element("b", `not above ${number(Number(value.toPrecision(3)))}`), listOf(page.runs.map(run =>
        [run.name, `${(100 * upTo(run[curve.name], value) / Math.max(1, run[curve.name].length)).toFixed(1)} %`]))]);
    };
    curve.canvas.onmouseleave = () => { $("tip").hidden = true; };
  }
}

// ---- tables

function tableOf({ title, columns, rows, note }) {
  const card = element("div", null, { className: "card" }), table = element("table"), body = element("tbody"), head = element("tr");
  const isText = columns.map((_, i) => rows.some(row => typeof row[i] === "string"));
  const fill = () => body.replaceChildren(...rows.map(row => {
    const line = element("tr");
    line.append(...row.map((cell, i) => element("td", typeof cell === "string" ? cell : cell === null ? "-" : number(Math.abs(cell) >= 100 ? Math.round(cell) : Number(cell.toPrecision(3))), { className: isText[i] ? "text" : "" })));
    return line;
  }));
  // The order that was chosen stays when the table is made again, as a dashboard does.
  const arrange = ({ column, down }) => rows.sort((a, b) => (a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0) * (down ? -1 : 1));
  columns.forEach((name, i) => {
    const cell = element("th", name, { className: isText[i] ? "text" : "", title: "Sort" });
    cell.onclick = () => {
      const before = page.sorts.get(title), order = { column: i, down: !(before && before.column === i && before.down) };
      page.sorts.set(title, order);
      arrange(order);
      fill();
    };
    head.append(cell);
  });
  if (page.sorts.has(title)) arrange(page.sorts.get(title));
  fill();
  const top = element("thead");
  top.append(head);
  table.append(top, body);
  const holder = element("div", null, { className: "scroll" });
  holder.append(table);
  card.append(element("h2", title), holder);
  if (note) card.append(element("p", note, { className: "note" }));
  return card;
}

function fillTables() {
  const cards = [], many = page.runs.length > 1;
  const names = page.runs[0].summary.map(([name]) => name);
  const difference = page.runs.length === 2;
  cards.push(tableOf({ title: "Metrics", columns: ["", ...page.runs.map(run => run.name), ...(difference ? ["difference"] : [])],
    rows: names.map((name, i) => {
      const values = page.runs.map(run => run.summary[i] ? run.summary[i][1] : null);
      return [name, ...values, ...(difference ? [values[0] === null || values[1] === null ? null : values[1] - values[0]] : [])];
    }) }));
  page.runs.forEach((run, place) => {
    if (run.changed) {
      const card = element("div", null, { className: "card" });
      card.append(element("h2", `What changed from ${page.runs[0].name} to ${run.name}`), element("pre", run.changed));
      cards.push(card, tableOf({ title: "Jobs that moved most", ...movesOf(run) }));
    }
    for (const table of run.tables) cards.push(tableOf({ ...table, title: many ? `${table.title}: ${run.name}` : table.title }));
  });
  $("tables").replaceChildren(...cards);
}

function movesOf(run) {
  const first = page.runs[0], rows = [];
  run.partners.forEach((partner, row) => {
    const delta = partner < 0 ? NaN : run.started[row] - first.started[partner];
    if (Math.abs(delta) > 1e-6) rows.push([run.ids[row], run.requested[row], first.started[partner], run.started[row], delta]);
  });
  rows.sort((a, b) => Math.abs(b[4]) - Math.abs(a[4]));
  const left = rows.length - 50;
  return { columns: ["job", "units", `start in ${first.name}`, `start in ${run.name}`, "later by s"], rows: rows.slice(0, 50), note: left > 0 ? `${number(left)} more moved` : "" };
}

// ---- jobs

function listOf(rows) {
  const list = element("dl");
  for (const [name, value] of rows) {
    const line = element("div");
    line.append(element("dt", name), element("dd", value));
    list.append(line);
  }
  return list;
}

function describe(run, row) {
  const parts = [element("b", `${run.live ? "task" : "job"} ${run.ids[row]}`), listOf(numbersOf(run, row, run.partners ? page.runs[0] : null)), element("p", explain(run, row))];
  if (run.commands[row]) parts.push(element("p", run.commands[row], { className: "note" }));
  if (run.reasons[row]) parts.push(element("p", run.reasons[row], { className: "error" }));
  if (run.last_words[row]) parts.push(element("p", run.last_words[row], { className: "error" }));
  return parts;
}

function choose(run, row) {
  page.chosen = run ? { run, row, id: run.ids[row], place: page.runs.indexOf(run) } : null;
  detail(run ? describe(run, row) : null);
  redrawSoon();
}

function detail(parts) {
  $("details").hidden = !parts;
  if (!parts) return;
  const close = element("button", "×", { className: "close", title: "Close (esc)" });
  close.onclick = () => { page.cursor = null; choose(null); };
  $("details").replaceChildren(close, ...parts);
}

function find(text) {
  for (const run of page.runs) {
    const row = run.ids.findIndex(id => id === text || id.slice(id.indexOf("!") + 1) === text);
    if (row < 0) continue;
    if (!isNaN(run.started[row])) {
      const long = Math.max(run.until[row] - run.started[row], 1e-3);
      page.view = { ...page.view, begin: run.started[row] - 3 * long, end: run.until[row] + 3 * long };
    }
    choose(run, row);
    return;
  }
  detail([element("p", `There is no job ${text}.`, { className: "error" })]);
}

function step(direction) {
  const run = (page.chosen && page.chosen.run) || page.runs[0], { byStart, started } = run;
  if (!byStart.length) return;
  const dates = Float64Array.from(byStart, row => started[row]);
  const now = page.cursor === null ? page.view.begin : page.cursor;
  let place = upTo(dates, now);
  if (direction < 0) {
    place = (page.cursor === null ? place : dates.findIndex(date => date === now)) - 1;
  }
  if (place < 0 || place >= dates.length) return;
  const date = page.cursor = dates[place], { started: begun, waiting, free } = momentOf(run, date);
  const shown = (rows, text) => rows.slice(0, 12).map(row => [run.ids[row], text(row)]);
  const parts = [element("b", `${run.name} at ${clockTime(run, date)}: ${number(begun.length)} started, ${number(waiting.length)} wait, ${number(free)} units free`)];
  for (const row of begun.slice(0, 3)) parts.push(element("p", explain(run, row)));
  if (waiting.length) parts.push(element("p", "Waiting, in order of arrival:", { className: "note" }), listOf(shown(waiting, row => `${number(run.requested[row])} units, ${span(date - run.submitted[row])}`)));
  const length = page.view.end - page.view.begin;
  if (date < page.view.begin || date > page.view.end) page.view = { ...page.view, begin: date - length / 2, end: date + length / 2 };
  page.chosen = { run, row: begun[0], id: run.ids[begun[0]], place: page.runs.indexOf(run) };
  detail(parts);
  redrawSoon();
}

// ---- the view

function limited(view) {
  const { whole } = page, shortest = Math.max((whole.end - whole.begin) * 1e-9, 1e-3);
  const long = Math.min(Math.max(view.end - view.begin, shortest), (whole.end - whole.begin) * 1.5), tall = Math.min(Math.max(view.high - view.low, Math.min(2, whole.high)), whole.high);
  const begin = Math.min(Math.max(view.begin, whole.begin - long * .5), whole.end - long * .5), low = Math.min(Math.max(view.low, 0), whole.high - tall);
  return { begin, end: begin + long, low, high: low + tall };
}

function zoom(factor, share = .5, over = "time") {
  const { begin, end, low, high } = page.view;
  if (over === "time") {
    const at = begin + share * (end - begin);
    page.view = limited({ ...page.view, begin: at - (at - begin) * factor, end: at + (end - at) * factor });
  } else {
    const at = low + share * (high - low);
    page.view = limited({ ...page.view, low: at - (at - low) * factor, high: at + (high - at) * factor });
  }
  redrawSoon();
}

function move(across, up = 0) {
  const { begin, end, low, high } = page.view, dx = across * (end - begin), dy = up * (high - low);
  page.view = limited({ begin: begin + dx, end: end + dx, low: low + dy, high: high + dy });
  redrawSoon();
}

function showAll() { page.view = { ...page.whole }; redrawSoon(); }

function placeOf(event) {
  const panel = page.panels[event.target.dataset.place], width = $("stage").clientWidth, box = event.target.getBoundingClientRect();
  const across = (event.clientX - box.left - LEFT) / (width - LEFT - RIGHT), tall = panel ? panel.height - (panel.withTimes ? 22 : 6) : 1;
  const up = 1 - (event.clientY - box.top - 4) / (tall - 4), { begin, end, low, high } = page.view;
  return { panel, across, up, date: begin + across * (end - begin), unit: low + up * (high - low) };
}

function jobAt({ panel, across, up, date, unit }) {
  if (!panel || panel.kind !== "gantt" || across < 0 || across > 1 || up < 0 || up > 1) return -1;
  const slack = 1.5 * (page.view.end - page.view.begin) / $("stage").clientWidth, { run } = panel, wide = { ...page.view, begin: date - slack, end: date + slack };
  let found = -1, nearest = Infinity;
  eachBox(run, wide, (row, low, high) => {
    if (unit < low || unit >= high) return;
    const away = Math.max(run.started[row] - date, date - run.until[row], 0);
    if (away < nearest) { nearest = away; found = row; }
  });
  return found;
}

function tell(event, parts) {
  const tip = $("tip");
  tip.replaceChildren(...parts);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - width - 12))}px`;
  tip.style.top = `${event.clientY + height + 24 > innerHeight ? Math.max(8, event.clientY - height - 14) : event.clientY + 16}px`;
}

function hover(event) {
  const place = placeOf(event), { panel, date } = place, row = jobAt(place);
  if (row >= 0) tell(event, describe(panel.run, row));
  else if (panel && place.across >= 0 && place.across <= 1 && panel.kind === "timeline") {
    tell(event, [element("b", clockTime(panel.curves[0].run, date)), listOf(panel.curves.map(curve =>
      [curve.name || (curve.colour === OTHER ? "offered" : page.runs.length > 1 ? curve.run.name : panel.title.toLowerCase()), number(Math.round(valueAt(curve.steps, date) * 100) / 100)]))]);
  } else $("tip").hidden = true;
}

// ---- pointer and keyboard

let drag = null;

function listen() {
  const stage = $("stage");
  stage.addEventListener("wheel", event => {
    if (!event.target.dataset.place) return;
    event.preventDefault();
    const { across, up } = placeOf(event), delta = event.deltaY || event.deltaX;
    if (Math.abs(event.deltaX) > 2 * Math.abs(event.deltaY) && !event.shiftKey) move(event.deltaX / stage.clientWidth);
    else zoom(Math.exp(Math.sign(delta) * Math.min(Math.abs(delta), 120) / 400), event.shiftKey ? up : across, event.shiftKey ? "units" : "time");
  }, { passive: false });
  stage.addEventListener("pointerdown", event => {
    if (!event.target.dataset.place || event.button) return;
    drag = { x: event.clientX, y: event.clientY, view: page.view, moved: false, marking: event.shiftKey, from: placeOf(event) };
    event.target.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", event => {
    if (!drag) { hover(event); return; }
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    drag.moved = drag.moved || Math.abs(dx) + Math.abs(dy) > 3;
    if (!drag.moved || drag.marking) return;
    const { begin, end, low, high } = drag.view, room = stage.clientWidth - LEFT - RIGHT;
    const across = -dx / room * (end - begin), up = drag.from.panel.kind === "gantt" ? dy / drag.from.panel.height * (high - low) : 0;
    page.view = limited({ begin: begin + across, end: end + across, low: low + up, high: high + up });
    $("tip").hidden = true;
    redrawSoon();
  });
  stage.addEventListener("pointerup", event => {
    if (!drag) return;
    const { moved, marking, from } = drag, to = placeOf(event);
    drag = null;
    if (moved && marking) {
      page.view = limited({ ...page.view, begin: Math.min(from.date, to.date), end: Math.max(from.date, to.date) });
      redrawSoon();
    } else if (!moved) {
      const row = jobAt(to);
      if (row >= 0) choose(to.panel.run, row); else if (page.chosen) choose(null);
    }
  });
  stage.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  stage.addEventListener("dblclick", showAll);
  $("colour").onchange = () => { paint(); redraw(); };
  $("back").onclick = () => step(-1);
  $("forth").onclick = () => step(1);
  $("in").onclick = () => zoom(.5);
  $("out").onclick = () => zoom(2);
  $("all").onclick = showAll;
  $("save").onclick = saveSvg;
  $("theme").onclick = turnTheme;
  $("help").onclick = showKeys;
  $("search").onkeydown = event => {
    if (event.key === "Enter") find($("search").value.trim());
    if (event.key === "Escape") $("search").blur();
    event.stopPropagation();
  };
  addEventListener("resize", () => { if (page.runs.length) { redrawSoon(); drawCurves(); } });
  addEventListener("keydown", key);
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
  const over = event.shiftKey ? "units" : "time";
  const actions = {
    ArrowLeft: () => move(-.15), ArrowRight: () => move(.15), ArrowUp: () => move(0, .15), ArrowDown: () => move(0, -.15),
    "+": () => zoom(.6, .5, event.code === "NumpadAdd" || event.code === "Equal" ? "time" : over), "=": () => zoom(.6), "*": () => zoom(.6, .5, "units"), "-": () => zoom(1.6), _: () => zoom(1.6, .5, "units"),
    0: showAll, Home: showAll, "[": () => step(-1), "]": () => step(1), s: saveSvg, t: turnTheme, "?": showKeys, "/": () => $("search").focus(),
    c: () => { const list = $("colour"); list.selectedIndex = (list.selectedIndex + 1) % list.options.length; paint(); redraw(); },
    Escape: () => { page.cursor = null; choose(null); },
  };
  const vertical = event.key === "ArrowUp" || event.key === "ArrowDown";
  if (!actions[event.key] || (vertical && document.activeElement !== $("stage"))) return;
  event.preventDefault();
  actions[event.key]();
}

function showKeys() {
  const close = element("button", "Close");
  close.onclick = () => $("keys").close();
  $("keys").replaceChildren(element("h2", "Keys"), ...KEYS.map(([name, what]) => {
    const line = element("div");
    line.append(element("kbd", name), what);
    return line;
  }), close);
  $("keys").showModal();
}

function turnTheme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  try { localStorage.setItem("pilothouse-theme", document.documentElement.dataset.theme); } catch { /* a page without storage keeps no theme */ }
  if (page.runs.length) { fillStage(); redraw(); drawCurves(); }
}

function setTheme(theme) { document.documentElement.dataset.theme = theme; }

function svgOfView() {
  const pen = new SvgPen(), look = lookNow(), width = $("stage").clientWidth;
  for (const panel of page.panels) {
    pen.text(LEFT, pen.dy + 8 - pen.dy, panel.title, look.ink, "start", 12);
    pen.dy += 18;
    drawPanel(panel, pen, look, width);
    pen.dy += panel.height + 4;
  }
  return pen.finish(width, pen.dy, look.card);
}

function saveSvg() {
  const link = element("a", null, { href: URL.createObjectURL(new Blob([svgOfView()], { type: "image/svg+xml" })), download: "schedule.svg" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function begin() {
  let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  try { theme = localStorage.getItem("pilothouse-theme") || theme; } catch { /* as above */ }
  setTheme(theme);
  listen();
  const inside = $("data").textContent.trim();
  if (inside) show(await unpack(fromBase64(inside)));
  page.readyMs = performance.now();
  document.documentElement.dataset.ready = "1";
}

globalThis.pilothouse = { page, redraw, explain, svgOfView, zoom, move, showAll, step, find, choose, show, unpack, meanOf };
begin().catch(problem => { $("loading").hidden = false; $("loading").className = "error"; $("loading").textContent = `The run cannot be shown: ${problem.message}`; });
