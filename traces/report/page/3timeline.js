// The timeline: the visible range (view), the places of tracks (layout), and drawing.

const rowHeight = 17, titleHeight = 15, counterHeight = 30;
const minSpan = 50;  // ns
const view = { from: 0, to: 1, width: 1, gutter: 0, frames: 0, draw: 0, ready: 0 };
const layout = { items: [], height: 0 };
let highlight = null; // { subsets: Map of band to subset, matches }
let selected = null;  // { band, i }
let dirty = false;

function setView(from, to) {
  const whole = Math.max(page.span, minSpan), margin = whole * 0.02;
  const length = Math.min(Math.max(to - from, minSpan), whole + 2 * margin);
  if (to - from !== length) {
    const middle = (from + to) / 2;
    from = middle - length / 2;
  }
  view.from = Math.min(Math.max(from, -margin), whole + margin - length);
  view.to = view.from + length;
  invalidate();
}

function invalidate() {
  if (dirty) return;
  dirty = true;
  requestAnimationFrame(drawAll);
}

const zoom = (factor, at) => {
  const t = at === undefined ? (view.from + view.to) / 2 : at;
  setView(t - (t - view.from) * factor, t + (view.to - t) * factor);
};
const pan = (part) => { const d = (view.to - view.from) * part; setView(view.from + d, view.to + d); };
const plotWidth = () => view.width - view.gutter;
const scale = () => plotWidth() / (view.to - view.from);
const timeAt = (x) => view.from + (x - view.gutter) / scale();

// place lays the tracks out, with titles on the left, or above if the page is narrow.
function place() {
  view.width = Math.max(50, $("lanes").clientWidth);
  view.gutter = view.width < 700 ? 0 : 170;
  layout.items = [];
  let y = 4;
  const title = (text, below) => {
    layout.items.push({ title: text, below, y });
    if (view.gutter === 0) y += titleHeight;
  };
  for (const t of tracks) {
    title(t.title);
    for (const band of t.bands) {
      layout.items.push({ band, y });
      y += rowHeight;
    }
    y += 5;
  }
  for (const counter of counters) {
    title(counter.title, "at most " + counterValue(counter, counter.top));
    layout.items.push({ counter, y });
    y += counterHeight + 5;
  }
  layout.height = Math.min(y + 2, 16000);
}

function drawAll() {
  dirty = false;
  const begin = performance.now();
  drawAxis();
  drawTracks();
  $("range").textContent = span(view.to - view.from) + " from " + span(view.from);
  view.frames++;
  view.draw = performance.now() - begin;
  if (view.frames === 1) view.ready = performance.now();
}

function drawAxis() {
  const c = context($("axis"), view.width, 24);
  const { step, out } = ticks(view.from, view.to, plotWidth(), 95);
  const { unit, ns, decimals } = timeUnit(step);
  c.font = "11px " + colours.sans;
  c.fillStyle = colours.soft;
  c.strokeStyle = colours.line;
  c.textBaseline = "middle";
  c.beginPath();
  for (const t of out) {
    const x = view.gutter + (t - view.from) * scale();
    c.moveTo(x, 18);
    c.lineTo(x, 24);
    if (x + 70 < view.width) c.fillText((t / ns).toFixed(decimals) + " " + unit, x + 3, 12);
  }
  c.stroke();
  if (view.gutter > 0) {
    c.fillStyle = colours.panel;
    c.fillRect(0, 0, view.gutter, 24);
    c.fillStyle = colours.soft;
    c.fillText("time since the first event", 8, 12);
  }
}

function drawTracks() {
  const c = context($("tracks"), view.width, layout.height);
  c.save();
  c.beginPath();
  c.rect(view.gutter, 0, plotWidth(), layout.height);
  c.clip();
  drawGrid(c);
  for (const item of layout.items) {
    if (item.counter) drawCounter(c, item.counter, item.y);
    if (!item.band) continue;
    c.globalAlpha = highlight ? 0.22 : 1;
    drawBand(c, item.band, item.y, !highlight);
    c.globalAlpha = 1;
    const sub = highlight && highlight.subsets.get(item.band);
    if (sub) drawBand(c, sub, item.y, true);
  }
  drawSelection(c);
  c.restore();
  drawTitles(c);
}

function drawGrid(c) {
  const x = (t) => view.gutter + (t - view.from) * scale();
  // Time outside the table is shaded.
  c.fillStyle = colours.bg;
  c.fillRect(view.gutter, 0, Math.max(0, x(page.from) - view.gutter), layout.height);
  c.fillRect(x(page.to), 0, Math.max(0, view.width - x(page.to)), layout.height);
  c.strokeStyle = colours.grid;
  c.lineWidth = 1;
  c.beginPath();
  for (const t of ticks(view.from, view.to, plotWidth(), 95).out) {
    c.moveTo(Math.round(x(t)) + 0.5, 0);
    c.lineTo(Math.round(x(t)) + 0.5, layout.height);
  }
  c.stroke();
}

