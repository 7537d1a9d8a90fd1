// The dashboard: what the service tells by server-sent events, drawn and listed. Every text goes in as text, never as markup:
// keys are what clients send.
import {Chart} from './chart.js';
import {keep, list, write} from './table.js';

const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const short = new Intl.NumberFormat('en', {maximumSignificantDigits: 3, notation: 'compact'});
const count = (n) => whole.format(n || 0);
const rate = (n) => (n >= 1000 ? short.format(n) : n >= 10 || n === 0 ? n.toFixed(0) : n.toFixed(1));
const percent = (part) => `${(100 * part).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;
const share = (part, of) => (of > 0 ? percent(part / of) : '–');
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
const micros = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(1)} s` : us >= 1000 ? `${(us / 1000).toFixed(us >= 1e4 ? 0 : 1)} ms` : `${Math.round(us)} µs`);
function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${Math.round(s / 86400)} days`;
}

const decisions = new Chart($('decisions'), 'Decisions', [
  {label: 'admitted', color: '--admitted', scale: 'left', format: rate},
  {label: 'denied', color: '--denied', scale: 'left', format: rate},
  {label: 'near the limit', color: '--near', scale: 'left', format: rate, dash: [4, 4]},
]);
const latency = new Chart($('latency'), 'Denials against latency', [
  {label: 'denied', color: '--denied', scale: 'left', format: rate},
  {label: 'upstream p95', color: '--admitted', scale: 'right', format: micros, points: true},
  {label: 'store p95', color: '--store', scale: 'right', format: micros, points: true},
]);

const requests = (c) => c.admitted + c.denied + (c.left || 0);
const at = (numbers, i) => numbers?.[i] ?? 0;

function tiles(t, now) {
  const open = t.fallbacks.filter((f) => f.open);
  const all = [
    ['Admitted', `${rate(now.admitted)}/s`, `${count(t.total.admitted)} in ${t.range}`],
    ['Denied', `${rate(now.denied)}/s`, `${share(t.total.denied, requests(t.total))} of ${count(requests(t.total))}`],
    ['Near the limit', `${rate(now.near)}/s`, `${share(t.total.near || 0, t.total.admitted)} of the admitted`],
    ['Calls a request', t.calls > 0 ? t.calls_per_request.toFixed(3) : '–', `${count(t.calls)} calls that ask`],
    ['Workers', count(t.connected), `${t.replicas.length} ${t.replicas.length === 1 ? 'replica' : 'replicas'}`],
    ['Store p95', t.store.count > 0 ? micros(t.store.p95_us) : '–', `p50 ${t.store.count > 0 ? micros(t.store.p50_us) : '–'}`],
    ['Without the service', open.length > 0 ? 'yes' : 'no', t.total.fallback ? `${count(t.total.fallback)} requests in ${t.range}` : `none in ${t.range}`, open.length > 0],
  ];
  keep($('tiles'), all, ([title]) => title, ([title]) => {
    const tile = document.createElement('div'), term = document.createElement('dt'), figure = document.createElement('dd');
    term.textContent = title;
    figure.append('', document.createElement('small'));
    tile.append(term, figure);
    return tile;
  }, (tile, [, value, more, bad]) => {
    const figure = tile.lastChild;
    write(figure.firstChild, value);
    write(figure.lastChild, more);
    figure.classList.toggle('bad', bad ?? false);
  });
}

// The quantile of each point of a series, from the coarser steps that it was measured in; null where there is none.
function stretched(times, step, steps, of) {
  const known = new Map(steps.map((s) => [s.from, s.count > 0 ? of(s) : null]));
  return times.map((time) => known.get(Math.floor(time / step) * step) ?? null);
}

function charts(t) {
  const s = t.series, times = Array.from({length: s.points}, (_, i) => s.from + i * s.step);
  const line = (numbers) => times.map((time, i) => (time + s.step < t.since || i >= s.points - 1 ? null : at(numbers, i) / s.step));
  decisions.set([times, line(s.admitted), line(s.denied), line(s.near)]);
  latency.set([
    times, line(s.denied),
    stretched(times, t.upstream.step, t.upstream.steps, (q) => q.p95_us), stretched(times, t.store.step, t.store.steps, (q) => q.p95_us),
  ]);
}

const key = {title: 'Key', of: (k) => `${k.limit}/${k.key}`};
const numbers = {
  admitted: {title: 'Admitted', number: true, of: (c) => count(c.admitted)},
  denied: {title: 'Denied', number: true, of: (c) => count(c.denied), bad: (c) => c.denied > 0},
  near: {title: 'Near', number: true, of: (c) => count(c.near)},
  share: {title: 'Denied of all', number: true, of: (c) => share(c.denied, requests(c))},
};

function tables(page) {
  const t = page.traffic;
  list($('keys'), 'Keys with most denials', key.of, [key, numbers.denied, numbers.admitted, numbers.share], t.keys, 'No key was denied anything.');
  list($('routes'), 'Routes with most denials', (r) => `${r.limit} ${r.route}`, [
    {title: 'Route', of: (r) => r.route || '(any)'}, {title: 'Limit', of: (r) => r.limit}, numbers.denied, numbers.admitted,
  ], t.routes, 'No route was denied anything.');
  const heard = new Map(t.limits.map((l) => [l.name, l])), nothing = {admitted: 0, denied: 0};
  const chosen = page.limits.filter((l) => !t.limit || l.name === t.limit);
  const rows = [
    ...chosen.map((l) => ({...nothing, ...heard.get(l.name), ...l})),
    ...t.limits.filter((l) => !page.limits.some((p) => p.name === l.name)).map((l) => ({...l, gone: true})),
  ];
  list($('limits'), 'Limits and their use', (l) => l.name, [
    {title: 'Limit', of: (l) => l.name || '(under none)'},
    {title: 'Rates', of: (l) => (l.gone ? '–' : l.rates.length ? l.rates.join(', ') : 'none')},
    {title: 'How', of: (l) => (l.gone ? '–' : `${l.mode}, ${l.algorithm}${l.shadow ? `, ${l.shadow} % in shadow` : ''}`)},
    numbers.admitted, numbers.denied, numbers.near, numbers.share,
  ], rows, 'The policy has no limits.');
  list($('shadow'), 'What limits in shadow would have denied', key.of, [
    key,
    {title: 'Would have denied', number: true, of: (k) => `${percent(k.shadow_share || 0)}`, bad: (k) => k.shadow_denied > 0},
    {title: 'Requests', number: true, of: (k) => count((k.shadow_admitted || 0) + (k.shadow_denied || 0))},
  ], t.shadow, 'No request was under a limit in shadow.');
  list($('fallbacks'), 'Periods that workers decided without the service', (f) => `${f.limit} ${f.from}`, [
    {title: 'Limit', of: (f) => f.limit}, {title: 'From', of: (f) => clock(f.from)},
    {title: 'For', of: (f) => span(f.until - f.from) + (f.open ? ', now' : '')}, {title: 'Requests', number: true, of: (f) => count(f.requests)},
  ], t.fallbacks, 'Every decision was the service\'s own, or rested on what it had granted.');
  list($('workers'), 'Workers', (w) => w.id, [
    {title: 'Worker', of: (w) => (w.own ? `${w.id} (the service itself)` : w.id)}, {title: 'Age', number: true, of: (w) => (w.age > 0 ? span(w.age) : '–')},
    {title: 'Heard of', number: true, of: (w) => `${span(t.at - w.last_seen)} ago`},
    {title: 'Requests', number: true, of: (w) => count(w.requests)},
    {title: 'Leases', number: true, of: (w) => count(w.leases)}, {title: 'Units leased', number: true, of: (w) => count(w.units)},
    {title: 'Policy', of: (w) => (w.policy ? (w.policy === page.version ? 'current' : w.policy) : 'none yet')},
  ], t.workers, 'No worker has called within the last minute.');
  list($('replicas'), 'Replicas', (r) => r.id, [
    {title: 'Replica', of: (r) => r.id}, {title: 'Up', number: true, of: (r) => span(t.at - r.since)},
    {title: 'Told', number: true, of: (r) => `${span(t.at - r.at)} ago`},
    {title: 'Policy', of: (r) => (r.policy === page.version ? 'current' : r.policy || 'none yet')},
  ], t.replicas, 'None.');
}

function notes(page) {
  const t = page.traffic, none = requests(t.total) === 0 && !t.limit;
  $('empty').hidden = !none;
  if (none) {
    $('why-empty').textContent = `The service has been up for ${span(t.at - t.since)}, and no worker has reported a request. ` +
      'Once Envoy\'s filter decides its first request, it shows here within two seconds.';
  }
  const length = {'5m': 300, '1h': 3600, '24h': 86400}[t.range];
  const missing = t.since - (t.at - length);
  $('partial').hidden = none || missing < 2;
  $('partial').textContent = `What was before ${clock(t.since)} is not known: the service began then.`;
}

function show(page) {
  const t = page.traffic;
  $('domain').textContent = page.domain;
  $('version').textContent = page.version || 'none';
  const select = $('limit'), names = [...new Set([...page.limits.map((l) => l.name), ...t.limits.map((l) => l.name)])].filter(Boolean);
  if (names.join('\n') !== [...select.options].slice(1).map((o) => o.value).join('\n')) {
    const before = select.value;
    select.replaceChildren(new Option('all', ''), ...names.map((n) => new Option(n, n)));
    select.value = before;
  }
  notes(page);
  tiles(t, page.now);
  charts(t);
  tables(page);
}

let source, again, heard = 0, tried = 0, every = 1, broken = false;
const patience = () => 1000 * (3 + 2 * every); // in milliseconds

// What the page knows of the service. What changes by the second is not read out.
function state(text, kind, ticking = '') {
  const place = $('state'), tick = document.createElement('span');
  if (place.dataset.text !== text) {
    place.dataset.text = text;
    place.className = kind;
    place.replaceChildren(text, tick);
    tick.setAttribute('aria-hidden', 'true');
  }
  if (place.lastChild.textContent !== ticking) place.lastChild.textContent = ticking;
}

function follow() {
  source?.close();
  clearTimeout(again);
  tried = Date.now();
  const of = new URLSearchParams(new FormData($('choice')));
  const mine = source = new EventSource(`/events?${of}`);
  mine.onmessage = (message) => {
    const page = JSON.parse(message.data);
    heard = Date.now();
    every = page.every;
    broken = false;
    show(page);
    $('sign-in').hidden = true;
    state('Live', 'live');
  };
  mine.onerror = () => {
    broken = true;
    lost();
    if (mine.readyState === EventSource.CLOSED) refused(mine, of); // else it tries again by itself
  };
}

function lost() {
  state(heard ? `Lost the service at ${new Date(heard).toLocaleTimeString()}; trying again` : 'The service does not answer; trying again', 'lost');
}

// An EventSource does not tell why it was refused: the same question, asked in a way that does.
async function refused(mine, of) {
  const asked = new AbortController();
  let status = 0, text = '';
  try {
    const response = await fetch(`/events?${of}`, {signal: asked.signal});
    status = response.status;
    if (status !== 200) text = await response.text();
  } catch { /* nobody answers */ }
  asked.abort();
  if (mine !== source) return;
  if (status === 401) { // as after a restart with another token; asking again would not help
    $('sign-in').hidden = false;
    state('Signed out: the service asks for its token', 'lost');
    return;
  }
  if (status === 503) state(`Not up to date: ${text.trim()}; trying again`, 'lost');
  if (status === 403) state('The service answers this page no more; reload it to see why', 'lost');
  again = setTimeout(follow, 3000);
}

// A service that hangs says nothing, and closes nothing; nor does a connection that leads nowhere any more.
setInterval(() => {
  if (broken || source.readyState === EventSource.CLOSED || Date.now() - heard < patience()) return;
  const waited = Date.now() - Math.max(heard, tried);
  if (heard) {
    state(`No word from the service since ${new Date(heard).toLocaleTimeString()}`, 'lost', `, for ${span((Date.now() - heard) / 1000)}`);
  } else if (waited > patience()) {
    lost();
  }
  if (waited > 3 * patience()) follow();
}, 1000);

$('choice').addEventListener('change', follow);
follow();
