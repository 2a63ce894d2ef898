// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The page's style and script. The colours say what the bytes are, everywhere the same: live, lost to
// rounding, free but held; and which calls wait.

namespace replay {

inline constexpr char const* page_style = R"css(
:root {
  color-scheme: light dark;
  --page: #f7f8f9; --card: #ffffff; --edge: #dfe3e8; --grid: #e8ebef; --text: #1b2430; --soft: #5a6675;
  --live: #2f74b5; --rounding: #d97a06; --wait: #c2185b; --bad: #a65400;
  --held: #c3d3e2; --wall: #16304a; --on-live: #ffffff; --on-held: #1b2430;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11161c; --card: #182029; --edge: #2b3642; --grid: #26313c; --text: #e5ebf1; --soft: #9dabb9;
    --live: #4b93d6; --rounding: #f2a33c; --wait: #ff6f9f; --bad: #f2a33c;
    --held: #354b61; --wall: #d8e6f3; --on-live: #08121c; --on-held: #e5ebf1;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1140px; margin: 0 auto; padding: 2.2rem 1.25rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .35rem; letter-spacing: -.015em; }
h2 { font-size: 1.75rem; line-height: 1.2; margin: 3.5rem 0 .35rem; letter-spacing: -.015em; }
h3 { font-size: 1.06rem; margin: 0; }
p { margin: .35rem 0; max-width: 46rem; }
.soft, figcaption, .what, footer { color: var(--soft); }
code { font: .94em ui-monospace, monospace; }
nav { margin-bottom: 1.2rem; } nav a { margin-right: 1rem; }
a { color: var(--live); }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 1.1rem 1.25rem 1.2rem;
  margin: 1.1rem 0 0; }
.card > header { display: flex; flex-wrap: wrap; gap: .3rem 1.5rem; align-items: baseline;
  justify-content: space-between; margin-bottom: .8rem; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .875rem; color: var(--soft); }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .4rem;
  vertical-align: -.06rem; }
.key i.call, .key i.wait { width: 3px; height: .5rem; border-radius: 0; background: var(--soft); }
.key i.wait { height: .9rem; background: var(--wait); vertical-align: -.12rem; }
.key i.line { height: 2px; border-radius: 0; vertical-align: .25rem; background: var(--wall); width: 1.1rem; }
.live { background: var(--live); color: var(--on-live); } .rounding { background: var(--rounding); color: #1b1205; }
.held { background: var(--held); color: var(--on-held); }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem 0 .5rem 1.5rem; text-align: right; vertical-align: baseline; white-space: nowrap; }
th { font-weight: 600; font-size: .82rem; color: var(--soft); border-bottom: 1px solid var(--edge); }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; }
tbody th { font-size: 1rem; color: var(--text); border: 0; }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
.what { display: block; font-size: .82rem; font-weight: 400; line-height: 1.35; }
.of { display: block; font-size: .82rem; font-weight: 400; line-height: 1.35; color: var(--soft); }
.verdict { font-size: 1.06rem; margin: .9rem 0 0; padding-left: .9rem; border-left: 3px solid var(--live); max-width: 56rem; }
td.best { font-weight: 650; } td.bad { color: var(--bad); font-weight: 650; }

