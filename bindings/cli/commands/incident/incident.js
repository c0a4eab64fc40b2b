// Draws the page of `triage incident`.

const number = value => value.toLocaleString('en');
const stamp = seconds => new Date(seconds * 1000).toISOString().replace('T', ' ').slice(0, 19);
const seconds_of = time => Date.parse(time) / 1000;
const WENT_WRONG = ['refused', 'candidate_reverted'];
const is_bad = change => WENT_WRONG.includes(change.event) || change.by === 'failures';

function percent(share) {
  if (share === null) return '';
  return share > 0 && share < 0.001 ? 'under 0.1 %' : `${(share * 100).toFixed(share < 0.1 && share > 0 ? 1 : 0)} %`;
}

// --- over time: flagged samples by version, with a mark for each change ------------------------------------------------------

function chart_of(policy, box) {
  const flags = policy.over_time.versions;
  const width = Math.max(320, box.clientWidth - 34), height = 150, top = 26, bottom = 18;
  const begin = Math.min(flags.begin, ...policy.changes.map(change => seconds_of(change.time)));
  const end = Math.max(flags.begin + flags.calls.length * flags.step, ...policy.changes.map(change => seconds_of(change.time)));
  const x = time => (time - begin) / Math.max(end - begin, 1e-9) * (width - 2) + 1;
  const sums = flags.calls.map((_, i) => flags.series.reduce((sum, one) => sum + one.counts[i], 0));
  const most = Math.max(...sums, 1);
  const chart = svg('svg', {viewBox: `0 0 ${width} ${top + height + bottom}`, role: 'img', 'aria-label': 'Flagged samples over time'});
  sums.forEach((_, i) => {
    let floor = top + height;
    flags.series.forEach((one, version) => {
      if (!one.counts[i]) return;
      const size = Math.max(1, one.counts[i] / most * height), left = x(flags.begin + i * flags.step);
      floor -= size;
      chart.append(svg('rect', {x: left, y: floor, height: size, width: Math.max(1, x(flags.begin + (i + 1) * flags.step) - left),
        style: `fill:${group_colour(version)};stroke:none`},
        svg('title', {}, `${one.location}: ${counted(one.counts[i], 'flagged sample')} at ${stamp(flags.begin + i * flags.step)}, in ${duration(flags.step)}`)));
    });
  });
  chart.append(svg('line', {x1: 0, x2: width, y1: top + height, y2: top + height}));
  chart.append(svg('text', {class: 'axis', x: 0, y: top + height + 14}, stamp(begin)));
  chart.append(svg('text', {class: 'axis', x: width, y: top + height + 14, 'text-anchor': 'end'}, stamp(end)));
  let free = -1;
  for (const change of policy.changes) {
    const at = x(seconds_of(change.time)), kind = is_bad(change) ? 'mark bad' : 'mark';
    chart.append(svg('g', {}, svg('line', {class: kind, x1: at, x2: at, y1: top - 8, y2: top + height}), svg('title', {}, `${change.time}: ${change.text}`)));
    if (at < free || at > width - 60) continue;
    chart.append(svg('text', {class: kind, x: at, y: 12}, change.event === 'live' ? `v${change.version} ${change.by}` : change.event));
    free = at + 90;
  }
  box.replaceChildren(chart, h('div', {class: 'legend'}, flags.series.map((one, i) => h('span', {},
    h('i', {style: `background:${group_colour(i)}`}), `${one.location} `, h('b', {}, number(one.total))))));
}

// --- tables ------------------------------------------------------------------------------------------------------------------

const head = names => h('tr', {}, names.map((name, i) => h('th', {class: i ? 'number' : undefined}, name)));
const row = cells => h('tr', {}, cells.map((cell, i) => h('td', {class: i ? 'number' : 'place'}, cell)));

const versions_table = policy => h('table', {class: 'panel'}, head(['version', 'samples', 'flagged', 'repaired', 'failed', 'share']),
  policy.versions.filter(version => version.samples || version.live).map(version => row([
    [h('span', {class: 'mono'}, version.title), version.live ? h('span', {class: 'soft'}, ' live') : ''],
    number(version.samples) + (version.of === 'all calls' || !version.samples ? '' : ' of calls in the log'), number(version.flagged),
    number(version.repaired), number(version.failed_samples), percent(version.share)])));

function counts_table(policy, kind, name) {
  const flags = policy.over_time[kind];
  return h('table', {class: 'panel flags'}, policy[kind].slice(0, 50).map((one, i) => {
    const series = flags.series.find(each => each.location === one[name]);
    return h('tr', {}, h('td', {class: 'place mono'}, one[name]),
      h('td', {}, series ? bars(series.counts, group_colour(i), at => `${stamp(flags.begin + at * flags.step)}, in ${duration(flags.step)}`) : ''),
      h('td', {class: 'total'}, number(one.samples)));
  }));
}

