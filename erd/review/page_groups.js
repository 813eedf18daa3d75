// Look-alikes: one answer for a whole group. Images that do not belong are taken out first; they are what is left of
// the group afterwards, to be answered as one again or image by image.
"use strict";

const ofGroup = () => (page.groups[page.group] || { images: [] }).images;
const isOpen = (image) => !mine("flagged", image.row);

function groupShown() {                // what is open first
  const images = ofGroup();
  return [...images.filter(isOpen), ...images.filter((image) => !isOpen(image))];
}

function groupAsked() {                // what is not taken out, and not answered; all of it again once all is answered
  const images = ofGroup().filter((image) => !page.out.has(image.row));
  const open = images.filter(isOpen);
  return open.length || ofGroup().some(isOpen) ? open : images;
}

function goGroup(group, row) {
  page.group = Math.max(0, Math.min(group, page.groups.length - 1));
  page.out.clear();
  page.cursor = Math.max(0, groupShown().findIndex((image) => image.row === row));
  return go("groups");
}

function afterGroup() {
  page.out.clear();
  page.cursor = 0;
  if (ofGroup().some(isOpen)) return render();
  const count = page.groups.length;
  for (let i = 1; i < count; i++) {
    const group = (page.group + i) % count;
    if (page.groups[group].images.some(isOpen)) return goGroup(group);
  }
  page.note = "All look-alikes answered; these are the single images.";
  firstOpen("flagged");
}

function takeOut(place) {
  const image = groupShown()[place];
  page.cursor = place;
  if (image && isOpen(image) && !page.out.delete(image.row)) page.out.add(image.row);
  render();
}

function moveCursor(key) {
  const tiles = [...$("grid").children], now = tiles[page.cursor];
  if (!now) return;
  const across = tiles.findIndex((tile) => tile.offsetTop > tiles[0].offsetTop);
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[key];
  const to = page.cursor + by;
  if (to < 0 || to >= tiles.length || (across < 0 && Math.abs(by) !== 1)) return;
  page.cursor = to;
  render();
  $("grid").children[to].focus();
}

function renderGroups() {
  const shown = groupShown().map((image) => {
    const own = mine("flagged", image.row);
    return { row: image.row, id: image.id, own: own && say(own), saved: own && own.saved, out: page.out.has(image.row),
             disputed: page.disputed.has(slot("flagged", image.row)) };
  });
  const open = shown.filter((image) => !image.own).length, whole = shown.length;
  $("group-said").textContent = page.groups[page.group]?.said || "";
  $("group-left").textContent = !open ? "All of them are answered." :
    (open < whole ? `${plural(open, "image")} left of this group. ` : "") +
    (page.out.size ? `${page.out.size} taken out; an answer goes to the other ${open - page.out.size}.` :
      "One answer goes to all of them; take out first what does not belong (click, or space).");
  draw("grid", [page.cursor, shown], () => shown.map((image, place) => {
    const made = node("button", { type: "button", title: image.id, onclick: () => takeOut(place),
      ondblclick: () => openAlone(place), className: image.own ? "answered" : image.out ? "out" : "" });
    made.dataset.key = image.row;
    made.tabIndex = place === page.cursor ? 0 : -1;
    made.setAttribute("aria-label", `Image ${place + 1}` + (image.own ? `, you said ${image.own}` : image.out ? ", taken out" : ""));
    made.setAttribute("aria-pressed", !image.own && !image.out);
    made.setAttribute("aria-current", place === page.cursor);
    made.append(node("img", { src: picture(image.row, "thumb"), alt: "", loading: "lazy" }));
    if (image.own) made.append(node("i", { className: image.saved ? "" : "waiting" }, image.saved ? "✓" : "…"));
    if (image.out) made.append(node("i", { className: "gone" }, "out"));
    if (image.disputed) made.append(node("i", { className: "dispute" }, "≠"));
    return made;
  }));
  draw("chips", [page.group, page.groups.map((group) => [group.images.length, group.images.some(isOpen)])], () =>
    page.groups.length < 2 ? [] : page.groups.map((group, number) => {
      const made = node("button", { type: "button", onclick: () => goGroup(number) },
        `Group ${number + 1}: ${group.images.length}${group.images.some(isOpen) ? "" : " ✓"}`);
      made.dataset.key = number;
      made.setAttribute("aria-current", number === page.group);
      return made;
    }));
}

function openAlone(place = page.cursor) {
  const image = groupShown()[place];
  page.out.delete(image?.row);         // the clicks of a double click
  if (image) open(image.place);
}
