#include "data/date_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "data/time_format.h"

namespace tessera::cli {
namespace {

constexpr std::array<std::string_view, 30> kDates = {
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y",  "%d-%m-%Y", "%m-%d-%Y",     "%Y/%m/%d",    "%Y.%m.%d",      "%Y-%m-%d",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",  "%d-%m-%y", "%m-%d-%y",     "%d-%b-%Y",    "%d %b %Y",      "%d/%b/%Y",
    "%d-%b-%y", "%d%b%Y",   "%b %d, %Y", "%b %d %Y", "%a, %d %b %Y", "%a %d %b %Y", "%a, %b %d, %Y", "%Y-%b-%d",
    "%Y%m%d",   "%b-%Y",    "%b %Y",     "%b-%y",    "%m/%Y",        "%Y-%m"};
constexpr std::array<std::string_view, 13> kTimes = {
    "",          " %H:%M:%S",   " %H:%M",   " %H:%M:%S.%f", "T%H:%M:%S", "T%H:%M:%S.%f", " %I:%M:%S %p",
    " %I:%M %p", " %I:%M:%S%p", " %I:%M%p", ":%H:%M:%S",    "-%H.%M.%S", "T%H%M%S"};
constexpr std::array<std::string_view, 5> kZones = {"", "%z", " %z", " GMT", " UTC"};

bool fits_all(const std::string& format, const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return data::time_by(format, text).has_value(); });
}

}  // namespace

std::vector<std::string> time_formats_of(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  if (texts.empty()) return out;
  const auto try_format = [&](const std::string& format) {
    if (fits_all(format, texts)) out.push_back(format);
  };
  for (const std::string_view date : kDates) {
    for (const std::string_view time : kTimes) {
      for (const std::string_view zone : kZones) {
        if (!time.empty() || zone.empty()) try_format(std::string(date) + std::string(time) + std::string(zone));
      }
    }
  }
  try_format("%a %b %d %H:%M:%S %Y");
  try_format("%Y-%m-%d %H");
  return out;
}

}  // namespace tessera::cli
