// Queue depth and queueing delays over the range of the timeline.

const queue = { start: null };

function decodeQueue() {
  const q = page.queue, r = new Reader(q.launches), d = new Reader(q.depth);
  queue.start = new Float64Array(q.n);
  queue.delay = new Float64Array(q.n);
  queue.time = new Float64Array(q.changes);
  queue.depth = new Int32Array(q.changes);
  queue.deepest = 1;
  for (let i = 0, at = 0; i < q.n; i++) {
    queue.start[i] = at += r.number();
    queue.delay[i] = r.number();
  }
  for (let i = 0, at = 0; i < q.changes; i++) {
    queue.time[i] = at += d.number();
    queue.depth[i] = d.number();
    queue.deepest = Math.max(queue.deepest, queue.depth[i]);
  }
  queue.longest = queue.delay.reduce((a, b) => Math.max(a, b), 1000);
}

let queueVisible = true;

function drawQueue() {
  const canvas = $("queue");
  if (!canvas || !queueVisible) return;
  const width = canvas.clientWidth, height = 230, left = 60, right = width - 6;
  const c = context(canvas, width, height), s = (right - left) / (view.to - view.from);
  const depthTop = 18, depthBottom = 88, delayTop = 116, delayBottom = 204;
  c.font = "11px " + colours.sans;
  c.textBaseline = "middle";
  const { step, out } = ticks(view.from, view.to, right - left, 95), { unit, ns, decimals } = timeUnit(step);
  c.strokeStyle = colours.grid;
  c.fillStyle = colours.soft;
  c.textAlign = "center";
  c.beginPath();
  for (const t of out) {
    const x = Math.round(left + (t - view.from) * s) + 0.5;
    for (const [a, b] of [[depthTop, depthBottom], [delayTop, delayBottom]]) { c.moveTo(x, a); c.lineTo(x, b); }
    if (x > left + 20 && x < right - 30) c.fillText((t / ns).toFixed(decimals) + " " + unit, x, 218);
  }
  c.textAlign = "right";
  const y = (depth) => depthBottom - depth / queue.deepest * (depthBottom - depthTop);
  for (const depth of new Set([0, Math.ceil(queue.deepest / 2), queue.deepest])) {
    c.moveTo(left, y(depth));
    c.lineTo(right, y(depth));
    c.fillText(group(depth), left - 6, y(depth));
  }
  const lowest = 2, highest = Math.ceil(Math.log10(queue.longest)); // 100 ns
  const z = (ns) => delayBottom - 5 - (Math.log10(Math.max(ns, 100)) - lowest) / (highest - lowest) * (delayBottom - delayTop - 5);
  for (let d = lowest; d <= highest; d++) {
    c.moveTo(left, z(10 ** d));
    c.lineTo(right, z(10 ** d));
    if (d === lowest || z(10 ** (d - 1)) - z(10 ** d) > 9 || d % 2) c.fillText((d === lowest ? "≤ " : "") + ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"][d], left - 6, z(10 ** d));
  }
  c.stroke();
  c.textAlign = "left";
  c.fillText("queue depth, kernels", left, 8);
  c.fillText("queueing delay of each launch", left, 106);
  drawDepth(c, left, right, s, y, depthBottom);
  drawDelays(c, left, right, s, z);
}

// drawDepth draws the least and the greatest depth in each pixel.
function drawDepth(c, left, right, s, y, bottom) {
  const n = queue.time.length, pixels = Math.floor(right - left);
  let i = lower(queue.time, view.from, 0, n), depth = i > 0 ? queue.depth[i - 1] : 0;
  c.fillStyle = colours.trace;
  for (let x = 0; x < pixels;) {
    const until = view.from + (x + 1) / s;
    let least = depth, most = depth;
    for (; i < n && queue.time[i] < until; i++) {
      depth = queue.depth[i];
      least = Math.min(least, depth);
      most = Math.max(most, depth);
    }
    const next = least === most && i < n ? Math.max(1, Math.min(pixels, Math.floor((queue.time[i] - view.from) * s)) - x) : least === most ? pixels - x : 1;
    c.globalAlpha = 0.25;
    if (least > 0) c.fillRect(left + x, y(least), next, bottom - y(least));
    c.globalAlpha = 0.9;
    c.fillRect(left + x, y(most) - 0.75, next, Math.max(1.5, y(least) - y(most)));
    x += next;
  }
  c.globalAlpha = 1;
}

// drawDelays draws a point for each launch, at most one in a square of 2 x 2 pixels.
function drawDelays(c, left, right, s, z) {
  const columns = Math.ceil((right - left) / 2) + 1, drawn = new Uint8Array(columns * 128);
  c.fillStyle = colours.ink;
  c.globalAlpha = 0.75;
  const n = lower(queue.start, view.to, 0, queue.start.length);
  for (let i = lower(queue.start, view.from, 0, n); i < n; i++) {
    const x = (queue.start[i] - view.from) * s, y = z(queue.delay[i]), at = (x >> 1) * 128 + ((y >> 1) & 127);
    if (drawn[at]) continue;
    drawn[at] = 1;
    c.fillRect(left + (x & ~1), y & ~1, 2, 2);
  }
  c.globalAlpha = 1;
}
