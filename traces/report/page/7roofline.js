// The roofline: FLOP/s against FLOP/byte, both logarithmic.

function svg(tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// rateText writes FLOP/s in a unit that fits.
function rateText(v) {
  const at = Math.max(0, Math.min(5, Math.floor(Math.log10(v) / 3 + 1e-9)));
  return Number((v / 1000 ** at).toPrecision(3)) + " " + ["", "k", "M", "G", "T", "P"][at] + "FLOP/s";
}

// newPlaces returns a function that takes a rectangle if nothing else is there.
function newPlaces() {
  const taken = [];
  return (x0, y0, x1, y1) => {
    if (taken.some((t) => x0 < t.x1 && t.x0 < x1 && y0 < t.y1 && t.y0 < y1)) return false;
    taken.push({ x0, y0, x1, y1 });
    return true;
  };
}

function drawRoofline() {
  const host = $("roof");
  if (!host) return;
  host.textContent = "";
  const { points, roofs } = page.roofline;
  const width = Math.max(260, host.clientWidth), height = Math.round(Math.min(400, Math.max(280, width * 0.55)));
  const left = 78, right = width - 10, top = 10, bottom = height - 34;
  const slopes = roofs.filter((r) => r.slope), flats = roofs.filter((r) => !r.slope);
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y).concat(flats.map((r) => r.value));
  for (const s of slopes) for (const f of flats) xs.push(f.value / s.value);
  const decades = (v) => [Math.floor(Math.log10(Math.min(...v) / 1.3)), Math.ceil(Math.log10(Math.max(...v) * 1.3))];
  const [x0, x1] = decades(xs), [y0, y1] = decades(ys);
  const px = (v) => left + (Math.log10(v) - x0) / (x1 - x0) * (right - left);
  const py = (v) => bottom - (Math.log10(v) - y0) / (y1 - y0) * (bottom - top);
  const label = "Roofline of " + points.length + " stages";
  const s = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
  for (let d = x0; d <= x1; d++) {
    s.append(svg("line", { class: "grid", x1: px(10 ** d), x2: px(10 ** d), y1: top, y2: bottom }));
    const at = { x: px(10 ** d), y: bottom + 14, "text-anchor": d === x1 ? "end" : "middle" };
    s.append(svg("text", at, String(Number((10 ** d).toPrecision(1)))));
  }
  for (let d = y0; d <= y1; d++) {
    s.append(svg("line", { class: "grid", x1: left, x2: right, y1: py(10 ** d), y2: py(10 ** d) }));
    s.append(svg("text", { x: left - 6, y: py(10 ** d) + (d > y0 ? 4 : -1), "text-anchor": "end" }, rateText(10 ** d)));
  }
  s.append(svg("rect", { class: "frame", x: left, y: top, width: right - left, height: bottom - top }));
  const middle = { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" };
  s.append(svg("text", middle, "arithmetic intensity, FLOP/byte"));
  host.append(s); // so that texts have a width
  const box = { x0, x1, y0, left, right, top, bottom, px, py, place: newPlaces() };
  const legend = element("ul", undefined, "legend");
  drawRoofs(s, legend, slopes, flats, box);
  const phases = [...new Set(points.map((p) => p.phase))].sort((a, b) => (b === "prefill") - (a === "prefill"));
  const labels = svg("g", { class: "labels" });
  const sorted = [...points].sort((a, b) => b.share - a.share)
    .map((p) => ({ ...p, px: px(p.x), py: py(p.y), r: Math.max(4, Math.sqrt(p.share) * 26) }));
  for (const p of sorted) {
    box.place(p.px - p.r, p.py - p.r, p.px + p.r, p.py + p.r);
    const name = titled(p.phase, p.title), share = (p.share * 100).toFixed(1) + " % of the time";
    const g = svg("g", { tabindex: 0, role: "button", "aria-pressed": "false", "data-row": p.row, "aria-label": name });
    g.append(svg("title", {}, `${name}\n${p.x.toPrecision(3)} FLOP/byte, ${rateText(p.y)}, ${share}`));
    g.append(marker(phases.indexOf(p.phase), p.px, p.py, p.r, "point k" + p.class));
    g.addEventListener("click", () => selectStage(p.row));
    g.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      selectStage(p.row);
      e.preventDefault();
    });
    s.append(g);
  }
  s.append(labels);
  for (const p of sorted.slice(0, width < 480 ? 4 : 8)) labelPoint(labels, p, box);
  if (phases.length > 1) phases.forEach((phase, i) => legend.append(entry(phase, marker(i, 7, 5, 4, "kother"))));
  host.append(legend);
}

