// The review page as it is seen: drawing, dialogs, keys. page_answers.js, loaded before, has what it knows and says.
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
  const { list } = page, place = page.place[list], count = size(list), item = count ? here() : undefined;
  $("who").textContent = page.reviewer || "Your name";
  renderStatus();
  renderLists();
  $("empty").hidden = count > 0;
  $("empty").textContent = list === "audit" ? "The audit is empty (review.audit is 0)." :
    "Nothing chosen: move the slider to the right.";
  for (const part of ["stage", "side", "strip"]) $(part).hidden = count === 0;
  if (item) {
    $("place").textContent = `${place + 1} of ${count.toLocaleString("en")}`;
    $("name").textContent = `\u2066${item.id}\u2069`;   // isolated: the caption is cut off at its beginning
    $("name").title = item.id;
    draw("large", item.row, showLarge);
    draw("facts", [list, item], () => facts(item));
    renderButtons(item);
    renderOthers(item);
    renderNeighbours(item);
  }
  renderStrip();
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
  for (const list of ["flagged", "audit"]) {
    const tab = $(`tab-${list}`);
    tab.setAttribute("aria-selected", list === page.list);
    tab.querySelector(".count").textContent = `${answered(list)} of ${size(list).toLocaleString("en")}`;
  }
  $("view").setAttribute("aria-labelledby", `tab-${page.list}`);
  const done = answered(page.list), count = size(page.list);
  $("progress").setAttribute("aria-valuemax", count);
  $("progress").setAttribute("aria-valuenow", done);
  $("progress").firstElementChild.style.width = count ? `${(100 * done) / count}%` : "0";
  $("depth").hidden = page.list !== "flagged";
  $("about-audit").hidden = page.list !== "audit";
  $("about-look").hidden = page.list !== "flagged" || !page.facts.worth_a_look;
  const last = page.cut ? page.items.flagged.get(page.cut - 1) : { wrong: 0 };
  const sure = `${Math.round(100 * page.facts.confidence)}% confidence`;
  const bound = !last ? "…" : page.cut === 0 ? "none" : plural(page.cut, "image") +
    (page.facts.bounded ? `, at most ${last.wrong.toLocaleString("en")} of them known (${sure})` : "");
  $("bound").textContent = bound;
  $("cut").setAttribute("aria-valuetext", bound);
  $("reset").hidden = page.cut === page.facts.shown;
  $("reset").textContent = `Back to the first ${page.facts.shown.toLocaleString("en")}`;
}

function showLarge(image) {
  const item = here();
  image.classList.add("waiting");
  image.onload = image.onerror = () => image.classList.remove("waiting");
  image.alt = `Image ${item.id}`;
  image.src = picture(item.row, "large");
  const after = page.items[page.list].get(item.place + 1);
  if (after) new Image().src = picture(after.row, "large");
}

function facts(item) {
  const shown = [["Classifier says", item.predicted]];
  if (item.p !== undefined) {
    shown.push(["p-value", item.p < 0.001 ? item.p.toExponential(1) : item.p.toPrecision(2)],
               ["Score", item.score.toFixed(3)], ["Flagged", item.flagged ? "yes" : "no"]);
  }
  return shown.map(([name, value]) => node("div", {}, node("dt", { textContent: name }), node("dd", { textContent: value })));
}

