// Lines over time: a drawing for the eye, and the same numbers as a table for everybody.
import {list} from './table.js';

const day = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium'});
const clock = new Intl.DateTimeFormat(undefined, {timeStyle: 'medium'});
const moment = new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'medium'});

// How to write the times between two, all in seconds since 1970: with the day where they are of several.
export function between(from, until) {
  const form = day.format(from * 1000) === day.format(until * 1000) ? clock : moment;
  return (seconds) => form.format(seconds * 1000);
}

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
  constructor(figure, name, lines) {
    this.name = name;
    this.lines = lines;
    this.place = document.createElement('div');
    this.place.className = 'plot';
    this.place.setAttribute('aria-hidden', 'true');
    const details = document.createElement('details');
    const summary = document.createElement('summary');
    summary.textContent = 'As a table';
    this.table = document.createElement('div');
    details.append(summary, this.table);
    details.addEventListener('toggle', () => this.tabulate());
    this.details = details;
    figure.append(this.place, details);
    new ResizeObserver(() => this.resize()).observe(this.place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.redraw());
  }

  // data: the times in seconds, then the values of each line; null where there is none. lines: as above, where others are to be
  // drawn than before.
  set(data, lines = this.lines) {
    this.data = data;
    const same = lines.length === this.lines.length && lines.every((line, i) => line === this.lines[i]);
    this.lines = lines;
    if (this.plot && same) {
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
      axes: [{stroke: ink, grid, ticks: grid, space: 85, values: (_, ticks) => ticks.map((t) => clock.format(t * 1000))}, axis('left', 3, left.format), ...(right ? [axis('right', 1, right.format)] : [])],
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
    const [times, ...values] = this.data;
    const write = between(times[0], times[times.length - 1]);
    list(this.table, this.name, (i) => String(times[i]), [
      {title: 'Time', of: (i) => write(times[i])},
      ...this.lines.map((line, n) => ({title: line.label, number: true, of: (i) => (values[n][i] === null ? '–' : line.format(values[n][i]))})),
    ], [...times.keys()].reverse(), '');
  }
}
