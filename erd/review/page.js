// The review page as it is seen: one image, the lists, keys. What it knows and says is in page_answers.js; groups, the
// map, the look into a picture and dialogs have files of their own. All of them are loaded before.
"use strict";

// ------------------------------------------------------------------------------------------------ drawing

let drawn = {};                        // what each part shows now, so that nothing is drawn that did not change

function draw(part, key, fill) {
  const text = JSON.stringify(key);
  if (drawn[part] === text) return;
  drawn[part] = text;
  const target = $(part);
  const focus = target.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const children = fill(target);
  if (children) target.replaceChildren(...children);
  if (focus) [...target.querySelectorAll("[data-key]")].find((child) => child.dataset.key === focus)?.focus();
}

function render() {
  if (!page.facts) return;
  const { view } = page, item = here();
  $("who").textContent = page.reviewer || "Your name";
  renderStatus();
  renderLists();
  const none = single() && !(size(view) && item);
  $("empty").hidden = !none;
  $("empty").textContent = view === "audit" ? "The audit is empty (review.audit is 0)." : view === "flagged" ?
    "Nothing chosen: move the slider to the right." : page.failed ? `They could not be found: ${page.failed}` : "Looking for them …";
  $("stage").hidden = $("strip").hidden = none || !single();
  $("group").hidden = view !== "groups";
  $("landscape").hidden = view !== "map";
  $("side").hidden = none || (view === "map" && !item);
  $("peek").hidden = view !== "map";
  if (item) renderItem(item);
  if (view === "groups") renderGroups();
  if (view === "map") renderMap();
  if (single()) renderStrip();
}

function renderItem(item) {
  if (single()) {
    $("place").textContent = `${page.place[page.view] + 1} of ${size(page.view).toLocaleString("en")}`;
    $("name").textContent = `\u2066${item.id}\u2069`;   // isolated: the caption is cut off at its beginning
    $("name").title = item.id;
    $("original").href = picture(item.row, "original");
    draw("large", item.row, showLarge);
    renderBeside(item);
  }
  if (page.view === "map") draw("peek", item.row, () => [node("img", { src: picture(item.row, "large"), alt: `Image ${item.id}` }), item.id]);
  const own = mine(VIEWS[page.view], item.row);
  draw("facts", [page.view, item, own], () => facts(item, own));
  renderButtons();
  renderOthers(item);
  renderNeighbours(item);
}

let fading = null;

function renderStatus() {
  if (page.note && page.note !== fading) {
    const note = fading = page.note;
    setTimeout(() => { if (page.note === note) { page.note = fading = ""; render(); } }, 8000);
  }
  const waiting = page.unsent.length;
  $("status").className = page.failure ? "failed" : "";
  $("status").textContent = page.failure || (waiting ? `Saving ${plural(waiting, "answer")} …` : page.note);
}