// drawBand draws the visible events of a band. Events narrower than a pixel share one
// rectangle per pixel: the longest of a sample of them gives the colour, the part of the
// pixel that they cover gives the shade.
function drawBand(c, band, y, named) {
  const s = scale(), x0 = view.gutter, base = c.globalAlpha;
  const n = lower(band.start, view.to, 0, band.n);
  let run = null; // adjacent pixels of one colour and shade
  const flush = () => {
    if (!run) return;
    c.fillStyle = run.colour;
    c.globalAlpha = base * run.shade;
    c.fillRect(run.x, y, run.width, rowHeight - 2);
    c.globalAlpha = base;
    run = null;
  };
  c.font = "11px " + colours.sans;
  c.textBaseline = "middle";
  for (let i = lower(band.latest, view.from, 0, n); i < n;) {
    const left = (band.start[i] - view.from) * s, width = (band.end[i] - band.start[i]) * s;
    if (width >= 1.5) {
      flush();
      const a = Math.max(left, -2), w = Math.min(left + width, plotWidth() + 2) - a;
      if (w > 0) {
        c.fillStyle = colourOf(band, i);
        c.fillRect(x0 + a, y, w > 3 ? w - 1 : w, rowHeight - 2);
        if (named && w > 26) drawName(c, shortOf(band.name[i]), x0 + a + 4, y + rowHeight / 2 - 0.5, w - 8);
      }
      i++;
      continue;
    }
    const pixel = Math.floor(left), until = view.from + (pixel + 1) / s;
    let next = i + 1;
    if (next < n && band.start[next] < until) next = lower(band.start, until, next, n);
    let longest = i;
    for (let j = i, stride = Math.max(1, (next - i) >> 3); j < next; j += stride) {
      if (band.end[j] - band.start[j] > band.end[longest] - band.start[longest]) longest = j;
    }
    const covered = Math.min(1, (band.busy[next] - band.busy[i]) * s);
    const colour = colourOf(band, longest), shade = 0.3 + 0.7 * Math.ceil(covered * 6) / 6;
    if (run && run.colour === colour && run.shade === shade && run.x + run.width === x0 + pixel) run.width++;
    else {
      flush();
      run = { x: x0 + pixel, width: 1, colour, shade };
    }
    i = next;
  }
  flush();
}

function drawName(c, name, x, y, width) {
  const fits = Math.floor(width / 5.6);
  if (fits < 3) return;
  c.fillStyle = colours.text;
  c.fillText(cut(name, fits), x, y, width);
}

// cut shortens a name to so many characters: that of a stage loses its layer, others their
// middle, because kernels of one library begin alike.
function cut(name, fits) {
  if (name.length <= fits) return name;
  const text = name.replace(/^h\.\d+\./, "");
  if (text.length <= fits) return text;
  const tail = fits < 12 ? 0 : fits >> 1;
  return text.slice(0, fits - 1 - tail) + "…" + text.slice(text.length - tail);
}

// drawCounter draws a counter as a line of steps from 0 to its highest value, over all
// values of each pixel.
function drawCounter(c, counter, y) {
  const s = scale(), bottom = y + counterHeight - 1, height = counterHeight - 4;
  const py = (v) => bottom - v / (counter.top || 1) * height;
  const end = Math.min(view.width, view.gutter + (page.span - view.from) * s);
  const first = Math.max(0, lower(counter.time, view.from, 0, counter.n) - 1);
  let x = view.gutter;
  c.beginPath();
  for (let i = first; i < counter.n && counter.time[i] < view.to;) {
    const value = counter.value[i];
    x = Math.max(view.gutter, view.gutter + (counter.time[i] - view.from) * s);
    if (i === first) c.moveTo(x, py(value));
    else c.lineTo(x, py(value));
    let next = i + 1, least = value, most = value;
    for (; next < counter.n && (counter.time[next] - counter.time[i]) * s < 1; next++) {
      least = Math.min(least, counter.value[next]);
      most = Math.max(most, counter.value[next]);
    }
    const last = counter.value[next - 1];
    if (most > least) {
      c.lineTo(x, py(most));
      c.lineTo(x, py(least));
      c.lineTo(x, py(last));
    }
    c.lineTo(next < counter.n ? Math.min(end, view.gutter + (counter.time[next] - view.from) * s) : end, py(last));
    i = next;
  }
  c.strokeStyle = c.fillStyle = colours.trace;
  c.lineWidth = 1.2;
  c.stroke();
  c.lineWidth = 1;
}

const counterValue = ({ unit }, v) =>
  unit === "kernels" && v === 1 ? "1 kernel" : (unit === "B" ? (v / 1048576).toFixed(0) + " MiB" : Number(v.toPrecision(4)) + (unit ? " " + unit : ""));

