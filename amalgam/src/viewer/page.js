"use strict";

const find = (id) => document.getElementById(id);
const canvas = find("scene");
// Smooth edges cost nothing on a graphics card, and half of the pictures per second without one.
const gl = canvas.getContext("webgl2", { antialias: !drawsInSoftware(), preserveDrawingBuffer: true });

function drawsInSoftware() {
  const trial = document.createElement("canvas").getContext("webgl2");
  const named = trial?.getExtension("WEBGL_debug_renderer_info")?.UNMASKED_RENDERER_WEBGL ?? trial?.RENDERER;
  return /swiftshader|llvmpipe|software/i.test(trial?.getParameter(named) ?? "");
}

// --- What is drawn -----------------------------------------------------------------------------------------------------------

const HEAD = `#version 300 es
precision highp float;
uniform mat4 view, projection;
uniform vec3 low, size;
`;
const RAMP = `
vec3 ramp(float t) {
  vec3 a = vec3(0.267, 0.005, 0.329), b = vec3(0.231, 0.318, 0.545), c = vec3(0.129, 0.569, 0.549);
  vec3 d = vec3(0.369, 0.788, 0.384), e = vec3(0.992, 0.906, 0.145);
  float s = clamp(t, 0.0, 1.0) * 4.0;
  return s < 1.0 ? mix(a, b, s) : s < 2.0 ? mix(b, c, s - 1.0) : s < 3.0 ? mix(c, d, s - 2.0) : mix(d, e, s - 3.0);
}
`;
const LIGHT = `
vec3 lit(vec3 colour, vec3 normal) {
  float lamp = max(dot(normal, normalize(vec3(-0.5, 0.8, 0.6))), 0.0);
  return colour * (0.38 + 0.12 * normal.y + 0.62 * lamp) + 0.12 * pow(lamp, 24.0);
}
`;
const BALLS = [HEAD + RAMP + `
in vec3 place;
in float value, part;
uniform vec2 radii, values, range;
uniform float height;
uniform vec3 plain;
uniform bool coloured;
out vec3 colour;
void main() {
  vec4 centre = view * vec4(low + place * size, 1.0);
  float radius = mix(radii.x, radii.y, part);
  gl_Position = projection * centre;
  gl_PointSize = max(1.0, height * projection[1][1] * radius / gl_Position.w);
  float number = mix(values.x, values.y, value);
  colour = coloured ? ramp((number - range.x) / max(range.y - range.x, 1e-30)) : plain;
}`, HEAD + LIGHT + `
in vec3 colour;
out vec4 pixel;
void main() {
  vec2 p = 2.0 * gl_PointCoord - 1.0;
  float r = dot(p, p);
  if (r > 1.0) discard;
  pixel = vec4(lit(colour, vec3(p.x, -p.y, sqrt(1.0 - r))), 1.0);
}`];
const MESH = [HEAD + RAMP + `
in vec3 place, normal;
in float value;
uniform vec2 values, range;
uniform vec3 plain;
uniform bool coloured;
out vec3 colour, where, up;
void main() {
  vec4 centre = view * vec4(low + place * size, 1.0);
  where = centre.xyz;
  up = mat3(view) * normal;
  gl_Position = projection * centre;
  float number = mix(values.x, values.y, value);
  colour = coloured ? ramp((number - range.x) / max(range.y - range.x, 1e-30)) : plain;
}`, HEAD + LIGHT + `
in vec3 colour, where, up;
uniform bool smooth_;
uniform float opacity;
out vec4 pixel;
void main() {
  vec3 flat_ = normalize(cross(dFdx(where), dFdy(where)));
  vec3 n = smooth_ && dot(up, up) > 0.0 ? normalize(up) : flat_;
  n = dot(n, where) > 0.0 ? -n : n;
  float edge = 1.0 - abs(dot(n, normalize(where)));
  pixel = vec4(lit(colour, n) + (opacity < 1.0 ? 0.35 * pow(edge, 3.0) : 0.0), mix(opacity, 1.0, pow(edge, 3.0)));
}`];
const LINES = [HEAD + `in vec3 place; void main() { gl_Position = projection * view * vec4(low + place * size, 1.0); }`,
  HEAD + `out vec4 pixel; void main() { pixel = vec4(0.1, 0.12, 0.15, 1.0); }`];

