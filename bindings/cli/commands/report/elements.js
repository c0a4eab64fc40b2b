'use strict';
// What the pages are drawn with, from the data of the page. All text of scripts and messages gets into a page as text nodes, never as HTML.

const data = JSON.parse(document.getElementById('data').textContent);
const GROUPS = 8;  // colours

// --- elements -------------------------------------------------------------------------------------------------------

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'style') element.style.cssText = value;
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter(child => child || child === 0));
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

const counted = (count, one, many) => `${count.toLocaleString('en')} ${count === 1 ? one : many || one + 's'}`;
const group_colour = group => group < 0 ? 'var(--none)' : `var(--g${group % GROUPS})`;

function duration(seconds) {
  if (seconds >= 60) return `${(seconds / 60).toFixed(1)} min`;
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  if (seconds >= 0.001) return `${(seconds * 1e3).toFixed(1)} ms`;
  return `${Math.round(seconds * 1e6)} µs`;
}

/** Bars of one row, over all steps of time. `when`: of which time step i is. */
function bars(counts, colour, when) {
  const most = Math.max(...counts, 1);
  const chart = svg('svg', {viewBox: `0 0 ${counts.length} 26`, preserveAspectRatio: 'none'});
  counts.forEach((count, i) => {
    if (!count) return;
    const height = Math.max(1.5, count / most * 25);
    chart.append(svg('rect', {x: i + 0.05, y: 26 - height, width: 0.9, height, style: `fill:${colour}`},
      svg('title', {}, `${count.toLocaleString('en')} at ${when(i)}`)));
  });
  return chart;
}
