// Tests [history] of the config: histories of users as columns of a data set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/examples.h"
#include "data/history_reader.h"
#include "data/test_files.h"
#include "tessera/data.h"
#include "tessera/runtime.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kColumns =
    "[[column]]\nname = \"label\"\nas = \"label\"\ncolumn = \"good\"\n"
    "[[column]]\nname = \"item\"\nids = \"vocabulary\"\ncolumn = \"what\"\n"
    "[[column]]\nname = \"items\"\nids = \"vocabulary\"\ncolumn = \"history.what\"\n"
    "[[table]]\nname = \"item\"\nfeatures = [\"item\", \"items\"]\n";
constexpr const char* kHistory = "[history]\nuser = \"who\"\ntime = \"when\"\ncolumns = [\"what\"]\n";
constexpr const char* kEvents =
    "who,when,what,good\n"
    "a,1,x,1\n"
    "b,2,y,0\n"
    "a,3,z,1\n"
    "b,4,x,0\n"
    "a,5,w,1\n"
    "b,6,z,1\n"
    "a,7,y,0\n";

// The columns of each sample: ids with blanks, and | between columns.
std::vector<std::string> samples_of(const Samples& samples, int64_t batch_size = 100) {
  std::vector<std::string> out;
  if (!samples) return out;
  BatchReader reader(samples, {.batch = batch_size});
  for (Batch batch; reader.next(batch);) {
    const auto values = batch.sparse.values().to_vector<int32_t>();
    const auto offsets = batch.sparse.offsets().to_vector<int32_t>();
    const auto n = static_cast<size_t>(batch.labels.numel());
    for (size_t i = 0; i < n; ++i) {
      std::string text = str_cat(batch.labels.to_vector<float>()[i]);
      for (size_t key = 0; key < batch.sparse.keys().size(); ++key) {
        text += '|';
        for (int32_t at = offsets[key * n + i]; at < offsets[key * n + i + 1]; ++at)
          text += str_cat(text.back() == '|' ? "" : " ", values[static_cast<size_t>(at)]);
      }
      out.push_back(text);
    }
  }
  return out;
}

class History : public testing::Test {
 protected:
  Config job(const std::string& more, const std::string& path, const std::string& columns = kColumns) const {
    return parse_config(str_cat("[data]\npath = \"", path, "\"\n", more, columns), "job.toml", {});
  }
  Dataset read(const std::string& more, const char* events = kEvents) const {
    return read_dataset(runtime_, job(more, dir_.write("events.csv", events)));
  }
  std::string error(const std::string& more, const std::string& columns = kColumns) const {
    return test::refusal([&] { (void)read_dataset(runtime_, job(more, dir_.write("events.csv", kEvents), columns)); });
  }

  const Runtime runtime_{{.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false}};
  const data::TestDirectory dir_;
};

// The vocabulary of the training rows, in order of arrival: x 1, y 2, z 3, w 4.
TEST_F(History, IsAListThatSharesAVocabulary) {
  const Dataset set = read(str_cat("test_fraction = 0\n", kHistory, "length = 2\n"));
  EXPECT_THAT(samples_of(set.train), ElementsAre("1|1|", "0|2|", "1|3|1", "0|1|2", "1|4|1 3", "1|3|2 1", "0|2|3 4"));
  EXPECT_EQ(set.test_rows(), 0);
}

TEST_F(History, LastTwoEventsOfUsersAreForValidationAndTest) {
  const Dataset set = read(str_cat(kHistory, "split = \"leave_one_out\"\n"));
  EXPECT_THAT(samples_of(set.train), ElementsAre("1|1|", "0|2|", "1|3|1"));
  EXPECT_THAT(samples_of(set.validation), ElementsAre("0|1|2", "1|0|1 3"));  // w is no word of the training rows
  EXPECT_THAT(samples_of(set.test), ElementsAre("1|3|2 1", "0|2|1 3 0"));
}

// Validation by the reader's own rows takes none of the training rows out of the vocabulary.
TEST_F(History, TheVocabularyHasAllTrainingRows) {
  const Dataset set =
      read(str_cat(kHistory, "split = \"leave_one_out\"\n[validation]\nsplit = \"data\"\nfraction = 1.0\n"));
  EXPECT_EQ(set.columns[0].rows, 4);
}

TEST_F(History, OfOneSampleForEachUser) {
  const std::string columns =
      "[[column]]\nname = \"label\"\nas = \"label\"\ncolumn = \"history.label\"\n"
      "[[column]]\nname = \"items\"\nids = \"vocabulary\"\ncolumn = \"history.what\"\n"
      "[[column]]\nname = \"next\"\nids = \"vocabulary\"\ncolumn = \"next.what\"\n"
      "[[column]]\nname = \"seen\"\nids = \"vocabulary\"\ncolumn = \"seen.what\"\n"
      "[[table]]\nname = \"item\"\nfeatures = [\"items\", \"next\", \"seen\"]\n";
  const std::string path = dir_.write("events.csv", kEvents);
  const Dataset set =
      read_dataset(runtime_, job(str_cat(kHistory, "samples = \"users\"\nsplit = \"leave_one_out\"\n"), path, columns));
  EXPECT_THAT(samples_of(set.train), ElementsAre("1|1|2|"));  // a: x z; b has only y
  EXPECT_THAT(samples_of(set.validation), ElementsAre("1|1 2|2 0|1 2", "1|0|1|0"));
  EXPECT_THAT(samples_of(set.test), ElementsAre("1|1 2 0|2 0 0|1 2 0", "1|0 1|1 2|0 1"));
}

