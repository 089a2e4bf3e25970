#include "user_items.h"

#include <algorithm>
#include <unordered_set>

#include "files.h"
#include "record_reader.h"
#include "tessera/sdk/fields.h"

namespace tessera_readers {
namespace {

using tessera::sdk::fail;

constexpr int64_t kMostIds = int64_t{1} << 40;

struct UserHistory {
  int64_t user = 0;
  std::vector<int64_t> items;
};

int64_t id_of(std::string_view text, const LinePlace& place, const char* what) {
  constexpr size_t kShown = 20;
  int64_t id = 0;
  if (tessera::sdk::parse_number(text, id) && id >= 0 && id < kMostIds) return id;
  place.wrong(what, " is \"", text.substr(0, kShown), "\", but must be an integer from 0 on");
}

std::string_view next_field(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r"), rest.size()));
  const size_t end = std::min(rest.find_first_of(" \t\r"), rest.size());
  const std::string_view field = rest.substr(0, end);
  rest.remove_prefix(end);
  return field;
}

std::vector<UserHistory> read_histories(const std::string& file) {
  std::vector<UserHistory> out;
  std::unordered_set<int64_t> users;
  RecordReader lines(file, CsvFormat{'\t', false});
  int64_t line = 0;
  for (std::string_view rest; lines.next(rest, line);) {
    const LinePlace place{file, ++line};
    const std::string_view first = next_field(rest);
    if (first.empty()) continue;
    const int64_t user = id_of(first, place, "the user");
    if (out.empty() || out.back().user != user) {
      if (!users.insert(user).second)
        place.wrong("user ", user,
                    " has had lines before, with others between: sort the lines by user, and each user's by time");
      out.push_back({user, {}});
    }
    std::string_view field = next_field(rest);
    if (field.empty()) place.wrong("a line has a user and items; this one has none");
    for (; !field.empty(); field = next_field(rest)) out.back().items.push_back(id_of(field, place, "an item"));
  }
  if (out.empty()) fail(TSR_INVALID_ARGUMENT, file, " has no line of a user and an item");
  return out;
}

// Adds the line of the sample whose last item to predict is items[last], which may be unknown. `seen`: with the items
// before it.
void add_line(const UserHistory& h, int64_t last, int64_t length, bool seen, std::string& to) {
  const auto add = [&](int64_t begin, int64_t end) {
    to += '\t';
    for (int64_t i = begin; i < end; ++i) {
      if (i > begin) to += ',';
      to += std::to_string(h.items[static_cast<size_t>(i)]);
    }
  };
  const int64_t first = std::max<int64_t>(0, last - length);
  to += "1\t\t" + std::to_string(h.user);
  add(first, last);
  add(first + 1, std::min(last + 1, std::ssize(h.items)));
  add(0, seen ? last : 0);
  to += '\n';
}

SampleForm form_of_histories(const std::vector<UserHistory>& histories) {
  int64_t users = 0, items = 0;
  for (const UserHistory& h : histories) {
    users = std::max(users, h.user + 1);
    items = std::max(items, *std::max_element(h.items.begin(), h.items.end()) + 1);
  }
  return {.name = "user-items",
          .tables = {{"user", users}, {"items", items, "none"}, {"next", items, "none"}, {"seen", items, "none"}},
          .validated = true};
}

}  // namespace

HistoryTexts prepare_user_items(const std::string& path, const HistoryOptions& options) {
  const std::string file = files_of(path, {}).front();
  const std::vector<UserHistory> histories = read_histories(file);
  HistoryTexts out{.form = form_of_histories(histories)};
  for (const UserHistory& h : histories) {
    const auto n = static_cast<int64_t>(h.items.size());
    if (!options.split) {
      add_line(h, n, options.length, true, out.parts[0]);
      continue;
    }
    for (int64_t part = 0; part < 3; ++part) {
      const int64_t last = n - 3 + part;
      if (last > 0) add_line(h, last, options.length, part > 0, out.parts[static_cast<size_t>(part)]);
    }
  }
  if (out.parts[0].empty())
    fail(TSR_INVALID_ARGUMENT, file,
         " has no user with 4 items or more: the last two are for validation and test, and training needs two");
  return out;
}

UserItems::UserItems(tessera::sdk::Options& options) {
  constexpr int64_t kMost = 1'000'000;
  options_.length = options.integer("history", options_.length);
  options_.split = options.flag("split", options_.split);
  if (options_.length < 1 || options_.length > kMost)
    fail(TSR_INVALID_ARGUMENT, "history is ", options_.length, ", but must be a number of items, from 1 to ", kMost);
}

const char* UserItems::describe(const std::string& path) {
  said_ = form_of_histories(read_histories(files_of(path, {}).front())).described();
  return said_.c_str();
}

void UserItems::open(std::string_view path, int64_t) {
  texts_ = prepare_user_items(std::string(path), options_);
  form_ = texts_.form;
  start(form_.columns());
  files_ = {"user-items training rows", "user-items validation rows", "user-items test rows"};
  blocks_of_parts_.clear();
  for (size_t file = 0; file < texts_.parts.size(); ++file) {
    const std::string& text = texts_.parts[file];
    const auto rows = static_cast<int64_t>(std::count(text.begin(), text.end(), '\n'));
    if (rows > 0) blocks_of_parts_.push_back({static_cast<int64_t>(file), 0, rows, static_cast<int64_t>(text.size())});
  }
}

std::string_view UserItems::text_of(int64_t block) {
  return texts_.parts[static_cast<size_t>(blocks_of_parts_[static_cast<size_t>(block)].file)];
}

}  // namespace tessera_readers
