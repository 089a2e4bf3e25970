// tessera bench scale: runs another bench with one option at growing values, and compares how its time grows with how
// it should grow.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "bench/report/circumstances.h"
#include "bench/report/record.h"
#include "bench/session.h"
#include "options.h"
#include "tessera/error.h"
#include "tessera/sdk/nearest.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr const char* kProcessor = "processor";  // --figure: seconds of all threads and processes

struct ScaleBench {
  CommonOptions common;
  std::string of, grows, form, figure = "median";
  std::vector<int64_t> over;
  double exponent = 1;
  std::vector<std::string> rest;  // options of the other bench
};

// One value of the option that grows, ready to run.
struct Point {
  int64_t at = 0;
  std::shared_ptr<Record> record;  // receives the lines
  BenchRun run;
};

// The line of a point: what grows, who did the work, and the figure as a time in microseconds.
Line line_of(const ScaleBench& b, int64_t at, const Measured& m, double processor) {
  Line out{{"bench", "scale"}, {"of", b.of}, {"grows", b.grows}, {"exponent", b.exponent}, {"figure", b.figure}};
  for (const auto& [key, value] : circumstances(m.line)) {
    if (names_contender(key)) out[key] = value;
  }
  out[b.grows] = at;
  Percentiles us;
  for (const auto& [to, from] : {std::pair{&Percentiles::median, &Percentiles::median},
                                 {&Percentiles::p10, &Percentiles::p10},
                                 {&Percentiles::p25, &Percentiles::p25},
                                 {&Percentiles::p75, &Percentiles::p75},
                                 {&Percentiles::p90, &Percentiles::p90}})
    us.*to = m.us(m.time.*from);
  if (b.figure != "median") {
    double value = 1e6 * processor;
    if (b.figure != kProcessor) {
      const Line found = m.line.value(b.figure, Line());
      if (!found.is_number() || !(b.figure.ends_with("_us") || b.figure.ends_with("_s"))) {
        throw UsageError(str_cat("--figure: the lines of tessera bench ", b.of, " have no time \"", b.figure,
                                 "\": name one that ends with _us or _s, median, or ", kProcessor));
      }
      value = found.get<double>() * (b.figure.ends_with("_us") ? 1 : 1e6);
    }
    us = {value, value, value, value, value, value};
  }
  out.update(
      {{"median_us", us.median}, {"p10_us", us.p10}, {"p25_us", us.p25}, {"p75_us", us.p75}, {"p90_us", us.p90}});
  return out;
}

int run_scale(const ScaleBench& b, const std::vector<Point>& points) {
  Report report(b.common);
  int status = 0;
  for (const Point& point : points) {
    const double before = used_by_us();
    try {
      status = std::max(status, point.run());
    } catch (const Error& e) {
      std::cerr << str_cat("tessera bench scale: ", b.grows, " ", point.at, " is left out: ", e.what(), "\n");
      status = 1;
      continue;
    }
    const double used = used_by_us() - before;
    for (const Measured& m : measured(point.record->lines())) report.line(line_of(b, point.at, m, used));
  }
  return status;
}

const BenchEntry& bench_named(const std::string& name) {
  std::vector<std::string> names;
  for (const BenchEntry& bench : benches()) {
    if (std::string(bench.name) == "scale") continue;
    if (name == bench.name) return bench;
    names.emplace_back(bench.name);
  }
  throw UsageError(name.empty()
                       ? "--bench NAME is needed: the bench whose time is looked at, one of " + sdk::joined(names)
                       : sdk::unknown_name("bench", name, names));
}

// The option with its value: "--rows=1000", or as --form says.
std::string argument(const ScaleBench& b, int64_t at) {
  std::string text = b.form.empty() ? b.grows + "={}" : b.form;
  return "--" + text.replace(text.find("{}"), 2, str_cat(at));
}

// Options of this bench are read here; the others are the other bench's.
bool parse_scale(const std::vector<std::string>& args, ScaleBench* b) {
  std::string over;
  Options options(
      "bench scale", "--bench NAME --grows OPTION --over VALUES [OPTIONS]",
      "Runs another bench, which gets all other options, with one option at growing values, and fits how its time "
      "grows: an exponent of 1 is time in proportion, 0 is the same time. The exponent is that of the upper half of "
      "the values, at least three, and may exceed the expected one by .15.");
  auto add = options.add_options();
  add("bench", po::value(&b->of)->value_name("NAME"), "the bench: lookup, infer, step, plan, start, read, ...");
  add("grows", po::value(&b->grows)->value_name("OPTION"), "the option that grows, without dashes: rows, tables, ...");
  add("over", po::value(&over)->value_name("VALUES"),
      "values of this option, at least three, ascending, separated by commas");
  add("form", po::value(&b->form)->value_name("TEXT"),
      "how the option is written, with {} for the value, such as \"sizes={}x128\" (default: OPTION={})");
  add("exponent", po::value(&b->exponent)->default_value(b->exponent), "how its time should grow");
  add("figure", po::value(&b->figure)->default_value(b->figure),
      "the time: median, a field of its lines that ends with _us or _s, or processor: seconds of all processes");
  // --rounds, --threads and --help are options of every bench: the other bench gets the first two.
  po::options_description own;
  for (const auto& option : options.options()) own.add(option);
  own.add_options()("help,h", "")("man", "");
  std::vector<std::string> mine;
  const po::parsed_options parsed = [&] {
    try {
      return po::command_line_parser(args)
          .options(own)
          .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
          .allow_unregistered()
          .run();
    } catch (const po::error& e) {
      throw UsageError(e.what());
    }
  }();
  for (const auto& option : parsed.options) {
    std::vector<std::string>& to = option.unregistered || option.position_key >= 0 ? b->rest : mine;
    to.insert(to.end(), option.original_tokens.begin(), option.original_tokens.end());
  }
  const bool named =
      std::any_of(mine.begin(), mine.end(), [](const std::string& a) { return a.starts_with("--bench"); });
  if (!parse(options, named ? mine : args, &b->common)) return false;  // without --bench, nobody takes other options
  (void)bench_named(b->of);
  if (b->grows.empty()) throw UsageError("--grows OPTION is needed: the option of the other bench that grows");
  if (over.empty()) throw UsageError("--over VALUES is needed: at least three ascending values");
  b->over = integer_list("--over", over, 1);
  if (b->over.size() < 3 || !std::is_sorted(b->over.begin(), b->over.end(), std::less_equal<>()))
    throw UsageError("--over takes at least three values, ascending: " + over);
  if (!std::isfinite(b->exponent) || b->exponent < 0) throw UsageError("--exponent must be at least 0");
  if (!b->form.empty() && b->form.find("{}") == std::string::npos)
    throw UsageError("--form has no {} for the value: \"" + b->form + "\"");
  return true;
}

}  // namespace

BenchRun bench_scale(const std::vector<std::string>& args, const CommonOptions& common) {
  ScaleBench b{.common = common};
  if (!parse_scale(args, &b)) return {};
  if (common.round_per_line) throw UsageError("--round-per-line is not for tessera bench scale: it runs other benches");
  const BenchEntry& bench = bench_named(b.of);
  std::vector<Point> points;
  for (const int64_t at : b.over) {
    Point point{at, std::make_shared<Record>(), {}};
    CommonOptions inner{.silent = true, .record = point.record->fd()};
    std::vector<std::string> arguments = b.rest;
    arguments.push_back(argument(b, at));
    point.run = bench.prepare(arguments, inner);
    points.push_back(std::move(point));
  }
  return [b, points] { return run_scale(b, points); };
}

}  // namespace tessera::cli
