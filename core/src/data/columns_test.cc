// Tests which columns of files with types are taken, and which are refused.
#include "data/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/config.h"

namespace tessera::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kColumns = R"(
column = [
  {name = "click", as = "label"},
  {name = "at", as = "dense"},
  {name = "film", as = "ids", ids = "vocabulary"},
  {name = "day", as = "ids", ids = "vocabulary"}]
)";

Columns columns(const std::string& text = kColumns) { return Columns(parse_config(text, "job.toml")); }

std::vector<FileColumn> files(const std::string& at, bool weighted = false) {
  return {{"click", TSR_READER_INT64},
          {"at", TSR_READER_INT64, false, false, at},
          {"film", TSR_READER_INT64, true, weighted},
          {"day", TSR_READER_INT64, false, false, "date32[day]"}};
}

std::string refusal(Columns of, const std::vector<FileColumn>& met) {
  try {
    of.meet(met, true);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Columns, WeightsOfAListNeedAWeightedColumn) {
  EXPECT_EQ(refusal(columns(), files("int64")), "");
  EXPECT_THAT(refusal(columns(), files("int64", true)),
              AllOf(HasSubstr("column \"film\" of the files holds lists with weights"),
                    HasSubstr("[[column]] \"film\" has no weighted = true")));
  std::string weighted = kColumns;
  weighted.replace(weighted.find("film\","), 6, "film\", weighted = true,");
  EXPECT_EQ(refusal(columns(weighted), files("int64", true)), "");
}

TEST(Columns, TimesAsNumbersKeepTheUnitOfTheTrainingData) {
  Columns trained = columns();
  trained.meet(files("timestamp[ms, tz=UTC]"), true);
  trained.finish_learning();
  const std::string json = trained.json();
  EXPECT_THAT(json, HasSubstr(R"("unit":"ms")"));
  EXPECT_EQ(json.find("\"unit\""), json.rfind("\"unit\"")) << "words of days do not depend on a unit";
  const Columns saved(json, "the model");
  EXPECT_EQ(refusal(saved, files("timestamp[ms]")), "");
  EXPECT_EQ(refusal(saved, files("")), "") << "numbers without a type are taken as they are";
  EXPECT_EQ(refusal(saved, files("timestamp[us]")),
            "column \"at\" holds times of the unit us, but the model is trained on times of the unit ms, so the same "
            "times would be other numbers: convert the column to ms");
  EXPECT_EQ(saved.json(), json);

  Columns plain = columns();
  plain.meet(files("duration[ms]"), true);
  EXPECT_EQ(plain.json().find("\"unit\""), std::string::npos) << "durations are seconds";
}

}  // namespace
}  // namespace tessera::data