function program([vertex, fragment]) {
  const made = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(made, shader);
  }
  ["place", "value", "part", "normal"].forEach((name, place) => gl.bindAttribLocation(made, place, name));
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made));
  const places = {};
  return { made, at: (name) => (places[name] ??= gl.getUniformLocation(made, name)) };
}

function buffer(kind, data) {
  const made = gl.createBuffer();
  gl.bindBuffer(kind, made);
  gl.bufferData(kind, data, gl.STATIC_DRAW);
  return made;
}

function attribute(place, data, count, type) {
  if (data.length === 0) return gl.disableVertexAttribArray(place);
  gl.bindBuffer(gl.ARRAY_BUFFER, data.buffer);
  gl.enableVertexAttribArray(place);
  gl.vertexAttribPointer(place, count, type, true, 0, 0);
}

// What the program sends: see Packing in results.rs.
function unpack(bytes) {
  const length = new DataView(bytes).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
  let at = 4 + length;
  const take = (Kind, count) => {
    const array = new Kind(bytes, at, count);
    at += 4 * Math.ceil((count * Kind.BYTES_PER_ELEMENT) / 4);
    return array;
  };
  const column = (array) => ({ buffer: buffer(gl.ARRAY_BUFFER, array), length: array.length });
  const shape = { head, place: column(take(Uint16Array, 3 * head.points)) };
  shape.value = head.range ? column(take(Uint8Array, head.points)) : { length: 0 };
  shape.part = head.radii && head.radii[0] < head.radii[1] ? column(take(Uint8Array, head.points)) : { length: 0 };
  const triangles = take(Uint32Array, 3 * head.triangles);
  shape.triangles = { buffer: buffer(gl.ELEMENT_ARRAY_BUFFER, triangles), length: triangles.length };
  shape.normal = head.normals ? column(take(Int8Array, 3 * head.points)) : { length: 0 };
  return shape;
}

function free(shape) {
  for (const name of ["place", "value", "part", "normal", "triangles"]) if (shape?.[name]?.buffer) gl.deleteBuffer(shape[name].buffer);
}

// --- State -------------------------------------------------------------------------------------------------------------------

const shapes = new Map(); // by participant: { points, surface }
let run = null;
let obstacles = null;
let shown = -1; // the frame that is drawn
let follows = true; // whether the last frame is shown as soon as it is there
let playing = false;
let range = null; // of the field, over all frames that were shown
let programs = null;
let box = null;
// What the address asks for behind its #: frame=12&field=speed&probe=energy.1
const asked = new URLSearchParams(location.hash.slice(1));
const camera = { turn: -0.42, tilt: 0.36, distance: 1, target: [0, 0, 0] };

const get = async (page) => {
  const answer = await fetch(page).catch(() => { throw new Error("the program that shows this page has ended"); });
  if (answer.status === 204) return null;
  if (!answer.ok) throw Object.assign(new Error(await answer.text()), { status: answer.status });
  return answer.arrayBuffer();
};

function number(value) {
  if (!Number.isFinite(value)) return "no number";
  return value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(5)));
}

// --- The camera --------------------------------------------------------------------------------------------------------------

const sub = (a, b) => a.map((x, k) => x - b[k]);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const unit = (a) => { const length = Math.hypot(...a) || 1; return a.map((x) => x / length); };

function axes() {
  const up = unit(run.gravity.map((x) => -x));
  const top = Math.hypot(...run.gravity) > 0 ? up : [0, 0, 1];
  const side = unit(cross(Math.abs(top[2]) > 0.9 ? [0, 1, 0] : [0, 0, 1], top));
  const front = cross(top, side);
  const [c, s] = [Math.cos(camera.turn), Math.sin(camera.turn)];
  const level = side.map((x, k) => s * x + c * front[k]);
  const back = level.map((x, k) => -Math.cos(camera.tilt) * x + Math.sin(camera.tilt) * top[k]);
  const right = unit(cross(top, back));
  return { right, up: cross(back, right), back };
}