function renderButtons(item) {
  const own = mine(page.list, item.place), keys = keyed();
  draw("mine", [own, page.failures > 0], () => {
    if (!own) return ["What does it show?"];
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
  const others = said(page.list, item.place).filter((a) => a.reviewer !== page.reviewer);
  const own = mine(page.list, item.place), disputed = page.disputed.has(slot(page.list, item.place));
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
  const found = page.neighbours.get(item.row);
  draw("neighbours", [item.row, found], () => {
    if (!found) return [node("p", {}, "Looking for them …")];
    return found.map((n) => node("figure", { title: `${n.label}, cosine ${n.cosine.toFixed(2)}` },
      node("img", { src: `/train/${n.row}.png?${page.facts.key}`, alt: `Training image of class ${n.label}` }), n.label));
  });
  if (!found) seekNeighbours(item.row);
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
    await new Promise((resume) => setTimeout(resume, wait));
  }
  if (seeking === row) seeking = null;
  render();
}

function renderStrip() {
  const { list } = page, count = size(list), at = page.place[list];
  const from = Math.max(0, at - WINDOW), to = Math.min(count, at + WINDOW + 1);
  const shown = [];
  for (let place = from; place < to; place++) {
    const item = page.items[list].get(place);
    if (!item) {
      fetchItems(list, place).then(render, () => {});
      break;
    }
    const own = mine(list, place);
    shown.push({ place, row: item.row, id: item.id, below: item.flagged === false, own: own && say(own),
                 saved: own && own.saved, disputed: page.disputed.has(slot(list, place)) });
  }
  draw("strip", [list, at, shown], () => shown.flatMap((s) => {
    const state = s.own ? `, you said ${s.own}${s.saved ? "" : ", not saved yet"}` : "";
    const made = node("button", { type: "button", onclick: () => go(list, s.place), title: s.id,
      className: `${s.own ? "answered" : ""} ${s.below ? "below" : ""}` });
    made.dataset.key = s.place;
    made.setAttribute("aria-label", `Image ${s.place + 1}${state}${s.disputed ? ", reviewers disagree" : ""}`);
    made.setAttribute("aria-current", s.place === at);
    made.append(node("img", { src: picture(s.row, "thumb"), alt: "", loading: "lazy" }));
    if (s.own) made.append(node("i", { className: s.saved ? "" : "waiting" }, s.saved ? "✓" : "…"));
    if (s.disputed) made.append(node("i", { className: "dispute" }, "≠"));
    return list === "flagged" && s.place + 1 === page.facts.last_good ? [made, edge()] : [made];
  }));
  const strip = $("strip"), current = strip.querySelector("[aria-current=true]");
  if (current && drawn.scrolled !== `${list}/${at}/${from}`) {
    drawn.scrolled = `${list}/${at}/${from}`;
    strip.scrollLeft = current.offsetLeft - strip.offsetLeft - (strip.clientWidth - current.clientWidth) / 2;
  }
}

function edge() {                      // the last good image stands before it
  const made = node("div", { className: "edge", title: "Down to here each image is at least as likely novel as not" },
    "likely novel up to here");
  made.setAttribute("role", "separator");
  return made;
}

// ------------------------------------------------------------------------------------------------ dialogs

function askName(then) {
  const dialog = $("ask-name"), input = $("reviewer");
  input.value = page.reviewer;
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    const name = input.value.trim().replace(/\s+/g, " ");
    if (!name) return;
    page.reviewer = name;
    localStorage.setItem("erd-review-name", name);
    dialog.close();
    sortOwn();
    render();
    if (then) then();
    else firstOpen();
  };
  dialog.showModal();
  input.select();
}

function askClass(mode) {
  const dialog = $("ask-class"), input = $("class-name"), list = $("matches");
  let matches = [], chosen = -1;
  $("ask-class-title").textContent = mode === "new" ? "New class" : "Find a class";
  $("ask-class-hint").textContent = mode === "new" ? "Typed once; then it has a button and a key for everybody." :
    "Type a part of its name.";
  const choose = (name) => {
    dialog.close();
    answer("class", name);
  };
  const look = () => {
    const text = input.value.trim().toLowerCase();
    const all = [...page.facts.known, ...page.fresh];
    matches = mode === "new" && !text ? [] : all.filter((name) => name.toLowerCase().includes(text));
    matches.sort((a, b) => b.toLowerCase().startsWith(text) - a.toLowerCase().startsWith(text));
    matches = matches.slice(0, 50);
    chosen = mode === "new" ? -1 : matches.length ? 0 : -1;
    mark();
  };
  const mark = () => {
    list.replaceChildren(...matches.map((name, i) => {
      const made = node("li", { role: "option", textContent: name, id: `match-${i}`, onclick: () => choose(name) });
      made.setAttribute("aria-selected", i === chosen);
      return made;
    }));
    if (chosen >= 0) {
      input.setAttribute("aria-activedescendant", `match-${chosen}`);
      list.children[chosen].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  input.value = "";
  input.oninput = look;
  input.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    chosen = Math.max(mode === "new" ? -1 : 0, Math.min(matches.length - 1, chosen + by));
    mark();
  };
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    const text = input.value.trim().replace(/\s+/g, " ");
    if (chosen >= 0) choose(matches[chosen]);
    else if (mode === "new" && text) choose(text);
  };
  dialog.querySelector(".close").onclick = () => dialog.close();
  look();
  dialog.showModal();
  input.focus();
}

