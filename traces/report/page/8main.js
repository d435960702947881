
readColours();
listen();
listenTables();
listenSMs();
listLongest();

function resize() {
  place();
  drawSMs();
  invalidate();
}

addEventListener("resize", resize);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); resize(); });
place();
fit();
drawSMs();

// For tests and for the browser's console.
window.gpt2scope = {
  view, sms, viewSMs, layout, page, setView, selectStage, cut, zoom, pan, fit, all, selected: () => selected,
  events: () => bands.reduce((n, b) => n + b.n, 0), highlighted: () => (highlight ? highlight.count : 0),
};
