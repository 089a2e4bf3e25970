// Plots by Chart.js. A chart is {"kind", "title", "unit", ...}; "unit" is of its values.
//   "lines": {"x": name, "series": [{"name", "points": [[x, y], ...], "low": [...], "high": [...], "dots": true}],
//     "log": true if both axes are logarithmic, "logX": true if x is, "range": [least x, most x],
//     "marks": [[x, text], ...]}; "dots" without a line may have "tips".
//   "bars": {"labels", "values", "low", "high", "tips", "marks"}, a horizontal bar for each label; "low" to "high" are
//     whiskers, "texts" stand at the ends of bars.
//   "stacks": {"labels", "series": [{"name", "values"}]}, horizontal bars of several parts.
//   "columns": {"labels", "values", "tips"}, a histogram.
//   "boxes": {"x": name, "labels", "boxes": [{"at": column, "value", "color", "name", "tip"}], "legend": [text, ...]},
//     columns of stacked boxes.
'use strict';

const fontFamily = 'system-ui, sans-serif';
const charts = [];  // {canvas, spec, chart}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const color = i => css(`--c${i % 16}`);
const cut = (text, most) => text.length <= most ? text : text.slice(0, most - 1) + '…';

function chartFigure(spec) {
  const figure = element('figure', {}, element('figcaption', {}, spec.title));
  if (typeof Chart === 'undefined') return figure;
  const heights = {lines: 300, columns: 110, boxes: 340, stacks: 90 + 28 * (spec.labels || []).length,
    bars: 50 + 28 * (spec.labels || []).length};
  const canvas = element('canvas', {role: 'img', ariaLabel: spec.title});
  const box = element('div', {}, canvas);
  box.style.height = `${heights[spec.kind]}px`;
  figure.append(box);
  charts.push({canvas, spec});
  return figure;
}

// Draws all plots, again if the colours of the page have changed.
function drawCharts() {
  if (typeof Chart === 'undefined') return;
  Object.assign(Chart.defaults, {color: css('--soft'), borderColor: css('--grid'), animation: false,
    maintainAspectRatio: false});
  Chart.defaults.font.family = fontFamily;
  for (const one of charts) {
    if (one.chart) one.chart.destroy();
    const {type, data, options} = settings[one.spec.kind](one.spec);
    one.chart = new Chart(one.canvas, {type, data, options, plugins: [whiskers, marks(one.spec), texts(one.spec)]});
  }
}

