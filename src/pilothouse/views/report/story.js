// What the page says about a job: the sentence of `pilothouse explain` (views/story.py; a test holds the two together),
// its numbers, and the moment of a decision.
"use strict";

// Python's format(value, ".10g")
function tenDigits(value) {
  if (value === 0) return "0";
  const [digits, power] = value.toExponential(9).split("e");
  if (power >= -4 && power < 10) return String(Number(value.toPrecision(10)));
  const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  return `${short}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

function someJobs(run, rows) {
  if (rows.length === 1) return `job ${run.ids[rows[0]]}`;
  const more = rows.length > 3 ? ` and ${rows.length - 3} more` : "";
  return `jobs ${rows.slice(0, 3).map(row => run.ids[row]).join(", ")}${more}`;
}

function explain(run, own) {
  const { ids, submitted: arrivals, started: starts, ended: ends, until } = run;
  const submitted = arrivals[own], start = starts[own], units = run.requested[own], name = ids[own];
  if (isNaN(start)) {
    if (isNaN(ends[own])) return `job ${name} waits`;
    const reason = run.reasons[own];
    return `job ${name} never started: it was rejected` + (reason ? ` (${reason})` : "");
  }
  let busy = 0;
  const before = [], overtaken = [], overtook = [], freed = [];
  for (const row of run.ran) {
    if (row === own) continue;
    const came = arrivals[row], began = starts[row];
    if (began < submitted && submitted < until[row]) busy += run.widths[row];
    if ((came < submitted || (came === submitted && ids[row] < name)) && began > submitted) before.push(row);
    if (came > submitted && began < start) overtaken.push(row);
    if (came < submitted && began > start) overtook.push(row);
    if (ends[row] === start) freed.push(row);
  }
  const free = run.units - busy, waited = start - submitted, needs = `${units} unit${units === 1 ? "" : "s"}`;
  if (waited === 0) {
    return `job ${name} started at once at ${tenDigits(start)} s: it needed ${needs} and ${free} were free`
      + (overtook.length ? `; it was backfilled past ${someJobs(run, overtook)}` : "");
  }
  let text = `job ${name} waited ${tenDigits(waited)} s: it needed ${needs} and ${free} were free when it came`;
  if (free >= units) text += before.length ? `, but ${someJobs(run, before)} came before it` : ", but the policy held it back";
  else if (before.length) text += `, with ${someJobs(run, before)} ahead of it`;
  text += `; it started at ${tenDigits(start)} s`;
  if (freed.length) text += ` when ${someJobs(run, freed)} ended`;
  if (overtook.length) text += `, backfilled past ${someJobs(run, overtook)}`;
  if (overtaken.length) text += `; ${someJobs(run, overtaken)} came later and started earlier`;
  return text;
}

function numbersOf(run, row, first) {
  const start = run.started[row], end = run.ended[row];
  const rows = [
    ["state", run.stateNames[run.states[row]] + (run.backfilled[row] ? ", backfilled" : "")],
    ["units", number(run.requested[row])],
    ["submitted", clockTime(run, run.submitted[row])],
    ["started", isNaN(start) ? "-" : clockTime(run, start)],
    ["waited", isNaN(start) ? "-" : span(start - run.submitted[row])],
    ["ran", isNaN(start) ? "-" : span(run.until[row] - start)],
    ["walltime", run.walltimes[row] < 0 ? "none" : span(run.walltimes[row])],
  ];
  const user = run.userNames[run.users[row]];
  if (user) rows.splice(1, 0, ["user", user]);
  if (!isNaN(end) && run.codes[row]) rows.push(["exit code", String(run.codes[row])]);
  if (run.places[row]) rows.push(["node", run.places[row]]);
  if (first && run.partners && run.partners[row] >= 0) {
    const delta = start - first.started[run.partners[row]];
    if (!isNaN(delta)) rows.push([`against ${first.name}`, delta === 0 ? "same start" : `${span(Math.abs(delta))} ${delta < 0 ? "earlier" : "later"}`]);
  }
  return rows;
}

// What `pilothouse step` shows, in short: at this date, after the decisions of this date.
function momentOf(run, date) {
  const started = [], waiting = [];
  for (const row of run.byStart) if (run.started[row] === date) started.push(row);
  for (let row = 0; row < run.count; row++) {
    if (run.submitted[row] <= date && (isNaN(run.started[row]) ? !(run.ended[row] <= date) : run.started[row] > date)) waiting.push(row);
  }
  waiting.sort((a, b) => run.submitted[a] - run.submitted[b]);
  return { started, waiting, free: run.units - valueAt(run.busy, date) };
}
