// The batch as a map: what looks alike lies together. Training images are the grey ground; flagged ones have a colour,
// look-alikes that of their group; what is worth a look and not flagged is hollow.
"use strict";

const mapLens = { zoom: 1, x: 0, y: 0 };
const REACH = 16;                      // pixels within which a click takes a point

async function loadMap() {
  if (page.map || page.failed) return;
  const map = await found("/api/map", "map");
  if (!map) return;
  const every = [...map.points, ...map.ground];
  const span = (i) => every.reduce(([low, high], p) => [Math.min(low, p[i]), Math.max(high, p[i])], [Infinity, -Infinity]);
  map.box = [span(0), span(1)];
  map.group = new Map(map.groups.flatMap((rows, number) => rows.map((row) => [row, number])));
  map.look = new Set(map.look);
  page.map = map;
  page.point ||= await ask(`/api/image/${page.items.flagged.get(0)?.row ?? 0}`);
}

function spot([x, y]) {                // on the canvas, in its own pixels
  const { width, height } = $("map").getBoundingClientRect(), [across, up] = page.map.box;
  const part = (value, [low, high]) => (value - low) / (high - low || 1) - 0.5;
  return [width / 2 + mapLens.x + mapLens.zoom * part(x, across) * (width - 48),
          height / 2 + mapLens.y - mapLens.zoom * part(y, up) * (height - 48)];
}

function drawMap() {
  const canvas = $("map"), { width, height } = canvas.getBoundingClientRect(), { map } = page;
  if (!map || !width) return;
  const sharp = window.devicePixelRatio || 1, style = getComputedStyle(canvas), colour = (name) => style.getPropertyValue(name);
  canvas.width = width * sharp;
  canvas.height = height * sharp;
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  const labels = [];
  const dot = (place, size, fill, ring) => {
    pen.beginPath();
    pen.arc(...place, size, 0, 7);
    if (fill) { pen.fillStyle = fill; pen.fill(); }
    if (ring) { pen.strokeStyle = ring; pen.stroke(); }
  };
  pen.lineWidth = 1.5;
  for (const point of map.ground) dot(spot(point), 2, colour("--ground-dot"));
  const rank = (row) => (map.flagged[row] ? 2 : map.look.has(row) || map.group.has(row) ? 1 : 0);   // what matters is drawn last
  const rows = map.points.map((_, row) => row).sort((a, b) => rank(a) - rank(b));
  for (const row of rows) {
    const group = map.group.get(row), place = spot(map.points[row]);
    const tint = group !== undefined ? colour(`--group-${group % 6}`) : rank(row) ? colour("--warn") : colour("--muted");
    const answered = page.own.has(slot("flagged", row));
    dot(place, rank(row) ? 5 : 3, map.flagged[row] || !rank(row) ? tint : colour("--stage"), tint);
    if (answered) dot(place, 2, colour("--panel"));
  }
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.lineWidth = 3;
  page.facts.known.forEach((name, label) => {
    const own = map.ground.filter((_, i) => map.classes[i] === label);
    if (!own.length) return;
    const middle = (i) => own.map((p) => p[i]).sort((a, b) => a - b)[own.length >> 1];
    const place = spot([middle(0), middle(1)]), wide = pen.measureText(name).width;
    while (labels.some(([x, y, w]) => Math.abs(x - place[0]) < (w + wide) / 2 + 4 && Math.abs(y - place[1]) < 15)) place[1] += 5;
    labels.push([...place, wide]);
    pen.strokeStyle = colour("--stage");
    pen.strokeText(name, ...place);
    pen.fillStyle = colour("--ink");
    pen.fillText(name, ...place);
  });
  if (page.point) { pen.lineWidth = 2.5; dot(spot(map.points[page.point.row]), 9, null, colour("--ink")); }
}

function nearestTo(x, y) {
  let best = null, least = REACH;
  page.map?.points.forEach((point, row) => {
    const [px, py] = spot(point), far = Math.hypot(px - x, py - y) - (page.map.flagged[row] ? 2 : 0);
    if (far < least) [best, least] = [row, far];
  });
  return best;
}

async function choose(row) {
  page.view = "map";
  page.point = await ask(`/api/image/${row}`);
  render();
  $("peek").scrollIntoView({ block: "nearest" });
}

function moveOnMap(key) {              // to the nearest image that way; sideways counts double
  const { map } = page;
  if (!map || !page.point) return;
  const [x, y] = spot(map.points[page.point.row]);
  const [ax, ay] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  let best = null, least = Infinity;
  map.points.forEach((point, row) => {
    const [px, py] = spot(point), along = (px - x) * ax + (py - y) * ay, aside = Math.abs((px - x) * ay) + Math.abs((py - y) * ax);
    if (row !== page.point.row && along > 0.01 && along + 2 * aside < least) [best, least] = [row, along + 2 * aside];
  });
  if (best !== null) choose(best);
}

function renderMap() {
  $("map-wait").hidden = Boolean(page.map);
  $("map-wait").textContent = page.failed ? `There is no map of this batch: ${page.failed}` : "The map is being drawn …";
  draw("legend", [Boolean(page.map)], () => !page.map ? [] : [["known, labelled", "ground-dot"], ["this batch", "muted"],
    ["flagged", "warn"], ["worth a look, not flagged", "hollow"],
    ...page.map.groups.map((_, number) => [`look-alikes ${number + 1}`, `group-${number % 6}`])]
    .map(([text, name]) => node("span", {}, node("i", { className: name }), text)));
  drawMap();
}

const mapKeys = {
  "+": () => zoomAt(mapLens, 1.5), "=": () => zoomAt(mapLens, 1.5), "-": () => zoomAt(mapLens, 1 / 1.5),
  Escape: () => Object.assign(mapLens, { zoom: 1, x: 0, y: 0 }),
};

function onMap(event) {
  const box = $("map").getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

zoomable($("map"), mapLens, drawMap);
$("map").onclick = (event) => {
  const row = $("map").dataset.moved ? null : nearestTo(...onMap(event));
  if (row !== null) choose(row);
};
$("map").addEventListener("pointermove", (event) => {
  const [x, y] = onMap(event), row = event.buttons || event.pointerType === "touch" ? null : nearestTo(x, y);
  $("hover").hidden = row === null;
  if (row === null) return;
  if ($("hover").dataset.row !== String(row)) $("hover").src = picture(row, "thumb");
  $("hover").dataset.row = row;
  $("hover").style.left = `${clamp(x + 14, 0, $("map").clientWidth - 120)}px`;
  $("hover").style.top = `${y > 130 ? y - 124 : y + 14}px`;
});
$("map").addEventListener("pointerleave", () => { $("hover").hidden = true; });
$("peek").onclick = () => page.point && open(page.point.place);
new ResizeObserver(drawMap).observe($("map"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