const settings = {
  lines(spec) {
    const datasets = spec.series.map((s, i) => ({
      label: s.name, order: -i, data: s.points.map(([x, y]) => ({x, y})), low: s.low, high: s.high,
      borderColor: color(i), backgroundColor: color(i), borderWidth: 2, showLine: !s.dots,
      clip: 8, pointRadius: s.points.length > 60 ? 0 : 3, pointHoverRadius: 5, pointHitRadius: 8, tips: s.tips,
    }));
    const range = spec.range ? {min: spec.range[0], max: spec.range[1]} : {};
    const log = on => (on ? 'logarithmic' : 'linear');
    const xs = [...new Set(spec.series.flatMap(s => s.points.map(([x]) => x)))].sort((a, b) => a - b);
    return {type: 'line', data: {datasets}, options: {
      interaction: {mode: spec.series.some(s => s.dots) ? 'nearest' : 'x', intersect: false},
      plugins: {
        legend: {display: spec.series.length > 1, position: 'bottom', reverse: true,
          labels: {boxWidth: 12, boxHeight: 3}},
        tooltip: {callbacks: {
          title: items => items.length ? `${spec.x} ${numberText(items[0].parsed.x)}` : '',
          label: at => at.dataset.tips ? at.dataset.tips[at.dataIndex]
            : `${at.dataset.label}: ${inUnit(at.parsed.y, spec.unit)}`,
        }},
      },
      scales: {
        x: {type: log(spec.log || spec.logX), ...range, title: {display: true, text: spec.x},
          ticks: spec.logX ? logTicks('') : {callback: x => numberText(x), maxRotation: 0, includeBounds: false},
          afterBuildTicks: axis => { if (spec.log) axis.ticks = xs.map(value => ({value})); }},
        y: {type: log(spec.log), afterFit: widen, grace: (spec.marks || []).length ? '8%' : 0,
          ticks: spec.log ? logTicks(spec.unit) : {callback: y => inUnit(y, spec.unit)}},
      },
    }};
  },

  bars(spec) {
    const data = {labels: spec.labels, datasets: [{data: spec.values, low: spec.low, high: spec.high,
      backgroundColor: color(0), maxBarThickness: 18}]};
    const options = horizontal(spec);
    options.plugins.legend = {display: false};
    options.plugins.tooltip.callbacks.label = at => (spec.tips || spec.values)[at.dataIndex];
    options.scales.x.suggestedMax = 1.12 * Math.max(...spec.values, ...(spec.high || []),
      ...(spec.marks || []).map(([x]) => x));
    return {type: 'bar', data, options};
  },

  stacks(spec) {
    spec.series = spec.series.filter(s => s.values.some(value => value > 0));
    const datasets = spec.series.map((s, i) => ({label: s.name, data: s.values, backgroundColor: color(i),
      maxBarThickness: 18}));
    const options = horizontal(spec);
    options.scales.x.stacked = options.scales.y.stacked = true;
    options.scales.x.suggestedMax = 1.12 * Math.max(...spec.labels.map((_, row) => sumOf(spec.series, row)));
    return {type: 'bar', data: {labels: spec.labels, datasets}, options};
  },

  columns(spec) {
    const data = {labels: spec.labels, datasets: [{data: spec.values, backgroundColor: color(0), minBarLength: 1,
      categoryPercentage: 1, barPercentage: 0.92}]};
    return {type: 'bar', data, options: {
      interaction: {mode: 'index', intersect: false},
      plugins: {legend: {display: false},
        tooltip: {callbacks: {title: () => '', label: at => spec.tips[at.dataIndex]}}},
      scales: {x: {grid: {display: false}, ticks: {maxRotation: 0, autoSkipPadding: 24,
        callback(i) { return cut(this.getLabelForValue(i), 16); }}},
        y: {display: false, beginAtZero: true}},
    }};
  },

  boxes(spec) {
    const layers = [];  // the n-th box of each column
    const filled = spec.labels.map(() => 0);
    for (const box of spec.boxes) {
      const layer = layers[filled[box.at]++] ||= {data: spec.labels.map(() => null), boxes: [], backgroundColor: []};
      layer.data[box.at] = box.value;
      layer.boxes[box.at] = box;
      layer.backgroundColor[box.at] = color(box.color);
    }
    const datasets = layers.map(layer => ({...layer, borderColor: css('--bg'), borderWidth: {top: 1},
      categoryPercentage: 0.94, barPercentage: 1, maxBarThickness: 200}));
    const legend = (spec.legend || []).map((text, i) => ({text, fillStyle: color(i), strokeStyle: color(i),
      fontColor: css('--soft')}));
    return {type: 'bar', data: {labels: spec.labels, datasets}, options: {
      interaction: {mode: 'nearest', intersect: true},
      plugins: {
        legend: {display: legend.length > 0, position: 'bottom', onClick: null,
          labels: {boxWidth: 12, boxHeight: 12, generateLabels: () => legend}},
        tooltip: {callbacks: {title: () => '', label: at => at.dataset.boxes[at.dataIndex].tip.split('\n')}},
      },
      scales: {
        x: {stacked: true, grid: {display: false}, title: {display: true, text: spec.x}, ticks: {maxRotation: 0}},
        y: {stacked: true, afterFit: widen, ...ticksIn(spec.unit)},
      },
    }};
  },
};

const sumOf = (series, row) => series.reduce((sum, s) => sum + (s.values[row] || 0), 0);
const widen = axis => { axis.width = Math.max(axis.width, 62); };  // so that plots line up
const logTicks = unit => ({maxRotation: 0, callback(value, _, all) {
  const lead = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
  return lead === 1 || (all.length < 20 && (lead === 2 || lead === 5)) ? inUnit(value, unit) : '';
}});
// Ticks of an axis from 0. Those of bytes are round in KiB, MiB and so on.
const ticksIn = unit => ({
  ticks: {maxTicksLimit: 7, callback: x => (x === 0 ? '0' : inUnit(x, unit))},
  afterBuildTicks(axis) {
    if (unit !== 'bytes' || axis.max < 1024) return;
    const one = 1024 ** Math.floor(Math.log(axis.max) / Math.log(1024)), rough = axis.max / one / 5;
    const ten = 10 ** Math.floor(Math.log10(rough));
    const step = one * ten * [1, 2, 5, 10].find(n => n * ten >= rough);
    axis.ticks = Array.from({length: Math.floor(axis.max / step) + 1}, (_, i) => ({value: i * step}));
  },
});

