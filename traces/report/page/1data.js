// The data of the page. Events are numbers in base64: see columns.go. Times are ns after
// the origin.

const $ = (id) => document.getElementById(id);
const page = JSON.parse($("data").textContent);

// Reader reads numbers of variable length, the lowest 7 bits first.
class Reader {
  constructor(base64) {
    const s = atob(base64);
    this.bytes = new Uint8Array(s.length);
    for (let i = 0; i < s.length; i++) this.bytes[i] = s.charCodeAt(i);
    this.at = 0;
  }
  number() {
    let v = 0, scale = 1;
    for (;;) {
      const b = this.bytes[this.at++];
      v += (b & 127) * scale;
      if (!(b > 127)) return v;
      scale *= 128;
    }
  }
}

const unzigzag = (v) => (v % 2 ? -(v + 1) / 2 : v / 2);

// decodeBand turns a band into arrays.
function decodeBand(b, track) {
  const n = b.n, r = new Reader(b.data);
  const band = {
    n, track, start: new Float64Array(n), end: new Float64Array(n), link: new Float64Array(n),
    name: new Int32Array(n), row: new Int32Array(n), detail: new Int32Array(n),
  };
  let at = 0, link = 0;
  for (let i = 0; i < n; i++) {
    at += r.number();
    band.start[i] = at;
    band.end[i] = at + r.number();
    band.name[i] = r.number();
    band.row[i] = r.number() - 1;
    band.detail[i] = r.number();
    const l = r.number();
    if (l > 0) band.link[i] = link += unzigzag(l - 1);
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

function decodeCounter(c) {
  const r = new Reader(c.times), bytes = new Reader(c.values).bytes;
  const value = new Float32Array(bytes.buffer, 0, c.n);
  const out = { title: c.title, unit: c.unit, n: c.n, time: new Float64Array(c.n), value, top: 0 };
  for (let i = 0, at = 0; i < c.n; i++) {
    out.time[i] = at += r.number();
    out.top = Math.max(out.top, out.value[i]);
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
