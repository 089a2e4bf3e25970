// A bench's result as lines of data: what was done, and what came out.
//
// A line is a JSON object with "bench" first. The fields before its first time (a name that ends with _us or _s)
// are its circumstances: what was asked for. The first time and all after it are figures.
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
// Adds "median_us", "p10_us", "p25_us", "p75_us" and "p90_us" of the samples, for unit "us".
void add_percentiles(Line* line, const std::string& unit, const std::vector<double>& samples);
// Adds a time of each round, "rounds_us", where there are several: comparisons use them.
void add_rounds(Line* line, const std::string& unit, const std::vector<double>& rounds);
// Both, of one sample for each round.
void add_times(Line* line, const std::string& unit, const std::vector<double>& samples);

// True if a circumstance names the thing that is compared, rather than its work: kernel,
// pass, optimizer, backend, sharding, dtype, device, plan, peer.
bool names_contender(const std::string& key);

// The circumstances, in the line's order; "round", which says when, is none.
std::vector<std::pair<std::string, Line>> circumstances(const Line& line);

// Lines with the same circumstances, put together: a round per line gives many, otherwise it is one.
struct Measured {
  Line line;         // the last one
  std::string unit;  // "us" or "s", of `time`
  Percentiles time;  // of several lines: of their medians. Quartiles that a line lacks are its p10 and p90
  int lines = 0;
  std::vector<Line> rounds;     // all of them
  std::vector<double> samples;  // a time of each round, where it is known

  double us(double value) const { return unit == "s" ? 1e6 * value : value; }
};

// The results of lines with a median, in the order of their first line; other lines, such as a run's, are left out.
std::vector<Measured> measured(const std::vector<Line>& lines);

// A name for each: the circumstances in which they differ, such as "cpu forward B 128"; those in `without` are left
// out.
std::vector<std::string> labels(const std::vector<Measured>& results, const std::vector<std::string>& without = {});
// The circumstances that all have in common: "T 8 · D 64".
std::string common_label(const std::vector<Measured>& results);

// "8.84 us", "1.2 ms", "3 s".
std::string time_text(double us);
// Five significant digits, or a whole number with more.
std::string number_text(double value);
// The text of a value in a table: a number short, a string plain, an object as "name value, name value".
std::string value_text(const Line& value);

}  // namespace tessera::cli
