// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

// The script of the map: where blocks lie, over time.
//
// It fills pixels by itself, since a canvas asked for 100,000 rectangles a frame is slow, and draws the levels (map_levels.hpp) whose
// cells are as large as a pixel.

namespace replay {

inline constexpr char const* page_map_script = R"js(
for (const figure of document.querySelectorAll('.map')) {
  const data = JSON.parse(figure.querySelector('script').textContent);
  const store = figure.querySelector('.blocks'), raw = atob(store.textContent);
  store.remove();
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  const count = data.levels[data.levels.length - 1];
  const begins = new Uint32Array(bytes.buffer, 0, count), lengths = new Uint32Array(bytes.buffer, 4 * count, count);
  const places = new Uint32Array(bytes.buffer, 8 * count, count), sizes = new Float32Array(bytes.buffer, 12 * count, count);
  const streams = new Uint16Array(bytes.buffer, 16 * count, count), sites = new Uint16Array(bytes.buffer, 18 * count, count);
  const canvas = figure.querySelector('canvas'), said = figure.querySelector('.said'), first = said.textContent;
  const choice = figure.querySelector('select'), pen = canvas.getContext('2d');
  const all = {x: 0, y: 0, w: data.end, h: data.bytes};
  let view = {...all}, due = false, picture = null, pixels = null;
  const size = n => n < 1024 ? n + ' B' : n < 1048576 ? (n / 1024).toFixed(1) + ' KiB' : n < 1073741824 ? (n / 1048576).toFixed(1) + ' MiB'
    : (n / 1073741824).toFixed(2) + ' GiB';
  const colours = []; // by key, as the pixel has it
  const colour = key => {
    const h = (key * 137.5 + 210) % 360 / 30;
    const part = n => Math.round(255 * (0.52 - 0.264 * Math.max(-1, Math.min((n + h) % 12 - 3, 9 - (n + h) % 12, 1))));
    return colours[key] = (255 << 24 | part(4) << 16 | part(8) << 8 | part(0)) >>> 0;
  };
  const draw = () => {
    due = false;
    const ratio = devicePixelRatio || 1, wide = Math.max(1, Math.round(canvas.clientWidth * ratio)),
      high = Math.max(1, Math.round(canvas.clientHeight * ratio));
    if (!picture || picture.width !== wide || picture.height !== high) {
      canvas.width = wide; canvas.height = high;
      picture = pen.createImageData(wide, high);
      pixels = new Uint32Array(picture.data.buffer);
    }
    pixels.fill(0);
    const sx = wide / view.w * data.unit, sy = high / view.h, left = view.x / data.unit, bottom = high + view.y * sy;
    const level = Math.max(0, Math.ceil(Math.log2(Math.max(wide / 1024, high / 512) * all.w / view.w)));
    const end = data.levels[Math.min(level, data.levels.length - 1)];
    const by = choice.value, grain = data.grain * sy;
    for (let i = 0; i < end; ++i) {
      const from = (begins[i] - left) * sx;
      if (from >= wide) continue;
      const to = from + Math.max(lengths[i] * sx, 1);
      if (to <= 0) continue;
      const low = bottom - places[i] * grain;
      if (low <= 0) continue;
      const h = sizes[i] * sy, top = low - Math.max(h, 1);
      if (top >= high) continue;
      const key = by === 'stream' ? streams[i] : by === 'size' ? Math.log2(sizes[i] + 1) | 0 : sites[i];
      const ink = colours[key] || colour(key);
      const x1 = Math.max(0, from | 0), x2 = Math.min(wide, Math.max((from | 0) + 1, to | 0));
      let y = Math.max(0, top | 0);
      const y2 = Math.min(high, Math.max((top | 0) + 1, (low | 0) - (h > 4 ? 1 : 0)));
      if (x2 - x1 < 8)
        for (; y < y2; ++y) for (let x = y * wide + x1, last = y * wide + x2; x < last; ++x) pixels[x] = ink;
      else
        for (; y < y2; ++y) pixels.fill(ink, y * wide + x1, y * wide + x2);
    }
    pen.putImageData(picture, 0, 0);
    canvas.dataset.drawn = end; // how many were looked at
  };
  const again = () => { if (!due) { due = true; requestAnimationFrame(draw); } };
  const place = e => {
    const box = canvas.getBoundingClientRect();
    return [view.x + (e.clientX - box.left) / box.width * view.w, view.y + (1 - (e.clientY - box.top) / box.height) * view.h];
  };
  const zoom = (by, x, y) => {
    view = {x: x - (x - view.x) * by, y: y - (y - view.y) * by, w: view.w * by, h: view.h * by};
    if (view.w > all.w * 1.5) view = {...all};
    again();
  };
  canvas.addEventListener('wheel', e => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, ...place(e)); }, {passive: false});
  let from = null;
  canvas.addEventListener('pointerdown', e => { from = place(e); canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener('pointerup', () => { from = null; });
  canvas.addEventListener('pointermove', e => {
    const [x, y] = place(e);
    if (from) { view.x -= x - from[0]; view.y -= y - from[1]; again(); return; }
    let found = -1;
    const slack = view.w / canvas.clientWidth / data.unit, at = x / data.unit;
    for (let i = 0; i < count; ++i)
      if (begins[i] <= at && at <= begins[i] + Math.max(lengths[i], slack) && places[i] * data.grain <= y &&
        y < places[i] * data.grain + sizes[i]) found = i;
    said.textContent = found < 0 ? first : size(sizes[found]) + ' from ' + (begins[found] * data.unit / 1e6).toFixed(6) + ' s to '
      + ((begins[found] + lengths[found]) * data.unit / 1e6).toFixed(6) + ' s, stream ' + streams[found] + ', allocated by '
      + data.sites[sites[found]];
  });
  canvas.addEventListener('pointerleave', () => { said.textContent = first; });
  canvas.addEventListener('keydown', e => {
    const x = view.x + view.w / 2, y = view.y + view.h / 2;
    if (e.key === '+' || e.key === '=') zoom(0.8, x, y);
    else if (e.key === '-') zoom(1.25, x, y);
    else if (e.key === 'Escape') view = {...all};
    else if (e.key === 'ArrowLeft') view.x -= view.w / 10;
    else if (e.key === 'ArrowRight') view.x += view.w / 10;
    else if (e.key === 'ArrowUp') view.y += view.h / 10;
    else if (e.key === 'ArrowDown') view.y -= view.h / 10;
    else return;
    e.preventDefault();
    again();
  });
  choice.addEventListener('change', again);
  addEventListener('resize', again);
  draw();
}
)js";

} // namespace replay
