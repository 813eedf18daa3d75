// A picture one can look into: zoom, brightness and contrast, and a known image beside it that moves along.
"use strict";

const lens = { zoom: 1, x: 0, y: 0 };              // x, y: pixels from the middle
const grey = { centre: 0.5, width: 1 };            // the greys from centre ± width / 2 are spread from black to white
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

function zoomAt(view, factor, x = 0, y = 0) {      // what is at x, y stays there
  const zoom = clamp(view.zoom * factor, 1, 24), by = zoom / view.zoom;
  Object.assign(view, zoom === 1 ? { zoom, x: 0, y: 0 } : { zoom, x: x - by * (x - view.x), y: y - by * (y - view.y) });
}

// Wheel, pinch and drag on an element; `shaded` takes a drag that is meant for brightness and contrast.
function zoomable(element, view, changed, shaded = () => false) {
  const fingers = new Map();
  const from = (event) => {
    const box = (event.target.closest(".pane") || element).getBoundingClientRect();
    return [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2];
  };
  element.addEventListener("wheel", (event) => {
    if (event.ctrlKey || (event.deltaY > 0 && view.zoom === 1)) return;   // the page scrolls on
    event.preventDefault();
    zoomAt(view, Math.exp(-clamp(event.deltaY, -200, 200) / 400), ...from(event));
    changed();
  }, { passive: false });
  element.addEventListener("pointerdown", (event) => {
    if (event.target.closest("button, a")) return;
    fingers.set(event.pointerId, event);
    element.dataset.moved = "";
  });
  element.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
    if (!element.dataset.moved && Math.hypot(dx, dy) < 4) return;         // a click may tremble
    element.dataset.moved = "yes";
    element.setPointerCapture(event.pointerId);
    const other = [...fingers.values()].find((one) => one.pointerId !== event.pointerId);
    fingers.set(event.pointerId, event);
    if (other) {
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      zoomAt(view, apart(event) / Math.max(1, apart(before)), ...from(event));
    } else if (!shaded(event, dx, dy) && view.zoom > 1) {
      view.x += dx;
      view.y += dy;
    }
    changed();
  });
  for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, (event) => fingers.delete(event.pointerId));
}

function shade(across, down) {         // contrast by moving across, brightness by moving up
  const even = (value) => Math.round(1e6 * value) / 1e6;   // there and back again is as before
  grey.width = even(clamp(grey.width * Math.exp(-across), 0.02, 4));
  grey.centre = even(clamp(grey.centre + down, -0.5, 1.5));
}

const isShaded = () => grey.centre !== 0.5 || grey.width !== 1;

function renderLens() {
  const pair = $("pair"), changed = isShaded();
  pair.style.setProperty("--zoom", lens.zoom);
  pair.style.setProperty("--x", `${lens.x}px`);
  pair.style.setProperty("--y", `${lens.y}px`);
  pair.classList.toggle("zoomed", lens.zoom > 1);
  pair.classList.toggle("shaded", changed);
  for (const part of $("grey").querySelectorAll("feFuncR, feFuncG, feFuncB")) {
    part.setAttribute("slope", 1 / grey.width);
    part.setAttribute("intercept", 0.5 - grey.centre / grey.width);
  }
  $("whole").textContent = `${Math.round(100 * lens.zoom)}%`;
  $("whole").disabled = lens.zoom === 1 && !changed;
  $("greys").textContent = changed ? `Brightness ${Math.round(100 * (0.5 - grey.centre))}, contrast ${Math.round(100 / grey.width)}%` :
    "Brightness";
  develop();
}

// A file may have more greys than a screen. Once the hand rests, the server makes the picture anew from all of them.
const deep = new Map();                // by row: whether it has
let resting = 0;

function develop() {
  const image = $("large"), item = single() ? here() : undefined;
  const wanted = item && isShaded() ? `${picture(item.row, "window")}&centre=${grey.centre}&width=${grey.width}` : "";
  if (wanted === image.dataset.wanted) return;
  image.dataset.wanted = wanted;
  clearTimeout(resting);
  if (image.classList.contains("developed") && item) image.src = picture(item.row, "large");
  image.classList.remove("developed");
  if (wanted) resting = setTimeout(() => fromAllGreys(image, item.row, wanted).catch(() => {}), 150);   // else as the browser shades it
}

async function fromAllGreys(image, row, wanted) {
  if (!deep.has(row)) deep.set(row, (await ask(`/api/greys/${row}`)).more);
  if (!deep.get(row)) return;
  const made = new Image();
  made.src = wanted;
  await made.decode();
  if (image.dataset.wanted !== wanted) return;     // it has changed meanwhile
  image.src = wanted;
  image.classList.add("developed");
}

function resetLens() {
  Object.assign(lens, { zoom: 1, x: 0, y: 0 });
  Object.assign(grey, { centre: 0.5, width: 1 });
  renderLens();
}

const pictureKeys = {
  "+": () => zoomAt(lens, 1.5), "=": () => zoomAt(lens, 1.5), "-": () => zoomAt(lens, 1 / 1.5),
  ".": () => shade(0, -0.05), ",": () => shade(0, 0.05), ">": () => shade(0.2, 0), "<": () => shade(-0.2, 0),
  Escape: resetLens,
  O: () => $("original").click(),
};

function pan(key) {
  const step = 60;
  if (lens.zoom === 1) return;
  lens.x += { ArrowLeft: step, ArrowRight: -step }[key] || 0;
  lens.y += { ArrowUp: step, ArrowDown: -step }[key] || 0;
  renderLens();
}

// ------------------------------------------------------------------------------------------------ side by side

const hidesNeighbours = (item) => page.view === "audit" && !mine("audit", item.row);   // they would lead the eye

function besides(by) {                 // the next or the previous of the nearest known images; −1 is none
  const item = here(), found = item && !hidesNeighbours(item) && page.neighbours.get(item.row);
  if (!found) return;
  page.beside = clamp(page.beside + by, -1, found.length - 1);
  render();
}

function renderBeside(item) {
  const found = hidesNeighbours(item) ? undefined : page.neighbours.get(item.row);
  const known = found && page.beside >= 0 ? found[Math.min(page.beside, found.length - 1)] : undefined;
  $("beside").hidden = !known;
  draw("beside", known || null, () => !known ? [] : [
    node("img", { src: `/train/${known.row}.png?${page.facts.key}`, alt: `Training image of class ${known.label}` }),
    node("p", {}, `Known: ${known.label}`),
  ]);
}

zoomable($("pair"), lens, renderLens, (event, dx, dy) => {
  if (!event.shiftKey && !(event.buttons & 2) && $("greys").getAttribute("aria-pressed") !== "true") return false;
  shade(dx / 200, dy / 400);
  return true;
});
$("pair").addEventListener("contextmenu", (event) => { if ($("pair").dataset.moved) event.preventDefault(); });
$("pair").addEventListener("dblclick", () => { zoomAt(lens, lens.zoom > 1 ? 0 : 3); renderLens(); });
$("closer").onclick = () => { zoomAt(lens, 1.5); renderLens(); };
$("farther").onclick = () => { zoomAt(lens, 1 / 1.5); renderLens(); };
$("whole").onclick = resetLens;
$("greys").onclick = (event) => event.target.setAttribute("aria-pressed", event.target.getAttribute("aria-pressed") !== "true");