function matrices() {
  const { right, up, back } = axes();
  const eye = camera.target.map((x, k) => x + camera.distance * back[k]);
  const view = [right[0], up[0], back[0], 0, right[1], up[1], back[1], 0, right[2], up[2], back[2], 0, -dot(right, eye), -dot(up, eye), -dot(back, eye), 1];
  const [near, far, slope] = [camera.distance * 0.01, camera.distance * 30, 1 / Math.tan(0.28)];
  const aspect = canvas.width / canvas.height;
  const projection = [slope / aspect, 0, 0, 0, 0, slope, 0, 0, 0, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0];
  return { view, projection };
}

function frameAll() {
  let [low, high] = [[Infinity, Infinity, Infinity], [-Infinity, -Infinity, -Infinity]];
  for (const { points } of shapes.values()) {
    if (!points || points.head.points === 0) continue;
    low = low.map((x, k) => Math.min(x, points.head.low[k]));
    high = high.map((x, k) => Math.max(x, points.head.high[k]));
  }
  if (low[0] > high[0]) [low, high] = run.domain;
  box = [low, high];
  camera.target = low.map((x, k) => 0.5 * (x + high[k]));
  const narrow = Math.min(1, canvas.width / canvas.height);
  camera.distance = (0.5 * Math.hypot(...sub(high, low))) / Math.sin(0.28) / narrow;
}

// --- Drawing -----------------------------------------------------------------------------------------------------------------

let wanted = false;
function draw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => { wanted = false; paint(); });
}

function use(program, { view, projection }, low, size) {
  gl.useProgram(program.made);
  gl.uniformMatrix4fv(program.at("view"), false, view);
  gl.uniformMatrix4fv(program.at("projection"), false, projection);
  gl.uniform3fv(program.at("low"), low);
  gl.uniform3fv(program.at("size"), size);
}

function mesh(shape, seen, colour, opacity) {
  const { head } = shape;
  use(programs.mesh, seen, head.low, sub(head.high, head.low));
  attribute(0, shape.place, 3, gl.UNSIGNED_SHORT);
  attribute(1, shape.value, 1, gl.UNSIGNED_BYTE);
  gl.disableVertexAttribArray(2);
  attribute(3, shape.normal, 3, gl.BYTE);
  gl.uniform3fv(programs.mesh.at("plain"), colour);
  const coloured = Boolean(head.range && range);
  gl.uniform1i(programs.mesh.at("coloured"), coloured);
  gl.uniform2fv(programs.mesh.at("values"), head.range ?? [0, 1]);
  gl.uniform2fv(programs.mesh.at("range"), range ?? [0, 1]);
  gl.uniform1i(programs.mesh.at("smooth_"), Boolean(head.normals));
  gl.uniform1f(programs.mesh.at("opacity"), opacity);
  gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, shape.triangles.buffer);
  gl.drawElements(gl.TRIANGLES, shape.triangles.length, gl.UNSIGNED_INT, 0);
}

function balls(shape, seen, colour) {
  const { head } = shape;
  use(programs.balls, seen, head.low, sub(head.high, head.low));
  attribute(0, shape.place, 3, gl.UNSIGNED_SHORT);
  attribute(1, shape.value, 1, gl.UNSIGNED_BYTE);
  attribute(2, shape.part, 1, gl.UNSIGNED_BYTE);
  gl.disableVertexAttribArray(3);
  gl.uniform2fv(programs.balls.at("radii"), head.radii ?? [0.01, 0.01]);
  gl.uniform2fv(programs.balls.at("values"), head.range ?? [0, 1]);
  gl.uniform2fv(programs.balls.at("range"), range ?? [0, 1]);
  gl.uniform1f(programs.balls.at("height"), canvas.height);
  gl.uniform3fv(programs.balls.at("plain"), colour);
  gl.uniform1i(programs.balls.at("coloured"), Boolean(head.range && range));
  gl.drawArrays(gl.POINTS, 0, head.points);
}