.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1.3rem 1.6rem; }
.chart h4 { margin: 0; font-size: .95rem; display: flex; justify-content: space-between; gap: 1rem; }
.chart h4 span { font-weight: 400; white-space: nowrap; color: var(--soft); font-variant-numeric: tabular-nums; font-size: .875rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); font-variant-numeric: tabular-nums; }
.grid { stroke: var(--grid); } .base { stroke: var(--soft); stroke-opacity: .55; }
.area-held { fill: var(--held); } .area-live { fill: var(--live); }
.wall { fill: none; stroke: var(--wall); stroke-width: 1.25; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
path.call { fill: var(--soft); } path.wait { fill: var(--wait); }
.peak { fill: var(--card); stroke: var(--wall); stroke-width: 1.6; }
svg text.peak-label { fill: var(--text); font-weight: 600; stroke: var(--card); stroke-width: 4px;
  paint-order: stroke; }
tr.recorded > * { color: var(--wait); } line.recorded { stroke: var(--wait); stroke-width: 1.5; stroke-dasharray: 6 3; }
.key i.as-recorded { width: 1.1rem; height: 0; border-top: 2px dashed var(--wait); border-radius: 0; vertical-align: .2rem; }
.map canvas { width: 100%; height: 26rem; display: block; touch-action: none; cursor: crosshair; background: var(--page); }
.map canvas:focus-visible { outline: 2px solid var(--live); } .map .said { min-height: 1.5em; font-variant-numeric: tabular-nums; }
.idle-0 { --c: var(--wait); } .idle-1 { --c: var(--rounding); } .idle-2 { --c: var(--live); } .idle-3 { --c: var(--held); }
.idle path { fill: var(--c); } .beside th, .beside td { padding-left: .9rem; }
.idle i { background: var(--c); display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .5rem; }
.idle svg { height: 8rem; } .idle .charts { margin-bottom: .8rem; }
.cursor { stroke: var(--text); stroke-dasharray: 3 3; visibility: hidden; }
.choices { display: flex; flex-wrap: wrap; gap: .2rem 2rem; }
.axis-choice { font-size: .875rem; color: var(--soft); border: 0; margin: 0; padding: 0; display: flex; gap: .9rem; }
.axis-choice label { cursor: pointer; } .axis-choice input { accent-color: var(--live); margin: 0 .3rem 0 0; }
.by-events { display: none; }
.over-time:has(.choose-events:checked) .by-events { display: inline; }
.over-time:has(.choose-events:checked) .by-time { display: none; }
.of-own { display: none; }
.over-time:has(.choose-own:checked) .of-own { display: inline; }
.over-time:has(.choose-own:checked) .of-all { display: none; }
.over-time:has(.choose-own:checked) .curve { transform: scaleY(var(--own)); }
.over-time .key { margin: -.4rem 0 .9rem; }
.over-time:focus-visible { outline: 2px solid var(--live); outline-offset: 3px; }

.bars { display: grid; grid-template-columns: max-content 1fr; gap: .55rem 1.2rem; align-items: center;
  padding-top: 1.5rem; }
.bars .name { grid-column: 1; font-weight: 600; font-size: .95rem; }
.bar { grid-column: 2; display: flex; height: 1.9rem; align-items: center; }
.bar > span { height: 100%; display: flex; align-items: center; justify-content: center; overflow: hidden;
  font-size: .8rem; font-variant-numeric: tabular-nums; white-space: nowrap; min-width: 0; }
.bar > span:first-child { border-radius: 4px 0 0 4px; }
.bar > span:last-of-type { border-radius: 0 4px 4px 0; }
.bar > b { font-size: .875rem; padding-left: .6rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.mark-space { grid-column: 2; position: relative; align-self: stretch; pointer-events: none; }
.mark { position: absolute; top: -.4rem; bottom: -.4rem; border-left: 2px dashed var(--text); }
.mark span { position: absolute; bottom: 100%; left: 0; transform: translateX(-50%); font-size: .8rem;
  white-space: nowrap; padding-bottom: .1rem; color: var(--soft); }
figcaption p { font-size: .875rem; margin-top: .9rem; }
.notes { font-size: .9rem; } .notes li { margin: .3rem 0; max-width: 52rem; } .notes ul { padding-left: 1.1rem; margin: .4rem 0 0; }
footer { margin-top: 2rem; font-size: .85rem; }
@media (max-width: 640px) {
  .bars { grid-template-columns: 1fr; gap: .2rem; } .bars .name { margin-top: .5rem; } .mark-space { display: none; }
  .bars > .name, .bars > .bar { grid-column: 1; grid-row: auto !important; }
  .bars { padding-top: 0; } .bar > span { font-size: 0; }
  table .what, thead { display: none; }
  table, tbody, tr, tbody th, td { display: block; width: 100%; }
  tbody th { padding: .5rem 0 0; } tbody tr > td { border: 0; padding: .1rem 0; display: flex; gap: .5rem; white-space: normal; }
  td::before { content: attr(data-name); margin-right: auto; color: var(--soft); font-weight: 400; } td .of { display: inline; }
  .chart { overflow-x: auto; } .chart svg { min-width: 30rem; }
  .chart h4 { flex-wrap: wrap; gap: 0 1rem; } .chart h4 span { white-space: normal; }
}
@media print { body { background: none; } .card { break-inside: avoid; } }
)css";

inline constexpr char const* page_script = R"js(
for (const figure of document.querySelectorAll('.over-time')) {
  const data = JSON.parse(figure.querySelector('script').textContent);
  const charts = [...figure.querySelectorAll('.chart')];
  const said = charts.map(c => c.querySelector('h4 span').textContent);
  const axis = () => figure.querySelector('.choose-events').checked ? 'events' : 'time';
  const size = kib => kib < 1000 ? kib + ' KiB' : kib < 1000 * 1024 ? (kib / 1024).toFixed(1) + ' MiB'
    : (kib / 1048576).toFixed(2) + ' GiB';
  const calls = (all, wait) => all + wait === 0 ? ''
    : wait === 0 ? ', ' + all + (all === 1 ? ' call' : ' calls') : ', ' + wait + (wait === 1 ? ' call waits' : ' calls wait');
  let column = -1;
  const show = to => {
    column = to;
    const d = data[axis()];
    charts.forEach((chart, i) => {
      const line = chart.querySelector('.cursor');
      line.style.visibility = to < 0 ? 'hidden' : 'visible';
      if (to < 0) { chart.querySelector('h4 span').textContent = said[i]; return; }
      const x = data.left + to + 0.5;
      line.setAttribute('x1', x); line.setAttribute('x2', x);
      const at = d.end * (to + 0.5) / d.requested.length;
      chart.querySelector('h4 span').textContent =
        (axis() === 'time' ? (at / 1e6).toFixed(3) + ' s: ' : 'event ' + Math.round(at).toLocaleString('en') + ': ') +
        size(d.requested[to]) + ' of ' + size(d.reserved[i][to]) + calls(d.calls[i][to], d.waits[i][to]);
    });
  };
  const last = data.time.requested.length - 1;
  for (const chart of charts) {
    const svg = chart.querySelector('svg');
    svg.addEventListener('pointermove', e => {
      const box = svg.getBoundingClientRect();
      const x = (e.clientX - box.left) / box.width * svg.viewBox.baseVal.width - data.left;
      show(x < 0 || x > last + 1 ? -1 : Math.min(last, Math.floor(x)));
    });
    svg.addEventListener('pointerleave', () => show(-1));
  }
  figure.addEventListener('keydown', e => {
    const step = {ArrowLeft: -1, ArrowRight: 1, PageUp: -24, PageDown: 24}[e.key];
    if (e.target !== figure || (!step && e.key !== 'Escape')) return;
    e.preventDefault();
    show(e.key === 'Escape' ? -1 : Math.max(0, Math.min(last, column + step)));
  });
  figure.addEventListener('change', () => show(-1));
}
)js";

} // namespace replay
