// A bench's result as lines of data: the circumstances of a measurement and its figures.
//
// A line is a JSON object with "bench" first. The fields before its first time (a name that ends with _us or _s)
// are its circumstances: what was asked for. The first time and all fields after it are figures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

using Line = nlohmann::ordered_json;

// Linear interpolation between the closest samples; `samples` is not empty.
struct Percentiles {
  double median = 0, p10 = 0, p25 = 0, p75 = 0, p90 = 0, p99 = 0;
};
Percentiles percentiles(std::vector<double> samples);
// Adds "median_us", "p10_us", "p25_us", "p75_us" and "p90_us" of the samples if `unit` is "us".
void add_percentiles(Line* line, const std::string& unit, const std::vector<double>& samples);
// Adds the time of each round, "rounds_us", if there are several; comparisons use them.
void add_rounds(Line* line, const std::string& unit, const std::vector<double>& rounds);
// Calls both, for one sample per round.
void add_times(Line* line, const std::string& unit, const std::vector<double>& samples);

// True if a circumstance names the contender rather than its work: kernel, pass, optimizer, backend, sharding, dtype,
// device, plan, peer.
bool names_contender(const std::string& key);

// The circumstances, in the line's order, without "round".
std::vector<std::pair<std::string, Line>> circumstances(const Line& line);

// All lines with the same circumstances: many if there is a line per round, otherwise one.
struct Measured {
  Line line;         // the last line
  std::string unit;  // unit of `time`: "us" or "s"
  Percentiles time;  // for several lines, percentiles of their medians. Missing quartiles are taken from p10 and p90
  int lines = 0;
  std::vector<Line> rounds;     // all lines
  std::vector<double> samples;  // time of each round, if known

  double us(double value) const { return unit == "s" ? 1e6 * value : value; }
};

// The results of lines with a median, in the order of their first line. Other lines, such as a run's, are left out.
std::vector<Measured> measured(const std::vector<Line>& lines);

// A name for each result, made of the circumstances in which they differ, such as "cpu forward B 128". Circumstances in
// `without` are left out.
std::vector<std::string> labels(const std::vector<Measured>& results, const std::vector<std::string>& without = {});
// The circumstances common to all results: "T 8 · D 64".
std::string common_label(const std::vector<Measured>& results);

// "8.84 us", "1.2 ms", "3 s".
std::string time_text(double us);
// Five significant digits, or all digits of a larger whole number.
std::string number_text(double value);
// A value as a table shows it: numbers short, strings plain, objects as "name value, name value".
std::string value_text(const Line& value);

}  // namespace tessera::cli
