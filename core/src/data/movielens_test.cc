#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "data/test_files.h"

namespace tessera {
namespace {

using data::reading_error;
using data::TestDirectory;
using testing::HasSubstr;

constexpr const char* kUsers =
    "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
    "1\t24\tM\tstudent\t94117\n2\t35\tF\tother\tT8H1N\n3\t53\tF\twriter\t5\n";
constexpr const char* kFilms =
    "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "1\tToy Story\t1995\tAnimation Children's Comedy\n2\tThe Big the 39 Steps, A\tV\tCrime\n"
    "3\t\u00c9l & I\t19957\tA B C D E F G H\n";
constexpr const char* kRatings =
    "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "1\t1\t5\t306000\n1\t2\t3\t306000\n2\t2\t4\t100\n1\t3\t4\t777600\n2\t3\t1\t777600\n3\t1\t2\t50\n"
    "1\t1\t1\t864000\n1\t2\t4\t957599\n2\t1\t5\t950400\n";

// Written by a separate program that follows the format's description.
const std::string kTrain =
    "0\t1.2,-4,0,-4,0,0.25,-1\t2\t0\t193\t3\t812\t229,248,178\t4583,3616\t\t\n"
    "1\t0,-4,0,-4,0,0,-1\t1\t1\t101\t3\t430\t213\t2783,6839,7518,2752\t\t\n"
    "1\t-0.733333,-4,0,-3.306853,-1.5,0.25,0.083333\t0\t0\t162\t1\t1192\t229,248,178\t4583,3616\t\t\n"
    "0\t-0.733333,-3.306853,1.5,-3.306853,0.5,0,0.083333\t0\t1\t162\t1\t1192\t213\t2783,6839,7518,2752\t0\t\n"
    "1\t-0.733333,-2.901388,0.5,-4,0,0,-1\t0\t2\t162\t1\t1192\t69,115,71,98,24,107\t\t0\t1\n"
    "0\t0,-3.306853,0.5,-3.306853,0.5,0,-1\t1\t2\t101\t3\t430\t69,115,71,98,24,107\t\t1\t\n"
    "0\t-0.733333,-2.613706,0.5,-2.901388,0,0.25,-1\t0\t0\t162\t1\t1192\t229,248,178\t4583,3616\t0,2\t1\n"
    "1\t0,-2.901388,-1,-2.613706,-0.833333,0.25,-1\t1\t0\t101\t3\t430\t229,248,178\t4583,3616\t1\t2\n";
const std::string kTest =
    "1\t-0.733333,-2.390562,-0.25,-2.901388,0,0,-0.916667\t0\t1\t162\t1\t1192\t213\t2783,6839,7518,2752\t0,2\t1,0\n";

void write_raw(const TestDirectory& dir) {
  dir.write("ml-100k.user", kUsers);
  dir.write("ml-100k.item", kFilms);
  dir.write("ml-100k.inter", kRatings);
}

DataConfig raw_at(const std::string& path) {
  DataConfig config;
  config.reader = "movielens-100k";
  config.path = path;
  return config;
}

TEST(MovieLens, PreparesTheTextThatTheFormatSays) {
  const TestDirectory dir;
  write_raw(dir);
  const PreparedText user = prepare_movielens_100k(dir.path(), "user");
  EXPECT_EQ(user.train, kTrain);
  EXPECT_EQ(user.test, kTest);
  // "time" splits the same nine rows after the seventh: 9 * 4 / 5.
  const PreparedText time = prepare_movielens_100k(dir.path(), "time");
  EXPECT_EQ(time.train + time.test, kTrain + kTest);
  EXPECT_EQ(std::count(time.train.begin(), time.train.end(), '\n'), 7);
}

TEST(MovieLens, ReaderEqualsThePreparedFiles) {
  const TestDirectory dir;
  write_raw(dir);
  const PreparedText text = prepare_movielens_100k(dir.path(), "user");
  dir.write("meta.json", text.meta);
  dir.write_gz("train.tsv.gz", text.train);
  dir.write("test.tsv", text.test);
  DataConfig prepared = raw_at(dir.path());
  prepared.reader = "prepared";
  const Dataset a = read_dataset(raw_at(dir.path()), 1), b = read_dataset(prepared, 1);
  EXPECT_EQ(a.dense, b.dense);
  ASSERT_EQ(a.columns.size(), 9u);
  EXPECT_EQ(a.columns[1].rows, 3);
  EXPECT_EQ(a.columns[8].name, "disliked");
  EXPECT_EQ(a.columns[8].pooling, "mean");
  Batch x, y;
  ASSERT_TRUE(BatchReader(a.train, {.batch = 100}).next(x));
  ASSERT_TRUE(BatchReader(b.train, {.batch = 100}).next(y));
  EXPECT_EQ(x.labels.to_vector<float>(), y.labels.to_vector<float>());
  EXPECT_EQ(x.dense.to_vector<float>(), y.dense.to_vector<float>());
  EXPECT_EQ(x.sparse.lengths().to_vector<int32_t>(), y.sparse.lengths().to_vector<int32_t>());
  EXPECT_EQ(x.sparse.values().to_vector<int32_t>(), y.sparse.values().to_vector<int32_t>());
}

TEST(MovieLens, HistoryKeepsTheLastTwenty) {
  const TestDirectory dir;
  std::string films = "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n";
  std::string ratings = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n";
  for (int i = 1; i <= 30; ++i) {
    films += std::to_string(i) + "\tXx\t1990\tA\n";
    ratings += "1\t" + std::to_string(i) + "\t" + (i <= 25 ? "4" : "3") + "\t" + std::to_string(i) + "\n";
  }
  dir.write("ml-100k.user", kUsers);
  dir.write("ml-100k.item", films);
  dir.write("ml-100k.inter", ratings);
  const std::string text = prepare_movielens_100k(dir.path(), "time").test;
  EXPECT_THAT(text, HasSubstr("\t5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24\t25,26,27,28\n"));
}

TEST(MovieLens, WrongFilesNameFileAndLine) {
  const TestDirectory dir;
  write_raw(dir);
  const auto error_with = [&](const char* name, const std::string& text) {
    write_raw(dir);
    dir.write(name, text);
    return reading_error(raw_at(dir.path()));
  };
  const std::string at = dir.path() + "/ml-100k.";
  const auto rating_error = [&](const std::string& line) {
    return error_with("ml-100k.inter", kRatings + line + "\n");
  };
  EXPECT_EQ(rating_error("4\t1\t1\t1"), at + "inter:11: user_id is 4, but must be 1 to 3");
  EXPECT_EQ(rating_error("1\t0\t1\t1"), at + "inter:11: item_id is 0, but must be 1 to 3");
  EXPECT_EQ(rating_error("-9223372036854775808\t1\t1\t1"),
            at + "inter:11: user_id is -9223372036854775808, but must be 1 to 3");
  EXPECT_EQ(rating_error("1\t1\t9223372036854775807\t1"),
            at + "inter:11: rating is 9223372036854775807, but must be 1 to 5");
  EXPECT_EQ(rating_error("1\t1\t0\t1"), at + "inter:11: rating is 0, but must be 1 to 5");
  EXPECT_EQ(rating_error("1\t1\t5\t-1"), at + "inter:11: timestamp is -1, but must be 0 to 1099511627776");
  EXPECT_EQ(error_with("ml-100k.user", std::string(kUsers) + "4\t-9223372036854775808\tM\tx\t1\n"),
            at + "user:5: age is -9223372036854775808, but must be 0 to 150");
  EXPECT_EQ(error_with("ml-100k.inter", std::string(kRatings) + "1\t1\tx\t1\n"),
            at + "inter:11: rating is \"x\", but must be an integer");
  EXPECT_EQ(error_with("ml-100k.inter", std::string(kRatings) + "1\t1\n"),
            at + "inter:11: a line has 4 fields; this one has fewer");
  EXPECT_EQ(error_with("ml-100k.user", std::string(kUsers) + "5\t1\tM\tx\t1\n"),
            at + "user:5: user_id is 5, but must be 4");
  EXPECT_EQ(error_with("ml-100k.item", ""), at + "item is empty");
  EXPECT_THAT(error_with("ml-100k.item", "a\tb\n"), HasSubstr("item:1: the header has no \"item_id\""));
  write_raw(dir);
  DataConfig config = raw_at(dir.path());
  config.split = "users";
  EXPECT_EQ(reading_error(config), "data.split is \"users\", but movielens-100k has the splits user and time");
  EXPECT_THAT(reading_error(raw_at("/nonexistent")), HasSubstr("cannot read /nonexistent/ml-100k.user"));
}

std::string sha256(const TestDirectory& dir, const std::string& text) {
  const std::string command = "sha256sum " + dir.write("text", text);
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 65> hash{};
  if (pipe == nullptr) return "";
  if (std::fgets(hash.data(), hash.size(), pipe) == nullptr) hash[0] = '\0';
  pclose(pipe);
  return hash.data();
}

// Runs only if scripts/fetch_ml100k has put the files into data/ml-100k.
TEST(RealData, MovieLensTextHasTheKnownHashes) {
  const std::string path = data::real_data("ml-100k/ml-100k.inter");
  if (path.empty()) GTEST_SKIP() << "MovieLens-100K is not here: scripts/fetch_ml100k data/ml-100k gets it";
  const TestDirectory dir;
  const std::string directory = path.substr(0, path.rfind('/'));
  const PreparedText time = prepare_movielens_100k(directory, "time"), user = prepare_movielens_100k(directory, "user");
  EXPECT_EQ(sha256(dir, time.train), "17c46ac2e22f1e0836dbc5cc46d21aee1abd3b7939e6f7b9e3f13c5965a379a6");
  EXPECT_EQ(sha256(dir, time.test), "aab8e5a652f6426500f23f5610551a4025a7041d418327ec1167981ac6a809dc");
  EXPECT_EQ(sha256(dir, user.train), "2cdecf5ad354049b0853bf188802a504a5981713e9b5c3653c3b1f71e2de1fc4");
  EXPECT_EQ(sha256(dir, user.test), "9acec0e49eb2f8b960ae6c86e4d1d5ec6b65130e8b50c1f332701fcf935c9c5c");
}

}  // namespace
}  // namespace tessera
