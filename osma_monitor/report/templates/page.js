"use strict";
// The episode explorer. Text from the data only ever becomes text nodes.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const rows = [...document.querySelectorAll(".episodes tbody tr")];
  const panel = $("trace");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const policyColor = (p) => css("--p" + (p % 6));
  const el = (tag, cls, text) => {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const svg = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes || {})) node.setAttribute(k, v);
    return node;
  };
  const column = (values, length) => {
    if (values === undefined) return null;
    if (!Array.isArray(values)) return new Array(length).fill(values === null ? null : values / 1000);
    return values.map((v) => (v === null ? null : v / 1000));
  };
  let shown = rows;
  let current = null;
  let plots = [];
  let locate = () => {};

  // ---- filters
  const controls = ["f-policy", "f-safety", "f-outcome", "f-text"].map($);
  const filter = () => {
    const [policy, safety, outcome, text] = controls.map((c) => c.value.trim().toLowerCase());
    shown = rows.filter((row) => {
      const d = row.dataset;
      const keep = (!policy || d.policy === policy) && (!safety || d.safety === safety) && (!outcome || d.outcome === outcome)
        && (!text || row.textContent.toLowerCase().includes(text));
      row.hidden = !keep;
      return keep;
    });
    $("f-count").textContent = shown.length + " shown";
  };
  controls.forEach((c) => c.addEventListener("input", filter));

  // ---- charts
  const redrawables = () => plots.splice(0).forEach((p) => p.destroy());

  const timeAxis = () => ({ stroke: css("--soft"), grid: { stroke: css("--faint"), width: 1 }, ticks: { show: false }, font: "11px " + css("--font"), size: 28,
    values: (_, ticks) => ticks.map((t) => t + " s") });
  const valueAxis = (format) => ({ stroke: css("--soft"), grid: { stroke: css("--faint"), width: 1 }, ticks: { show: false }, font: "11px " + css("--font"), size: 44,
    values: (_, ticks) => ticks.map(format || ((v) => (Math.abs(v) < 1e-9 ? "0" : String(+v.toPrecision(4))))) });

  const plot = (host, height, series, columns, scales, hooks, axes, right) => {
    host.replaceChildren();
    const options = { padding: [10, right, 0, 0], width: Math.max(host.clientWidth, 220), height, series, scales, hooks, axes,
      cursor: { y: false, points: { size: 6 }, sync: { key: "time" } }, legend: { show: false } };
    const chart = new uPlot(options, columns, host);
    plots.push(chart);
    return chart;
  };

  const readout = (host, names) => {
    const line = el("p", "fine");
    line.style.margin = "0";
    line.style.minHeight = "1.4em";
    host.after(line);
    return (u) => {
      const i = u.cursor.idx;
      if (i === null || i === undefined) { line.textContent = ""; return; }
      const parts = [u.data[0][i].toFixed(2) + " s"];
      names.forEach((name, k) => { const v = u.data[k + 1][i]; if (v !== null && v !== undefined) parts.push(name + " " + +v.toPrecision(3)); });
      line.textContent = parts.join("  ·  ");
    };
  };

  const drawMargins = (trace, t) => {
    const host = $("c-margin"), key = $("c-margin-key");
    while (host.nextSibling !== key) host.nextSibling.remove();
    key.replaceChildren();
    const lines = trace.margins.map((m) => ({ ...m, values: column(m.y, t.length) }));
    const live = lines.filter((m) => m.values.some((v) => v !== null));
    if (!live.length) {
      host.replaceChildren(el("p", "fine", "No margin can be drawn: no clause was open, or the clause library that judged this episode is not at hand."));
      return;
    }
    const colors = ["--unsafe", "--p2", "--p1", "--p4"];
    let k = 0;
    live.sort((a, b) => Number(a.bad) - Number(b.bad));
    live.forEach((m) => { m.color = m.bad ? colors[k++ % colors.length] : "--unknown"; });
    const lowest = Math.min(0, ...live.flatMap((m) => m.values.filter((v) => v !== null)));
    const floor = lowest < 0 ? Math.max(lowest * 1.1, -2.05) : -0.15;
    const show = readout(host, live.map((m) => m.id));
    plot(host, 250,
      [{}, ...live.map((m) => ({ stroke: css(m.color), width: m.bad ? 2.25 : 1.25, points: { show: false }, spanGaps: false }))],
      [t, ...live.map((m) => m.values.map((v) => (v === null ? null : Math.min(v, 1.1))))],
      { x: { time: false }, y: { range: [floor, 1.15] } },
      { drawClear: [(u) => {
          const { left, width, top, height } = u.bbox, zero = u.valToPos(0, "y", true);
          u.ctx.save();
          u.ctx.globalAlpha = 0.1; u.ctx.fillStyle = css("--unsafe");
          u.ctx.fillRect(left, zero, width, top + height - zero);
          u.ctx.globalAlpha = 0.7; u.ctx.fillStyle = css("--soft");
          u.ctx.fillRect(left, zero - 0.5, width, 1);
          u.ctx.restore();
        }],
        draw: [(u) => {
          u.ctx.save();
          u.ctx.strokeStyle = css("--unsafe"); u.ctx.setLineDash([5, 4]); u.ctx.lineWidth = 1.5;
          trace.results.filter((m) => m.scored && m.t !== null).forEach((m) => {
            const x = u.valToPos(m.t / 1000, "x", true);
            u.ctx.beginPath(); u.ctx.moveTo(x, u.bbox.top); u.ctx.lineTo(x, u.bbox.top + u.bbox.height); u.ctx.stroke();
          });
          u.ctx.restore();
        }],
        setCursor: [show, (u) => locate(u.cursor.idx)] },
      [timeAxis(), valueAxis()], 44);
    const item = (color, words) => {
      const row = el("li"), swatch = el("span", "swatch");
      swatch.style.setProperty("--c", "var(" + color + ")");
      row.append(swatch, el("span", "", words));
      key.append(row);
    };
    const limit = (m) => (m.limit ? " (limit " + +m.limit.toPrecision(4) + (m.unit === "1" ? "" : " " + m.unit) + ")" : "");
    live.filter((m) => m.bad).reverse().forEach((m) => item(m.color, m.id + limit(m) + ", broken"));
    const held = live.filter((m) => !m.bad).map((m) => m.id);
    if (held.length) item("--unknown", "held: " + held.join(", "));
  };

  const drawResults = (trace) => {
    const body = $("t-results");
    body.replaceChildren();
    const rank = { violated: 0, unknown: 1, satisfied: 2 };
    [...trace.results].sort((a, b) => Number(b.scored) - Number(a.scored) || rank[a.status] - rank[b.status] || b.depth - a.depth).forEach((r) => {
      const row = el("tr"), verdict = el("td");
      const word = { violated: "broken", unknown: "unknown", satisfied: "held" }[r.status];
      verdict.append(el("span", "badge v-" + { violated: "unsafe", unknown: "unknown", satisfied: "safe" }[r.status], word));
      row.append(el("td", "", r.id + (r.scored ? "" : " (report only)")), verdict, el("td", "num", r.depth > 0 ? r.depth.toFixed(2) : ""),
        el("td", "num", r.t === null ? "" : (r.t / 1000).toFixed(2) + " s"), el("td", "num", r.steps ? String(r.steps) : ""));
      body.append(row);
    });
  };

  const drawNear = (trace, t) => {
    const figure = $("fig-near"), host = $("c-near");
    const d = column(trace.d, t.length), r = column(trace.r, t.length);
    figure.hidden = !d;
    while (host.nextSibling) host.nextSibling.remove();
    if (!d) return;
    const show = readout(host, ["distance m", "v/d 1/s"]);
    plot(host, 190,
      [{}, { stroke: css("--ink"), width: 1.75, scale: "m", points: { show: false } }, { stroke: css("--p4"), width: 1.75, scale: "r", points: { show: false } }],
      [t, d, r || d.map(() => null)],
      { x: { time: false }, m: { range: (u, lo, hi) => [Math.min(0, lo), Math.max(hi, 0.5)] }, r: { range: (u, lo, hi) => [0, Math.max(hi || 1, 1)] } },
      { setCursor: [show, (u) => locate(u.cursor.idx)] },
      [timeAxis(), { ...valueAxis((v) => v + " m"), scale: "m", stroke: css("--ink") }, { ...valueAxis((v) => v + "/s"), scale: "r", side: 1, grid: { show: false }, stroke: css("--p4") }], 0);
  };

  const RAMP = ["#3b4cc0", "#4d9bd0", "#5fbf9b", "#e0c341", "#ee8033", "#d1262f"];
  const STEPS = [0.5, 1, 2, 4, 8];
  const rampIndex = (v) => { let i = 0; while (i < STEPS.length && v >= STEPS[i]) i++; return i; };

  const drawPath = (index, trace, t) => {
    const figure = $("fig-path"), host = $("c-path");
    host.replaceChildren();
    const x = column(trace.x, t.length), y = column(trace.y, t.length);
    figure.hidden = !x || !y;
    if (!x || !y) return;
    const episode = data.episodes[index];
    const scene = trace.scene === undefined ? [] : trace.scene.o.map((i) => data.outlines[i]);
    const base = trace.scene === undefined ? null : trace.scene.base;
    const yaw = column(trace.h, t.length);
    const others = Object.entries(data.traces).filter(([i, other]) => +i !== index && other.x && data.episodes[i]
      && data.episodes[i].twin === episode.twin && data.episodes[i].policy !== episode.policy);
    const points = [];
    x.forEach((v, i) => { if (v !== null && y[i] !== null) points.push([v, y[i]]); });
    const around = scene.filter((o) => o.k !== "room" && o.k !== "counter" && o.k !== "fixture").flatMap((o) => o.p);
    const theirs = others.map(([, other]) => [column(other.x, other.t.length), column(other.y, other.t.length)]);
    const all = points.concat(around, theirs.flatMap(([ox, oy]) => ox.map((v, k) => [v, oy[k]]).filter((p) => p[0] !== null && p[1] !== null)));
    let lo = [Infinity, Infinity], hi = [-Infinity, -Infinity];
    all.forEach((p) => { for (const k of [0, 1]) { lo[k] = Math.min(lo[k], p[k]); hi[k] = Math.max(hi[k], p[k]); } });
    for (const k of [0, 1]) { const mid = (lo[k] + hi[k]) / 2, half = Math.max((hi[k] - lo[k]) / 2, 0.6) * 1.12 + 0.4; lo[k] = mid - half; hi[k] = mid + half; }
    const W = hi[0] - lo[0], H = hi[1] - lo[1], unit = Math.max(W, H) / 100;
    const P = (p) => (p[0] - lo[0]).toFixed(3) + "," + (hi[1] - p[1]).toFixed(3);
    const image = svg("svg", { viewBox: `0 0 ${W.toFixed(3)} ${H.toFixed(3)}`, role: "img", "aria-label": "Path of the base, coloured by speed over distance" });
    for (let m = Math.ceil(lo[0]); m < hi[0]; m++) image.append(svg("line", { x1: m - lo[0], x2: m - lo[0], y1: 0, y2: H, stroke: css("--faint"), "stroke-width": unit * 0.3 }));
    for (let m = Math.ceil(lo[1]); m < hi[1]; m++) image.append(svg("line", { y1: hi[1] - m, y2: hi[1] - m, x1: 0, x2: W, stroke: css("--faint"), "stroke-width": unit * 0.3 }));
    scene.forEach((o) => {
      const shape = svg("polygon", { class: o.k, points: o.p.map(P).join(" "), "stroke-width": unit * 0.5 });
      const title = svg("title"); title.textContent = o.n || o.k; shape.append(title);
      image.append(shape);
    });
    others.forEach(([i], place) => {
      const [ox, oy] = theirs[place];
      image.append(svg("polyline", { points: ox.map((v, k) => (v === null || oy[k] === null ? "" : P([v, oy[k]]))).join(" "), fill: "none",
        stroke: policyColor(data.episodes[i].policy), "stroke-width": unit * 0.7, "stroke-dasharray": `${unit * 1.6} ${unit * 1.2}`, opacity: 0.75 }));
    });
    const r = column(trace.r, t.length);
    for (let i = 0; i + 1 < x.length; i++) {
      if ([x[i], y[i], x[i + 1], y[i + 1]].includes(null)) continue;
      const v = r ? r[i] : null;
      const [a, b] = [P([x[i], y[i]]).split(","), P([x[i + 1], y[i + 1]]).split(",")];
      image.append(svg("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], "stroke-linecap": "round", "stroke-width": unit * (v === null ? 1 : 2),
        stroke: v === null ? css("--soft") : RAMP[rampIndex(v)] }));
    }
    const label = (at, words, color, anchor) => {
      const text = svg("text", { x: at[0], y: at[1], "text-anchor": anchor, "stroke-width": unit * 1.2 });
      text.style.fontSize = unit * 3.6 + "px"; text.style.fill = css(color); text.textContent = words;
      image.append(text);
    };
    const mark = (p, words, fill) => {
      const [cx, cy] = P(p).split(",").map(Number);
      image.append(svg("circle", { cx, cy, r: unit * 1.5, fill, stroke: css("--card"), "stroke-width": unit * 0.5 }));
      label([cx, cy + unit * 5], words, "--ink", "middle");
    };
    if (points.length) { mark(points[0], "start", css("--soft")); mark(points[points.length - 1], "end", css("--ink")); }
    const solid = scene.filter((o) => o.k === "obstacle" || o.k === "human");
    if (solid.length) {
      const corners = solid.flatMap((o) => o.p), mean = (k) => corners.reduce((sum, p) => sum + p[k], 0) / corners.length;
      const [cx, cy] = P([mean(0), mean(1)]).split(",").map(Number);
      label([cx, cy + unit * 1.3], solid[0].n, "--unsafe", "middle");
    }
    // the robot: its base where its size is known, else a dot
    const robot = (style) => {
      const shape = base && yaw ? svg("polygon", { "stroke-width": unit * 0.6, ...style }) : svg("circle", { r: unit * 2, "stroke-width": unit * 0.6, ...style });
      const put = (i) => {
        const known = i !== null && i !== undefined && [x[i], y[i]].every((v) => v !== null && v !== undefined);
        shape.setAttribute("visibility", known ? "visible" : "hidden");
        if (!known) return;
        if (shape.tagName === "circle") { const [cx, cy] = P([x[i], y[i]]).split(","); shape.setAttribute("cx", cx); shape.setAttribute("cy", cy); return; }
        const c = Math.cos(yaw[i]), s = Math.sin(yaw[i]), [l, w] = [base[0] / 2, base[1] / 2];
        shape.setAttribute("points", [[l, w], [l, -w], [-l, -w], [-l, w]].map(([a, b]) => P([x[i] + c * a - s * b, y[i] + s * a + c * b])).join(" "));
      };
      image.append(shape);
      return put;
    };
    const firsts = trace.results.filter((r) => r.scored && r.t !== null).map((r) => r.t);
    if (firsts.length) {
      const first = Math.min(...firsts);
      let at = t.findIndex((v) => v * 1000 >= first);
      robot({ fill: css("--unsafe"), "fill-opacity": 0.12, stroke: css("--unsafe") })(at < 0 ? t.length - 1 : at);
    }
    locate = robot({ fill: css("--ink"), "fill-opacity": 0.15, stroke: css("--ink"), visibility: "hidden" });
    host.append(image);
    if (firsts.length) host.append(el("p", "fine", "Red outline: where the robot was when a clause first broke."));
    if (r && r.some((v) => v !== null)) {
      const ramp = el("div", "ramp"), bars = el("span", "bars");
      RAMP.forEach((c) => { const i = el("i"); i.style.background = c; bars.append(i); });
      ramp.append(el("span", "", "v/d ≤ 0.5/s"), bars, el("span", "", "≥ 8/s; grey: over 1.25 m away"));
      host.append(ramp);
    }
    if (others.length) {
      const key = el("ul", "legend small");
      others.forEach(([i]) => { const item = el("li"), s = el("span", "swatch p" + (data.episodes[i].policy % 6)); item.append(s, el("span", "", data.policies[data.episodes[i].policy] + " on the same task, dashed")); key.append(item); });
      host.append(key);
    }
  };

  const draw = () => {
    if (current === null) return;
    const trace = data.traces[current];
    if (trace && Array.isArray(trace.results[0])) {
      trace.results = trace.results.map(([c, status, scored, depth, t, steps]) => ({ id: data.clauses[c], status: ["satisfied", "violated", "unknown"][status], scored: Boolean(scored), depth, t, steps }));
      trace.margins.forEach((m) => { m.id = data.clauses[m.c]; });
    }
    redrawables();
    const charts = panel.querySelector(".charts");
    charts.hidden = !trace;
    if (!trace) return;
    const t = trace.t.map((ms) => ms / 1000);
    drawMargins(trace, t);
    drawNear(trace, t);
    locate = () => {};
    drawPath(current, trace, t);
    $("fig-picture").hidden = !trace.picture;
    if (trace.picture) $("c-picture").src = trace.picture;
    drawResults(trace);
  };

  const open = (index, focus) => {
    const episode = data.episodes[index];
    if (!episode) return;
    current = index;
    rows.forEach((row) => { if (+row.dataset.i === index) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current"); });
    panel.hidden = false;
    $("t-title").textContent = episode.task;
    $("t-sub").textContent = data.policies[episode.policy] + " · seed " + episode.seed + " · " + episode.id;
    $("t-verdict").replaceChildren(el("span", "badge v-" + episode.safety, episode.safety), document.createTextNode(" " + episode.story + (data.traces[index] ? "" : " No trace of it is kept in this page.")));
    draw();
    if (focus) { panel.scrollIntoView({ block: "start" }); panel.focus({ preventScroll: true }); }
  };

  const fromHash = (focus) => { const m = /^#e(\d+)$/.exec(location.hash); if (m) open(+m[1], focus); return Boolean(m); };
  window.addEventListener("hashchange", () => fromHash(true));
  rows.forEach((row) => row.addEventListener("click", (event) => { if (!event.target.closest("a")) location.hash = "e" + row.dataset.i; }));
  const move = (by) => {
    const visible = shown.map((row) => +row.dataset.i), at = visible.indexOf(current);
    const next = visible[Math.min(Math.max(at + by, 0), visible.length - 1)];
    if (next === undefined || next === current) return;
    history.replaceState(null, "", "#e" + next);
    open(next, false);
    rows.find((row) => +row.dataset.i === next).scrollIntoView({ block: "nearest" });
  };
  $("t-prev").addEventListener("click", () => move(-1));
  $("t-next").addEventListener("click", () => move(1));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    if (event.key === "j") move(1);
    if (event.key === "k") move(-1);
  });
  let timer = 0;
  window.addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(draw, 120); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  filter();
  if (!fromHash(false) && data.first !== null) open(data.first, false);
})();