function paint() {
  if (!run || !programs) return;
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  gl.viewport(0, 0, width, height);
  gl.clearColor(0, 0, 0, 0);
  gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  gl.enable(gl.DEPTH_TEST);
  gl.disable(gl.BLEND);
  const seen = matrices();
  use(programs.lines, seen, run.domain[0], sub(run.domain[1], run.domain[0]));
  attribute(0, programs.edges, 3, gl.UNSIGNED_BYTE);
  [1, 2, 3].forEach((place) => gl.disableVertexAttribArray(place));
  gl.drawArrays(gl.LINES, 0, 24);
  if (obstacles) mesh(obstacles, seen, [0.76, 0.75, 0.72], 1);
  const seeThrough = [];
  for (const participant of run.participants) {
    const { points, surface } = shapes.get(participant.name) ?? {};
    const colour = participant.colour.map((channel) => channel / 255);
    // A field is a field of particles: what has it is drawn as its particles.
    const coloured = Boolean(points?.head.range && range);
    if (surface && find("surfaces").checked && !coloured) {
      if (participant.is_fluid) seeThrough.push([surface, colour]); else mesh(surface, seen, colour, 1);
    } else if (points) {
      if (points.head.triangles > 0) mesh(points, seen, colour, 1); else balls(points, seen, colour);
    }
  }
  gl.enable(gl.BLEND);
  gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  for (const [surface, colour] of seeThrough) {
    // The nearest surface alone: depth first, then colour.
    gl.colorMask(false, false, false, false);
    mesh(surface, seen, colour, 0.72);
    gl.colorMask(true, true, true, true);
    gl.depthFunc(gl.LEQUAL);
    mesh(surface, seen, colour, 0.72);
    gl.depthFunc(gl.LESS);
  }
}

// --- Frames ------------------------------------------------------------------------------------------------------------------

let busy = false;
async function show(entry) {
  if (busy || !run || entry < 0 || entry >= run.frames) return;
  busy = true;
  try {
    const field = find("field").value;
    const names = new Set();
    for (const { name, surface: every } of run.participants) {
      const old = shapes.get(name) ?? {};
      const have = encodeURI(old.points?.head.key ?? "");
      const bytes = await get(`particles/${encodeURIComponent(name)}/${entry}?field=${encodeURIComponent(field)}&have=${have}`);
      if (bytes) { free(old.points); old.points = unpack(bytes); }
      old.points.head.fields.forEach((known) => names.add(known));
      free(old.surface);
      old.surface = null;
      if (every) {
        try {
          old.surface = unpack(await get(`surface/${encodeURIComponent(name)}/${entry}`));
        } catch (error) {
          // There is none of this frame.
          if (error.status !== 404) throw error;
        }
      }
      shapes.set(name, old);
      const [low, high] = old.points.head.range ?? [Infinity, -Infinity];
      if (low <= high) range = range ? [Math.min(range[0], low), Math.max(range[1], high)] : [low, high];
    }
    for (const known of names) {
      if (![...find("field").options].some((option) => option.value === known)) find("field").append(new Option(known, known));
    }
    if (!box) frameAll();
    shown = entry;
    find("slider").value = entry;
    const first = shapes.get(run.participants[0].name).points;
    find("time").textContent = `${number(first.head.time)} s, frame ${entry}`;
    find("range").textContent = range ? `${field}: ${number(range[0])} to ${number(range[1])}` : "";
    draw();
  } catch (error) {
    find("state").textContent = error.message;
  } finally {
    busy = false;
  }
}

// --- The run -----------------------------------------------------------------------------------------------------------------

function tell() {
  const { end } = run;
  const banner = find("banner");
  const lines = [];
  if (end?.error) lines.push(`The run failed: ${end.error}`);
  for (const caution of end?.cautions ?? []) lines.push(`Caution: ${caution}`);
  banner.hidden = lines.length === 0;
  banner.className = end?.error ? "failed" : "";
  banner.textContent = lines.join("\n");
  const how = !end ? "going on" : end.error ? "failed" : end.interrupted ? "interrupted" : "finished";
  find("state").textContent = `${how}, ${run.frames} frames; the scene lasts ${number(run.duration)} s`;
}