async function importFile(event) {
  const file = event.target.files[0];
  $("menu").open = false;
  if (!file) return;
  try {
    const response = await fetch(`/import/${file.name.split(".").pop().toLowerCase()}`, { method: "POST", body: file });
    const done = await response.json();
    if (!response.ok) throw new Error(done.detail);
    page.note = `Imported: ${plural(done.added, "answer")} new, ${done.there} there already` +
      (done.unknown ? `, ${done.unknown} of other images` : "");
    page.failure = "";
    await refresh();
  } catch (error) {
    page.failure = `Not imported: ${error.message}`;
  }
  event.target.value = "";
  render();
}

// ------------------------------------------------------------------------------------------------ keys, and the start

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const arrows = event.key.startsWith("Arrow");
  if (event.target.id === "cut" && (arrows || ["Home", "End", "PageUp", "PageDown"].includes(event.key))) return;
  if (event.target.role === "tab" && arrows) return switchTab();
  const named = [...keyed()].find(([, key]) => key === event.key);
  const acts = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), n: () => askClass("new"), u: undo,
    "/": () => askClass("find"), "?": () => $("keys").showModal(),
  };
  const [kind] = Object.entries(KINDS).find(([, { key }]) => key === event.key) || [];
  const act = acts[event.key] || (kind && (() => answer(kind))) || (named && (() => answer("class", named[0])));
  if (!act) return;
  event.preventDefault();
  if (event.repeat && !arrows) return; // a key held down is one answer
  act();
}

function switchTab() {
  const other = page.list === "flagged" ? "audit" : "flagged";
  go(other, page.place[other]);
  $(`tab-${other}`).focus();
}

function firstOpen() {
  for (const list of ["audit", "flagged"]) {
    let place = 0;
    while (place < size(list) && mine(list, place)) place++;
    page.place[list] = place < size(list) ? place : 0;
  }
  go(page.list, page.place[page.list]);
}

async function start() {
  page.own = new Map();
  try {
    const known = await ask("/api/batch");
    page.cut = known.shown;
    page.facts = known;
    page.unsent = JSON.parse(sessionStorage.getItem(spool()) || "[]");
    const kept = Number(localStorage.getItem(cutKey()) || known.shown);
    $("cut").max = known.images;
    setCut(Math.min(kept, known.images));
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
  $("about-audit").textContent = `${plural(page.facts.audit, "image")} drawn at random from the whole batch, flagged or not; ` +
    "scores are hidden so as not to lead you.";
  firstOpen();
  if (page.unsent.length) send();
  if (!page.reviewer) askName();
  setInterval(() => document.visibilityState === "visible" && refresh().then(() => {
    if (page.failure === "The server does not answer") { page.failure = ""; render(); }
  }, (error) => {
    if (error.status === 409) { page.failure = error.message; render(); }
  }), POLL);
}

$("tab-flagged").onclick = () => go("flagged", page.place.flagged);
$("tab-audit").onclick = () => go("audit", page.place.audit);
$("previous").onclick = () => step(-1);
$("next").onclick = () => step(1);
$("who").onclick = () => askName();
$("undo").onclick = undo;
$("help").onclick = () => $("keys").showModal();
$("import").onchange = importFile;
$("reset").onclick = () => { setCut(page.facts.shown); go("flagged", page.place.flagged); };
$("cut").oninput = async (event) => {
  setCut(Number(event.target.value));
  await fetchItems("flagged", page.cut - 1).catch(() => {});
  go("flagged", page.place.flagged);
};
$("keys").querySelector("form").onsubmit = (event) => { event.preventDefault(); $("keys").close(); };
document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => { if (!$("menu").contains(event.target)) $("menu").open = false; });
window.addEventListener("beforeunload", (event) => { if (page.unsent.length) event.preventDefault(); });
start();
