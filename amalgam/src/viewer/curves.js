"use strict";
// Curves over time: a probe, contacts, and where wall time goes. Drawn by uPlot.

// Colours that people tell apart who see no red or no green [Wong2011].
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

const tables = new Map(); // by page: { bytes, names, rows }
const charts = new Map(); // by element: { chart, title, names }

// Reads what a table has more than when it was read last.
async function readTable(page) {
  const table = tables.get(page) ?? { bytes: 0, names: [], rows: [] };
  let bytes;
  try {
    bytes = await get(`${page}?from=${table.bytes}`);
  } catch (error) {
    // A run that went back to a checkpoint has cut it.
    tables.delete(page);
    throw error;
  }
  tables.set(page, table);
  const lines = new TextDecoder().decode(bytes).split("\n");
  if (table.bytes === 0) table.names = lines.shift().split(",");
  for (const line of lines) if (line) table.rows.push(line.split(",").map(Number));
  table.bytes += bytes.byteLength;
  return table;
}

// Draws columns over the first one, `columns` being pairs of a name and a function of a row and the row before.
function plot(id, title, rows, columns) {
  const place = find(id);
  const names = columns.map(([name]) => name).join();
  const values = columns.map(([, of]) => rows.map((row, k) => { const value = of(row, rows[k - 1]); return Number.isFinite(value) ? value : null; }));
  const data = [rows.map((row) => row[0]), ...values];
  const size = { width: place.clientWidth, height: Math.max(110, Math.min(230, Math.round(window.innerHeight * 0.2))) };
  const old = charts.get(id);
  if (old?.title === title && old.names === names) {
    if (old.chart.width !== size.width) old.chart.setSize(size);
    old.chart.setData(data);
    return;
  }
  old?.chart.destroy();
  const shown = (_, value) => (value === null || value === undefined ? "--" : number(value));
  const series = columns.map(([name], k) => ({ label: name, stroke: COLOURS[k % COLOURS.length], width: 1.5, value: shown, points: { show: rows.length === 1 } }));
  const axis = { font: "11px system-ui", size: 30 };
  const chart = new uPlot({
    ...size, title,
    scales: { x: { time: false } },
    axes: [axis, { ...axis, size: 62, values: (_, ticks) => ticks.map(number) }],
    series: [{ label: "time [s]", value: shown }, ...series],
    legend: { show: true },
  }, data, place);
  charts.set(id, { chart, title, names });
}

async function showProbe() {
  const [name, column] = JSON.parse(find("probe").value || "[]");
  if (!name) return;
  const { names, rows } = await readTable(`probe/${encodeURIComponent(name)}`);
  if (rows.length === 0) return;
  plot("curve", `${name}: ${names[column]}`, rows, [[names[column], (row) => row[column]]]);
  const last = rows.findLast((row) => Number.isFinite(row[column]));
  find("value").textContent = last ? number(last[column]) : "no number";
}

// Contacts of the last step of each frame, and milliseconds per step of each phase since the frame before.
async function showWork() {
  const { names, rows } = await readTable("work");
  if (rows.length === 0) return;
  const at = (name) => names.indexOf(name);
  plot("contacts", "contacts", rows, ["contacts", "groups", "unresolved"].map((name) => [name, (row) => row[at(name)]]));
  const steps = at("steps");
  const perStep = (k) => (row, before) => (1e3 * (row[k] - (before?.[k] ?? 0))) / (row[steps] - (before?.[steps] ?? 0));
  const seconds = names.map((name, k) => [name, k]).filter(([name]) => name.endsWith(" [s]") && !["time [s]", "dt [s]"].includes(name));
  const last = rows[rows.length - 1];
  // The largest parts: more lines are not told apart.
  const phases = seconds.filter(([name]) => !name.startsWith("wait for ")).sort((a, b) => last[b[1]] - last[a[1]]).slice(0, 4);
  const waits = seconds.filter(([name]) => name.startsWith("wait for "));
  plot("phases", "wall time [ms per step]", rows, [...phases, ...waits.slice(0, 4)].map(([name, k]) => [name.replace(" [s]", ""), perStep(k)]));
}

async function showCurves() {
  await showProbe();
  if (run.work) await showWork();
}
