// Draws the page that the JSON in #data describes: {"title": text, "parts": [part, ...]}. A part is one of
//   {"heading": text}, {"text": text}, {"facts": [[name, value, unit], ...]}, {"table": [{column: value}, ...]},
//   {"chart": ...} (charts.js), {"cards": [{"title", "parts"}, ...]}, {"details": summary, "text": text},
//   {"plan": a sharding plan}, {"run": a run's report}, {"steps": a collection's statistics} (run.js).
'use strict';

function element(tag, properties = {}, ...inside) {
  const out = Object.assign(document.createElement(tag), properties);
  out.append(...inside);
  return out;
}

// Five significant digits, or all digits of a larger whole number; thousands are grouped.
function numberText(x) {
  const [whole, fraction] = String(Math.abs(x) >= 99999.5 ? Math.round(x) : Number(x.toPrecision(5))).split('.');
  const grouped = whole.length > 5 ? whole.replace(/\B(?=(\d{3})+$)/g, '\u202f') : whole;
  return fraction === undefined ? grouped : grouped + '.' + fraction;
}

const short = x => (Math.abs(x) >= 999.5 ? String(Math.round(x)) : String(Number(x.toPrecision(3))));
const timeText = us => us < 999.5 ? `${short(us)} µs` : us < 999.5e3 ? `${short(us / 1e3)} ms` :
  us < 120e6 ? `${short(us / 1e6)} s` : us < 7200e6 ? `${short(us / 60e6)} min` : `${short(us / 3600e6)} h`;

function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; bytes >= 999.5 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return `${short(bytes)} ${units[unit]}`;
}

// A number in a unit: "us", "bytes", or what is written after it.
function inUnit(x, unit) {
  return unit === 'us' ? timeText(x) : unit === 'bytes' ? bytesText(x) : numberText(x) + (unit ? ' ' + unit : '');
}

function valueText(value) {
  if (value === null || value === undefined) return '-';
  if (typeof value === 'number') return numberText(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map(valueText).join(', ');
  if (typeof value !== 'object') return value;
  return Object.entries(value).map(([name, inner]) => `${name} ${valueText(inner)}`).join(', ');
}

function cell(column, value) {
  const good = value === 'faster' || (column === 'holds' && value === true);
  const bad = value === 'slower' || ((column === 'holds' || column === 'verified') && value === false);
  const kind = good ? 'good' : bad ? 'bad' : typeof value === 'number' ? 'number' : '';
  return element('td', {className: kind}, value === '' ? '' : valueText(value));
}

// Rows under one header. Values common to all rows are given once above the table; a single row is shown upright.
function table(rows) {
  let columns = [...new Set(rows.flatMap(Object.keys))];
  if (rows.length === 1) {
    const upright = columns.map(column => element('tr', {}, element('th', {}, column), cell(column, rows[0][column])));
    return element('div', {className: 'wide upright'}, element('table', {}, ...upright));
  }
  const first = JSON.stringify;
  const same = columns.filter(column => rows.every(row => first(row[column]) === first(rows[0][column])));
  columns = columns.filter(column => !same.includes(column));
  const head = columns.map(column => {
    const numbers = rows.some(row => typeof row[column] === 'number');
    return element('th', {className: numbers ? 'number' : ''}, column);
  });
  const body = rows.map(row => element('tr', {}, ...columns.map(c => cell(c, c in row ? row[c] : ''))));
  const all = same.map(column => `${column} ${valueText(rows[0][column])}`).join(' · ');
  const wide = element('div', {className: 'wide'}, element('table', {},
    element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...body)));
  return element('div', {}, ...(all ? [element('p', {}, 'All: ' + all)] : []), ...(columns.length ? [wide] : []));
}

const drawPart = {
  heading: part => element('h2', {}, part.heading),
  text: part => element('p', {}, part.text),
  facts: part => element('div', {className: 'facts'}, ...part.facts.map(([name, value, unit]) =>
    element('div', {}, element('b', {}, unit ? inUnit(value, unit) : valueText(value)), element('span', {}, name)))),
  table: part => table(part.table),
  details: part => element('details', {}, element('summary', {}, part.details), element('pre', {}, part.text)),
  cards: part => element('div', {className: 'row'}, ...part.cards.map(card => {
    const box = element('div', {className: 'card'}, element('h3', {}, card.title));
    return drawParts(card.parts, box);
  })),
};

// Adds the parts to an element. Charts that follow each other stand side by side.
function drawParts(parts, into) {
  let row = null;
  for (const part of parts) {
    const expand = 'plan' in part ? planParts : 'run' in part ? runParts : 'steps' in part ? stepsParts : null;
    if (expand) {
      drawParts(expand(part.plan || part.run || part.steps), into);
    } else if ('chart' in part) {
      if (!row) into.append(row = element('div', {className: 'row plots'}));
      row.append(chartFigure(part.chart));
      continue;
    } else {
      into.append(drawPart[Object.keys(part)[0]](part));
    }
    row = null;
  }
  return into;
}

function show() {
  const data = JSON.parse(document.getElementById('data').textContent);
  document.title = data.title;
  const main = document.querySelector('main');
  main.append(element('h1', {}, data.title));
  if (typeof Chart === 'undefined')
    main.append(element('p', {}, 'This page has no plots, because Tessera was built without Chart.js.'));
  drawParts(data.parts, main);
  drawCharts();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawCharts);
  fitFrame();
  addEventListener('resize', fitFrame);
}

// In a notebook the page is a frame, which is made as tall as its content.
function fitFrame() {
  if (window.frameElement) window.frameElement.style.height = `${document.documentElement.offsetHeight + 8}px`;
}
