// The data of the page. Events are numbers: see columns.go. Times are ns after the origin.

const $ = (id) => document.getElementById(id);
const page = JSON.parse($("data").textContent);

// decodeBand turns a band into arrays.
function decodeBand({ data }, track) {
  const n = data.length / 6;
  const band = {
    n, track, start: new Float64Array(n), end: new Float64Array(n), link: new Float64Array(n),
    name: new Int32Array(n), row: new Int32Array(n), detail: new Int32Array(n),
  };
  for (let i = 0, at = 0; i < n; i++) {
    const [delta, length, name, row, detail, link] = data.slice(6 * i, 6 * i + 6);
    band.start[i] = at += delta;
    band.end[i] = at + length;
    band.name[i] = name;
    band.row[i] = row;
    band.detail[i] = detail;
    band.link[i] = link;
  }
  return measured(band);
}

// measured adds latest[i], the last end of events 0 to i, and busy[i], the sum of the
// durations of the events before i. Both grow with i: latest is searched by bisection, a
// difference of busy is the time that events cover.
function measured(band) {
  const n = band.n;
  band.latest = new Float64Array(n);
  band.busy = new Float64Array(n + 1);
  for (let i = 0, latest = -Infinity, busy = 0; i < n; i++) {
    band.latest[i] = latest = Math.max(latest, band.end[i]);
    band.busy[i + 1] = busy += band.end[i] - band.start[i];
  }
  return band;
}

// subset makes a band of those events of another for which keep(band, i) is true. index[i]
// is the index in the other band.
function subset(band, keep) {
  const index = [];
  for (let i = 0; i < band.n; i++) if (keep(band, i)) index.push(i);
  const out = { n: index.length, track: band.track, index };
  for (const key of ["start", "end", "name", "row"]) out[key] = band[key].constructor.from(index, (i) => band[key][i]);
  return measured(out);
}

function decodeCounter({ title, unit, times, values }) {
  const out = { title, unit, n: times.length, time: new Float64Array(times), value: values, top: 0 };
  for (let i = 0, at = 0; i < out.n; i++) {
    out.time[i] = at += times[i];
    out.top = Math.max(out.top, values[i]);
  }
  return out;
}

// lower returns the first index in [from, n) at which a sorted array is at least v.
function lower(a, v, from, n) {
  let lo = from, hi = n;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (a[mid] < v) lo = mid + 1; else hi = mid;
  }
  return lo;
}

// Times for people.
const group = (v) => String(v).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const micros = (ns) => (ns / 1e3).toFixed(3);
function span(ns) {
  const a = Math.abs(ns);
  if (a >= 1e9) return (ns / 1e9).toFixed(3) + " s";
  if (a >= 1e6) return (ns / 1e6).toFixed(3) + " ms";
  if (a >= 1e3) return (ns / 1e3).toFixed(3) + " µs";
  return Math.round(ns) + " ns";
}

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

const tracks = page.tracks.map((t) => {
  t.bands = t.bands.map((b) => decodeBand(b, t));
  return t;
});
const counters = page.counters.map(decodeCounter);
const bands = tracks.flatMap((t) => t.bands);
const shortOf = (name) => page.shorts[name] || page.names[name];
// titled writes a stage of a phase; a pass without stages is one stage of its own name.
const titled = (phase, name) => (phase && phase !== name ? phase + " " : "") + name;
const rowTitle = (row) => titled(page.rows[row].phase, page.rows[row].name);