const samples_table = policy => h('table', {class: 'panel'}, head(['sample', 'version', 'errors', 'done', 'time']),
  policy.samples.slice(0, 1000).map(one => row([h('span', {class: 'mono'}, one.sample_id || `${one.decision_id} #${one.sample}`),
    one.title, one.errors, one.done, one.time])),
  policy.samples.length > 1000 ? row([h('span', {class: 'soft'}, `and ${number(policy.samples.length - 1000)} more`)]) : '');

// --- the page ----------------------------------------------------------------------------------------------------------------

/** A line that begins with "--" may have gone, too: a head is two lines. */
function diff_class(line, i, all) {
  const is_head = (line.startsWith('--- ') && all[i + 1]?.startsWith('+++ ')) || (line.startsWith('+++ ') && all[i - 1]?.startsWith('--- '));
  return is_head ? undefined : line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : undefined;
}

const change_row = change => h('div', {class: is_bad(change) ? 'change bad' : 'change'}, h('time', {}, change.time), change.text,
  change.no_diff ? h('div', {class: 'soft'}, change.no_diff) : '',
  change.diff ? h('div', {class: 'diff mono'}, change.diff.map((line, i) => h('div', {class: diff_class(line, i, change.diff)}, line))) : '');

function policy_sections(policy, index) {
  const {affected, advice} = policy;
  const times = h('div', {class: 'times panel'});
  if (policy.over_time) {
    chart_of(policy, times);  // at once, too: a browser without a window may give no frame
    new ResizeObserver(() => requestAnimationFrame(() => chart_of(policy, times))).observe(times);
  }
  return h('section', {id: `policy-${index + 1}`}, h('h2', {}, `Policy ${policy.policy}`),
    h('p', {class: 'meta'}, [policy.path, policy.bundle && `bundle ${policy.bundle}`, policy.live && `${policy.live} is live`,
      policy.pinned && 'pinned'].filter(Boolean).join(' · ')),
    h('div', {class: 'sub'}, 'What to do'), h('div', {class: 'panel advice'}, h('p', {}, advice.text),
      advice.commands.length ? h('pre', {}, advice.commands.join('\n')) : ''),
    policy.over_time ? [h('div', {class: 'sub'}, 'Flagged samples over time'), times] : '',
    h('div', {class: 'sub'}, 'What changed'), h('div', {class: 'panel'}, policy.changes.length ? policy.changes.map(change_row) :
      h('div', {class: 'change'}, 'Nothing that the log tells of.')),
    h('div', {class: 'sub'}, `Who is affected: ${counted(affected.samples, 'sample')} in ${counted(affected.flagged_calls, 'call')}`),
    versions_table(policy),
    policy.over_time ? [h('div', {class: 'sub'}, 'By location'), counts_table(policy, 'locations', 'location'),
      h('div', {class: 'sub'}, 'By code'), counts_table(policy, 'codes', 'code')] : '',
    policy.samples && policy.samples.length ? [h('div', {class: 'sub'}, 'Samples'), samples_table(policy)] : '');
}

function overview() {
  const item = (name, value, kind) => h('div', {class: value && kind || undefined}, h('dt', {}, name), h('dd', {}, number(value)));
  const total = name => data.policies.reduce((sum, policy) => sum + policy.affected[name], 0);
  const notes = [...data.notes, ...data.damaged.map(one => `${one.file}: ${counted(one.lines, 'line')} could not be read.`)];
  if (data.dropped) notes.push(`${counted(data.dropped, 'line')} are not in the log: too many waited.`);
  return h('section', {id: 'overview'}, h('h1', {}, 'What changed, who is affected, what to do'),
    h('p', {class: 'meta'}, data.first ? `${data.first} to ${data.last}` : 'The log has no line of this time.'),
    h('dl', {class: 'numbers'}, item('flagged samples', total('samples'), 'bad'), item('repaired', total('repaired')),
      item('calls that failed', total('failed_calls'), 'bad'), item('decisions', data.decisions), item('events', data.events)),
    notes.map(text => h('p', {class: 'note'}, text)));
}

document.getElementById('contents').append(h('div', {class: 'name'}, 'triage incident'), h('a', {href: '#overview'}, h('span', {}, 'Overview')),
  ...data.policies.map((policy, i) => h('a', {href: `#policy-${i + 1}`}, h('span', {class: 'mono'}, policy.policy))));
document.getElementById('report').replaceChildren(overview(), ...data.policies.map(policy_sections));
