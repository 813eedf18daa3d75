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
// Ways through the batch: the list on which an answer given there counts.
const VIEWS = { groups: "flagged", flagged: "flagged", useful: "flagged", audit: "audit", map: "flagged" };
const say = (answer) => answer.label || KINDS[answer.kind].text.toLowerCase();
const $ = (id) => document.getElementById(id);

const page = {
  facts: null, view: "flagged", place: { flagged: 0, useful: 0, audit: 0 }, cut: 0,
  items: { flagged: new Map(), useful: new Map(), audit: new Map() },
  groups: [], group: 0, cursor: 0, out: new Set(),   // look-alikes: which of them, where in it, rows that are taken out
  map: null, point: null, failed: "",                // the map, the image chosen on it, why there is none
  answers: [], own: new Map(), fresh: [], disputed: new Set(), version: "", neighbours: new Map(), beside: -1,
  reviewer: localStorage.getItem("erd-review-name") || "", unsent: [], sending: false, failure: "", failures: 0, note: "",
};

function node(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);            // strings become text: nothing a file or a person is named is ever HTML
  return made;
}

const pause = (wait) => new Promise((resume) => setTimeout(resume, wait));

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

async function found(path, name) {     // what the server may still be looking for
  for (let wait = 300; ; wait = Math.min(2 * wait, 5000)) {
    const answer = await ask(path).catch(() => ({}));
    if (answer.failed) page.failed = answer.failed;
    if (answer.failed || answer[name]) return answer[name];
    await pause(wait);
  }
}

// ------------------------------------------------------------------------------------------------ what is known here

const size = (view) => (view === "flagged" ? page.cut : page.facts[view]);
const single = () => page.view in page.place;
const picture = (row, kind) => `/image/${row}/${kind}.png?${page.facts.key}`;   // browsers keep it: not for another batch
const slot = (list, row) => `${list}/${row}`;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

function here() {
  if (page.view === "groups") return groupShown()[page.cursor];
  return page.view === "map" ? page.point : page.items[page.view].get(page.place[page.view]);
}

function asked() {                     // the images that an answer given now goes to
  const item = here();
  return page.view === "groups" ? groupAsked() : item ? [item] : [];
}

function said(list, row) {
  return page.answers.filter((a) => a.list === list && a.row === row);
}

function mine(list, row) {
  const waiting = page.unsent.findLast((a) => a.list === list && a.reviewer === page.reviewer &&
    a.images.some((image) => image.row === row));
  if (waiting) return { ...waiting, saved: false };
  const own = page.own.get(slot(list, row));
  return own && { ...own, saved: true };
}

function answered(view) {              // how much of it is answered, and on disk
  const has = (item) => page.own.has(slot(VIEWS[view], item.row));
  if (view === "groups") return page.groups.filter((group) => group.images.every(has)).length;
  if (view === "useful") return [...page.items.useful.values()].filter(has).length;
  let count = 0;
  for (const a of page.own.values()) if (a.list === VIEWS[view] && a.place < size(view)) count++;
  return count;
}

