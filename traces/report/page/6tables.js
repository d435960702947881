// The tables: sorting, layers of a stage, the kernels of a stage, gaps.

const stageBody = document.querySelector("#stage-table tbody");
const stageRows = [...stageBody.rows]; // a stage, then its layers
const rowsOf = (tr) => tr.dataset.rows.split(" ").map(Number);
const isWork = (tr) => tr.dataset.kind === "work" || tr.dataset.kind === "other";
const layersOf = new Map(); // rows of the table that have layers
for (let i = 0, parent = null; i < stageRows.length; i++) {
  if (!stageRows[i].classList.contains("layer")) parent = stageRows[i];
  else if (layersOf.has(parent)) layersOf.get(parent).push(stageRows[i]);
  else layersOf.set(parent, [stageRows[i]]);
}
let selectedRow = null; // row of the table

function deselectStage() {
  selectedRow = null;
  for (const tr of stageRows) tr.removeAttribute("aria-current");
  listLongest();
}

// selectRow highlights the events of a row of the table and lists its kernels.
function selectRow(tr) {
  deselectStage();
  selectedRow = tr;
  $("search").value = "";
  tr.setAttribute("aria-current", "true");
  const keep = new Set(rowsOf(tr));
  setHighlight((band, i) => keep.has(band.row[i]));
  listKernels(tr);
}

// selectStage selects the row that shows a stage of one layer: its own, or that of all layers.
function selectStage(row) {
  const shown = (tr) => !tr.hidden && rowsOf(tr).includes(row);
  const tr = stageRows.findLast(shown), box = stageBody.closest(".table");
  selectRow(tr);
  // Only the table scrolls, not the page.
  const top = tr.getBoundingClientRect().top - box.getBoundingClientRect().top;
  if (top < 30 || top + tr.offsetHeight > box.clientHeight - 30) box.scrollTop += top - box.clientHeight / 2;
}

const titleOf = (tr) => titled(tr.dataset.phase, tr.dataset.name);

// listLongest lists the kernels of the stage that took the most time, as long as none is selected.
function listLongest() {
  const [longest] = stageRows.filter(isWork).sort((a, b) => b.dataset.ns - a.dataset.ns);
  if (longest) listKernels(longest);
}

// listKernels lists the events that a row of the table sums.
function listKernels(tr) {
  const names = page.kernels[tr.dataset.rows] || [];
  let count = 0, busy = 0;
  for (const k of names) {
    count += k.n;
    busy += k.busy;
  }
  const of = $("kernels-of"), help = page.rows[rowsOf(tr)[0]].help;
  const [one, many] = page.device < 0 ? ["run on a thread", "runs on threads"] :
    ["kernel, copy or set", "kernels, copies and sets"];
  const time = tr.querySelector(".time").textContent;
  const what = `: ${group(count)} ${count === 1 ? one : many}, ${time} µs of exclusive time.`;
  of.replaceChildren(element("b", titleOf(tr)), what, help ? " It " + help + "." : "");
  const table = $("kernel-table"), body = table.tBodies[0], foot = table.tFoot;
  body.textContent = foot.textContent = "";
  const line = (cells) => {
    const r = element("tr"), name = element("th", cells[0], "name");
    name.scope = "row";
    r.append(name, ...cells.slice(1).map((c) => element("td", c)));
    return r;
  };
  for (const k of names.slice(0, 100)) {
    body.append(line([shortOf(k.name), group(k.n), micros(k.busy), micros(k.median), micros(k.most)]));
    const does = page.helps[k.name];
    body.lastChild.cells[0].title = page.names[k.name] + (does ? ": it " + does : "");
  }
  if (names.length > 100) body.append(line([group(names.length - 100) + " more names", "", "", "", ""]));
  foot.append(line(["all", group(count), micros(busy), "", ""]));
  table.hidden = false;
}

// unfold shows or hides the layers of a stage.
function unfold(tr, on) {
  tr.querySelector(".fold").setAttribute("aria-expanded", String(on));
  for (const layer of layersOf.get(tr)) {
    layer.hidden = !on;
    if (!on && layer === selectedRow) clearAll();
  }
}

// sortBy sorts the stages by a column, and the layers of each stage. Direction 0 is the
// order of the page as it was made.
function sortBy(at, isText, direction) {
  const text = (tr) => (at > 0 ? tr.cells[at].textContent : tr.dataset.name);
  const number = (tr) => Number(text(tr).replaceAll(",", "")) || 0;
  const compare = (a, b) =>
    direction * (isText ? text(a).localeCompare(text(b), "en", { numeric: true }) : number(a) - number(b));
  const sorted = (rows) => [...rows].sort(compare);
  const stages = stageRows.filter((tr) => !tr.classList.contains("layer"));
  stageBody.append(...sorted(stages).flatMap((tr) => [tr, ...sorted(layersOf.get(tr) || [])]));
}

function listenTables() {
  stageBody.addEventListener("click", (e) => {
    const tr = e.target.closest("tr"), button = e.target.closest("button");
    if (!button) return;
    if (button.className === "fold") unfold(tr, button.getAttribute("aria-expanded") !== "true");
    else if (tr === selectedRow) clearAll();
    else selectRow(tr);
  });
  for (const b of document.querySelectorAll("button.gap")) {
    b.addEventListener("click", () => {
      const from = Number(b.dataset.from), to = Number(b.dataset.to), m = Math.max(to - from, minSpan) * 0.15;
      setView(from - m, to + m);
      $("timeline").scrollIntoView({ block: "nearest" });
    });
  }
  for (const b of document.querySelectorAll("#stage-table thead button")) {
    b.addEventListener("click", () => {
      const th = b.closest("th"), isText = th.matches(".name, .text");
      const states = isText ? ["ascending", "descending", "none"] : ["descending", "ascending", "none"];
      const now = states[(states.indexOf(th.getAttribute("aria-sort") || "none") + 1) % 3];
      for (const other of document.querySelectorAll("#stage-table thead th")) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", now);
      sortBy(th.cellIndex, isText, { ascending: 1, descending: -1, none: 0 }[now]);
    });
  }
}
