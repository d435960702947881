// Pointer, wheel, keys and buttons of the timeline.

function hover(x, y, event) {
  const tip = $("tip"), at = event && hit(x, y);
  tip.hidden = !at;
  if (!at) return;
  const c = at.counter, since = c && "since " + (c.time[at.i] / 1e6).toFixed(6) + " ms";
  const [title, lines] = c ? [c.title, [counterValue(c, c.value[at.i]), since]] : describe(at.band, at.i);
  tip.replaceChildren(element("b", title), ...lines.map((l) => element("span", l)));
  const box = $("lanes").getBoundingClientRect();
  const left = event.clientX - box.left + 14, top = event.clientY - box.top + 14;
  tip.style.left = Math.max(0, Math.min(left, box.width - tip.offsetWidth - 4)) + "px";
  tip.style.top = (top + tip.offsetHeight > box.height ? Math.max(0, top - tip.offsetHeight - 24) : top) + "px";
}

function listen() {
  const canvas = $("tracks");
  let moved = 0, held = null; // where the pointer is that is down
  const local = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    held = { x: e.clientX, y: e.clientY };
    canvas.setPointerCapture(e.pointerId);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!held) return hover(...local(e), e);
    $("tip").hidden = true;
    const dx = e.clientX - held.x, dy = e.clientY - held.y;
    moved += Math.abs(dx) + Math.abs(dy);
    held = { x: e.clientX, y: e.clientY };
    if (moved > 3) {
      setView(view.from - dx / scale(), view.to - dx / scale());
      if (e.pointerType === "mouse") $("scroll").scrollTop -= dy;
    }
  });
  const up = (e) => {
    const was = held;
    held = null;
    if (!was || e.type === "pointercancel" || moved > 3) return;
    const at = hit(...local(e));
    if (!at || at.counter) return select(null);
    if (at.band.row[at.i] >= 0) selectStage(at.band.row[at.i]);
    select(at.band, at.i);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("dblclick", (e) => {
    const at = hit(...local(e));
    if (at && at.band) {
      const length = Math.max(at.band.end[at.i] - at.band.start[at.i], minSpan);
      setView(at.band.start[at.i] - length * 0.2, at.band.start[at.i] + length * 1.2);
    }
  });
  $("lanes").addEventListener("wheel", (e) => {
    const unit = e.deltaMode === 1 ? 16 : 1;
    const x = local(e)[0], along = e.shiftKey && !e.deltaX ? e.deltaY : e.deltaX;
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan(along * unit / plotWidth());
    else {
      const before = view.to - view.from;
      zoom(Math.exp(Math.max(-200, Math.min(200, e.deltaY * unit)) * 0.002), timeAt(Math.max(x, view.gutter)));
      if (view.to - view.from === before) return; // fully zoomed: let the page scroll
    }
    e.preventDefault();
  }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const act = {
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), a: () => pan(-0.15), d: () => pan(0.15),
      "+": () => zoom(0.7), "=": () => zoom(0.7), w: () => zoom(0.7), "-": () => zoom(1 / 0.7), s: () => zoom(1 / 0.7),
      0: fit, 9: all, Home: all,
    }[e.key];
    if (act) {
      act();
      e.preventDefault();
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target === $("search");
    if (e.key === "/" && !typing) $("search").focus();
    else if (e.key === "n" && !typing) step(1);
    else if (e.key === "N" && !typing) step(-1);
    else if (e.key === "Escape") clearAll();
    else if (e.key === "Enter" && typing) step(e.shiftKey ? -1 : 1);
    else return;
    e.preventDefault();
  });
  const click = (id, act) => $(id).addEventListener("click", act);
  click("zoom-in", () => zoom(0.5));
  click("zoom-out", () => zoom(2));
  click("left", () => pan(-0.3));
  click("right", () => pan(0.3));
  click("fit", fit);
  click("all", all);
  click("next", () => step(1));
  click("prev", () => step(-1));
  $("search").addEventListener("input", () => { deselectStage(); search($("search").value); });
}

const fit = () => { const m = (page.to - page.from) * 0.01; setView(page.from - m, page.to + m); };
const all = () => setView(0, page.span);

function clearAll() {
  $("search").value = "";
  deselectStage();
  setHighlight();
  select(null);
}
