// What each SM did in a pass inside a kernel: a line for each SM, from left to right the time.

const sms = { from: 0, to: 0 };

function decodeSMs() {
  const p = page.sms, n = p.n * p.steps.length;
  sms.part = new Uint8Array(n);
  for (const name of ["weights", "inputs", "compute"]) sms[name] = new Float64Array(n);
  for (let i = 0, at = 0; i < n; i++) {
    const weights = p.parts[at++];
    if (weights < 0) continue;
    sms.part[i] = 1;
    sms.weights[i] = weights;
    sms.inputs[i] = p.parts[at++];
    sms.compute[i] = p.parts[at++];
  }
  sms.to = p.span;
  sms.height = Math.max(1, Math.min(4, Math.floor(400 / p.n))); // of a line
}

const smLeft = 34, smTop = 4;

function drawSMs() {
  const canvas = $("sm-map"), p = page.sms;
  if (!canvas) return;
  const width = canvas.clientWidth, right = width - 4, bottom = smTop + sms.height * p.n;
  const c = context(canvas, width, bottom + 22), s = (right - smLeft) / (sms.to - sms.from);
  const x = (t) => smLeft + (Math.min(Math.max(t, sms.from), sms.to) - sms.from) * s;
  const fill = (colour, sm, from, to) => {
    const a = x(from), b = x(to);
    if (b - a < 0.02) return;
    c.fillStyle = colour;
    c.fillRect(a, smTop + sm * sms.height, b - a, sms.height);
  };
  p.steps.forEach((step, i) => {
    if (step.to < sms.from || step.from > sms.to) return;
    const row = page.rows[step.row], colour = row && row.class >= 0 ? colours.classes[row.class] : colours.other;
    for (let sm = 0; sm < p.n; sm++) {
      const at = i * p.n + sm;
      if (!sms.part[at]) continue;
      const ready = step.from + sms.weights[at], arrived = ready + sms.inputs[at];
      fill(colours.wait, sm, step.from, ready);
      fill(colours.idle, sm, ready, arrived);
      fill(colour, sm, arrived, arrived + sms.compute[at]);
    }
  });
  c.font = "11px " + colours.sans;
  c.textBaseline = "middle";
  c.textAlign = "right";
  c.fillStyle = colours.soft;
  const round = p.n > 40 ? 20 : 1, every = Math.ceil(14 / sms.height / round) * round;
  for (let sm = 0; sm < p.n; sm += every)
    c.fillText((sm === 0 ? "SM " : "") + sm, smLeft - 5, smTop + (sm + 0.5) * sms.height + 2);
  c.textAlign = "center";
  const { step, out } = ticks(sms.from, sms.to, right - smLeft, 70);
  const decimals = Math.max(0, -Math.floor(Math.log10(step / 1e3) + 1e-9));
  for (const t of out) if (x(t) < right - 20) c.fillText((t / 1e3).toFixed(decimals) + " µs", x(t), bottom + 11);
}

// smAt returns the step and the SM at a point of the picture, null for none.
function smAt(e) {
  const p = page.sms, box = $("sm-map").getBoundingClientRect();
  const t = sms.from + (e.clientX - box.left - smLeft) / (box.width - smLeft - 4) * (sms.to - sms.from);
  const sm = Math.floor((e.clientY - box.top - smTop) / sms.height);
  const i = p.steps.findIndex((step) => t >= step.from && t < step.to);
  return i < 0 || sm < 0 || sm >= p.n ? null : { i, sm, t };
}

function describeSM({ i, sm }) {
  const p = page.sms, at = i * p.n + sm, step = p.steps[i], length = step.to - step.from;
  const name = step.row >= 0 ? page.rows[step.row].name : "a step";
  const weights = sms.weights[at], inputs = sms.inputs[at], compute = sms.compute[at];
  const parts = `waits for weights ${span(weights)}, waits for inputs ${span(inputs)}, computes ${span(compute)}, ` +
    "waits for the last SM " + span(length - weights - inputs - compute);
  const text = `, ${name}, ${span(length)}: ${sms.part[at] ? parts : "no part in it"}`;
  $("sm-text").replaceChildren(element("b", "SM " + sm), text);
}

// viewSMs shows a range of time, within the pass.
function viewSMs(from, to) {
  const length = Math.min(page.sms.span, Math.max(to - from, 200));
  sms.from = Math.min(Math.max(0, from), page.sms.span - length);
  sms.to = sms.from + length;
  drawSMs();
}

// moveSMs makes the range of time shorter by a factor, and moves it by a share of its length.
function moveSMs(factor, share) {
  const length = sms.to - sms.from, half = length / 2 / factor, middle = (sms.from + sms.to) / 2 + share * length;
  viewSMs(middle - half, middle + half);
}

function listenSMs() {
  const canvas = $("sm-map");
  if (!canvas) return;
  decodeSMs();
  for (const [id, factor, share] of [["in", 2, 0], ["out", 0.5, 0], ["left", 1, -1 / 3], ["right", 1, 1 / 3]])
    $("sm-" + id).addEventListener("click", () => moveSMs(factor, share));
  let held = null;
  canvas.addEventListener("pointerdown", (e) => {
    const at = smAt(e);
    if (at) describeSM(at);
    held = { x: e.clientX, from: sms.from, to: sms.to };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    const at = smAt(e);
    if (at) describeSM(at);
    if (!held) return;
    const moved = (held.x - e.clientX) / (canvas.clientWidth - smLeft - 4) * (held.to - held.from);
    viewSMs(held.from + moved, held.to + moved);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = null; });
}
