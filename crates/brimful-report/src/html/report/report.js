// Adds a cursor and zooming to charts that are complete without it. Nothing is fetched and nothing is stored.
"use strict";
(() => {
  const chart = document.getElementById("over-time");
  const block = document.getElementById("over-time-data");
  if (!chart || !block) return;
  const section = chart.closest("section");
  const data = JSON.parse(block.textContent);
  const NONE = 65535;
  const decode = text => new Uint16Array(Uint8Array.from(atob(text || ""), c => c.charCodeAt(0)).buffer);
  const rows = data.rows.map((row, idx) => {
    const plot = chart.querySelector(`[data-curve="${idx}"]`);
    return {
      name: row.name, top: row.top, high: decode(row.high), low: decode(row.low), total: decode(row.total), recent: decode(row.recent),
      svg: plot.querySelector("svg"), width: plot.querySelector("svg").viewBox.baseVal.width,
    };
  });
  const over = chart.querySelector(".over"), cursor = over.querySelector(".cursor"), drag = over.querySelector(".drag");
  const ticks = chart.querySelector(".ticks"), output = section.querySelector(".reading");
  const rest = output.textContent, restTicks = ticks.innerHTML;
  const buttons = [...section.querySelectorAll(".ranges button")];
  let from = 0, to = data.end, at = null;

  const bytes = value => {
    for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
      if (value >= unit) return `${+(value / unit).toFixed(2)} ${name}`;
    }
    return `${Math.round(value)} B`;
  };
  const time = ms => {
    const s = ms / 1000;
    if (s < 60) return `${s.toFixed(1)} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
    return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min ${Math.floor(s % 60)} s`;
  };

  // The finest columns that cover a range of time, and where that range is in them.
  const columns = (row, side, a, b) => {
    const isRecent = side !== "total" && row.recent.length > 0 && a >= data.recentFrom;
    const values = isRecent ? row.recent : row[side].length ? row[side] : row.high;
    const start = isRecent ? data.recentFrom : 0, span = Math.max(1, data.end - start);
    const first = Math.min(values.length - 1, Math.floor((a - start) / span * values.length));
    const last = Math.max(first + 1, Math.min(values.length, Math.ceil((b - start) / span * values.length)));
    return values.subarray(first, last);
  };
  const extreme = (row, side, a, b) => {
    let found = null;
    for (const value of columns(row, side, a, b)) {
      if (value !== NONE && (found === null || (side === "low" ? value < found : value > found))) found = value;
    }
    return found;
  };
  const path = (row, side, closed) => {
    let d = "", before = null;
    const width = row.width, step = (to - from) / width;
    for (let x = 0; x <= width; x++) {
      const value = x < width ? extreme(row, side, from + x * step, from + (x + 1) * step) : null;
      const y = value === null ? null : 1000 - Math.round(value / (NONE - 1) * 1000);
      if (before === null && y !== null) d += closed ? `M${x} 1000V${y}` : `M${x} ${y}`;
      else if (before !== null && y === null) d += `H${x}` + (closed ? "V1000Z" : "");
      else if (before !== y) d += `H${x}V${y}`;
      before = y;
    }
    return d;
  };
  const share = ms => (ms - from) / (to - from) * 100;
  const place = (element, a, b) => {
    const left = Math.max(0, share(a)), right = Math.min(100, share(b));
    element.hidden = left > 100 || right < (b > a ? left + 0.2 : 0);
    element.style.left = `${left}%`;
    if (b > a) element.style.width = `${right - left}%`;
  };

  const show = (a, b) => {
    const least = Math.min(1000, data.end);
    from = Math.max(0, Math.min(a, data.end - least));
    to = Math.min(data.end, Math.max(b, from + least));
    const whole = from === 0 && to === data.end;
    for (const row of rows) {
      for (const element of row.svg.querySelectorAll(".high, .low, .line")) {
        const side = element.classList.contains("total") ? "total" : element.classList.contains("low") ? "low" : "high";
        element.dataset.whole ??= element.getAttribute("d");
        element.setAttribute("d", whole ? element.dataset.whole : path(row, side, !element.classList.contains("line")));
      }
    }
    for (const band of chart.querySelectorAll(".lane button")) place(band, +band.dataset.from, +band.dataset.to);
    for (const mark of chart.querySelectorAll(".mark, .over i")) place(mark, +mark.dataset.at, +mark.dataset.at);
    if (whole) ticks.innerHTML = restTicks;
    else {
      ticks.replaceChildren(...[0, 25, 50, 75, 100].map(part => {
        const label = document.createElement("span");
        label.textContent = time(from + (to - from) * part / 100);
        label.style.left = `${part}%`;
        label.className = part === 0 ? "first" : part === 100 ? "last" : "";
        return label;
      }));
    }
    for (const button of buttons) button.setAttribute("aria-pressed", String(+button.dataset.from === from && +button.dataset.to === to));
    read(null);
  };

  const read = moment => {
    at = moment;
    cursor.hidden = at === null;
    if (at === null) { output.textContent = rest; return; }
    at = Math.max(from, Math.min(to, at));
    cursor.style.left = `${share(at)}%`;
    const step = (to - from) / rows[0].width;
    const parts = rows.map(row => {
      const value = extreme(row, "high", at, at + step);
      return value === null ? [] : [`${row.name} ${bytes(value / (NONE - 1) * row.top)}`];
    }).flat();
    const when = document.createElement("b");
    when.textContent = time(at);
    output.replaceChildren(when, ` ${parts.join(" · ")}`);
  };

  if (!rows.length || !data.end) return;
  const moment = event => {
    const box = over.getBoundingClientRect();
    return from + Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * (to - from);
  };
  let start = null;
  chart.addEventListener("pointerdown", event => {
    if (event.button === 0 && !event.target.closest("button")) start = moment(event);
  });
  chart.addEventListener("pointermove", event => {
    const now = moment(event);
    read(now);
    drag.hidden = start === null;
    if (start !== null) {
      drag.style.left = `${share(Math.min(start, now))}%`;
      drag.style.width = `${Math.abs(share(now) - share(start))}%`;
    }
  });
  addEventListener("pointerup", event => {
    if (start === null) return;
    const [a, b] = [start, moment(event)].sort((x, y) => x - y);
    start = null;
    drag.hidden = true;
    if ((b - a) / (to - from) > 0.01) show(a, b);
  });
  chart.addEventListener("pointerleave", () => { if (start === null) read(null); });
  section.addEventListener("click", event => {
    const button = event.target.closest("button[data-from]");
    if (button) show(+button.dataset.from, +button.dataset.to);
  });
  chart.addEventListener("keydown", event => {
    const step = (to - from) / 100, middle = at ?? (from + to) / 2;
    const moves = {
      ArrowLeft: () => read(middle - step), ArrowRight: () => read(middle + step), Home: () => read(from), End: () => read(to),
      Escape: () => show(0, data.end), "+": () => show(middle - 25 * step, middle + 25 * step), "-": () => show(from - 50 * step, to + 50 * step),
    };
    if (moves[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      moves[event.key]();
      event.preventDefault();
    }
  });
})();
