// The tables: sorting, the kernels of a stage, gaps.

let stageRow = -1;

function deselectStage() {
  stageRow = -1;
  for (const tr of document.querySelectorAll("#stage-table tbody tr")) tr.removeAttribute("aria-selected");
  for (const g of document.querySelectorAll("#roof g[data-row]")) g.setAttribute("aria-pressed", "false");
  listLongest();
}

// selectStage highlights the work of a row and lists its kernels.
function selectStage(row) {
  deselectStage();
  stageRow = row;
  $("search").value = "";
  const tr = document.querySelector('#stage-table tr[data-row="' + row + '"]');
  tr.setAttribute("aria-selected", "true");
  const g = document.querySelector('#roof g[data-row="' + row + '"]');
  if (g) g.setAttribute("aria-pressed", "true");
  setHighlight(rowTitle(row), (band, i) => band.row[i] === row);
  listKernels(row, tr);
}

// listLongest lists the kernels of the row with the most time while none is chosen.
function listLongest() {
  const rows = [...document.querySelectorAll("#stage-table tbody tr")].filter((tr) => page.rows[tr.dataset.row].work);
  const longest = rows.reduce((best, tr) => (!best || Number(tr.dataset.ns) > Number(best.dataset.ns) ? tr : best), null);
  if (longest) listKernels(Number(longest.dataset.row), longest);
}

// listKernels lists what the row of the table sums: the work of its device in its time.
function listKernels(row, tr) {
  const byName = new Map();
  let count = 0, busy = 0;
  for (const band of bands) {
    if (!band.track.work || band.track.lane.device !== page.device) continue;
    for (let i = 0; i < band.n; i++) {
      if (band.row[i] !== row || (band.end[i] <= page.from && band.start[i] < page.from) || band.start[i] >= page.to) continue;
      const name = page.device < 0 ? band.track.title : page.names[band.name[i]];
      let k = byName.get(name);
      if (!k) byName.set(name, k = { name, lengths: [], busy: 0, details: new Set() });
      const length = band.end[i] - band.start[i];
      k.lengths.push(length);
      k.busy += length;
      if (band.detail[i] && k.details.size < 4) k.details.add(page.details[band.detail[i]]);
      count++;
      busy += length;
    }
  }
  const of = $("kernels-of");
  of.textContent = "";
  const what = page.device < 0 ? (count === 1 ? " run on a thread, " : " runs on threads, ") : count === 1 ? " kernel, copy or set, " : " kernels, copies and sets, ";
  of.append(element("b", rowTitle(row)), ": " + group(count) + what + tr.querySelector(".time").textContent + " µs of exclusive time.");
  const table = $("kernel-table"), body = table.tBodies[0], foot = table.tFoot;
  body.textContent = foot.textContent = "";
  const line = (cells) => {
    const r = element("tr"), name = element("th", cells[0], "name");
    name.scope = "row";
    r.append(name, ...cells.slice(1).map((c) => element("td", c)));
    return r;
  };
  const names = [...byName.values()].sort((a, b) => b.busy - a.busy);
  for (const k of names.slice(0, 100)) {
    const l = Float64Array.from(k.lengths).sort(), m = l.length;
    body.append(line([k.name, group(m), micros(k.busy), micros((l[(m - 1) >> 1] + l[m >> 1]) / 2), micros(l[m - 1])]));
    if (page.device < 0 || k.details.size === 0) continue;
    const config = element("td", [...k.details].slice(0, 3).join("; ") + (k.details.size > 3 ? "; and others" : ""), "config"), r = element("tr");
    config.colSpan = 5;
    r.append(config);
    body.append(r);
  }
  if (names.length > 100) body.append(line([group(names.length - 100) + " more names", "", "", "", ""]));
  foot.append(line(["all", group(count), micros(busy), "", ""]));
  table.hidden = false;
}

function listenTables() {
  for (const b of document.querySelectorAll("button.stage")) {
    b.addEventListener("click", () => {
      const row = Number(b.closest("tr").dataset.row);
      if (row === stageRow) clearAll(); else selectStage(row);
    });
  }
  for (const b of document.querySelectorAll("button.gap")) {
    b.addEventListener("click", () => {
      const from = Number(b.dataset.from), to = Number(b.dataset.to), m = Math.max(to - from, minSpan) * 0.15;
      setView(from - m, to + m);
      $("timeline").scrollIntoView({ block: "nearest" });
    });
  }
  const body = document.querySelector("#stage-table tbody"), order = [...body.rows];
  for (const b of document.querySelectorAll("#stage-table thead button")) {
    b.addEventListener("click", () => {
      const th = b.closest("th"), key = b.dataset.key, was = th.getAttribute("aria-sort"), isText = key === "name" || key === "phase";
      const states = isText ? ["ascending", "descending", "none"] : ["descending", "ascending", "none"];
      const now = states[(states.indexOf(was || "none") + 1) % 3];
      for (const other of document.querySelectorAll("#stage-table thead th")) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", now);
      const sign = now === "ascending" ? 1 : -1;
      const value = (tr) => (isText ? tr.dataset[key] : Number(tr.dataset[key]));
      const rows = now === "none" ? order : [...order].sort((a, c) => sign * (isText ? value(a).localeCompare(value(c), "en", { numeric: true }) : value(a) - value(c)));
      body.append(...rows);
    });
  }
}