async function poll() {
  try {
    run = JSON.parse(new TextDecoder().decode(await get("run.json")));
    find("name").textContent = run.name;
    document.title = run.name;
    tell();
    find("slider").max = Math.max(0, run.frames - 1);
    for (const { name, columns } of run.probes) {
      columns.slice(1).forEach((column, k) => {
        const value = JSON.stringify([name, k + 1]);
        if (![...find("probe").options].some((option) => option.value === value)) find("probe").append(new Option(`${name}: ${column}`, value));
      });
    }
    if (run.obstacles && !obstacles) obstacles = unpack(await get("obstacles"));
    if (asked.has("probe")) {
      const [name, column] = asked.get("probe").split(".");
      find("probe").value = JSON.stringify([name, Number(column ?? 1)]);
      asked.delete("probe");
    }
    if (asked.has("field")) {
      const field = asked.get("field");
      find("field").append(new Option(field, field));
      find("field").value = field;
      asked.delete("field");
    }
    if (asked.has("frame") && Number(asked.get("frame")) < run.frames) {
      follows = false;
      await show(Number(asked.get("frame")));
      asked.delete("frame");
      if (asked.has("draw")) return drawAround(Number(asked.get("draw")));
    }
    if (follows && run.frames > 0 && shown !== run.frames - 1) await show(run.frames - 1);
    await showCurves();
  } catch (error) {
    find("state").textContent = error.message;
  }
  setTimeout(poll, run?.end ? 5000 : 1000);
}

// For #frame=12&draw=20: so many pictures from all sides, each waited for, to find out how fast a browser draws.
function drawAround(count) {
  const pixel = new Uint8Array(4);
  for (let k = 0; k < count; k++) {
    camera.turn += (2 * Math.PI) / count;
    paint();
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
  }
  find("value").textContent = `${count} drawn`;
}

// --- Hands -------------------------------------------------------------------------------------------------------------------

find("slider").addEventListener("input", () => {
  const entry = Number(find("slider").value);
  follows = entry === run.frames - 1;
  show(entry);
});
find("play").addEventListener("click", () => {
  playing = !playing;
  find("play").textContent = playing ? "\u23f8" : "\u25b6";
  if (playing && shown >= run.frames - 1) shown = -1;
});
setInterval(() => {
  if (!playing || !run) return;
  follows = false;
  if (shown + 1 < run.frames) show(shown + 1); else find("play").click();
}, 80);
find("field").addEventListener("change", () => { range = null; for (const shape of shapes.values()) if (shape.points) shape.points.head.key = ""; show(shown); });
find("surfaces").addEventListener("change", draw);
find("probe").addEventListener("change", showProbe);
window.addEventListener("resize", () => { draw(); if (run) showCurves(); });

let held = null;
canvas.addEventListener("pointerdown", (event) => { held = event.button === 2 || event.shiftKey ? "move" : "turn"; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointerup", () => { held = null; });
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("pointermove", (event) => {
  if (!held || !run) return;
  if (held === "turn") {
    camera.turn -= event.movementX * 0.008;
    camera.tilt = Math.min(1.55, Math.max(-1.55, camera.tilt + event.movementY * 0.008));
  } else {
    const { right, up } = axes();
    const step = (2 * camera.distance * Math.tan(0.28)) / canvas.clientHeight;
    camera.target = camera.target.map((x, k) => x + step * (up[k] * event.movementY - right[k] * event.movementX));
  }
  draw();
});
canvas.addEventListener("wheel", (event) => { event.preventDefault(); camera.distance *= Math.exp(event.deltaY * 0.001); draw(); }, { passive: false });

if (gl) {
  programs = { balls: program(BALLS), mesh: program(MESH), lines: program(LINES) };
  const corner = (k) => [k & 1 ? 255 : 0, k & 2 ? 255 : 0, k & 4 ? 255 : 0];
  const ends = [];
  for (let k = 0; k < 8; k++) for (const bit of [1, 2, 4]) if (!(k & bit)) ends.push(...corner(k), ...corner(k | bit));
  programs.edges = { buffer: buffer(gl.ARRAY_BUFFER, new Uint8Array(ends)), length: 72 };
  poll();
} else {
  find("state").textContent = "this browser has no WebGL 2";
}
