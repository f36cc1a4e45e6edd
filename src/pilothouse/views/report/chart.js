// Pens, axes and panels. A panel draws with a pen: on a canvas, or into an SVG; both get the same numbers.
"use strict";

const LEFT = 62, RIGHT = 12, MOST_VECTOR_BOXES = 3000, MOST_FINE_BOXES = 250000, MOST_PICTURES = 8;
const CATEGORIES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f6fd6"];
const OTHER = "#8a929b";
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const STATE_COLOURS = { succeeded: "#0072b2", running: "#56b4e9", failed: "#d55e00", "timed out": "#e69f00", killed: "#cc79a7",
  lost: "#7f6fd6" };

// ---- numbers in words

function number(value) {
  if (value === null || Number.isNaN(value)) return "-";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const digits = Math.abs(value) >= 1000 ? 1 : Math.abs(value) >= 100 ? 2 : 4;
  return value.toLocaleString("en", { minimumFractionDigits: digits > 2 ? 0 : digits, maximumFractionDigits: digits });
}

function span(seconds) {
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  const days = Math.floor(seconds / 86400), rest = Math.floor(seconds % 86400);
  const two = value => String(value).padStart(2, "0");
  const clock = `${Math.floor(rest / 3600)}:${two(Math.floor(rest / 60) % 60)}:${two(rest % 60)}`;
  return days ? `${days}d ${clock}` : clock;
}

function clockTime(run, date) {
  if (run.live && run.began) return new Date((run.began + date) * 1000).toLocaleString("sv");
  return `${number(Math.round(date * 1000) / 1000)} s`;
}

// ---- pens

class CanvasPen {
  constructor(canvas, width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    this.ctx = canvas.getContext("2d");
    this.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.ctx.clearRect(0, 0, width, height);
  }
  clip(x, y, w, h) { this.ctx.save(); this.ctx.beginPath(); this.ctx.rect(x, y, w, h); this.ctx.clip(); }
  unclip() { this.ctx.restore(); }
  rect(x, y, w, h, fill, stroke) {
    if (fill) { this.ctx.fillStyle = fill; this.ctx.fillRect(x, y, w, h); }
    if (stroke) { this.ctx.strokeStyle = stroke; this.ctx.lineWidth = 1; this.ctx.strokeRect(x + .5, y + .5, Math.max(0, w - 1), Math.max(0, h - 1)); }
  }
  path(points, stroke, { width = 1, fill = null, dash = null } = {}) {
    const ctx = this.ctx;
    ctx.beginPath();
    for (let i = 0; i < points.length; i += 2) ctx.lineTo(points[i], points[i + 1]);
    if (fill) { ctx.fillStyle = fill; ctx.fill(); }
    if (stroke) { ctx.setLineDash(dash || []); ctx.strokeStyle = stroke; ctx.lineWidth = width; ctx.stroke(); ctx.setLineDash([]); }
  }
  text(x, y, text, fill, anchor = "start", size = 11) {
    this.ctx.font = `${size}px system-ui, sans-serif`;
    this.ctx.textAlign = anchor === "middle" ? "center" : anchor;
    this.ctx.textBaseline = "middle";
    this.ctx.fillStyle = fill;
    this.ctx.fillText(text, x, y);
  }
  image(picture, x, y, w, h) { this.ctx.imageSmoothingEnabled = false; this.ctx.drawImage(picture, x, y, w, h); }
}

