// The roofline: FLOP/s against FLOP/byte, both logarithmic.

function svg(tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  return e;
}

// rateText writes FLOP/s in a unit that fits.
function rateText(v) {
  for (const [unit, scale] of [["PFLOP/s", 1e15], ["TFLOP/s", 1e12], ["GFLOP/s", 1e9], ["MFLOP/s", 1e6]]) if (v >= scale) return Number((v / scale).toPrecision(3)) + " " + unit;
  return Number(v.toPrecision(3)) + " FLOP/s";
}

function drawRoofline() {
  const host = $("roof");
  if (!host) return;
  host.textContent = "";
  const { points, roofs } = page.roofline;
  const width = Math.max(260, host.clientWidth), height = Math.round(Math.min(360, Math.max(260, width * 0.5)));
  const left = 78, right = width - 10, top = 10, bottom = height - 34;
  const slopes = roofs.filter((r) => r.slope), flats = roofs.filter((r) => !r.slope);
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y).concat(flats.map((r) => r.value));
  for (const s of slopes) for (const f of flats) xs.push(f.value / s.value);
  const decade = (values, up) => (up ? Math.ceil(Math.log10(Math.max(...values) * 1.3)) : Math.floor(Math.log10(Math.min(...values) / 1.3)));
  const [x0, x1, y0, y1] = [decade(xs), decade(xs, true), decade(ys), decade(ys, true)];
  const px = (v) => left + (Math.log10(v) - x0) / (x1 - x0) * (right - left);
  const py = (v) => bottom - (Math.log10(v) - y0) / (y1 - y0) * (bottom - top);
  const s = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Roofline of " + points.length + " stages" });
  for (let d = x0; d <= x1; d++) {
    s.append(svg("line", { class: "grid", x1: px(10 ** d), x2: px(10 ** d), y1: top, y2: bottom }));
    s.append(svg("text", { x: px(10 ** d), y: bottom + 14, "text-anchor": d === x1 ? "end" : "middle" }, String(Number((10 ** d).toPrecision(1)))));
  }
  for (let d = y0; d <= y1; d++) {
    s.append(svg("line", { class: "grid", x1: left, x2: right, y1: py(10 ** d), y2: py(10 ** d) }));
    s.append(svg("text", { x: left - 6, y: py(10 ** d) + 4, "text-anchor": "end" }, rateText(10 ** d)));
  }
  s.append(svg("rect", { class: "frame", x: left, y: top, width: right - left, height: bottom - top }));
  s.append(svg("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "arithmetic intensity, FLOP/byte"));
  drawRoofs(s, slopes, flats, px, py, { x0, x1, y0, left, right, top, bottom });
  const named = new Set([...points].sort((a, b) => b.share - a.share).slice(0, width < 480 ? 3 : 6));
  const taken = [];
  for (const p of [...points].sort((a, b) => b.share - a.share)) {
    const r = Math.max(4, Math.sqrt(p.share) * 26), x = px(p.x), y = py(p.y);
    const g = svg("g", { tabindex: 0, role: "button", "aria-pressed": "false", "data-row": p.row, "aria-label": rowTitle(p.row) });
    g.append(svg("title", {}, `${rowTitle(p.row)}\n${p.x.toPrecision(3)} FLOP/byte, ${rateText(p.y)}`));
    g.append(svg("circle", { cx: x, cy: y, r, class: "k" + page.rows[p.row].class }));
    g.addEventListener("click", () => selectStage(p.row));
    g.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { selectStage(p.row); e.preventDefault(); } });
    s.append(g);
    if (named.has(p) && !taken.some((t) => Math.abs(t.y - y) < 12 && Math.abs(t.x - x) < 170)) {
      const end = x > (left + right) / 2;
      s.append(svg("text", { class: "label", x: x + (end ? -r - 4 : r + 4), y: y + 4, "text-anchor": end ? "end" : "start" }, page.rows[p.row].name));
      taken.push({ x, y });
    }
  }
  host.append(s);
}

function drawRoofs(s, slopes, flats, px, py, box) {
  const roof = Math.max(...flats.map((f) => f.value), 0), clip = (v) => Math.max(10 ** box.x0, Math.min(10 ** box.x1, v));
  for (const f of flats) {
    const from = slopes.length ? clip(f.value / Math.max(...slopes.map((b) => b.value))) : 10 ** box.x0;
    s.append(svg("line", { class: "roof", x1: px(from), x2: box.right, y1: py(f.value), y2: py(f.value) }));
    s.append(svg("text", { x: box.right - 4, y: py(f.value) - 4, "text-anchor": "end" }, f.label));
  }
  slopes.forEach((b, i) => {
    const ridge = clip(roof ? roof / b.value : 10 ** box.x1), foot = Math.max(10 ** box.x0, 10 ** box.y0 / b.value);
    if (foot >= ridge) return;
    s.append(svg("line", { class: "roof" + (i ? " cache" : ""), x1: px(foot), x2: px(ridge), y1: py(foot * b.value), y2: py(ridge * b.value) }));
    const at = foot * (ridge / foot) ** (0.35 + 0.12 * i), angle = Math.atan2(py(at * 1.1 * b.value) - py(at * b.value), px(at * 1.1) - px(at)) * 180 / Math.PI;
    s.append(svg("text", { x: 0, y: -5, transform: `translate(${px(at)} ${py(at * b.value)}) rotate(${angle})`, "text-anchor": "middle" }, b.label));
  });
}
