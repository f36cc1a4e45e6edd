// The block of views/report/pack.py as runs with typed arrays, and what is derived from them once.
"use strict";

const BOXES_PER_BLOCK = 256;

async function unpack(zipped) {
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
  return header.runs.map(run => prepare(run, bytes.subarray(4 + size)));
}

function fromBase64(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function readColumn(column, bytes, whole) {
  const { offset, size_bytes: size, length, scale } = column;
  if (!scale) return new Float64Array(bytes.slice(offset, offset + size).buffer);
  const values = whole ? new Int32Array(length) : new Float64Array(length);
  let at = offset, last = 0;
  for (let i = 0; i < length; i++) {
    let byte = bytes[at++], rest = byte & 127, factor = 128;
    while (byte > 127) { byte = bytes[at++]; rest += (byte & 127) * factor; factor *= 128; }
    if (rest === 0) { values[i] = NaN; continue; }
    rest -= 1;
    last += rest % 2 ? -(rest + 1) / 2 : rest / 2;
    values[i] = scale === 1 ? last : last / scale;
  }
  return values;
}

const WHOLE = new Set(["requested", "widths", "users", "states", "codes", "backfilled", "boxes", "firsts", "lengths", "partners"]);

function prepare(run, bytes) {
  run.stateNames = run.states;
  run.userNames = run.users;
  for (const [name, column] of Object.entries(run.columns)) run[name] = readColumn(column, bytes, WHOLE.has(name));
  const count = run.count = run.ids.length;
  const everyone = new Uint32Array(count), leaves = run.started.slice();
  run.until = run.ended.slice();
  for (let row = 0; row < count; row++) {
    everyone[row] = row;
    if (isNaN(leaves[row])) leaves[row] = run.ended[row];
    if (isNaN(run.until[row])) run.until[row] = Math.max(run.now, run.started[row]);
  }
  run.ran = everyone.filter(row => !isNaN(run.started[row]));
  run.byStart = sorted(run.ran, run.started);
  run.begin = least(run.submitted);
  run.end = Math.max(run.now, run.begin + 1e-9);
  layBoxes(run);
  const byEnd = sorted(run.ran, run.until);
  run.busy = summed(run.byStart, run.started, byEnd, run.until, run.widths);
  const left = everyone.filter(row => !isNaN(leaves[row]));
  run.waiting = summed(sorted(everyone, run.submitted), run.submitted, sorted(left, leaves), leaves, null);
  if (run.capacity_dates) run.capacity = withArea({ dates: run.capacity_dates, values: run.capacity_values });
  if (run.capacity) run.idle = difference(run.capacity, run.busy);
  if (run.energy_dates) run.power = powerOf(run.energy_dates, run.energy_values);
  run.machines = run.machine_states.map((name, place) =>
    ({ name, steps: run[`machines${place}_dates`]
      && withArea({ dates: run[`machines${place}_dates`], values: run[`machines${place}_values`] }) })).filter(m => m.steps);
  const done = run.ran.filter(row => !isNaN(run.ended[row]));
  run.waits = new Float64Array(done.length);
  run.slowdowns = new Float64Array(done.length);
  done.forEach((row, place) => {
    const submit = run.submitted[row], start = run.started[row], end = run.ended[row];
    run.waits[place] = start - submit;
    run.slowdowns[place] = Math.max(1, (end - submit) / Math.max(run.tau, end - start));
  });
  run.waits.sort();
  run.slowdowns.sort();
  return run;
}

function least(values) {
  let found = Infinity;
  for (const value of values) if (value < found) found = value;
  return found === Infinity ? 0 : found;
}

// Rows by their keys, stable: a radix sort of the keys as 32-bit codes, then insertion where codes were too coarse. A third
// of the time of a sort that calls back; that one is the way out where insertion would move too much.
function sorted(rows, keys) {
  const count = rows.length, SIDE = 65536;
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < count; i++) { const key = keys[rows[i]]; if (key < low) low = key; if (key > high) high = key; }
  if (!(high > low)) return rows.slice();
  const factor = 4294967295 / (high - low);
  let from = rows.slice(), to = new Uint32Array(count);
  for (const shift of [0, 16]) {
    const places = new Uint32Array(SIDE + 1);
    for (let i = 0; i < count; i++) places[((((keys[from[i]] - low) * factor) >>> shift) & 65535) + 1]++;
    for (let i = 0; i < SIDE; i++) places[i + 1] += places[i];
    for (let i = 0; i < count; i++) to[places[(((keys[from[i]] - low) * factor) >>> shift) & 65535]++] = from[i];
    [from, to] = [to, from];
  }
  for (let i = 1, moves = 0; i < count; i++) {
    const row = from[i], key = keys[row];
    let place = i;
    for (; place && keys[from[place - 1]] > key; place--, moves++) from[place] = from[place - 1];
    from[place] = row;
    if (moves > 16 * count) return rows.slice().sort((a, b) => keys[a] - keys[b]);
  }
  return from;
}

