// Lines over time: a drawing for the eye, and the same numbers as a table for everybody.

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Resolves light-dark(), which a canvas does not know, by what the page makes of it.
function resolved(name) {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value || color(name);
}

export class Chart {
  // lines: {label, color, scale ('left' or 'right'), format} of each.
  constructor(figure, lines) {
    this.lines = lines;
    this.place = document.createElement('div');
    this.place.className = 'plot';
    this.place.setAttribute('aria-hidden', 'true');
    const details = document.createElement('details');
    const summary = document.createElement('summary');
    summary.textContent = 'As a table';
    this.table = document.createElement('div');
    this.table.className = 'scroll';
    this.table.tabIndex = 0;
    this.table.setAttribute('role', 'region');
    this.table.setAttribute('aria-label', 'The numbers of the drawing');
    details.append(summary, this.table);
    details.addEventListener('toggle', () => this.tabulate());
    this.details = details;
    figure.append(this.place, details);
    new ResizeObserver(() => this.resize()).observe(this.place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
  }

  // data: the times in seconds, then the values of each line; null where there is none.
  set(data) {
    this.data = data;
    if (this.plot) {
      this.plot.setData(data);
    } else {
      this.redraw();
    }
    this.tabulate();
  }

  redraw() {
    this.plot?.destroy();
    if (!this.data) return;
    const ink = resolved('--quiet');
    const grid = {stroke: resolved('--line'), width: 1};
    const axis = (scale, side, format) => ({scale, side, stroke: ink, grid: side === 3 ? grid : {show: false}, ticks: grid, size: 60, values: (_, ticks) => ticks.map(format)});
    const left = this.lines.find((l) => l.scale === 'left');
    const right = this.lines.find((l) => l.scale === 'right');
    const range = (_, low, high) => [0, Math.max(high || 0, 1) * 1.1];
    this.plot = new window.uPlot({
      width: this.place.clientWidth || 300, height: 220,
      cursor: {drag: {x: false, y: false}},
      scales: {x: {time: true}, left: {range}, ...(right && {right: {range}})},
      axes: [{stroke: ink, grid, ticks: grid}, axis('left', 3, left.format), ...(right ? [axis('right', 1, right.format)] : [])],
      series: [{}, ...this.lines.map((l) => ({
        label: l.label, scale: l.scale, stroke: resolved(l.color), width: 2, dash: l.dash, spanGaps: false,
        points: {show: l.points ?? false}, value: (_, v) => (v === null || v === undefined ? '–' : l.format(v)),
      }))],
    }, this.data, this.place);
  }

  resize() {
    if (this.plot && this.place.clientWidth > 0) this.plot.setSize({width: this.place.clientWidth, height: 220});
  }

  tabulate() {
    if (!this.details.open || !this.data) return;
    const rows = 30; // the latest
    const [times, ...values] = this.data;
    const table = document.createElement('table');
    const head = table.createTHead().insertRow();
    for (const text of ['Time', ...this.lines.map((l) => l.label)]) {
      const cell = document.createElement('th');
      cell.scope = 'col';
      cell.textContent = text;
      head.append(cell);
    }
    const body = table.createTBody();
    for (let i = times.length - 1; i >= Math.max(0, times.length - rows); i--) {
      const row = body.insertRow();
      row.insertCell().textContent = new Date(times[i] * 1000).toLocaleTimeString();
      values.forEach((v, n) => { row.insertCell().textContent = v[i] === null || v[i] === undefined ? '–' : this.lines[n].format(v[i]); });
    }
    this.table.replaceChildren(table);
  }
}
