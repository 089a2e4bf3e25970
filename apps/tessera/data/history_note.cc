#include "data/history_note.h"

#include <algorithm>
#include <array>

#include "data/toml_text.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

bool names_a_user(const std::string& name) {
  constexpr std::array<const char*, 7> kUsers = {"user",   "customer", "member", "visitor",
                                                 "client", "account",  "session"};
  const std::string text = lower(name);
  return std::any_of(kUsers.begin(), kUsers.end(),
                     [&](const char* user) { return text.find(user) != std::string::npos; });
}

}  // namespace

std::string history_sentence(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions) {
  const ColumnSeen *user = nullptr, *time = nullptr, *item = nullptr;
  for (size_t i = 0; i < columns.size(); ++i) {
    const ColumnSeen& c = columns[i];
    if (decisions[i].kind != Decision::Kind::kFeature || c.missing > 0 || c.list) continue;
    if (decisions[i].times) {
      if (time == nullptr) time = &c;
    } else if (decisions[i].ids && c.form != Form::kLists) {
      if (user == nullptr && names_a_user(c.name))
        user = &c;
      else if (item == nullptr || c.distinct > item->distinct)
        item = &c;
    }
  }
  if (user == nullptr || time == nullptr || item == nullptr) return {};
  return str_cat("The rows of one ", quoted(user->name), " in the order of ", quoted(time->name),
                 " are a history. A model of sequences takes it from [history] with user = ", quoted(user->name),
                 ", time = ", quoted(time->name), " and columns = [", quoted(item->name), "]: see docs/sequences.md.");
}

std::string history_note(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions) {
  const std::string sentence = history_sentence(columns, decisions);
  return sentence.empty() ? "" : comment(sentence);
}

}  // namespace tessera::cli