const escaped = text => String(text).replace(/[&<>"']/g, char => `&#${char.charCodeAt(0)};`).replace(/[\x00-\x08\x0b\x0c\x0e-\x1f]/g, "");

class SvgPen {
  constructor() { this.parts = []; this.clips = 0; this.dy = 0; }
  clip(x, y, w, h) {
    const id = `c${this.clips++}`;
    this.parts.push(`<clipPath id="${id}"><rect x="${x}" y="${y + this.dy}" width="${w}" height="${h}"/></clipPath><g clip-path="url(#${id})">`);
  }
  unclip() { this.parts.push("</g>"); }
  rect(x, y, w, h, fill, stroke) {
    const edge = stroke ? ` stroke="${stroke}"` : "";
    this.parts.push(`<rect x="${x.toFixed(2)}" y="${(y + this.dy).toFixed(2)}" width="${w.toFixed(2)}" height="${h.toFixed(2)}" fill="${fill || "none"}"${edge}/>`);
  }
  path(points, stroke, { width = 1, fill = null, dash = null } = {}) {
    const places = [];
    for (let i = 0; i < points.length; i += 2) places.push(`${points[i].toFixed(2)} ${(points[i + 1] + this.dy).toFixed(2)}`);
    this.parts.push(`<path d="M${places.join("L")}" fill="${fill || "none"}" stroke="${stroke || "none"}" stroke-width="${width}"${dash ? ` stroke-dasharray="${dash.join(" ")}"` : ""}/>`);
  }
  text(x, y, text, fill, anchor = "start", size = 11) {
    this.parts.push(`<text x="${x.toFixed(1)}" y="${(y + this.dy).toFixed(1)}" fill="${fill}" font-size="${size}" text-anchor="${anchor}" dominant-baseline="central">${escaped(text)}</text>`);
  }
  image(picture, x, y, w, h) {
    this.parts.push(`<image x="${x}" y="${y + this.dy}" width="${w}" height="${h}" preserveAspectRatio="none" href="${picture.toDataURL("image/png")}"/>`);
  }
  finish(width, height, paper) {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="${paper}"/>${this.parts.join("\n")}</svg>`;
  }
}

// ---- axes

const TIME_STEPS = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 432000, 864000, 1728000, 4320000, 8640000, 31536000, 315360000];

function timeTicks(begin, end, room) {
  const step = TIME_STEPS.find(step => (end - begin) / step * 80 <= room) || (end - begin) / 5, ticks = [];
  for (let i = Math.ceil(begin / step); i * step <= end; i++) ticks.push(i * step);
  return { ticks, step };
}

function timeLabel(run, date, step) {
  const two = value => String(value).padStart(2, "0");
  if (run.live && run.began) {
    const at = new Date((run.began + date) * 1000);
    if (step >= 86400) return at.toLocaleDateString("sv");
    return `${two(at.getHours())}:${two(at.getMinutes())}` + (step < 60 ? `:${two(at.getSeconds())}` : "") + (step < 1 ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "");
  }
  const days = Math.floor(date / 86400), rest = date - days * 86400;
  if (step >= 86400) return `${days}d`;
  if (step < 1) return `${Number(date.toFixed(3))}s`;
  const clock = `${two(Math.floor(rest / 3600))}:${two(Math.floor(rest / 60) % 60)}` + (step < 60 ? `:${two(Math.floor(rest % 60))}` : "");
  return days ? `${days}d ${clock}` : clock;
}

function niceTicks(low, high, room, least = 0) {
  const rough = (high - low) / Math.max(1, room / 34), power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = Math.max(least, [1, 2, 5, 10].map(f => f * power).find(s => s >= rough) || power), ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  return ticks;
}

const short = value => Math.abs(value) >= 1e6 ? `${Number((value / 1e6).toPrecision(4))}M`
  : Math.abs(value) >= 1e4 ? `${Number((value / 1e3).toPrecision(4))}k` : String(Number(value.toPrecision(6)));

function frame(pen, look, run, view, width, height, low, high, withTimes, leastStep = 0) {
  const plotHeight = height - (withTimes ? 22 : 6), x = date => LEFT + (date - view.begin) / (view.end - view.begin) * (width - LEFT - RIGHT);
  const y = value => plotHeight - (value - low) / (high - low || 1) * (plotHeight - 4);
  for (const tick of niceTicks(low, high, plotHeight, leastStep)) {
    pen.path([LEFT, y(tick), width - RIGHT, y(tick)], look.grid);
    pen.text(LEFT - 6, Math.max(6, y(tick)), short(tick), look.soft, "end");
  }
  const { ticks, step } = timeTicks(view.begin, view.end, width - LEFT - RIGHT);
  for (const tick of ticks) {
    pen.path([x(tick), 2, x(tick), plotHeight], look.grid);
    if (withTimes && x(tick) < width - 30) pen.text(x(tick), plotHeight + 12, timeLabel(run, tick, step), look.soft, "middle");
  }
  return { x, y, plotHeight };
}

// ---- colours of jobs

function mixRamp(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1), low = Math.min(RAMP.length - 2, Math.floor(at)), rest = at - low;
  return RAMP[low].map((channel, i) => Math.round(channel + (RAMP[low + 1][i] - channel) * rest));
}

const channels = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));

// Red, green and blue of every row, and the legend.
function colourRows(run, mode, runs) {
  const rgb = new Uint8Array(3 * run.count);
  const paint = (row, colour) => rgb.set(colour, 3 * row);
  const named = (names, place) => {
    const colours = names.map(([, colour]) => channels(colour));
    for (let row = 0; row < run.count; row++) paint(row, colours[place(row)]);
    return { rgb, names };
  };
  if (mode === "user") {
    const area = new Float64Array(run.userNames.length);
    for (const row of run.ran) area[run.users[row]] += (run.until[row] - run.started[row]) * run.widths[row];
    const rank = [...area.keys()].sort((a, b) => area[b] - area[a]).slice(0, CATEGORIES.length);
    const place = new Int32Array(run.userNames.length).fill(rank.length);
    rank.forEach((user, i) => { place[user] = i; });
    const names = rank.map((user, i) => [run.userNames[user] || "unknown", CATEGORIES[i]]);
    return named([...names, ["others", OTHER]], row => place[run.users[row]]);
  }
  if (mode === "state") {
    return named(run.stateNames.map(name => [name, STATE_COLOURS[name] || OTHER]), row => run.states[row]);
  }
  if (mode === "backfilled") return named([["in order", CATEGORIES[0]], ["backfilled", CATEGORIES[1]]], row => run.backfilled[row]);
  if (mode === "moved") {
    const names = [["same start", OTHER], ["starts earlier than in the other run", CATEGORIES[2]], ["starts later", CATEGORIES[5]], ["only in this run", CATEGORIES[3]]];
    const delta = movedBy(run, runs);
    return named(names, row => isNaN(delta[row]) ? 3 : Math.abs(delta[row]) <= 1e-6 ? 0 : delta[row] < 0 ? 1 : 2);
  }
  const value = mode === "width" ? row => Math.log2(Math.max(1, run.requested[row]))
    : row => Math.log10(1 + Math.max(0, run.started[row] - run.submitted[row] || 0));
  let most = 1e-9;
  for (const row of run.ran) most = Math.max(most, value(row));
  const steps = Array.from({ length: 256 }, (_, i) => mixRamp(i / 255));
  for (let row = 0; row < run.count; row++) paint(row, steps[Math.round(255 * Math.min(1, value(row) / most))]);
  return { rgb, ramp: mode === "width" ? ["1 unit", number(Math.round(2 ** most))] : ["no wait", span(10 ** most - 1)] };
}

// Seconds by which each job starts later than in the run that it is compared with.
function movedBy(run, runs) {
  const delta = new Float64Array(run.count).fill(NaN), other = run === runs[0] ? runs[1] : runs[0];
  const partners = run === runs[0] ? other.partners : run.partners;
  partners.forEach((partner, row) => {
    if (partner < 0) return;
    if (run === runs[0]) delta[partner] = run.started[partner] - other.started[row];
    else delta[row] = run.started[row] - other.started[partner];
  });
  return delta;
}

// ---- panels over time

// Calls `each` with every box in view; stops when that returns false.
function eachBox(run, view, each) {
  const { boxRow, boxLow, boxHigh, blockEnd, started, until } = run;
  for (let block = 0; block < blockEnd.length; block++) {
    const from = block * BOXES_PER_BLOCK, to = Math.min(run.boxCount, from + BOXES_PER_BLOCK);
    if (started[boxRow[from]] > view.end) return;
    if (blockEnd[block] < view.begin) continue;
    for (let i = from; i < to; i++) {
      const row = boxRow[i];
      if (until[row] < view.begin || started[row] > view.end || boxHigh[i] <= view.low || boxLow[i] >= view.high) continue;
      if (each(row, boxLow[i], boxHigh[i]) === false) return;
    }
  }
}

const boxesShown = (run, view) => {
  let count = 0;
  eachBox(run, view, () => ++count <= MOST_VECTOR_BOXES);
  return count;
};

function blocksShown(run, view) {
  let count = 0;
  for (let block = 0; block < run.blockEnd.length; block++) {
    if (run.boxStart[block * BOXES_PER_BLOCK] > view.end) break;
    if (run.blockEnd[block] >= view.begin) count++;
  }
  return count;
}

let sums = new Float32Array(0);

// Each pixel gets the mean colour of the jobs in it, as opaque as its share of busy unit seconds. Boxes never overlap, so
// the work is the number of boxes plus the number of pixels, at any zoom. Sums lie column by column: boxes come in order of
// their starts, so a few columns are in use at a time and stay in the processor's cache.
function rasterise(run, view, rgb, width, height) {
  const size = 4 * width * height, { begin, high: top } = view;
  if (sums.length < size) sums = new Float32Array(size); else sums.fill(0, 0, size);
  const into = sums; // a local: the loop below need not look the name up again
  const acrossPerS = width / (view.end - view.begin), upPerUnit = height / (view.high - view.low);
  const { boxRow, boxLow, boxHigh, boxStart, boxEnd, blockEnd } = run;
  for (let block = 0; block < blockEnd.length; block++) {
    const from = block * BOXES_PER_BLOCK, to = Math.min(run.boxCount, from + BOXES_PER_BLOCK);
    if (boxStart[from] > view.end) break;
    if (blockEnd[block] < view.begin) continue;
    for (let i = from; i < to; i++) {
      let x0 = (boxStart[i] - begin) * acrossPerS, x1 = (boxEnd[i] - begin) * acrossPerS;
      let y0 = (top - boxHigh[i]) * upPerUnit, y1 = (top - boxLow[i]) * upPerUnit;
      if (x1 <= 0 || x0 >= width || y1 <= 0 || y0 >= height) continue;
      if (x0 < 0) x0 = 0;
      if (y0 < 0) y0 = 0;
      if (x1 > width) x1 = width;
      if (y1 > height) y1 = height;
      const row = boxRow[i], red = rgb[3 * row], green = rgb[3 * row + 1], blue = rgb[3 * row + 2];
      const firstX = x0 | 0, firstY = y0 | 0;
      for (let px = firstX; px < x1; px++) {
        const wide = (x1 < px + 1 ? x1 : px + 1) - (x0 > px ? x0 : px);
        let at = 4 * (px * height + firstY);
        for (let py = firstY; py < y1; py++, at += 4) {
          const part = wide * ((y1 < py + 1 ? y1 : py + 1) - (y0 > py ? y0 : py));
          into[at] += part * red;
          into[at + 1] += part * green;
          into[at + 2] += part * blue;
          into[at + 3] += part;
        }
      }
    }
  }
  const image = new ImageData(width, height), data = image.data;
  for (let px = 0, at = 0; px < width; px++) {
    for (let to = 4 * px; to < size; to += 4 * width, at += 4) {
      const part = into[at + 3];
      if (part <= 0) continue;
      data[to] = into[at] / part;
      data[to + 1] = into[at + 1] / part;
      data[to + 2] = into[at + 2] / part;
      data[to + 3] = part >= 1 ? 255 : 255 * part;
    }
  }
  return image;
}

// The first picture of a run, which shows all of it, and the last ones are kept: a cursor that moves and a step back to an
// earlier view need no new one.
function pictureOf(run, view, rgb, width, height) {
  if (run.picturedIn !== rgb) { run.picturedIn = rgb; run.pictures = new Map(); }
  const key = [view.begin, view.end, view.low, view.high, width, height].join(), { pictures } = run;
  let picture = pictures.get(key);
  if (!picture) {
    if (pictures.size === MOST_PICTURES) pictures.delete([...pictures.keys()][1]);
    picture = document.createElement("canvas");
    picture.width = width;
    picture.height = height;
    picture.getContext("2d").putImageData(rasterise(run, view, rgb, width, height), 0, 0);
    pictures.set(key, picture);
  }
  return picture;
}

function drawGantt(pen, look, run, view, width, height, withTimes, state) {
  const { x, y, plotHeight } = frame(pen, look, run, view, width, height, view.low, view.high, withTimes, 1);
  const plotWidth = Math.max(1, width - LEFT - RIGHT), { rgb } = state.colours.get(run);
  const few = boxesShown(run, view) <= MOST_VECTOR_BOXES;
  pen.clip(LEFT, 4, plotWidth, plotHeight - 4);
  if (few) {
    eachBox(run, view, (row, low, high) => {
      const left = Math.max(LEFT - 2, x(run.started[row])), right = Math.min(width + 2, x(run.until[row])), top = y(Math.min(high, view.high)), bottom = y(Math.max(low, view.low));
      const wide = Math.max(1, right - left), tall = Math.max(1, bottom - top), fill = `rgb(${rgb[3 * row]},${rgb[3 * row + 1]},${rgb[3 * row + 2]})`;
      pen.rect(left, top, wide, tall, fill, wide > 4 && tall > 3 ? look.card : null);
      const failed = !["succeeded", "running"].includes(run.stateNames[run.states[row]]);
      if (failed && wide > 5 && tall > 3) pen.path([left, bottom, right, top], look.bad, { width: 1.5 });
      const name = run.ids[row].slice(run.ids[row].indexOf("!") + 1);
      if (wide > 7 * name.length + 6 && tall > 12) {
        const bright = .3 * rgb[3 * row] + .59 * rgb[3 * row + 1] + .11 * rgb[3 * row + 2] > 130;
        pen.text((left + right) / 2, (top + bottom) / 2, name, bright ? "#000" : "#fff", "middle", 10);
      }
    });
  } else {
    const across = Math.round(plotWidth), fine = blocksShown(run, view) * BOXES_PER_BLOCK <= MOST_FINE_BOXES;
    const up = Math.max(1, Math.round((plotHeight - 4) / (fine ? 1 : 2)));
    pen.image(pictureOf(run, view, rgb, across, up), LEFT, 4, plotWidth, plotHeight - 4);
  }
  const chosen = state.chosen && state.chosen.run === run ? state.chosen.row : -1;
  if (chosen >= 0 && !isNaN(run.started[chosen])) {
    eachBox(run, view, (row, low, high) => {
      if (row === chosen) pen.rect(x(run.started[row]) - 1, y(high) - 1, Math.max(3, x(run.until[row]) - x(run.started[row]) + 2), Math.max(3, y(low) - y(high) + 2), null, look.ink);
    });
  }
  if (state.cursor !== null) pen.path([x(state.cursor), 0, x(state.cursor), plotHeight], look.bad, { dash: [4, 3] });
  pen.unclip();
  return few;
}

// Curves of several runs: in each pixel the mean, and a band from the least to the most.
function drawTimeline(pen, look, curves, view, width, height, withTimes, state) {
  let most = 0;
  for (const { steps, limit } of curves) most = Math.max(most, limit || 0, steps.highest);
  const { x, y, plotHeight } = frame(pen, look, curves[0].run, view, width, height, 0, most * 1.04 || 1, withTimes);
  pen.clip(LEFT, 0, width - LEFT - RIGHT, plotHeight + 1);
  curves.forEach(({ run, steps, colour, dash }) => {
    const from = upTo(steps.dates, view.begin), to = upTo(steps.dates, view.end), columns = Math.max(1, Math.round(width - LEFT - RIGHT));
    const line = [], band = [], back = [];
    const stop = Math.min(view.end, run.end), start = Math.max(view.begin, run.begin);
    if (to - from <= 2 * columns) {
      let level = from ? steps.values[from - 1] : 0;
      line.push(x(start), y(level));
      for (let i = from; i < to; i++) { line.push(x(steps.dates[i]), y(level)); level = steps.values[i]; line.push(x(steps.dates[i]), y(level)); }
      line.push(x(stop), y(level));
    } else {
      const perPixel = (view.end - view.begin) / columns;
      let place = from;
      for (let column = 0; column < columns; column++) {
        const begin = view.begin + column * perPixel, end = begin + perPixel;
        if (end < start || begin > stop) continue;
        let low = place ? steps.values[place - 1] : 0, high = low;
        for (; place < to && steps.dates[place] < end; place++) { low = Math.min(low, steps.values[place]); high = Math.max(high, steps.values[place]); }
        const mean = y(meanOf(steps, begin, end));
        line.push(x(begin), mean, x(end), mean);
        band.push(x(begin), y(high), x(end), y(high));
        back.push([x(end), y(low), x(begin), y(low)]);
      }
      back.reverse().forEach(points => band.push(...points));
      pen.path(band, null, { fill: `${colour}33` });
    }
    pen.path(line, colour, { width: 1.4, dash });
  });
  if (state.cursor !== null) pen.path([x(state.cursor), 0, x(state.cursor), plotHeight], look.bad, { dash: [4, 3] });
  pen.unclip();
}

// ---- distributions

// The share of jobs whose value is not larger, for every pixel: a step function drawn as steps.
function drawDistribution(pen, look, curves, low, width, height) {
  let most = low * 10;
  for (const { values } of curves) if (values.length) most = Math.max(most, values[values.length - 1]);
  const decades = Math.log10(most / low), plotHeight = height - 22, columns = Math.max(1, Math.round(width - LEFT - RIGHT));
  const x = value => LEFT + Math.log10(Math.max(value, low) / low) / decades * columns, y = share => plotHeight - share * (plotHeight - 8);
  for (const share of [0, .25, .5, .75, 1]) {
    pen.path([LEFT, y(share), width - RIGHT, y(share)], look.grid);
    pen.text(LEFT - 6, y(share), `${100 * share} %`, look.soft, "end");
  }
  const apart = Math.ceil(decades / (columns / 46));
  for (let power = 0; power <= decades; power += apart) {
    const value = low * 10 ** power;
    pen.path([x(value), 4, x(value), plotHeight], look.grid);
    pen.text(x(value), plotHeight + 12, short(value), look.soft, "middle");
  }
  for (const { values, colour, dash } of curves) {
    if (!values.length) continue;
    const line = [LEFT, y(0)];
    let share = 0;
    for (let column = 0; column <= columns; column++) {
      const next = upTo(values, low * 10 ** (column / columns * decades)) / values.length;
      if (next !== share) { line.push(LEFT + column, y(share), LEFT + column, y(next)); share = next; }
    }
    line.push(width - RIGHT, y(share));
    pen.path(line, colour, { width: 1.6, dash });
  }
  return position => low * 10 ** ((position - LEFT) / columns * decades);
}
