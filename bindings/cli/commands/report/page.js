// Draws the report of `triage report`.

/** Of a node or group of a stage: ATen runs what has none. */
const stage_colour = (stage, group) => group_colour(stage.groups[group]?.loops ? group : -1);

/** Since the trace began. */
const moment = time => `+${duration(Math.max(0, time - data.begin))}`;

// --- text with colours ----------------------------------------------------------------------------------------------

const LUA = /(--\[\[[^]*?(?:\]\]|$)|--.*)|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\b(and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until|while)\b/g;
const CODE = /(\/\/.*)|("(?:\\.|[^"\\])*")|\b(auto|bool|char|const|constexpr|double|else|extern|float|for|if|inline|int|int64_t|namespace|return|static|struct|template|uint64_t|using|void)\b/g;
const NODE = /("[^"]*")|\b((?:aten|triage|prim)::[\w.]+)/g;

/** `classes`: those of the groups of the pattern. */
function coloured(text, pattern, classes) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    const group = classes.findIndex((_, i) => match[i + 1] !== undefined);
    parts.push(text.slice(end, match.index), h('span', {class: classes[group]}, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}
const lua = text => coloured(text, LUA, ['c', 's', 'k']);
const cpp = text => coloured(text, CODE, ['c', 's', 'k']);
const node_text = text => coloured(text, NODE, ['t', 'o']);

// --- functions: the source beside the graphs ------------------------------------------------------------------------

const graphs_of = data.functions.map(() => []);
data.graphs.forEach((graph, number) => {
  if (graph.stages.length && graph.function >= 0) graphs_of[graph.function].push(number);
});

/** A row of a listing: the line of the script, bars in the colours of groups, the text. */
const row = (number, colours, text, attributes) => h('div', {class: 'row', ...attributes},
  h('span', {class: 'number'}, number), h('span', {class: 'bars'}, colours.map(colour => h('i', {style: `background:${colour}`}))),
  h('span', {class: 'text'}, text));

const inset = (kind, title, count, ...text) => h('div', {class: `inset ${kind}`},
  h('p', {}, h('b', {}, title), text[0], count > 1 ? h('span', {class: 'soft'}, ` ×${count}`) : ''), text.slice(1));

/** What is to be said below lines of a source: line -> elements. What has no line there stands where the function begins. */
function notes_of(fn, graph) {
  const notes = new Map();
  const add = (one, element) => {
    const line = one.source === fn.source && one.line > 0 ? one.line : fn.line;
    if (!notes.has(line)) notes.set(line, []);
    notes.get(line).push(element);
  };
  for (const one of fn.breaks)
    add(one, inset('break', `Graph break ${one.id}`, one.count, one.what, one.explanation && h('p', {}, one.explanation),
      one.hint && h('p', {}, one.hint), one.stack && h('pre', {}, one.stack)));
  for (const one of fn.recompiles) add(one, inset('recompile', 'Recompile', one.count, one.why));
  if (graph)
    for (const one of graph.guards)
      if (one.source === fn.source && one.line > 0) add(one, inset('guard', 'Guard', 1, one.text));
  return notes;
}

function source_panel(fn, graph) {
  if (fn.source < 0) {
    const notes = [...notes_of({...fn, source: -2}, graph).values()];
    return h('div', {class: 'source'}, h('p', {class: 'empty'}, 'The trace has no source of this function.'), notes);
  }
  const groups = new Map();  // line -> groups
  for (const [, , source, line, group] of graph ? graph.stages[0].nodes : []) {
    if (source !== fn.source) continue;
    if (!groups.has(line)) groups.set(line, new Set());
    groups.get(line).add(group);
  }
  const notes = notes_of(fn, graph);
  const lines = data.sources[fn.source].text.split('\n');
  if (lines.length > 1 && lines[lines.length - 1] === '') lines.pop();
  return h('div', {class: 'source', 'data-line': fn.line}, lines.map((text, i) => {
    const used = groups.get(i + 1);
    return [row(i + 1, [...used || []].slice(0, 3).map(group => stage_colour(graph.stages[0], group)), lua(text),
      {class: used ? 'row used' : 'row', 'data-at': i + 1}), notes.get(i + 1) || ''];
  }));
}

function listing(stage, fn) {
  return h('div', {class: 'listing'},
    stage.head.split('\n').map(line => row('', [], node_text(line), {class: 'row plain'})),
    stage.nodes.map(([text, , source, line, group]) => row(line > 0 ? line : '',
      stage.groups.length ? [stage_colour(stage, group)] : [], node_text('  ' + text),
      {'data-at': source === fn.source && source >= 0 ? line : undefined,
       title: line > 0 && source >= 0 ? `${data.sources[source].file}:${line}` : undefined})),
    row('', [], `  return ${stage.outputs}`, {class: 'row plain'}));
}

const fold = (title, about, attributes, ...body) =>
  h('details', {class: 'fold', ...attributes}, h('summary', {}, h('b', {}, title), about), body);

function groups_fold(stage, title) {
  const loops = stage.groups.filter(group => group.loops).length;
  return fold(title, `${counted(stage.groups.length, 'group')}, ${loops} of them loops over rows`, {},
    stage.groups.map((group, i) => h('pre', {class: 'group', style: `border-color:${stage_colour(stage, i)}`}, group.text)));
}

function graph_panel(fn, number) {
  const graph = data.graphs[number];
  const [first, ...others] = graph.stages;
  const lines = graph.code.reduce((sum, code) => sum + code.split('\n').length, 0);
  return h('div', {class: 'graph', id: `graph-${number + 1}`},
    h('div', {class: 'about'}, h('span', {}, counted(first.nodes.length, 'operation')),
      fn.backend && h('span', {}, `backend ${fn.backend}`), graph.seconds > 0 && h('span', {}, `captured and compiled in ${duration(graph.seconds)}`),
      graph.segment && h('span', {}, 'between graph breaks'),
      graph.kernels.length > 0 && h('span', {}, graph.kernels.map(kernel => `kernel ${kernel.key}: ${kernel.origin}`).join(', '))),
    listing(first, fn),
    first.groups.length ? groups_fold(first, 'Fused groups') : '',
    graph.code.length ? fold('Loops as they run', counted(lines, 'line'), {class: 'fold code'}, graph.code.map(code => h('pre', {}, cpp(code)))) : '',
    graph.times.length ? fold('Time by line and by step', '', {class: 'fold times'}, graph.times.map(text => h('pre', {}, text))) : '',
    graph.guards.length ? fold('Guards', counted(graph.guards.length, 'guard'), {}, h('pre', {}, graph.guards.map(guard => guard.text).join('\n'))) : '',
    others.map(stage => [fold(stage.stage[0].toUpperCase() + stage.stage.slice(1), counted(stage.nodes.length, 'operation'), {}, listing(stage, fn)),
      stage.groups.length ? groups_fold(stage, `Fused groups, ${stage.stage}`) : '']));
}

/** Rows of the source and of listings that are of one line light up together. */
function light(body) {
  body.addEventListener('mouseover', event => {
    const over = event.target.closest('.row');
    const at = over && over.dataset.at;
    for (const one of body.querySelectorAll('.row.lit')) one.classList.remove('lit');
    if (at) for (const one of body.querySelectorAll(`.row[data-at="${Number(at)}"]`)) one.classList.add('lit');
  });
}

/** Draws a function with one of its graphs. */
function show_function(index, graph_number) {
  const section = document.getElementById(`function-${index + 1}`);
  const fn = data.functions[index], graphs = graphs_of[index];
  const chosen = graphs.includes(graph_number) ? graph_number : graphs[0];
  const graph = chosen === undefined ? null : data.graphs[chosen];
  section.querySelector('.columns')?.remove();
  const body = h('div', {class: 'columns'}, source_panel(fn, graph), h('div', {class: 'graphs'},
    graphs.length > 1 ? h('div', {class: 'tabs'}, graphs.map((number, i) => h('a', {href: `#graph-${number + 1}`,
      'aria-current': number === chosen ? 'true' : undefined}, `graph ${i + 1}`))) : '',
    graph ? graph_panel(fn, chosen) : h('p', {class: 'empty'}, 'No graph of it was captured.')));
  light(body);
  section.append(body);
  const source = body.querySelector('.source');
  const start = source.querySelector(`.row[data-at="${Math.max(1, fn.line - 2)}"]`);
  if (start) source.scrollTop = start.offsetTop - source.offsetTop;
}

function function_section(fn, index) {
  const recompiles = fn.recompiles.reduce((sum, one) => sum + one.count, 0);
  const place = fn.file && `${fn.file}:${fn.line}`;
  const section = h('details', {class: 'function panel', id: `function-${index + 1}`},
    h('summary', {}, h('h3', {}, fn.name || 'a function'), place && place !== fn.name ? h('span', {class: 'soft mono'}, place) : '',
      h('span', {class: 'facts'}, h('span', {}, counted(graphs_of[index].length, 'graph')),
        fn.breaks.length ? h('span', {class: 'bad'}, counted(fn.breaks.length, 'break')) : '',
        recompiles ? h('span', {class: 'warn'}, counted(recompiles, 'recompile')) : '',
        fn.failures.length ? h('span', {class: 'bad'}, counted(fn.failures.length, 'failure')) : '')),
    fn.failures.map(one => h('p', {class: 'failure'}, `Backend ${one.backend} failed: ${one.message}`, one.count > 1 ? ` ×${one.count}` : '')));
  section.addEventListener('toggle', () => {
    if (section.open && !section.querySelector('.columns')) show_function(index);
  });
  return section;
}

// --- times ----------------------------------------------------------------------------------------------------------

const PHASES = ['capture', 'joint graph', 'fused loops', 'kernels'];
const phase_colour = span => span.kind === 'capture' ? 'var(--none)' :
  group_colour(PHASES.includes(span.phase) ? PHASES.indexOf(span.phase) : 4);

/** From times to 0..1: stretches in which nothing was compiled are cut short. */
function time_scale(spans) {
  const busy = [];
  for (const span of [...spans].sort((a, b) => a.begin - b.begin)) {
    const last = busy[busy.length - 1], end = span.begin + span.seconds;
    if (last && span.begin <= last.end) last.end = Math.max(last.end, end);
    else busy.push({begin: span.begin, end});
  }
  const total = busy.reduce((sum, one) => sum + one.end - one.begin, 0) || 1e-9;
  const gap = Math.min(total * 0.03, total * 0.5 / busy.length);
  let at = 0;
  for (const one of busy) {
    one.at = at;
    at += one.end - one.begin + gap;
  }
  const whole = at - gap || 1e-9;
  const place = time => {
    const one = busy.find(each => time <= each.end) || busy[busy.length - 1];
    return (one.at + Math.max(0, Math.min(time, one.end) - one.begin)) / whole;
  };
  return {place, busy: busy.map(one => ({...one, at: one.at / whole}))};
}

/** Rows that spans lie in: one that lies within another of its thread is below it; what does not overlap shares rows. */
function time_rows(spans) {
  const blocks = [], open = new Map();  // a span of a thread with all within it
  for (const span of [...spans].sort((a, b) => a.begin - b.begin || b.seconds - a.seconds)) {
    const thread = `${span.process}/${span.thread}`, end = span.begin + span.seconds;
    let block = open.get(thread);
    if (!block || block.end <= span.begin + 1e-6) {
      block = {begin: span.begin, end, rows: [], outer: []};
      blocks.push(block);
      open.set(thread, block);
    }
    block.outer = block.outer.filter(outer => outer.begin + outer.seconds > span.begin + 1e-6);
    (block.rows[block.outer.length] = block.rows[block.outer.length] || []).push(span);
    block.outer.push(span);
    block.end = Math.max(block.end, end);
  }
  const rows = [], free = [];  // when each row is
  for (const block of blocks) {
    let top = 0;
    while (block.rows.some((_, depth) => (free[top + depth] || 0) > block.begin)) ++top;
    block.rows.forEach((of_depth, depth) => {
      free[top + depth] = block.end;
      (rows[top + depth] = rows[top + depth] || []).push(...of_depth);
    });
  }
  return rows;
}

function draw_times(box) {
  const spans = data.spans.map(span => ({...span, phase: span.label}));
  const width = Math.max(320, box.clientWidth - 34), height = 20, top = 18;
  const {place, busy} = time_scale(spans), rows = time_rows(spans);
  const chart = svg('svg', {viewBox: `0 0 ${width} ${top + rows.length * (height + 2)}`, role: 'img', 'aria-label': 'Times of captures and compilations'});
  let free = -1;
  for (const one of busy) {
    const x = one.at * width;
    chart.append(svg('line', {x1: x, x2: x, y1: top - 4, y2: top + rows.length * (height + 2)}));
    if (x < free || x > width - 50) continue;
    chart.append(svg('text', {class: 'axis', x, y: 10}, moment(one.begin)));
    free = x + 60;
  }
  rows.forEach((each, i) => {
    for (const span of each) {
      const x = place(span.begin) * width, end = place(span.begin + span.seconds) * width, y = top + i * (height + 2);
      const size = Math.max(1.5, end - x);
      const label = span.kind === 'capture' ? span.label : span.phase;
      const parts = [svg('rect', {x, y, width: size, height, rx: 2, style: `fill:${phase_colour(span)}`}),
        svg('title', {}, `${label}: ${duration(span.seconds)} at ${moment(span.begin)}`)];
      const letters = Math.floor((size - 8) / 6.2);
      if (letters >= 3) parts.push(svg('text', {x: x + 5, y: y + 14}, label.length > letters ? label.slice(0, letters - 1) + '…' : label));
      const drawn = span.graph >= 0 && data.graphs[span.graph].stages.length;
      chart.append(drawn ? svg('a', {href: `#graph-${span.graph + 1}`}, parts) : svg('g', {}, parts));
    }
  });
  box.replaceChildren(chart, times_legend(spans));
}

function times_legend(spans) {
  const sums = new Map();
  for (const span of spans) {
    const name = span.kind === 'capture' ? 'whole capture' : span.phase;
    const sum = sums.get(name) || {seconds: 0, count: 0, colour: phase_colour(span)};
    sums.set(name, {...sum, seconds: sum.seconds + span.seconds, count: sum.count + 1});
  }
  return h('div', {class: 'legend'}, [...sums].map(([name, sum]) => h('span', {}, h('i', {style: `background:${sum.colour}`}),
    `${name} `, h('b', {}, duration(sum.seconds)), sum.count > 1 ? ` in ${sum.count}` : '')));
}

// --- policies and flags ---------------------------------------------------------------------------------------------

const policy_table = policy => [h('div', {class: 'sub'}, policy.name), h('table', {class: 'panel'}, policy.events.map(event =>
  h('tr', {}, h('td', {class: 'time'}, moment(event.time)), h('td', {class: 'time'}, event.version ? `version ${event.version}` : ''),
    h('td', {class: `level-${/^\w+$/.test(event.level) ? event.level : ''}`}, event.message))))];

function flags_table(flags) {
  const total = list => list.reduce((sum, count) => sum + count, 0);
  const line = (place, counts, sum, colour) => h('tr', {}, h('td', {class: 'place'}, place),
    h('td', {}, bars(counts, colour, i => `${moment(flags.begin + i * flags.step)}, in ${duration(flags.step)}`)), h('td', {class: 'total'}, sum.toLocaleString('en')));
  const end = flags.begin + flags.calls.length * flags.step;
  return [h('div', {class: 'sub'}, flags.policy), h('table', {class: 'panel flags'},
    line(h('span', {class: 'soft'}, 'calls'), flags.calls, total(flags.calls), 'var(--none)'),
    line(h('span', {class: 'soft'}, 'samples'), flags.samples, total(flags.samples), 'var(--none)'),
    flags.series.map((one, i) => line([h('span', {class: 'mono'}, one.location), h('span', {class: 'code'}, one.code)], one.counts, one.total, group_colour(i))),
    flags.series.length ? '' : h('tr', {}, h('td', {class: 'soft', colspan: 3}, 'No flag was raised.')),
    h('tr', {class: 'axis-row'}, h('td'), h('td', {}, h('div', {}, h('span', {}, moment(flags.begin)), h('span', {}, moment(end)))), h('td')))];
}

// --- the page -------------------------------------------------------------------------------------------------------

function overview() {
  const {summary, skipped, processes} = data;
  const compiled = data.spans.filter(span => span.kind === 'phase').reduce((sum, span) => sum + span.seconds, 0);
  const number = (name, value, kind) => h('div', {class: value && kind || undefined}, h('dt', {}, name), h('dd', {}, value === 0 ? '0' : typeof value === 'number' ? value.toLocaleString('en') : value));
  const first = processes[0] || {};
  const notes = [];
  if (skipped.damaged) notes.push(`${counted(skipped.damaged, 'line')} of the trace could not be read.`);
  if (skipped.too_long) notes.push(`${counted(skipped.too_long, 'line')} of the trace ${skipped.too_long === 1 ? 'was' : 'were'} too long.`);
  if (skipped.malformed) notes.push(`${counted(skipped.malformed, 'event')} of the trace had malformed fields.`);
  if (skipped.left_out) notes.push(`${counted(skipped.left_out, 'event')} found no room on this page.`);
  return h('section', {id: 'overview'}, h('h1', {}, 'What was captured and compiled'),
    h('p', {class: 'meta'}, [`triage ${first.triage}`, `LibTorch ${first.libtorch}`, first.machine, counted(processes.length, 'process', 'processes'),
      `${new Date(data.begin * 1000).toISOString().slice(0, 16).replace('T', ' ')} UTC`].join(' · ')),
    h('dl', {class: 'numbers'}, number('functions', summary.functions), number('graphs', summary.graphs), number('graph breaks', summary.breaks, 'bad'),
      number('recompiles', summary.recompiles, 'warn'), number('backend failures', summary.failures, 'bad'), number('compile time', duration(compiled)),
      number('flags', summary.flags)),
    notes.map(text => h('p', {class: 'note'}, text)));
}

function contents() {
  const link = (target, text, count, attributes) => h('a', {href: `#${target}`}, h('span', attributes || {}, text),
    count ? h('span', {class: `count ${attributes && attributes.bad ? 'bad' : ''}`}, count) : '');
  return [h('div', {class: 'name'}, 'triage report'), link('overview', 'Overview'), data.spans.length ? link('times', 'Times') : '',
    data.policies.length ? link('policies', 'Policies') : '', data.flags.length ? link('flags', 'Flags') : '',
    data.functions.length ? h('h2', {}, 'Functions') : '',
    data.functions.map((fn, i) => h('a', {href: `#function-${i + 1}`, title: fn.file ? `${fn.file}:${fn.line}` : undefined},
      h('span', {class: 'mono'}, fn.name || 'a function'), fn.breaks.length ? h('span', {class: 'count bad'}, counted(fn.breaks.length, 'break')) : '',
      h('span', {class: 'count'}, graphs_of[i].length)))];
}

/** #graph-3 opens its function with that graph, #graph-3-code its generated code too, #function-2 opens the function. */
function follow_fragment() {
  const match = /^#(graph|function)-(\d+)(-code)?$/.exec(location.hash);
  if (!match) return;
  const number = Number(match[2]) - 1;
  const index = match[1] === 'function' ? number : (data.graphs[number] || {}).function;
  const section = document.getElementById(`function-${index + 1}`);
  if (!section) return;
  section.open = true;
  if (match[1] === 'graph' || !section.querySelector('.columns')) show_function(index, number);
  const code = section.querySelector('.code');
  if (match[3] && code) code.open = true;
  (match[3] && code || section).scrollIntoView();
}

function draw() {
  document.getElementById('contents').append(...contents().flat(Infinity).filter(child => child !== ''));
  const times = h('div', {class: 'times panel'});
  const functions = data.functions.map(function_section);
  const sections = [overview(),
    data.spans.length ? h('section', {id: 'times'}, h('h2', {}, 'Times'), times) : '',
    functions.length ? h('section', {id: 'functions'}, h('h2', {}, 'Functions'), functions) : '',
    data.policies.length ? h('section', {id: 'policies'}, h('h2', {}, 'Policies'), data.policies.map(policy_table)) : '',
    data.flags.length ? h('section', {id: 'flags'}, h('h2', {}, 'Flags over time'), data.flags.map(flags_table)) : ''];
  document.getElementById('report').replaceChildren(...sections.filter(section => section !== ''));
  functions.slice(0, 8).forEach((section, i) => {
    section.open = true;
    show_function(i);
  });
  if (data.spans.length) {
    draw_times(times);
    new ResizeObserver(() => requestAnimationFrame(() => draw_times(times))).observe(times);
  }
  window.addEventListener('hashchange', follow_fragment);
  follow_fragment();
}

draw();
