// Sharding plans, runs and steps as parts of a page.
'use strict';

const counted = (n, what) => `${numberText(n)} ${what}${n === 1 ? '' : 's'}`;

// ---- plans

// The tables of a plan: name, module, shards, rows and columns. A shard has "at", the place of its first row.
function tablesOf(plan) {
  return plan.modules.flatMap(module => module.tables.map(table => {
    let below = 0;
    const shards = table.shards.map(shard => {
      const at = table.routed ? below : shard.offsets[0];
      below += shard.sizes[0];
      return {...shard, at};
    });
    const most = of => Math.max(0, ...shards.map(of));
    return {...table, path: module.path, shards, rows: most(s => s.at + s.sizes[0]),
      columns: most(s => s.offsets[1] + s.sizes[1])};
  }));
}

function ranksText(shards) {
  const ranks = [...new Set(shards.map(shard => shard.rank))].sort((a, b) => a - b);
  const last = ranks.at(-1);
  if (ranks.length > 2 && last - ranks[0] === ranks.length - 1) return `${ranks[0]} to ${last}`;
  return ranks.join(', ');
}

// One plot of what each rank has of a quantity of shards.
function planChart(plan, tables, title, unit, sizeOf) {
  const types = [...new Set(tables.map(table => table.sharding_type))];
  const local = plan.local_world_size || plan.world_size;
  const hosts = plan.world_size > local;
  const labels = Array.from({length: plan.world_size}, (_, rank) =>
    hosts && rank % local === 0 ? [String(rank), `host ${rank / local}`] : String(rank));
  const boxes = tables.flatMap(table => table.shards.filter(shard => sizeOf(shard) > 0).map(shard => {
    const [[, column], [rows, columns]] = [shard.offsets, shard.sizes];
    const where = table.routed ? `${rows} rows of ${columns}`
      : `rows ${shard.at} to ${shard.at + rows - 1}, columns ${column} to ${column + columns - 1}`;
    const costs = [['bytes', shard.bytes], ['us', shard.us]].filter(([, x]) => x !== undefined);
    const tip = [`${table.name} on rank ${shard.rank}`, `${table.sharding_type}, ${table.compute_kernel}`, where,
      ...costs.map(([u, x]) => inUnit(x, u))].join('\n');
    return {at: shard.rank, value: sizeOf(shard), color: types.indexOf(table.sharding_type), name: table.name, tip};
  }));
  return {chart: {kind: 'boxes', title, unit, x: 'rank', labels, boxes, legend: types}};
}

// A plan as its file has it. Shards may also have "bytes" and "us", the predicted time of a step; `sizes` has the bytes
// of tables by name.
function planParts(plan, sizes = {}) {
  const tables = tablesOf(plan);
  const one = fn => tables.some(table => table.shards.some(fn));
  const bytesOf = table => sizes[table.name] !== undefined ? sizes[table.name].bytes
    : table.shards.every(s => s.bytes !== undefined) ? table.shards.reduce((sum, s) => sum + s.bytes, 0) : undefined;
  const modules = new Set(tables.map(table => table.path)).size > 1;
  const rows = tables.map(table => ({
    table: table.name, ...(modules ? {module: table.path} : {}), rows: table.rows, dimension: table.columns,
    ...(bytesOf(table) === undefined ? {} : {MiB: Number((bytesOf(table) / 2 ** 20).toPrecision(3))}),
    'sharding type': table.sharding_type, 'compute kernel': table.compute_kernel, shards: table.shards.length,
    ranks: ranksText(table.shards),
  }));
  const out = [];
  if (plan.world_size > 1 && one(s => s.bytes !== undefined))
    out.push(planChart(plan, tables, 'Memory of each rank', 'bytes', shard => shard.bytes));
  else if (plan.world_size > 1)
    out.push(planChart(plan, tables, 'Values on each rank', '', shard => shard.sizes[0] * shard.sizes[1]));
  if (one(s => s.us !== undefined))
    out.push(planChart(plan, tables, 'Predicted time of a step on each rank', 'us', shard => shard.us));
  return rows.length ? [...out, {table: rows}] : out;
}

// ---- runs