// Samples in memory and streamed ones of any block size are the same.
TEST_F(History, DoesNotDependOnTheMemory) {
  std::string events = "who,when,what,good\n";
  for (int i = 0; i < 30000; ++i) events += str_cat("u", i * 11 % 53, ',', i, ",i", i * 7 % 97, ',', i % 2, '\n');
  for (const char* more : {"", "split = \"leave_one_out\"\n", "order = \"sort\"\n"}) {
    const std::string text = str_cat(kHistory, "length = 4\n", more);
    const Dataset kept = read(str_cat("test_fraction = 0\n", text), events.c_str());
    const Dataset streamed = read(str_cat("test_fraction = 0\nbuffer_mib = 0.5\n", text), events.c_str());
    ASSERT_TRUE(kept.train.kept);
    ASSERT_TRUE(streamed.train.streamed);
    EXPECT_EQ(samples_of(kept.train, 1000), samples_of(streamed.train, 1000)) << more;
    EXPECT_EQ(samples_of(kept.test), samples_of(streamed.test)) << more;
  }
}

TEST_F(History, NamesOfColumnsMayHaveAnyCharacters) {
  const std::string path = dir_.write("odd.csv", "\"wh(o)?\",w&en%,\"wh,at\"\"\",good\na,1,x,1\na,2,y,0\n");
  const std::string columns =
      "[[column]]\nname = \"label\"\nas = \"label\"\ncolumn = \"good\"\n"
      "[[column]]\nname = \"items\"\nids = \"vocabulary\"\ncolumn = 'history.wh,at\"'\n";
  const Dataset set = read_dataset(
      runtime_,
      job("test_fraction = 0\n[history]\nuser = \"wh(o)?\"\ntime = \"w&en%\"\ncolumns = ['wh,at\"']\n", path, columns));
  EXPECT_THAT(samples_of(set.train), ElementsAre("1|", "0|1"));
}

TEST_F(History, IsPartOfTheReadersName) {
  HistoryConfig history;
  EXPECT_EQ(data::history_reader(history, "csv"), "csv");
  history.user = "a b";
  history.columns = {"x", "y,z"};
  history.length = 3;
  history.test_share = 0.1;
  EXPECT_EQ(data::history_reader(history, "csv?delimiter=;"),
            "histories?user=\"a b\"&columns=\"x,y%2Cz\"&length=3&test_share=0.1(csv?delimiter=;)");
  Config config = job(kHistory, "a.csv");
  choose_reader(runtime_, config);
  EXPECT_THAT(config.data.reader, HasSubstr("histories?user=\"who\"&time=\"when\"&columns=\"what\"(csv"));
  const std::string once = config.data.reader;
  choose_reader(runtime_, config);
  EXPECT_EQ(config.data.reader, once);
  Config split = job(str_cat(kHistory, "split = \"time\"\ntest_from = \"5\"\n"), "a.csv");
  choose_reader(runtime_, split);
  EXPECT_THAT(split.data.reader, HasSubstr("&split=\"time\"&test_from=\"5\"(csv"));
  EXPECT_EQ(split.data.later_reader, once) << "later data are not divided";
}

TEST_F(History, WrongJobsAreNamed) {
  const std::string other = dir_.write("test.csv", kEvents);
  EXPECT_THAT(error(str_cat("test = \"file:", other, "\"\n", kHistory)),
              HasSubstr("would lack the events of data.path: let data.path name all files"));
  EXPECT_THAT(error(str_cat("test = \"random\"\n", kHistory, "split = \"leave_one_out\"\n")),
              HasSubstr("data.test has no effect"));
  EXPECT_THAT(error(str_cat("test_fraction = 0.3\n", kHistory, "split = \"leave_one_out\"\n")),
              HasSubstr("data.test_fraction has no effect"));
  EXPECT_THAT(error("[history]\nuser = \"who\"\ncolumns = [\"what\"]\n"), HasSubstr("history.time is empty"));
  EXPECT_THAT(error(str_cat(kHistory, "component = \"hist\"\n")), HasSubstr("there is no reader \"hist"));
  EXPECT_THAT(error(""), HasSubstr("\"history.what\""));
  EXPECT_THAT(
      error(kHistory, str_cat(kColumns, "[[column]]\nname = \"d\"\nas = \"dense\"\ncolumn = \"history.what\"\n")),
      HasSubstr("holds lists"));
}

}  // namespace
}  // namespace tessera