function horizontal(spec) {
  return {
    indexAxis: 'y',
    interaction: spec.kind === 'bars' ? {mode: 'index', axis: 'y', intersect: false}
      : {mode: 'nearest', intersect: true},
    plugins: {
      legend: {position: 'bottom', labels: {boxWidth: 12, boxHeight: 12}},
      tooltip: {callbacks: {title: items => items.length ? spec.labels[items[0].dataIndex] : '',
        label: at => `${at.dataset.label}: ${inUnit(at.parsed.x, spec.unit)}`}},
    },
    scales: {
      x: {beginAtZero: true, ...ticksIn(spec.unit)},
      y: {grid: {display: false}, ticks: {autoSkip: false, color: css('--ink'),
        callback(i) { return cut(this.getLabelForValue(i), this.chart.width < 600 ? 26 : 48); }}},
    },
  };
}

function stroke(ctx, name, dash, from, to) {
  Object.assign(ctx, {strokeStyle: css(name), lineWidth: 1.5});
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(...from);
  ctx.lineTo(...to);
  ctx.stroke();
  ctx.setLineDash([]);
}

// Lines from low to high, at each value that has both.
const whiskers = {id: 'whiskers', afterDatasetsDraw(chart) {
  const {ctx, scales: {x, y}} = chart;
  const bars = chart.config.type === 'bar';
  chart.data.datasets.forEach((set, i) => (set.low || []).forEach((low, k) => {
    const at = chart.getDatasetMeta(i).data[k];
    const ends = [low, set.high[k]].map(v => bars ? [x.getPixelForValue(v), at.y] : [at.x, y.getPixelForValue(v)]);
    if (set.high[k] <= low) return;
    stroke(ctx, '--ink', [], ...ends);
    for (const [px, py] of ends)
      stroke(ctx, '--ink', [], bars ? [px, py - 4] : [px - 4, py], bars ? [px, py + 4] : [px + 4, py]);
  }));
}};

// Dashed vertical lines with a text.
const marks = spec => ({id: 'marks', afterDatasetsDraw(chart) {
  const {ctx, scales: {x}, chartArea: {top, bottom, left, right}} = chart;
  for (const [value, text] of spec.marks || []) {
    const at = x.getPixelForValue(value);
    stroke(ctx, '--bad', [4, 3], [at, top], [at, bottom]);
    write(ctx, text, at + (at > (left + right) / 2 ? -5 : 5), top + 8, '--bad',
      at > (left + right) / 2 ? 'right' : 'left');
  }
}});

function write(ctx, text, x, y, name, align) {
  Object.assign(ctx, {fillStyle: css(name), textAlign: align, textBaseline: 'middle', font: `12px ${fontFamily}`});
  ctx.fillText(text, x, y);
}

// Values at the ends of horizontal bars, and names in boxes that have the space.
const texts = spec => ({id: 'texts', afterDatasetsDraw(chart) {
  const {ctx, scales: {x}} = chart;
  if (spec.kind === 'bars' || spec.kind === 'stacks') {
    spec.labels.forEach((_, row) => {
      const value = spec.kind === 'bars' ? spec.values[row] : sumOf(spec.series, row);
      const end = Math.max(value, (spec.high || [])[row] || 0);
      const text = spec.texts ? spec.texts[row] : inUnit(value, spec.unit);
      write(ctx, text, x.getPixelForValue(end) + 8, chart.getDatasetMeta(0).data[row].y, '--ink', 'left');
    });
  }
  if (spec.kind !== 'boxes') return;
  chart.data.datasets.forEach((set, i) => set.boxes.forEach((box, at) => {
    const {width, height, x: middle, y, base} = chart.getDatasetMeta(i).data[at];
    const fits = Math.floor((width - 8) / 7);
    if (Math.abs(base - y) >= 14 && fits >= 4)
      write(ctx, cut(box.name, fits), middle - width / 2 + 4, (y + base) / 2, '--on', 'left');
  }));
}});