// Boxes in order of their starts, and for each block of them the last end: what is out of view is passed over in blocks.
function layBoxes(run) {
  const offsets = new Uint32Array(run.count + 1);
  for (let row = 0; row < run.count; row++) offsets[row + 1] = offsets[row] + run.boxes[row];
  const count = run.boxCount = run.firsts.length;
  run.boxRow = new Uint32Array(count);
  run.boxLow = new Int32Array(count);
  run.boxHigh = new Int32Array(count);
  run.boxStart = new Float64Array(count);
  run.boxEnd = new Float64Array(count);
  let place = 0;
  for (const row of run.byStart) {
    for (let from = offsets[row]; from < offsets[row + 1]; from++, place++) {
      run.boxRow[place] = row;
      run.boxLow[place] = run.firsts[from];
      run.boxHigh[place] = run.firsts[from] + run.lengths[from];
      run.boxStart[place] = run.started[row];
      run.boxEnd[place] = run.until[row];
    }
  }
  run.boxCount = place;
  run.blockEnd = new Float64Array(Math.ceil(place / BOXES_PER_BLOCK)).fill(-Infinity);
  for (let i = 0; i < place; i++) {
    const block = Math.floor(i / BOXES_PER_BLOCK);
    run.blockEnd[block] = Math.max(run.blockEnd[block], run.boxEnd[i]);
  }
}

// A step function from rows that add at one date and take away at another; `sizes` null: 1 each.
function summed(up, upDates, down, downDates, sizes) {
  const dates = [], values = [];
  let i = 0, j = 0, level = 0;
  while (i < up.length || j < down.length) {
    const date = Math.min(i < up.length ? upDates[up[i]] : Infinity, j < down.length ? downDates[down[j]] : Infinity);
    const before = level;
    while (i < up.length && upDates[up[i]] === date) level += sizes ? sizes[up[i++]] : (i++, 1);
    while (j < down.length && downDates[down[j]] === date) level -= sizes ? sizes[down[j++]] : (j++, 1);
    if (level !== before) { dates.push(date); values.push(level); }
  }
  return withArea({ dates: Float64Array.from(dates), values: Float64Array.from(values) });
}

// One step function less another.
function difference(steps, less) {
  const dates = Float64Array.from(new Set([...steps.dates, ...less.dates])).sort();
  return withArea({ dates, values: dates.map(date => valueAt(steps, date) - valueAt(less, date)) });
}

// Watts from joules used so far: between two rows the energy grows evenly.
function powerOf(dates, joules) {
  const watts = joules.map((used, i) => i + 1 < dates.length ? (joules[i + 1] - used) / (dates[i + 1] - dates[i]) : 0);
  return withArea({ dates, values: watts });
}

// `area[i]` is the integral up to `dates[i]`: the mean of any window takes two searches.
function withArea(steps) {
  const { dates, values } = steps, area = new Float64Array(dates.length);
  for (let i = 1; i < dates.length; i++) area[i] = area[i - 1] + values[i - 1] * (dates[i] - dates[i - 1]);
  steps.area = area;
  steps.highest = values.reduce((most, value) => Math.max(most, value), 0);
  return steps;
}

// How many of the ascending values are not above the limit.
function upTo(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low;
}

function valueAt(steps, date) {
  const place = upTo(steps.dates, date);
  return place ? steps.values[place - 1] : 0;
}

function areaTo(steps, date) {
  const place = upTo(steps.dates, date);
  return place ? steps.area[place - 1] + steps.values[place - 1] * (date - steps.dates[place - 1]) : 0;
}

const meanOf = (steps, begin, end) => end > begin ? (areaTo(steps, end) - areaTo(steps, begin)) / (end - begin) : 0;
