// The page of a dashboard: listens to the server, shows the run as it is now above the charts, and leaves requests. The
// token comes in the fragment of the address, which browsers send to no server; it is kept for this tab.
"use strict";

const TOKEN_KEY = "pilothouse-token", SURE_MS = 4000, RETRY_MS = [500, 1000, 2000, 5000, 10000];
const live = { token: "", look: null, data: 0, fetching: false, parts: null, tries: 0, reports: 0 };

const wait = ms => new Promise(done => setTimeout(done, ms));
const server = (path, more = {}) => fetch(path, { ...more, headers: { Authorization: `Bearer ${live.token}`, ...more.headers } });

// ---- the stream of states

async function listenToRun() {
  for (;;) {
    try {
      const answer = await server("events");
      if (answer.status === 401) { askForToken(); return; }
      if (!answer.ok) throw new Error(await answer.text());
      live.tries = 0;
      await readEvents(answer.body.getReader());
    } catch { /* the server has gone, or the line to it: tried again below */ }
    saying("connection lost, trying again", "bad");
    await wait(RETRY_MS[Math.min(live.tries++, RETRY_MS.length - 1)]);
  }
}

async function readEvents(reader) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    if (!events.length) continue;
    const [name, data] = events[events.length - 1].split("\n"); // the newest says all
    const what = JSON.parse(data.slice("data: ".length));
    if (name === "event: problem") saying(what, "bad"); else take(what);
  }
}

function take(look) {
  const before = live.look;
  live.look = look;
  live.reports++;
  if (!live.parts) buildLive(look);
  showLook(look);
  if (look.data !== live.data && !live.fetching && !document.hidden) fetchData(look.data);
  if (!before || before.outcome !== look.outcome) document.documentElement.dataset.outcome = look.outcome;
}

async function fetchData(number) {
  live.fetching = true;
  try {
    const answer = await server("data");
    if (answer.ok) {
      const runs = await unpack(new Uint8Array(await answer.arrayBuffer()));
      if (!drag) { show(runs); live.data = number; }
    }
  } finally { live.fetching = false; }
}

function askForToken() {
  const input = element("input", null, { type: "password", placeholder: "token", autocomplete: "off" }), go = element("button", "Show the run");
  const form = element("div", null, { className: "card token" });
  form.append(element("p", "This page needs the token that `pilothouse web` has printed: the part of the address after #."), input, go);
  const enter = () => { setToken(input.value.trim()); $("live").replaceChildren(); live.parts = null; listenToRun(); };
  go.onclick = enter;
  input.onkeydown = event => { if (event.key === "Enter") enter(); event.stopPropagation(); };
  $("loading").hidden = true;
  $("live").hidden = false;
  $("live").replaceChildren(form);
  document.documentElement.dataset.outcome = "no token";
}

function setToken(token) {
  live.token = token;
  try { sessionStorage.setItem(TOKEN_KEY, token); } catch { /* a page without storage asks again */ }
}

// ---- what is shown

function panel(title, columns, more = null) {
  const card = element("section", null, { className: "card panel" }), table = element("table"), head = element("tr"), top = element("thead"), body = element("tbody");
  const heading = element("h2", title), count = element("span", "", { className: "count" }), empty = element("p", "", { className: "note empty" });
  columns.forEach(([name, kind = ""]) => head.append(element("th", name, { className: kind })));
  heading.append(count);
  top.append(head);
  table.append(top, body);
  const holder = element("div", null, { className: "scroll" });
  holder.append(table);
  card.append(heading, holder, empty);
  if (more) card.append(more);
  return { card, body, count, empty, table };
}