function drawTitles(c) {
  c.textBaseline = "middle";
  if (view.gutter > 0) {
    c.fillStyle = colours.panel;
    c.fillRect(0, 0, view.gutter, layout.height);
    c.strokeStyle = colours.line;
    c.strokeRect(view.gutter - 0.5, -1, 0, layout.height + 2);
  }
  c.font = "11px " + colours.sans;
  c.fillStyle = colours.soft;
  const room = (view.gutter || view.width) - 14, fits = Math.floor(room / 5.6);
  const write = (text, y) =>
    c.fillText(text.length > fits ? text.slice(0, fits - 1) + "…" : text, 8, y + rowHeight / 2 - 1, room);
  for (const item of layout.items) {
    if (!item.title) continue;
    if (!item.below) write(item.title, item.y);
    else if (view.gutter === 0) write(item.title + ": " + item.below, item.y);
    else {
      write(item.title, item.y);
      write(item.below, item.y + 13);
    }
  }
}

// drawSelection frames the selected event and draws lines to its call or its work.
function drawSelection(c) {
  if (!selected) return;
  const box = (band, i) => {
    const item = layout.items.find((item) => item.band === band);
    if (!item) return null;
    const left = view.gutter + (band.start[i] - view.from) * scale();
    return { left, right: left + Math.max(2, (band.end[i] - band.start[i]) * scale()), y: item.y };
  };
  const b = box(selected.band, selected.i);
  if (!b) return;
  c.strokeStyle = colours.ink;
  c.lineWidth = 1.5;
  c.strokeRect(b.left - 0.5, b.y - 0.5, b.right - b.left, rowHeight - 1);
  c.setLineDash([3, 2]);
  for (const other of selected.linked) {
    const o = box(other.band, other.i);
    if (!o) continue;
    c.strokeRect(o.left - 0.5, o.y - 0.5, o.right - o.left, rowHeight - 1);
    const [above, below] = b.y < o.y ? [b, o] : [o, b];
    c.beginPath();
    c.moveTo(above.left, above.y + rowHeight - 2);
    c.lineTo(below.left, below.y);
    c.stroke();
  }
  c.setLineDash([]);
  c.lineWidth = 1;
}

// hit returns the event or counter at a point of the canvas, or null.
function hit(x, y) {
  if (x < view.gutter) return null;
  const height = (item) => (item.band ? rowHeight : item.counter ? counterHeight : 0);
  const item = layout.items.find((item) => y >= item.y && y < item.y + height(item));
  if (!item) return null;
  const t = timeAt(x), slack = 2 / scale();
  if (item.counter) {
    const i = lower(item.counter.time, t, 0, item.counter.n) - 1;
    return i < 0 ? null : { counter: item.counter, i };
  }
  const band = item.band;
  let best = -1;
  const first = lower(band.latest, t - slack, 0, band.n), end = Math.min(band.n, first + 2000);
  for (let i = first; i < end && band.start[i] <= t + slack; i++) {
    if (band.end[i] < t - slack) continue;
    best = i;
    if (band.start[i] <= t && t < band.end[i]) break;
  }
  return best < 0 ? null : { band, i: best };
}

// describe returns what is known of an event as [title, lines].
function describe(band, i) {
  const lines = [span(band.end[i] - band.start[i]) + " at " + (band.start[i] / 1e6).toFixed(6) + " ms"];
  const row = band.row[i];
  if (row >= 0 && page.rows[row].name !== page.names[band.name[i]]) lines.push("stage " + rowTitle(row));
  else if (row >= 0 && page.rows[row].phase) lines.push(page.rows[row].phase);
  const does = row >= 0 && page.rows[row].help, help = page.helps[band.name[i]];
  if (does) lines.push("it " + does);
  if (help && help !== does) lines.push((does ? "its kernel " : "it ") + help);
  if (band.detail[i]) lines.push(page.details[band.detail[i]]);
  lines.push(band.track.title + (band.link[i] ? ", correlation " + band.link[i] : ""));
  return [page.names[band.name[i]] || "(no name)", lines];
}

const isCall = (band) => band.track.kind === "api";

function select(band, i) {
  if (!band) selected = null;
  else {
    selected = { band, i, linked: [] };
    const link = band.link[i];
    if (link) {
      for (const other of bands) {
        if (other.track.kind === "steps") continue;
        for (let j = 0; j < other.n && selected.linked.length < 200; j++) {
          if (other.link[j] === link && isCall(other) !== isCall(band)) selected.linked.push({ band: other, i: j });
        }
      }
    }
  }
  const out = $("event");
  out.textContent = "";
  if (selected) {
    const [title, lines] = describe(band, i);
    out.append(element("b", title), " " + lines.join("; "));
  } else out.textContent = "No event is selected.";
  invalidate();
}

// show moves the view to an event and zooms until the event is wide enough to see.
function show(band, i) {
  const length = band.end[i] - band.start[i], middle = (band.start[i] + band.end[i]) / 2;
  let width = view.to - view.from;
  if (length / width * plotWidth() < 6) width = Math.max(length * plotWidth() / 40, minSpan);
  if (length > width * 0.9) width = length * 1.4;
  setView(middle - width / 2, middle + width / 2);
  const item = layout.items.find((item) => item.band === band), box = $("scroll");
  if (!item) return;
  const below = item.y + rowHeight > box.scrollTop + box.clientHeight;
  if (below || item.y < box.scrollTop) box.scrollTop = item.y - box.clientHeight / 2;
}