// marker draws a point: a circle for the first phase, a square for others, of equal area.
function marker(phase, x, y, r, className) {
  const half = r * Math.sqrt(Math.PI) / 2;
  if (phase === 0) return svg("circle", { cx: x, cy: y, r, class: className });
  return svg("rect", { x: x - half, y: y - half, width: 2 * half, height: 2 * half, class: className });
}

function entry(text, sample) {
  const item = element("li"), width = sample.tagName === "line" ? 26 : 14;
  const key = svg("svg", { class: "key", width, height: 10, "aria-hidden": "true" });
  key.append(sample);
  item.append(key, text);
  return item;
}

// labelPoint writes the name of a point beside it, or with a line to it a little above or
// below, if there is room.
function labelPoint(labels, p, box) {
  const text = svg("text", { class: "label" }, p.title.replace(/\bh\.(N|\(N\+1\))\./g, ""));
  labels.append(text);
  const width = text.getComputedTextLength();
  for (const dy of [0, 15, -15, 30, -30, 45, -45, 60, -60]) {
    for (const side of [1, -1]) {
      const near = p.px + side * (p.r + 4 + Math.abs(dy) / 2), y = p.py + dy, x = side > 0 ? near : near - width;
      if (x < box.left + 3 || x + width > box.right - 3 || y < box.top + 8 || y > box.bottom - 8) continue;
      if (!box.place(x - 2, y - 7, x + width + 2, y + 7)) continue;
      text.setAttribute("x", x);
      text.setAttribute("y", y + 4);
      if (dy) labels.prepend(svg("line", { class: "leader", x1: p.px, y1: p.py, x2: near - side * 2, y2: y }));
      return;
    }
  }
  text.remove();
}

// drawRoofs draws the ceilings, and adds them to the legend from the highest to the lowest.
function drawRoofs(s, legend, slopes, flats, box) {
  const { px, py } = box, least = 10 ** box.x0, most = 10 ** box.x1;
  const roof = Math.max(...flats.map((f) => f.value), 0), steepest = Math.max(...slopes.map((b) => b.value), 0);
  const clip = (v) => Math.max(least, Math.min(most, v));
  const draw = (r, dashes, from, to) => {
    const style = { class: "roof", "stroke-dasharray": dashes };
    const line = svg("line", { ...style, x1: px(from[0]), y1: py(from[1]), x2: px(to[0]), y2: py(to[1]) });
    line.append(svg("title", {}, r.title));
    s.append(line);
    legend.append(entry(r.title, svg("line", { ...style, x1: 0, y1: 5, x2: 24, y2: 5 })));
  };
  for (const f of flats) draw(f, "", [steepest ? clip(f.value / steepest) : least, f.value], [most, f.value]);
  const patterns = ["2 2", "5 3", "9 3 2 3", "12 4", "1 3"];
  let cache = 0;
  for (const b of [...slopes].sort((a, c) => c.value - a.value)) {
    const foot = Math.max(least, 10 ** box.y0 / b.value), ridge = clip(roof ? roof / b.value : most);
    if (foot >= ridge) continue;
    const dashes = b.cache ? patterns[cache++ % patterns.length] : "";
    draw(b, dashes, [foot, foot * b.value], [ridge, ridge * b.value]);
  }
}