function buildLive(look) {
  const parts = live.parts = { cards: new Map() };
  parts.status = element("div", null, { className: "status" });
  parts.pill = element("b", "", { className: "pill" });
  parts.clock = element("span", "");
  parts.said = element("span", "", { className: "said" });
  parts.status.append(parts.pill, parts.clock, parts.said);
  parts.bar = element("div", null, { className: "progress", role: "progressbar" });
  parts.good = element("i", null, { className: "good" });
  parts.bad = element("i", null, { className: "bad" });
  parts.busy = element("i", null, { className: "busy" });
  parts.bar.append(parts.good, parts.bad, parts.busy);
  parts.facts = element("div", null, { className: "facts" });
  parts.panels = element("div", null, { className: "panels" });
  if (look.live) {
    parts.running = panel("Running, oldest first", [["task"], ["for"], ["node", "text wide"], ["slots", "text wide"], ["command", "text"], [""]]);
    parts.failures = panel("Failures, newest first", [["task"], ["code"], ["node", "text wide"], ["command, and its last line", "text"], [""]]);
    parts.engines = panel("Engines", [["rank", "wide"], ["context", "text wide"], ["node", "text"], ["slots in use", "text"], ["done"], ["failed", "wide"], ["state", "text"], [""]], enginesFoot(parts));
    parts.waiting = panel("Waiting, next first", [["task"], ["command", "text"], ["waits for", "text"], [""]]);
    parts.answers = panel("Requests", [["at", "text"], ["what became of it", "text"]]);
    parts.panels.append(parts.running.card, parts.failures.card, parts.engines.card, parts.waiting.card, parts.answers.card);
  }
  if (!look.live) {
    parts.running = panel("Running, oldest first", [["job", "text"], ["for"], ["user", "text wide"], ["units", "text"]]);
    parts.waiting = panel("Waiting, in order of arrival", [["job", "text"], ["units"], ["for"], ["why", "text"]]);
    parts.panels.append(parts.running.card, parts.waiting.card);
  }
  $("live").replaceChildren(parts.status, parts.bar, parts.facts, parts.panels);
  $("live").hidden = false;
}

function saying(text, kind) {
  if (!live.parts) { $("loading").textContent = text; return; }
  live.parts.said.textContent = text;
  live.parts.said.className = `said ${kind || ""}`;
}

function fact(name, value, kind = "") {
  const { cards, facts } = live.parts;
  if (!cards.has(name)) {
    const made = element("div", null, { className: "fact" }), shown = element("b", "");
    made.append(shown, element("span", name));
    facts.append(made);
    cards.set(name, shown);
  }
  const shown = cards.get(name);
  if (shown.textContent !== value) shown.textContent = value;
  shown.className = kind;
}

// Rows are kept by their keys, so that a button does not change under the pointer and what is marked stays marked.
function fillRows(body, items, keyOf, make) {
  const known = new Map([...body.children].map(row => [row.dataset.key, row])), rows = [];
  for (const item of items) {
    const key = String(keyOf(item)), row = known.get(key) || element("tr");
    if (!row.dataset.key) { row.dataset.key = key; row.update = make(row, item); }
    row.update(item);
    rows.push(row);
  }
  if (rows.length !== body.children.length || rows.some((row, place) => body.children[place] !== row)) body.replaceChildren(...rows);
}

function cells(row, ...kinds) {
  const made = kinds.map(kind => element("td", null, { className: kind }));
  row.append(...made);
  return values => values.forEach((value, place) => { if (made[place].textContent !== value) made[place].textContent = value; });
}

const elapsed = seconds => span(Math.max(0, Math.round(seconds)));

