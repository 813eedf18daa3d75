// The review page. An answer waits in `unsent` until the server says that it is on disk; only then it shows as saved.
"use strict";

const CHUNK = 100;                     // items asked for at once
const WINDOW = 40;                     // thumbnails either side of the image
const POLL = 3000;                     // milliseconds between looks at what others said
const RETRY = [1000, 2000, 4000, 8000];
const KINDS = {                        // answers that are no class (erd/runs/answers.py): their keys
  "not-novel": { key: "x", text: "Not novel" },
  bad: { key: "b", text: "Bad image" },
};
const TAKEN = Object.values(KINDS).map((kind) => kind.key);
const LETTERS = [..."asdfghjklqwertzyopcvm"].filter((key) => !TAKEN.includes(key));  // of new classes, after the digits; not n, u
const say = (answer) => answer.label || KINDS[answer.kind].text.toLowerCase();
const $ = (id) => document.getElementById(id);

const page = {
  facts: null, list: "flagged", place: { flagged: 0, audit: 0 }, cut: 0, items: { flagged: new Map(), audit: new Map() },
  answers: [], fresh: [], disputed: new Set(), version: "", neighbours: new Map(),
  reviewer: localStorage.getItem("erd-review-name") || "", unsent: [], sending: false, failure: "", failures: 0, note: "",
};

function node(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);            // strings become text: nothing a file or a person is named is ever HTML
  return made;
}

async function ask(path, body) {
  const response = await fetch(path, body === undefined ? {} :
    { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) {
    let why = text;
    try { why = JSON.parse(text).detail; } catch { /* not JSON: as it is */ }
    throw Object.assign(new Error(typeof why === "string" ? why : "the server refused"), { status: response.status });
  }
  return JSON.parse(text);
}

// ------------------------------------------------------------------------------------------------ what is known here

const size = (list) => (list === "flagged" ? page.cut : page.facts.audit);
const here = () => page.items[page.list].get(page.place[page.list]);
const picture = (row, kind) => `/image/${row}/${kind}.png?${page.facts.key}`;   // browsers keep it: not for another batch
const slot = (list, place) => `${list}/${place}`;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

function said(list, place) {
  return page.answers.filter((a) => a.list === list && a.place === place);
}

function mine(list, place) {
  const waiting = page.unsent.findLast((a) => a.list === list && a.place === place && a.reviewer === page.reviewer);
  if (waiting) return { ...waiting, saved: false };
  const own = page.own.get(slot(list, place));
  return own && { ...own, saved: true };
}

function answered(list) {
  let count = 0;
  for (const a of page.own.values()) if (a.list === list && a.place < size(list)) count++;
  return count;
}

function keyed() {
  // A class that is named by a digit has that digit for a key; the others get what is left, new ones letters too.
  const keys = new Map();
  const all = [...page.facts.known, ...page.fresh];
  for (const name of all) if (/^\d$/.test(name)) keys.set(name, name);
  const left = [..."123456789"].filter((digit) => !all.includes(digit));
  for (const name of page.facts.known) if (!keys.has(name) && left.length) keys.set(name, left.shift());
  left.push(...LETTERS);
  for (const name of page.fresh) if (!keys.has(name) && left.length) keys.set(name, left.shift());
  return keys;
}

async function fetchItems(list, place) {
  if (page.items[list].has(place) || place < 0) return;
  const start = place - (place % CHUNK);
  for (const item of await ask(`/api/list/${list}?start=${start}&count=${CHUNK}`)) page.items[list].set(item.place, item);
}

async function refresh() {
  const state = await ask(`/api/state?batch=${page.facts.key}&since=${page.version}`);
  if (state.answers === undefined) return;
  Object.assign(page, { version: state.version, answers: state.answers, fresh: state.new });
  page.disputed = new Set(state.disputed.map((d) => slot(d.list, d.place)));
  sortOwn();
  render();
}

function sortOwn() {
  page.own = new Map(page.answers.filter((a) => a.reviewer === page.reviewer).map((a) => [slot(a.list, a.place), a]));
}

// ------------------------------------------------------------------------------------------------ answering

const spool = () => `erd-review-unsent/${page.facts.key}`;   // of this tab: another must not send it a second time

function keep() {
  sessionStorage.setItem(spool(), JSON.stringify(page.unsent));
}

function answer(kind, label = null) {
  const item = here();
  if (!item) return;
  if (!page.reviewer) return askName(() => answer(kind, label));
  page.unsent.push({ list: page.list, place: item.place, row: item.row, id: item.id, kind, label,
                     reviewer: page.reviewer });
  page.note = "";
  keep();
  send();
  toNext();
}

async function send() {
  if (page.sending) return;
  page.sending = true;
  while (page.unsent.length) {
    const { list, row, kind, label, reviewer, id } = page.unsent[0];
    try {
      render();
      const done = await ask("/api/answer", { batch: page.facts.key, list, row, kind, label, reviewer });
      page.unsent.shift();
      keep();
      page.failure = "";
      page.failures = 0;
      page.note = `Saved: ${id.split("/").pop()} – ${say({ kind, label: done.label })}`;
      await refresh();
    } catch (error) {
      if ([403, 404, 409, 422].includes(error.status)) {   // asking again would not help
        page.unsent.shift();
        keep();
        page.failure = `Not saved: ${error.message}`;
        continue;
      }
      const wait = RETRY[Math.min(page.failures++, RETRY.length - 1)];
      page.failure = `Not saved yet (${error.status ? error.message : "the server does not answer"}); trying again`;
      render();
      await new Promise((resume) => setTimeout(resume, wait));
    }
  }
  page.sending = false;
  render();
}

async function undo() {
  if (page.unsent.length > (page.sending && !page.failures ? 1 : 0)) {   // not on its way yet: forget it
    const gone = page.unsent.pop();
    keep();
    return go(gone.list, gone.place);
  }
  try {
    const { undone } = await ask("/api/undo", { batch: page.facts.key, reviewer: page.reviewer });
    page.note = undone ? "Your last answer is taken back" : "There is nothing to undo";
    page.failure = "";
    await refresh();
    if (undone && undone.place !== null) {
      if (undone.list === "flagged" && undone.place >= page.cut) setCut(undone.place + 1);
      return go(undone.list, undone.place);
    }
  } catch (error) {
    page.failure = `Not undone: ${error.status ? error.message : "the server does not answer"}; press u again`;
  }
  render();
}

// ------------------------------------------------------------------------------------------------ moving

async function go(list, place) {
  page.list = list;
  page.place[list] = Math.max(0, Math.min(place, size(list) - 1));
  render();
  try {
    if (size(list)) await fetchItems(list, page.place[list]);
  } catch {
    page.failure = "The server does not answer";
  }
  render();
}

function step(by) {
  go(page.list, page.place[page.list] + by);
}

function toNext() {
  const list = page.list, count = size(list), start = page.place[list];
  for (let i = 1; i < count; i++) {
    const place = (start + i) % count;
    if (!mine(list, place)) return go(list, place);
  }
  const other = list === "flagged" ? "audit" : "flagged";
  const more = answered(other) < size(other) ? ` Go on with the ${other === "audit" ? "audit" : "most novel images"}.` : "";
  page.note = `All ${plural(count, "image")} of this list answered.${more}`;
  render();
}

function setCut(cut) {
  page.cut = cut;
  localStorage.setItem(cutKey(), cut);
  $("cut").value = cut;
}

const cutKey = () => `erd-review-cut/${page.facts.batch}/${page.facts.shown}`;