function done(view) {                  // whether a place has an answer of mine, on disk or on its way
  const list = VIEWS[view];
  if (view === "useful") return (place) => Boolean(mine(list, page.items.useful.get(place)?.row));
  const waiting = page.unsent.filter((a) => a.list === list && a.reviewer === page.reviewer).flatMap((a) => a.images);
  const places = new Set([...page.own.values()].filter((a) => a.list === list).concat(waiting).map((a) => a.place));
  return (place) => places.has(place);
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

async function fetchItems(view, place) {
  if (view === "useful" || page.items[view].has(place) || place < 0) return;   // the useful ones come all at once
  const start = place - (place % CHUNK);
  for (const item of await ask(`/api/list/${view}?start=${start}&count=${CHUNK}`)) page.items[view].set(item.place, item);
}

async function refresh() {
  const state = await ask(`/api/state?batch=${page.facts.key}&since=${page.version}`);
  if (state.answers === undefined) return;
  Object.assign(page, { version: state.version, answers: state.answers, fresh: state.new });
  page.disputed = new Set(state.disputed.map((d) => slot(d.list, d.row)));
  sortOwn();
  render();
}

function sortOwn() {
  page.own = new Map(page.answers.filter((a) => a.reviewer === page.reviewer).map((a) => [slot(a.list, a.row), a]));
}

// ------------------------------------------------------------------------------------------------ answering

const spool = () => `erd-review-unsent/${page.facts.key}`;   // of this tab: another must not send it a second time

function keep() {
  sessionStorage.setItem(spool(), JSON.stringify(page.unsent));
}

function answer(kind, label = null) {
  const images = asked().map(({ row, place, id }) => ({ row, place, id }));
  if (!images.length) return;
  if (!page.reviewer) return askName(() => answer(kind, label));
  page.unsent.push({ list: VIEWS[page.view], images, kind, label, reviewer: page.reviewer });
  page.note = "";
  keep();
  send();
  toNext();
}

async function send() {
  if (page.sending) return;
  page.sending = true;
  while (page.unsent.length) {
    const { list, images, kind, label, reviewer } = page.unsent[0];
    try {
      render();
      const rows = images.map((image) => image.row);
      const done = await ask("/api/answer", { batch: page.facts.key, list, rows, kind, label, reviewer });
      page.unsent.shift();
      keep();
      page.failure = "";
      page.failures = 0;
      taken(done.places.map((place) => ({ ...place, kind, label: done.label, reviewer })));
      const what = images.length > 1 ? plural(images.length, "image") : images[0].id.split("/").pop();
      const guess = done.places[0].predicted;   // told on the audit only, and only now
      page.note = `Saved: ${what} – ${say({ kind, label: done.label })}${guess ? `; the classifier says ${guess}` : ""}`;
      if (!page.unsent.length) await refresh().catch(() => {});   // all answers of everybody: not after each of a quick row
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
      await pause(wait);
    }
  }
  page.sending = false;
  render();
}

function taken(answers) {              // what is on disk, before the server is asked for everything
  const slots = new Set(answers.map((a) => slot(a.list, a.row)));
  page.answers = page.answers.filter((a) => a.reviewer !== answers[0].reviewer || !slots.has(slot(a.list, a.row)));
  page.answers.push(...answers);
  const { label } = answers[0];
  if (label && !page.facts.known.includes(label) && !page.fresh.includes(label)) page.fresh.push(label);
  sortOwn();
}

function takenBack(images) {
  if (!images) return "There is nothing to undo";
  return images > 1 ? `Your answer to ${plural(images, "image")} is taken back` : "Your last answer is taken back";
}

async function undo() {
  if (page.unsent.length > (page.sending && !page.failures ? 1 : 0)) {   // not on its way yet: forget it
    const gone = page.unsent.pop();
    keep();
    page.note = takenBack(gone.images.length);
    return backTo(gone.list, gone.images);
  }
  while (page.sending && !page.failures) await pause(20);   // on its way: it must not arrive after it is taken back
  try {
    const { undone } = await ask("/api/undo", { batch: page.facts.key, reviewer: page.reviewer });
    page.note = takenBack(undone.length);
    page.failure = "";
    await refresh();
    if (undone.length) return backTo(undone[0].list, undone);
  } catch (error) {
    page.failure = `Not undone: ${error.status ? error.message : "the server does not answer"}; press u again`;
  }
  render();
}

// ------------------------------------------------------------------------------------------------ moving

async function go(view, place = page.place[view]) {
  page.view = view;
  if (single()) page.place[view] = Math.max(0, Math.min(place, size(view) - 1));
  render();
  try {
    if (view === "map") await loadMap();
    else if (single() && size(view)) await fetchItems(view, page.place[view]);
  } catch {
    page.failure = "The server does not answer";
  }
  render();
}

function backTo(list, images) {        // where they were answered, as far as can be told
  const { row, place } = images[0];
  if (list === "audit") return go("audit", place);
  const group = page.groups.findIndex((one) => one.images.some((image) => image.row === row));
  if (group >= 0 && (page.view === "groups" || images.length > 1)) return goGroup(group, row);
  if (page.view === "map") return choose(row);
  const useful = [...page.items.useful].find(([, item]) => item.row === row);
  return page.view === "useful" && useful ? go("useful", useful[0]) : open(place);
}

function open(place) {                 // an image alone, wherever on the list it is
  if (place >= page.cut) setCut(place + 1);
  return go("flagged", place);
}

function step(by) {
  go(page.view, page.place[page.view] + by);
}

function toNext() {
  if (page.view === "groups") return afterGroup();
  if (page.view === "map") return render();
  const { view } = page, count = size(view), start = page.place[view], has = done(view);
  for (let i = 1; i < count; i++) {
    const place = (start + i) % count;
    if (!has(place)) return go(view, place);
  }
  const other = view === "audit" ? "flagged" : "audit";
  const more = answered(other) < size(other) ? ` Go on with the ${other === "audit" ? "random audit" : "most novel images"}.` : "";
  page.note = `All ${plural(count, "image")} of this list answered.${more}`;
  render();
}

function setCut(cut) {
  page.cut = cut;
  localStorage.setItem(cutKey(), cut);
  $("cut").value = cut;
}

const cutKey = () => `erd-review-cut/${page.facts.batch}/${page.facts.shown}`;