function showLook(look) {
  const { parts } = live, { state } = look, going = look.outcome === "running";
  parts.pill.textContent = look.outcome;
  parts.pill.className = `pill ${going ? "good" : look.outcome === "ended" ? "" : "warn"}`;
  saying("");
  const done = state ? state.finished : look.ended, share = look.total ? Math.min(1, done / look.total) : null;
  document.title = `${share === null ? number(done) : `${Math.floor(100 * share)} %`} ${look.name}`;
  if (!page.runs.length) $("title").textContent = look.name;
  parts.bar.hidden = share === null;
  if (share !== null) {
    const bad = state ? state.failed / look.total : 0, busy = state ? state.running / look.total : 0;
    parts.good.style.width = `${100 * Math.max(0, share - bad)}%`;
    parts.bad.style.width = `${100 * bad}%`;
    parts.busy.style.width = `${100 * Math.min(busy, 1 - share)}%`;
    parts.bar.title = `${number(done)} of ${number(look.total)}`;
  }
  fact(state ? "tasks done" : "jobs ended", number(done) + (look.total === null ? "" : ` of ${number(look.total)}`));
  if (!state) { showSession(look); return; }
  const now = state.ended_at || state.now;
  parts.clock.textContent = `${going ? "" : "after "}${elapsed(now - state.started_at)}`;
  fact("running", number(state.running));
  if (state.waiting !== null) fact("waiting", number(state.waiting));
  fact("failed", number(state.failed), state.failed ? "bad" : "");
  fact("tasks a second", number(Number(look.rate.toPrecision(3))));
  if (look.left_s !== null && going) {
    const over = new Date((state.now + look.left_s) * 1000), two = value => String(value).padStart(2, "0");
    fact("time left", elapsed(look.left_s));
    fact("over at about", `${look.left_s > 43200 ? `${over.toLocaleDateString("sv")} ` : ""}${two(over.getHours())}:${two(over.getMinutes())}`);
  } else if (live.parts.cards.has("time left")) { fact("time left", "-"); fact("over at about", "-"); }
  const here = state.engines.filter(engine => engine.state === "running" || engine.state === "leaving");
  fact("engines", number(here.length));
  fact("slots in use", `${number(here.reduce((sum, engine) => sum + Math.min(engine.running, engine.slots), 0))} of ${number(here.reduce((sum, engine) => sum + engine.slots, 0))}`);
  showRunning(look, state);
  showFailures(look, state);
  showEngines(look, state);
  showWaiting(look, state);
  showAnswers(state);
}

// A simulation or a steering session: what runs and waits by the clock of its world.
function showSession(look) {
  const { parts } = live, { session } = look;
  parts.clock.textContent = session ? `at ${number(Math.round(session.now))} s of its clock` : "";
  parts.panels.hidden = !session;
  if (!session) return;
  fact("running", number(session.running));
  fact("waiting", number(session.waiting));
  fact("units in use", `${number(session.units - session.free)} of ${number(session.units)}`);
  const held = session.jobs.filter(job => job.started_at !== null).sort((a, b) => a.started_at - b.started_at), queue = session.jobs.filter(job => job.started_at === null);
  count(parts.running, held.length, session.running, "Nothing runs.");
  fillRows(parts.running.body, held, job => job.id, row => {
    const put = cells(row, "text", "", "text wide", "text");
    return job => put([job.id, span(Math.max(0, live.look.session.now - job.started_at)), job.user, job.units]);
  });
  count(parts.waiting, queue.length, session.waiting, "Nothing waits.");
  fillRows(parts.waiting.body, queue, job => job.id, row => {
    const put = cells(row, "text", "", "", "text reason");
    return job => put([job.id, number(job.requested), span(Math.max(0, live.look.session.now - job.submitted_at)), job.why]);
  });
}

function count(part, shown, total, none) {
  part.count.textContent = total > shown ? `${number(shown)} of ${number(total)}` : total ? number(total) : "";
  part.empty.textContent = total ? "" : none;
  part.table.hidden = !shown;
}

function showRunning(look, state) {
  const part = live.parts.running, able = look.outcome === "running";
  count(part, state.running_tasks.length, look.shown.running, "Nothing runs.");
  fillRows(part.body, state.running_tasks, task => `${task.task_id}.${task.attempt}`, (row, task) => {
    const put = cells(row, "", "", "text wide", "text wide", "text command"), buttons = element("td", null, { className: "buttons" });
    buttons.append(outputButton(task.task_id), sureButton("Cancel", "End this task", () => request({ ask: "cancel", task: task.task_id })));
    row.append(buttons);
    return now => put([String(now.task_id), elapsed(live.look.state.now - now.since), now.node, now.slots, now.command]);
  });
  part.card.classList.toggle("still", !able);
}

