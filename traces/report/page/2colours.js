// Colours are those of the style, which follows the browser's light or dark scheme.

let colours;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue("--" + name).trim();
  colours = { classes: [] };
  for (let i = 0; i < 13; i++) colours.classes.push(get("c" + i));
  for (const name of ("bg panel ink soft line grid accent other idle range call sync text trace select wait " +
    "sans mono").split(" ")) colours[name] = get(name);
}

// isSync[name] is whether the name is that of an API call that waits.
const isSync = page.names.map((n) => n.includes("Synchronize"));

function colourOf(band, i) {
  const kind = band.track.kind;
  if (kind === "api") return isSync[band.name[i]] ? colours.sync : colours.call;
  const row = band.row[i];
  if (row >= 0 && page.rows[row].class >= 0) return colours.classes[page.rows[row].class];
  if (kind === "thread") return colours.range;
  return kind === "sync" || kind === "overhead" ? colours.sync : colours.other;
}

// context clears a canvas and returns its context, scaled to CSS pixels.
function context(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.fillStyle = colours.panel;
  c.fillRect(0, 0, width, height);
  return c;
}

// ticks returns round values between from and to, about `distance` pixels apart.
function ticks(from, to, pixels, distance) {
  const least = (to - from) / Math.max(1, pixels / distance);
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least) || least;
  const out = [];
  for (let i = Math.ceil(from / step); i * step <= to && out.length < 200; i++) out.push(i * step);
  return { step, out };
}

// timeUnit returns unit and decimals for an axis of time whose step is in ns.
function timeUnit(step) {
  const [unit, ns] = step >= 1e8 ? ["s", 1e9] : step >= 1e3 ? ["ms", 1e6] : ["µs", 1e3];
  return { unit, ns, decimals: Math.max(0, -Math.floor(Math.log10(step / ns) + 1e-9)) };
}