const metricNames = {auc: 'AUC', gauc: 'GAUC', mae: 'MAE', mse: 'MSE', rmse: 'RMSE', ndcg: 'NDCG', mrr: 'MRR',
  ne: 'normalized entropy', logloss: 'log loss', multiclass_accuracy: 'accuracy', multiclass_logloss: 'log loss',
  multiclass_normalized_entropy: 'normalized entropy', macro_f1: 'macro F1'};

// "click.auc" is the AUC of the head click.
function metricOf(name) {
  const [, head, kind] = /^(?:(.*?)\.)?([^.?@]+(?:[?@].*)?)$/.exec(name) || ['', '', name];
  const [, base, more] = /^([^?@]*)(.*)$/.exec(kind);
  return {head: head || '', kind: (metricNames[base] || base.replaceAll('_', ' ')) + more};
}

const metricsOf = values => Object.entries(values || {})
  .filter(([name]) => !['samples', 'seconds', 'step', 'best'].includes(name))
  .map(([name, value]) => ({...metricOf(name), value}));

// One row for each head, and for each set of rows that was judged.
function metricsTable(report, best) {
  const rows = [];
  const add = (rowsOf, values) => {
    const heads = new Map();
    for (const {head, kind, value} of metricsOf(values)) {
      if (!heads.has(head)) heads.set(head, {...(head ? {head} : {}), of: rowsOf, samples: values.samples});
      heads.get(head)[kind] = value;
    }
    rows.push(...heads.values());
  };
  if (report.test && report.test.samples) add('test', report.test);
  if (best) add(`best validation, at step ${best.step}`, best);
  const trained = {lifetime: {}, window: {}};
  for (const [name, value] of Object.entries((report.train || {}).metrics || {}))
    trained[name.split('_')[0]][name.replace(/^[a-z]+_/, '')] = value;
  add('training, all steps', trained.lifetime);
  add('training, the last window', trained.window);
  for (const row of rows) if (row.samples === undefined) delete row.samples;
  return rows.sort((a, b) => (a.head || '') < (b.head || '') ? -1 : (a.head || '') > (b.head || '') ? 1 : 0);
}

// The steps after which losses are known, and the losses; each is the mean of `each` steps.
function lossPoints(report) {
  const each = report.losses_each || 1, first = report.first_step || 0;
  return (report.losses || []).map((loss, i) => [Math.min(first + (i + 1) * each, first + report.steps), loss])
    .filter(([, loss]) => loss !== null);
}

// Curves over the steps. Validations of the loss's own formula share its plot; a metric that was seen once has none.
function curves(report, best) {
  const validations = report.validations || [];
  const kinds = new Map();  // kind -> head -> points
  for (const v of validations) {
    for (const {head, kind, value} of metricsOf(v)) {
      if (value === null) continue;
      if (!kinds.has(kind)) kinds.set(kind, new Map());
      if (!kinds.get(kind).has(head)) kinds.get(kind).set(head, []);
      kinds.get(kind).get(head).push([v.step, value]);
    }
  }
  const losses = lossPoints(report);
  const first = report.first_step || 0;
  const common = {kind: 'lines', x: 'step', range: [first, first + report.steps],
    marks: best && validations.length > 1 ? [[best.step, `best: step ${best.step}`]] : []};
  const out = [];
  if (losses.length) {
    const series = [{name: 'training', points: losses}];
    const same = ['log loss', 'MSE'].find(kind => kinds.has(kind) && kinds.get(kind).has('') &&
      kinds.get(kind).size === 1);
    if (same) series.push({name: `validation (${same})`, points: kinds.get(same).get('')});
    if (same) kinds.delete(same);
    out.push({chart: {...common, title: same ? 'Loss of training and of validations' : 'Training loss', series}});
  }
  for (const [kind, heads] of kinds) {
    const series = [...heads].map(([head, points]) => ({name: head || kind, points}));
    const title = `${kind[0].toUpperCase()}${kind.slice(1)} of validations`;
    if (series.some(s => s.points.length > 1)) out.push({chart: {...common, title, series}});
  }
  return out;
}