function renderLists() {
  const { view, facts } = page;
  for (const name of Object.keys(VIEWS)) {
    const tab = $(`tab-${name}`);
    tab.hidden = facts[name] === 0 && ["groups", "useful"].includes(name);
    tab.setAttribute("aria-selected", name === view);
    tab.tabIndex = name === view ? 0 : -1;
    if (name !== "map") tab.querySelector(".count").textContent = `${answered(name)} of ${size(name).toLocaleString("en")}`;
  }
  $("view").setAttribute("aria-labelledby", `tab-${view}`);
  if (drawn.tab !== view) {            // on a phone not all tabs are to be seen at once
    drawn.tab = view;
    $(`tab-${view}`).scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  const list = view === "map" ? "flagged" : view, done = answered(list), count = size(list);
  $("progress").setAttribute("aria-valuemax", count);
  $("progress").setAttribute("aria-valuenow", done);
  $("progress").firstElementChild.style.width = count ? `${(100 * done) / count}%` : "0";
  $("depth").hidden = view !== "flagged";
  $("about-look").hidden = view !== "flagged" || !facts.worth_a_look;
  $("about").textContent = {
    useful: "Some of the most novel images, each as unlike those before it as can be: few answers tell of many classes.",
    audit: "Drawn at random from the whole batch, flagged or not. What the classifier says is shown after your answer, so as not to lead you.",
    map: "What looks alike lies together. Click an image, or go there with the arrow keys.",
  }[view] || "";
  const bound = depth();
  $("bound").textContent = bound;
  $("cut").setAttribute("aria-valuetext", bound);
  $("reset").hidden = page.cut === facts.shown;
  $("reset").textContent = `Back to the first ${facts.shown.toLocaleString("en")}`;
}

function depth() {                     // what the slider stands for, and what is promised of so many
  const { cut, facts } = page, last = page.items.flagged.get(cut - 1);
  if (!cut) return `none of ${plural(facts.images, "image")}`;
  const first = `the first ${cut.toLocaleString("en")} of ${plural(facts.images, "image")}`;
  if (!last || !facts.bounded) return first;
  const sure = cut - last.wrong, confidence = `${Math.round(100 * facts.confidence)}% confidence`;
  return sure > 0 ? `${first}: at least ${sure.toLocaleString("en")} of them novel (${confidence})` :
    `${first}: whether any is novel, only a look can tell`;
}

function showLarge(image) {
  const item = here();
  if (lens.zoom !== 1) Object.assign(lens, { zoom: 1, x: 0, y: 0 });   // greys stay: the next scan is much like this one
  if (page.beside > 0) page.beside = 0;
  renderLens();
  image.classList.add("waiting");
  image.onload = image.onerror = () => image.classList.remove("waiting");
  image.alt = `Image ${item.id}`;
  image.src = picture(item.row, "large");
  for (let ahead = 1; ahead <= 3; ahead++) {
    const after = page.items[page.view].get(page.place[page.view] + ahead);
    if (after) new Image().src = picture(after.row, "large");
  }
}

function facts(item, own) {
  if (page.view === "audit" && !own) return [];
  const shown = [["Classifier says", page.view === "audit" ? own.predicted || "…" : item.predicted]];
  if (item.p !== undefined) {
    shown.push(["p-value", item.p < 0.001 ? item.p.toExponential(1) : item.p.toPrecision(2)],
               ["Score", item.score.toFixed(3)], ["Flagged", item.flagged ? "yes" : "no"]);
  }
  if (page.view === "groups") shown.splice(0, 4, ["Marked image", item.id.split("/").pop()], ...shown.slice(0, 2));
  return shown.map(([name, value]) => node("div", {}, node("dt", { textContent: name }), node("dd", { textContent: value })));
}

function renderButtons() {
  const images = asked(), answers = images.map((image) => mine(VIEWS[page.view], image.row)), keys = keyed();
  const same = answers.length && answers.every((one) => one && say(one) === say(answers[0]));
  const own = same ? { kind: answers[0].kind, label: answers[0].label, saved: answers.every((one) => one.saved) } : undefined;
  draw("mine", [own, page.failures > 0, images.length], () => {
    if (!own) return [images.length > 1 ? `What do these ${plural(images.length, "image")} show?` : images.length ? "What does it show?" :
      "All are taken out."];
    const state = own.saved ? node("span", { className: "ok" }, " ✓ saved") :
      node("span", { className: page.failures ? "no" : "" }, page.failures ? " not saved yet" : " saving …");
    return ["You said ", node("b", {}, say(own)), state];
  });
  draw("buttons", [own, [...keys], page.fresh], () => {
    const button = (key, text, act, pressed, className = "") => {
      const made = node("button", { type: "button", className, onclick: act });
      made.append(node("kbd", { textContent: key || "·" }), text);
      made.dataset.key = text;
      made.setAttribute("aria-pressed", Boolean(pressed));
      return made;
    };
    const classes = [...page.facts.known, ...page.fresh].filter((name) => keys.has(name) || page.fresh.includes(name));
    const made = classes.map((name) => button(keys.get(name), name, () => answer("class", name),
      own && own.kind === "class" && own.label === name, page.fresh.includes(name) ? "new" : ""));
    const hidden = page.facts.known.length + page.fresh.length > classes.length;
    $("buttons").classList.toggle("many", classes.length > 8);
    if (hidden) made.push(button("/", "Find a class …", () => askClass("find")));
    made.push(button("n", "New class …", () => askClass("new"), false, "new"), node("div", { className: "rule" }),
      ...Object.entries(KINDS).map(([kind, { key, text }]) => button(key, text, () => answer(kind), own && own.kind === kind)));
    return made;
  });
}

function renderOthers(item) {
  const list = VIEWS[page.view], others = said(list, item.row).filter((a) => a.reviewer !== page.reviewer);
  const own = mine(list, item.row), disputed = page.disputed.has(slot(list, item.row));
  draw("others", [others, Boolean(own), disputed], () => {
    const made = disputed ? [node("span", { className: "dispute" }, "≠ Reviewers disagree")] : [];
    if (others.length && !own) {       // an answer that is seen first is no second opinion
      made.push(node("p", {}, `${plural(others.length, "other reviewer")} answered; shown after your answer.`));
    } else if (others.length) {
      made.push(node("ul", {}, ...others.map((a) => node("li", {}, `${a.reviewer} said `, node("b", {}, say(a))))));
    }
    return made;
  });
}

function renderNeighbours(item) {
  const hidden = hidesNeighbours(item), found = page.neighbours.get(item.row);
  draw("neighbours", [item.row, hidden, !hidden && found, single() && page.beside], () => {
    if (hidden || !found) return [node("p", {}, hidden ? "Shown after your answer." : "Looking for them …")];
    return found.map((n, i) => {
      const made = node("button", { type: "button", title: `${n.label}, cosine ${n.cosine.toFixed(2)}; click to see it beside the image`,
        onclick: () => { page.beside = page.beside === i ? -1 : i; render(); } },
        node("img", { src: `/train/${n.row}.png?${page.facts.key}`, alt: `Training image of class ${n.label}` }), n.label);
      made.dataset.key = i;
      made.disabled = !single();
      made.setAttribute("aria-pressed", single() && page.beside === i);
      return made;
    });
  });
  if (!hidden && !found) seekNeighbours(item.row);
}

let seeking = null;

async function seekNeighbours(row) {
  if (seeking === row) return;
  seeking = row;
  for (let wait = 300; seeking === row; wait = Math.min(2 * wait, 5000)) {
    try {
      const { neighbours } = await ask(`/api/neighbours/${row}`);
      if (neighbours) {
        page.neighbours.set(row, neighbours);
        break;
      }
    } catch { /* the page works without */ }
    await pause(wait);
  }
  if (seeking === row) seeking = null;
  render();
}

function renderStrip() {
  const { view } = page, list = VIEWS[view], count = size(view), at = page.place[view];
  const from = Math.max(0, at - WINDOW), to = Math.min(count, at + WINDOW + 1);
  const shown = [];
  for (let place = from; place < to; place++) {
    const item = page.items[view].get(place);
    if (!item) {
      if (view !== "useful") fetchItems(view, place).then(render, () => {});
      break;
    }
    const own = mine(list, item.row);
    shown.push({ place, row: item.row, id: item.id, below: item.flagged === false, own: own && say(own),
                 saved: own && own.saved, disputed: page.disputed.has(slot(list, item.row)) });
  }
  draw("strip", [view, at, shown], () => shown.flatMap((s) => {
    const state = s.own ? `, you said ${s.own}${s.saved ? "" : ", not saved yet"}` : "";
    const made = node("button", { type: "button", onclick: () => go(view, s.place), title: s.id,
      className: `${s.own ? "answered" : ""} ${s.below ? "below" : ""}` });
    made.dataset.key = s.place;
    made.setAttribute("aria-label", `Image ${s.place + 1}${state}${s.disputed ? ", reviewers disagree" : ""}`);
    made.setAttribute("aria-current", s.place === at);
    made.append(node("img", { src: picture(s.row, "thumb"), alt: "", loading: "lazy" }));
    if (s.own) made.append(node("i", { className: s.saved ? "" : "waiting" }, s.saved ? "✓" : "…"));
    if (s.disputed) made.append(node("i", { className: "dispute" }, "≠"));
    return view === "flagged" && s.place + 1 === page.facts.last_good ? [made, edge()] : [made];
  }));
  const strip = $("strip"), current = strip.querySelector("[aria-current=true]");
  if (current && drawn.scrolled !== `${view}/${at}/${from}`) {
    drawn.scrolled = `${view}/${at}/${from}`;
    strip.scrollLeft = current.offsetLeft - strip.offsetLeft - (strip.clientWidth - current.clientWidth) / 2;
  }
}

function edge() {                      // the last good image stands before it
  const made = node("div", { className: "edge", title: "Down to here each image is at least as likely novel as not" },
    "likely novel up to here");
  made.setAttribute("role", "separator");
  return made;
}

// ------------------------------------------------------------------------------------------------ keys, and the start

const SHORT = { G: "groups", N: "flagged", U: "useful", A: "audit", M: "map" };   // with the shift key: plain letters are classes'

function onKey(event) {
  if (!page.facts || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const { key, target } = event, arrows = key.startsWith("Arrow");
  if (target.id === "cut" && (arrows || ["Home", "End", "PageUp", "PageDown"].includes(key))) return;
  if (target.role === "tab" && arrows) return switchTab(key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1);
  const act = arrows ? () => onArrow(key, event.shiftKey) : ownKeys(key, target) || commonKeys(key);
  if (!act) return;
  event.preventDefault();
  if (event.repeat && !arrows && !(key in pictureKeys)) return; // a key held down is one answer
  act();
}

function onArrow(key, shift) {
  if (page.view === "groups") moveCursor(key);
  else if (page.view === "map") moveOnMap(key);
  else if (shift) pan(key);
  else if (key === "ArrowLeft" || key === "ArrowRight") step(key === "ArrowLeft" ? -1 : 1);
  else besides(key === "ArrowUp" ? -1 : 1);
}

function ownKeys(key, target) {        // of a view
  const free = !target.closest("button, a, input, summary") || $("grid").contains(target);
  if (page.view === "groups") {
    const turn = { PageUp: -1, PageDown: 1 }[key];
    if (turn && page.groups.length > 1) return () => goGroup(page.group + turn);
    if (key === " " && free && !$("grid").contains(target)) return () => takeOut(page.cursor);   // a focused one does so itself
    return key === "Enter" && free ? () => openAlone() : undefined;
  }
  if (page.view === "map") {
    if (key === "Enter" && free && page.point) return () => open(page.point.place);
    return key in mapKeys ? () => { mapKeys[key](); drawMap(); } : undefined;
  }
  return key in pictureKeys ? () => { pictureKeys[key](); renderLens(); } : undefined;
}

function commonKeys(key) {
  const acts = { n: () => askClass("new"), u: undo, "/": () => askClass("find"), "?": () => $("keys").showModal() };
  if (acts[key]) return acts[key];
  if (SHORT[key]) return $(`tab-${SHORT[key]}`).hidden ? undefined : () => go(SHORT[key]);
  const [kind] = Object.entries(KINDS).find(([, one]) => one.key === key) || [];
  const [name] = [...keyed()].find(([, one]) => one === key) || [];
  return kind ? () => answer(kind) : name && (() => answer("class", name));
}

function switchTab(by) {
  const tabs = Object.keys(VIEWS).filter((name) => !$(`tab-${name}`).hidden);
  const other = tabs[(tabs.indexOf(page.view) + by + tabs.length) % tabs.length];
  go(other);
  $(`tab-${other}`).focus();
}

function firstOpen(view) {
  for (const name of Object.keys(page.place)) {
    const has = done(name);
    let place = 0;
    while (place < size(name) && has(place)) place++;
    page.place[name] = place < size(name) ? place : 0;
  }
  const group = page.groups.findIndex((one) => one.images.some(isOpen));
  return view === undefined && group >= 0 ? goGroup(group) : go(view || "flagged");
}

async function start() {
  try {
    const known = await ask("/api/batch");
    page.cut = known.shown;
    page.facts = known;
    page.unsent = JSON.parse(sessionStorage.getItem(spool()) || "[]");
    const kept = Number(localStorage.getItem(cutKey()) || known.shown);
    $("cut").max = known.images;
    setCut(Math.min(kept, known.images));
    await Promise.all([fetchItems("flagged", 0), known.groups && ask("/api/groups").then((groups) => { page.groups = groups; })]);
    if (page.cut) await fetchItems("flagged", page.cut - 1);
    await refresh();
  } catch (error) {
    $("status").textContent = error.status ? error.message : "The server does not answer; trying again";
    $("status").className = "failed";
    return setTimeout(start, 3000);
  }
  document.title = `Review ${page.facts.batch}`;
  $("batch").textContent = page.facts.batch;
  $("headline").textContent = page.facts.headline;
  $("alarm").textContent = page.facts.alarm;
  $("alarm").className = page.facts.rings ? "rings" : "";
  $("findings").replaceChildren(...page.facts.findings.map((text) => node("p", { textContent: text })));
  $("about-look").textContent = page.facts.worth_a_look;
  firstOpen();
  if (page.unsent.length) send();
  if (!page.reviewer) askName();
  found("/api/useful", "useful").then((items) => {
    (items || []).forEach((item, place) => page.items.useful.set(place, item));
    render();
  });
  setInterval(() => document.visibilityState === "visible" && refresh().then(() => {
    if (page.failure === "The server does not answer") { page.failure = ""; render(); }
  }, (error) => {
    if (error.status === 409) { page.failure = error.message; render(); }
  }), POLL);
}

for (const name of Object.keys(VIEWS)) $(`tab-${name}`).onclick = () => go(name);
$("previous").onclick = () => step(-1);
$("next").onclick = () => step(1);
$("who").onclick = () => askName();
$("undo").onclick = undo;
$("help").onclick = () => $("keys").showModal();
$("import").onchange = importFile;
$("reset").onclick = () => { setCut(page.facts.shown); go("flagged"); };
$("cut").oninput = async (event) => {
  setCut(Number(event.target.value));
  await fetchItems("flagged", page.cut - 1).catch(() => {});
  go("flagged");
};
$("keys").querySelector("form").onsubmit = (event) => { event.preventDefault(); $("keys").close(); };
document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => { if (!$("menu").contains(event.target)) $("menu").open = false; });
window.addEventListener("beforeunload", (event) => { if (page.unsent.length) event.preventDefault(); });
start();
