// Highlights: the matches of a search, or the events of a stage.

function setHighlight(keep) {
  highlight = null;
  if (keep) {
    highlight = { subsets: new Map(), matches: null, at: -1, count: 0 };
    for (const band of bands) {
      const sub = subset(band, keep);
      if (sub.n > 0) highlight.subsets.set(band, sub);
      highlight.count += sub.n;
    }
  }
  showFound();
  invalidate();
}

function showFound() {
  if (!highlight) return $("found").textContent = "";
  const { count, at } = highlight, all = group(count);
  const nouns = $("search").value.trim() ? [" match", " matches"] : [" event", " events"]; // of a stage, not of a search
  $("found").textContent = at >= 0 ? group(at + 1) + " of " + all : all + nouns[count === 1 ? 0 : 1];
}

function search(text) {
  const words = text.trim().toLowerCase();
  if (!words) return setHighlight();
  const matches = page.names.map((n) => n.toLowerCase().includes(words));
  setHighlight((band, i) => matches[band.name[i]]);
}

// step selects the next match, or the previous one. The first is the first in the view.
function step(direction) {
  if (!highlight || highlight.count === 0) return;
  const h = highlight;
  if (!h.matches) {
    h.matches = [];
    for (const [band, sub] of h.subsets) sub.index.forEach((i) => h.matches.push({ band, i, t: band.start[i] }));
    h.matches.sort((a, b) => a.t - b.t);
  }
  if (h.at < 0) {
    h.at = h.matches.findIndex((m) => m.t >= view.from);
    if (h.at < 0) h.at = 0;
  } else h.at = (h.at + direction + h.matches.length) % h.matches.length;
  const m = h.matches[h.at];
  show(m.band, m.i);
  select(m.band, m.i);
  showFound();
}