function stagesChart(stages, title) {
  const shown = Object.entries(stages).filter(([, stage]) => (stage.largest_us_per_step ?? stage.us_per_step) > 0);
  if (!shown.length) return [];
  const us = shown.map(([, stage]) => stage.us_per_step);
  const high = shown.map(([, stage]) => stage.largest_us_per_step ?? stage.us_per_step);
  const slowest = high.some((h, i) => h > us[i]);
  return [{chart: {kind: 'bars', unit: 'us', title: title + (slowest ? '; whiskers reach to the slowest rank' : ''),
    labels: shown.map(([name]) => name), values: us, low: us, high,
    tips: shown.map(([name], i) => `${name}: ${timeText(us[i])}` +
      (slowest ? `, on the slowest rank ${timeText(high[i])}` : ''))}}];
}

function runFacts(report, best) {
  const judged = report.test && report.test.samples ? ['test', report.test] : best ? ['best validation', best] : null;
  const all = judged ? metricsOf(judged[1]) : [];
  const heads = new Set(all.map(({head}) => head)).size;
  const facts = all.filter(({kind}) => heads < 2 || kind === all[0].kind).slice(0, 4).map(({head, kind, value}) =>
    [`${judged[0]} ${kind}${head ? `, ${head}` : ''}`, value]);
  const {data, train} = report;
  if (report.model) facts.push(['model', report.model]);
  const rows = data && [data.train_rows, data.test_rows].map(numberText);
  if (data) facts.push([`${rows[0]} rows to train on, ${rows[1]} to test on`, data.name]);
  facts.push([counted(report.steps, 'step'), timeText(1e6 * (train.seconds || 0))]);
  facts.push(['a second', `${numberText(Math.round(train.samples_per_s))} samples`]);
  facts.push([`on ${report.device || 'cpu'}${report.world_size > 1 ? ` over ${report.backend}` : ''}`,
    counted(report.world_size || 1, 'rank')]);
  return facts;
}

function runParts(report) {
  const best = (report.validations || []).filter(v => v.best).at(-1);
  const out = [{facts: runFacts(report, best)}];
  const metrics = metricsTable(report, best), drawn = curves(report, best);
  if (metrics.length) out.push({heading: 'Metrics'}, {table: metrics});
  if (drawn.length) out.push({heading: 'Curves'}, ...drawn);
  const stages = stagesChart(report.stages || {}, 'Time of a step by stage, on rank 0');
  if (stages.length) out.push({heading: 'Stages'}, ...stages);
  if (report.plan) out.push({heading: 'Plan'}, ...planParts(report.plan, report.tables));
  const times = ((report.plan_versus_actual || {}).tables || []).map(t => ({
    table: t.table, rank: t.rank, 'planned lookup (µs)': t.lookup_us.predicted, 'lookup (µs)': t.lookup_us.measured,
    'planned update (µs)': t.update_us.predicted, 'update (µs)': t.update_us.measured,
  }));
  if (times.length) out.push({text: 'Times of the tables in sampled steps, and the planned times.'}, {table: times});
  if (report.start) out.push({details: 'Start of the run', text: report.start.join('\n')});
  if (report.config) out.push({details: 'Settings', text: report.config});
  return out;
}

// ---- steps of a collection

function stepsParts(stats) {
  const steps = Math.max(1, stats.steps);
  const stages = Object.fromEntries(Object.entries(stats.stages).map(([name, s]) =>
    [name, {us_per_step: 1e6 * s / steps}]));
  const total = Object.values(stages).reduce((sum, s) => sum + s.us_per_step, 0);
  const sent = Object.entries(stats.bytes_sent).flatMap(([what, where]) => {
    const bytes = Object.values(where).reduce((a, b) => a + b, 0);
    return bytes ? [[`${what} sent`, bytesText(bytes)]] : [];
  });
  const rows = Object.entries(stats.tables).map(([table, t]) =>
    ({table, 'ids looked up': t.lookups, MiB: Number(((t.weight_bytes + t.state_bytes) / 2 ** 20).toPrecision(3))}));
  const facts = [['a step, in the mean', timeText(total)], ['steps', stats.steps],
    ['rank', `${stats.rank} of ${stats.world_size}`], ...sent];
  return [{facts}, ...stagesChart(stages, 'Time of a step by stage'), ...(rows.length ? [{table: rows}] : [])];
}
