// Draws the page of `triage statistics`.

const number = value => value === null ? '' : value.toLocaleString('en');
const SMALLEST = {float16: -14, bfloat16: -126, float32: -126, float64: -1022};  // powers of two: the smallest normal numbers
const NEAR = 16;  // limit / NEAR and more is near the limit

const largest = one => Math.max(Math.abs(one.min || 0), Math.abs(one.max || 0));
const name_of = one => `${one.location} (${one.dtype})`;
const short = value => value === null ? '' : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(3) : number(value);

function share_text(share) {
  if (share === 0) return '0 %';
  return share < 0.001 ? 'under 0.1 %' : `${(share * 100).toFixed(1)} %`;
}
const share_of = (one, count) => share_text(one.values ? one[count] / one.values : 0);

/** Where a magnitude is between the smallest normal number and the limit, by its power of two: 0 to 1. */
function place_of(magnitude, one) {
  const least = SMALLEST[one.dtype] ?? -Math.log2(one.limit), most = Math.log2(one.limit);
  return magnitude > 0 ? Math.min(1, Math.max(0, (Math.log2(magnitude) - least) / (most - least))) : 0;
}

function kind_of(one) {
  if (one.inf || one.saturated) return 'var(--bad)';
  return one.near_limit ? 'var(--g1)' : 'var(--g0)';
}

/** The bar ends at the largest magnitude, or beyond the limit; the line stands where values begin to be near the limit. */
function bar_of(one) {
  const width = 1000 * (one.inf ? 1 : place_of(largest(one), one)), near = 1000 * place_of(one.limit / NEAR, one);
  return svg('svg', {viewBox: '0 0 1000 26', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${name_of(one)}: largest ${short(largest(one))} of ${short(one.limit)}`},
    svg('rect', {class: 'bar', x: 0, y: 7, width: Math.max(2, width), height: 12, style: `fill:${kind_of(one)}`}),
    svg('line', {class: 'near', x1: near, x2: near, y1: 2, y2: 24, style: 'stroke:var(--soft);stroke-dasharray:3 3'}),
    svg('title', {}, `${name_of(one)}: largest finite magnitude ${short(largest(one))}, limit ${short(one.limit)}`));
}

const chart = () => h('table', {class: 'panel flags chart'}, data.statistics.map(one => h('tr', {},
  h('td', {class: 'place mono'}, one.location, h('span', {class: 'code'}, one.dtype)), h('td', {}, bar_of(one)),
  h('td', {class: 'total'}, one.inf ? `over the limit, ${counted(one.inf, 'Inf', 'Inf')}` : share_text(one.of_limit)))));

const COLUMNS = [['min', one => short(one.min)], ['max', one => short(one.max)], ['limit', one => short(one.limit)],
  ['near limit', one => share_of(one, 'near_limit')], ['saturated', one => share_of(one, 'saturated')],
  ['zero', one => share_of(one, 'zeros')], ['NaN', one => number(one.nan)], ['Inf', one => number(one.inf)],
  ['values', one => number(one.values)], ['batches', one => number(one.batches)]];

const table = () => h('table', {class: 'panel numbers-table'}, h('tr', {}, h('th', {}, 'location'), h('th', {}, 'dtype'),
  COLUMNS.map(([name]) => h('th', {class: 'number'}, name))), data.statistics.map((one, i) => h('tr', {id: `location-${i + 1}`},
  h('td', {class: 'place mono'}, one.location), h('td', {}, one.dtype), COLUMNS.map(([, text]) => h('td', {class: 'number'}, text(one))))));

function overview() {
  const item = (name, value, kind) => h('div', {class: value && kind || undefined}, h('dt', {}, name), h('dd', {}, number(value)));
  const which = test => data.statistics.filter(test).length;
  const nearest = data.statistics[0];
  return h('section', {id: 'overview'}, h('h1', {}, 'How near values come to the limits of their dtypes'),
    h('p', {class: 'meta'}, [data.policy || data.model || data.file, data.calls === undefined ? '' : counted(data.calls, 'call'),
      nearest ? `nearest: ${name_of(nearest)}` : 'no values of floating dtypes'].filter(Boolean).join(' · ')),
    h('dl', {class: 'numbers'}, item('locations', data.statistics.length), item('over the limit', which(one => one.inf), 'bad'),
      item('near the limit', which(one => one.near_limit), 'warn'), item('with NaN', which(one => one.nan), 'bad')),
    data.error ? h('p', {class: 'note level-error'}, data.error) : '', data.notes.map(text => h('p', {class: 'note'}, text)));
}

document.getElementById('contents').append(h('div', {class: 'name'}, 'triage statistics'), h('a', {href: '#overview'}, h('span', {}, 'Overview')),
  ...data.statistics.slice(0, 100).map((one, i) => h('a', {href: `#location-${i + 1}`}, h('span', {class: 'mono'}, one.location))));
document.getElementById('report').replaceChildren(overview(), h('section', {id: 'chart'},
  h('h2', {}, 'Largest magnitude'), h('p', {class: 'meta'},
    'From the smallest normal number of the dtype to its limit, by powers of two. The dashed line: 1/16 of the limit.'), chart()),
  h('section', {id: 'numbers'}, h('h2', {}, 'Values'), table()));
