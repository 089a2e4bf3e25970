// The keys of [history].
#include "config/fields.h"

namespace tessera::config {

template <>
const std::vector<Field<HistoryConfig>>& fields<HistoryConfig>() {
  using S = HistoryConfig;
  static const std::vector<Field<S>> table = {
      {"component", &S::component, "component id", "Reader that makes the histories from the events of `data.reader`."},
      {"user", &S::user, "", "Column of the files by which events are grouped. Empty: no histories."},
      {"time", &S::time, "", "Column of the events' times: numbers, or dates and times."},
      {"columns", &S::columns, "", "Columns of the files that become histories. The first one is the item."},
      {"length", &S::length, "events", "Most events of a history.", {.least = 1, .most = 1000000}},
      {"keep", &S::keep, "", "Which events a longer history keeps.", {.choices = {"newest", "oldest"}}},
      {"by", &S::by, "", "Column of actions. Each of `values` has a history of its own. Empty: there is one history."},
      {"values", &S::values, "", "The values of `by` whose events are in histories."},
      {"repeats", &S::repeats, "", "`false`: a history has each item once."},
      {"order",
       &S::order,
       "",
       "`file`: each user's events are in the order of time; `sort`: they are sorted in memory.",
       {.choices = {"file", "sort"}}},
      {"samples",
       &S::samples,
       "",
       "A sample is each of the `events`, with those before it; one of the `users`, with the item that follows each "
       "event; or a request for what follows a user's last event.",
       {.choices = {"events", "users", "requests"}}},
      {"split",
       &S::split,
       "",
       "Samples for validation and test: each user's last two (`leave_one_out`), by `time`, or by `users`. `none`: "
       "as [data] and [validation] say.",
       {.choices = {"none", "leave_one_out", "time", "users"}}},
      {"validation_from", &S::validation_from, "", "First time of the samples for validation. Empty: no validation."},
      {"test_from", &S::test_from, "", "First time of the samples for the test."},
      {"validation_share",
       &S::validation_share,
       "",
       "Share of the users who are for validation.",
       {.least = 0, .most = 1}},
      {"test_share", &S::test_share, "", "Share of the users who are for the test.", {.least = 0, .most = 1}},
  };
  return table;
}

}  // namespace tessera::config