function showFailures(look, state) {
  const part = live.parts.failures;
  count(part, state.failures.length, look.shown.failures, "Nothing has failed.");
  fillRows(part.body, state.failures, bad => `${bad.task_id}.${bad.ended_at}`, (row, bad) => {
    const put = cells(row, "", "", "text wide"), words = element("td", null, { className: "text words" }), buttons = element("td", null, { className: "buttons" });
    words.append(element("div", bad.command, { className: "command" }));
    const why = [bad.reason, bad.last_words].filter(Boolean).join(": ");
    if (why) words.append(element("div", why, { className: "error" }));
    buttons.append(outputButton(bad.task_id), sureButton("Retry", "Run this task once more", () => request({ ask: "retry", task: bad.task_id })));
    row.append(words, buttons);
    return now => put([String(now.task_id), String(now.return_code), now.node]);
  });
  part.card.classList.toggle("still", look.outcome !== "running");
}

function showEngines(look, state) {
  const part = live.parts.engines;
  count(part, state.engines.length, look.shown.engines, "No engine has joined.");
  fillRows(part.body, state.engines, engine => engine.engine, (row, engine) => {
    const put = cells(row, "wide", "text wide", "text"), load = element("td", null, { className: "text" }), bar = element("i", null, { className: "load" }), fill = element("i"), words = element("span", "");
    bar.append(fill);
    load.append(bar, words);
    row.append(load);
    const rest = cells(row, "", "wide", "text"), buttons = element("td", null, { className: "buttons" });
    const drain = sureButton("Drain", "This engine finishes its tasks and leaves", () => request({ ask: "stop-engine", engine: engine.engine }));
    buttons.append(drain);
    row.append(buttons);
    return now => {
      put([String(now.rank), now.context, now.node]);
      words.textContent = `${number(now.running)}/${number(now.slots)}`;
      fill.style.width = `${now.slots ? 100 * Math.min(1, now.running / now.slots) : 0}%`;
      rest([number(now.finished), number(now.failed), now.state]);
      row.className = now.state;
      drain.disabled = now.state !== "running";
    };
  });
  part.card.classList.toggle("still", look.outcome === "ended");
  const contexts = new Map();
  for (const engine of state.engines) if (engine.state === "running") contexts.set(engine.context, [...contexts.get(engine.context) || [], engine]);
  fillRows(live.parts.contexts, contexts.entries(), ([name]) => name, (row, [name]) => {
    const words = element("td", null, { className: "text" }), buttons = element("td", null, { className: "buttons" });
    buttons.append(sureButton("Drain", "All engines of this context finish their tasks and leave", () => request({ ask: "stop-context", context: name })));
    row.append(words, buttons);
    return ([, engines]) => {
      const slots = engines.reduce((sum, engine) => sum + engine.slots, 0);
      words.textContent = `context ${name}: ${number(engines.length)} engine${engines.length === 1 ? "" : "s"}, ${number(slots)} slots`;
    };
  });
}

function showWaiting(look, state) {
  const part = live.parts.waiting;
  count(part, state.waiting_tasks.length, look.shown.waiting, "Nothing waits.");
  part.empty.hidden = state.waiting_tasks.length || look.shown.waiting;
  fillRows(part.body, state.waiting_tasks, task => task.task_id, (row, task) => {
    const put = cells(row, "", "text command", "text reason"), buttons = element("td", null, { className: "buttons" });
    buttons.append(sureButton("Cancel", "Do not run this task", () => request({ ask: "cancel", task: task.task_id })));
    row.append(buttons);
    return now => put([String(now.task_id), now.name ? `${now.name}: ${now.command}` : now.command, now.waits_for]);
  });
  part.card.classList.toggle("still", look.outcome !== "running");
}

