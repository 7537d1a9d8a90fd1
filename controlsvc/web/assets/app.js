// The dashboard: what the service tells by server-sent events, drawn and listed. Every text goes in as text, never as markup:
// keys are what clients send.
import {Chart, between} from './chart.js';
import {keep, list, write} from './table.js';

const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const short = new Intl.NumberFormat('en', {maximumSignificantDigits: 3, notation: 'compact'});
const count = (n) => whole.format(n || 0);
const rate = (n) => (n >= 1000 ? short.format(n) : n >= 10 || n === 0 ? n.toFixed(0) : n.toFixed(1));
const percent = (part) => `${(100 * part).toFixed(part > 0 && part < 0.1 ? 1 : 0)} %`;
const share = (part, of) => (of > 0 ? percent(part / of) : '–');
const micros = (us) => (us >= 1e6 ? `${(us / 1e6).toFixed(1)} s` : us >= 1000 ? `${(us / 1000).toFixed(us >= 1e4 ? 0 : 1)} ms` : `${Math.round(us)} µs`);
function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${Math.round(s / 86400)} days`;
}

const drawn = [
  {label: 'admitted', of: (s) => s.admitted, color: '--admitted', scale: 'left', format: rate},
  {label: 'denied', of: (s) => s.denied, color: '--denied', scale: 'left', format: rate},
  {label: 'near the limit', of: (s) => s.near, color: '--near', scale: 'left', format: rate, dash: [4, 4]},
];
const drawnInShadow = [
  {label: 'in shadow: would admit', of: (s) => s.shadow_admitted, color: '--admitted', scale: 'left', format: rate, dash: [8, 4]},
  {label: 'in shadow: would deny', of: (s) => s.shadow_denied, color: '--denied', scale: 'left', format: rate, dash: [8, 4]},
];
const decisions = new Chart($('decisions'), 'Decisions', drawn);
const took = [
  {label: 'upstream p95', color: '--admitted', scale: 'right', format: micros, points: true},
  {label: 'store p95', color: '--store', scale: 'right', format: micros, points: true},
];
const latency = new Chart($('latency'), 'Denials against latency', [drawn[1], ...took]);

const requests = (c) => c.admitted + c.denied + (c.left || 0);
const shadowed = (c) => (c.shadow_admitted || 0) + (c.shadow_denied || 0);

// What the chosen limit says: whether it decides, whether it is in shadow for some keys or all. All limits together decide; what
// those of them in shadow say is in the tables only, for a request is under several.
function says(page) {
  const t = page.traffic, chosen = t.limit && page.limits.find((l) => l.name === t.limit), shadow = t.limit && (chosen?.shadow > 0 || shadowed(t.total) > 0);
  return {decides: !shadow || chosen?.shadow < 100 || requests(t.total) > 0, shadow};
}
const at = (numbers, i) => numbers?.[i] ?? 0;

function tiles(page) {
  const t = page.traffic, now = page.now, open = t.fallbacks.filter((f) => f.open), {decides, shadow} = says(page);
  const all = [
    ...(decides ? [
      ['Admitted', `${rate(now.admitted)}/s`, `${count(t.total.admitted)} in ${t.range}`],
      ['Denied', `${rate(now.denied)}/s`, `${share(t.total.denied, requests(t.total))} of ${count(requests(t.total))}`],
      ['Near the limit', `${rate(now.near)}/s`, `${share(t.total.near || 0, t.total.admitted)} of the admitted`],
    ] : []),
    ...(shadow ? [
      ['In shadow: would admit', `${rate(now.shadow_admitted)}/s`, `${count(t.total.shadow_admitted)} in ${t.range}`],
      ['In shadow: would deny', `${rate(now.shadow_denied)}/s`, `${share(t.total.shadow_denied || 0, shadowed(t.total))} of ${count(shadowed(t.total))}`],
    ] : []),
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

function charts(page) {
  const t = page.traffic, s = t.series, {decides, shadow} = says(page), times = Array.from({length: s.points}, (_, i) => s.from + i * s.step);
  const line = (numbers) => times.map((time, i) => (time + s.step < t.since || i >= s.points - 1 ? null : at(numbers, i) / s.step));
  const lines = [...(decides ? drawn : []), ...(shadow ? drawnInShadow : [])];
  decisions.set([times, ...lines.map((l) => line(l.of(s)))], lines);
  const denials = decides ? drawn[1] : drawnInShadow[1];
  latency.set([
    times, line(denials.of(s)),
    stretched(times, t.upstream.step, t.upstream.steps, (q) => q.p95_us), stretched(times, t.store.step, t.store.steps, (q) => q.p95_us),
  ], [denials, ...took]);
}

const key = {title: 'Key', of: (k) => `${k.limit}/${k.key}`};
const numbers = {
  admitted: {title: 'Admitted', number: true, of: (c) => count(c.admitted)},
  denied: {title: 'Denied', number: true, of: (c) => count(c.denied), bad: (c) => c.denied > 0},
  near: {title: 'Near', number: true, of: (c) => count(c.near)},
  share: {title: 'Denied of all', number: true, of: (c) => share(c.denied, requests(c))},
  shadow: {
    title: 'In shadow: would deny', number: true, bad: (c) => c.shadow_denied > 0,
    of: (c) => (shadowed(c) > 0 ? `${count(c.shadow_denied)} of ${count(shadowed(c))} (${share(c.shadow_denied || 0, shadowed(c))})` : '–'),
  },
};

function tables(page, clock) {
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
    numbers.admitted, numbers.denied, numbers.near, numbers.share, numbers.shadow,
  ], rows, 'The policy has no limits.');
  list($('shadow'), 'What limits in shadow would have denied', key.of, [
    key,
    {title: 'Would have denied', number: true, of: (k) => `${percent(k.shadow_share || 0)}`, bad: (k) => k.shadow_denied > 0},
    {title: 'Requests', number: true, of: (k) => count(shadowed(k))},
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

// The seconds of each range, and by what keys and routes are counted.
const lengths = {'5m': 300, '1h': 3600, '24h': 86400}, steps = {'5m': 'the minute', '1h': '5 minutes', '24h': 'the hour'};

function notes(page, clock) {
  const t = page.traffic, none = requests(t.total) === 0 && !t.limit, ever = t.last_request > 0;
  $('empty').hidden = !none;
  if (none && ever) {
    write($('empty-title'), `No requests in the last ${span(lengths[t.range])}`);
    write($('why-empty'), `The last one was reported at ${clock(t.last_request)}, ${span(t.at - t.last_request)} ago.`);
  } else if (none) {
    write($('empty-title'), 'No requests yet');
    write($('why-empty'), `The service has been up for ${span(t.at - t.since)}, and no worker has reported a request. ` +
      'Once Envoy\'s filter decides its first request, it shows here within two seconds.');
  }
  const begins = t.at - lengths[t.range], missing = [];
  if (t.since > begins + 2 && (!none || ever)) missing.push(`What was before ${clock(t.since)} is not known: the service began then.`);
  if (t.whole_since > Math.max(begins, t.since) + 2) {
    missing.push(`Of what was before ${clock(t.whole_since)} a part may be missing: a replica began or went then, and what went with it is lost.`);
  }
  $('partial').hidden = missing.length === 0;
  write($('partial'), missing.join(' '));
  for (const place of document.querySelectorAll('.ranked')) {
    write(place, `Since ${clock(t.ranked_since)}: keys and routes are counted by ${steps[t.range]}.`);
  }
}

function show(page) {
  const t = page.traffic;
  $('domain').textContent = page.domain;
  $('version').textContent = page.version || 'none';
  const select = $('limit'), names = [...new Set([...page.limits.map((l) => l.name), ...t.limits.map((l) => l.name)])].filter(Boolean);
  const before = select.value;
  if (names.join('\n') !== [...select.options].slice(1).map((o) => o.value).join('\n')) {
    select.replaceChildren(new Option('all', ''), ...names.map((n) => new Option(n, n)));
    select.value = names.includes(before) ? before : '';
  }
  if (t.limit && !names.includes(t.limit)) { // it has left the policy while the page showed it
    write($('gone'), `The limit ${t.limit} is not in the policy any more. All limits are shown.`);
    $('gone').hidden = false;
    follow();
    return;
  }
  const clock = between(Math.min(t.ranked_since, t.last_request || t.at, t.at - lengths[t.range]), t.at);
  notes(page, clock);
  tiles(page);
  charts(page);
  tables(page, clock);
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

$('choice').addEventListener('change', () => {
  $('gone').hidden = true;
  follow();
});
follow();