function showAnswers(state) {
  const part = live.parts.answers;
  part.card.hidden = !state.answers.length;
  count(part, state.answers.length, state.answers.length, "");
  fillRows(part.body, state.answers, answer => `${answer.at}.${answer.number}`, (row, answer) => {
    const put = cells(row, "text", answer.done ? "text" : "text error");
    return now => put([new Date(now.at * 1000).toLocaleTimeString("sv"), (now.done ? "" : "refused: ") + now.text]);
  });
}

// ---- what is asked

// A button that does its work when it is pressed a second time.
function sureButton(name, title, act) {
  const button = element("button", name, { className: "small", title });
  let armed = 0;
  const calm = () => { clearTimeout(armed); armed = 0; button.textContent = name; button.classList.remove("armed"); };
  button.onclick = () => {
    if (armed) { calm(); act(); return; }
    button.textContent = "Sure?";
    button.classList.add("armed");
    armed = setTimeout(calm, SURE_MS);
  };
  return button;
}

async function request(what) {
  try {
    const answer = await server("requests", { method: "POST", body: JSON.stringify(what), headers: { "Content-Type": "application/json" } });
    saying(answer.ok ? "asked; the run answers within a second" : await answer.text(), answer.ok ? "" : "bad");
    return answer.ok;
  } catch (problem) { saying(`not asked: ${problem.message}`, "bad"); return false; }
}

function enginesFoot(parts) {
  const foot = element("div", null, { className: "foot" }), table = element("table");
  parts.contexts = element("tbody");
  table.append(parts.contexts);
  const finish = sureButton("Finish what runs", "Nothing more is begun, and the run ends when its running tasks have ended", () => request({ ask: "end-run", how: "finish" }));
  foot.append(table, addForm(), finish);
  return foot;
}

function addForm() {
  const form = element("div", null, { className: "add" }), hosts = element("input", null, { placeholder: "HOST:SLOTS,... over ssh", autocomplete: "off" });
  const slots = element("input", null, { type: "number", min: 1, placeholder: "slots here" }), add = element("button", "Add engines");
  hosts.setAttribute("aria-label", "Hosts over ssh");
  slots.setAttribute("aria-label", "Slots on the driver's own host");
  add.onclick = async () => {
    const what = { ask: "add-context", hosts: hosts.value.trim(), slots: Number(slots.value) || 0 };
    if ((what.hosts || what.slots) && await request(what)) hosts.value = slots.value = "";
  };
  for (const input of [hosts, slots]) input.onkeydown = event => { if (event.key === "Enter") add.onclick(); event.stopPropagation(); };
  form.append(hosts, slots, add);
  return form;
}

function outputButton(task) {
  const button = element("button", "Output", { className: "small", title: "What it wrote" });
  button.onclick = () => showOutput(task, "err");
  return button;
}

async function showOutput(task, stream) {
  const answer = await server(`output?task=${task}&stream=${stream}`), text = await answer.text();
  const close = element("button", "Close"), other = element("button", stream === "err" ? "Standard output" : "Standard error"), box = $("keys");
  close.onclick = () => box.close();
  other.onclick = () => showOutput(task, stream === "err" ? "out" : "err");
  const wrote = element("pre", text || "nothing", { className: answer.ok ? "" : "error" });
  box.replaceChildren(element("h2", `Task ${task}: ${stream === "err" ? "standard error" : "standard output"}`), wrote, other, close);
  if (!box.open) box.showModal();
  wrote.scrollTop = wrote.scrollHeight;
}

function beginLive() {
  let kept = "";
  try { kept = sessionStorage.getItem(TOKEN_KEY) || ""; } catch { /* as above */ }
  const given = location.hash.slice(1);
  if (given) history.replaceState(null, "", location.pathname);
  setToken(given || kept);
  return listenToRun();
}

globalThis.pilothouse.live = live;
beginLive();
