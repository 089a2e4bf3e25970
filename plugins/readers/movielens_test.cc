#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "csv_files.h"
#include "movielens.h"
#include "shell.h"
#include "test_values.h"

namespace tessera_readers {
namespace {

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

// The bytes of all values that a reader gives.
std::string values_of(SampleReader& reader, const std::string& path) {
  reader.open(path, 1 << 20);
  std::vector<tessera::sdk::ReaderWant> wants;
  for (const auto& c : reader.columns()) wants.push_back({c.name, c.type, c.list});
  reader.select(wants);
  std::string out;
  for (int64_t block = 0; block < std::ssize(reader.blocks()); ++block) {
    const auto rows = static_cast<size_t>(reader.blocks()[static_cast<size_t>(block)].rows);
    const auto values = reader.read(block);
    for (size_t k = 0; k < wants.size(); ++k) {
      const tsr_reader_values& v = values[k];
      const size_t size = wants[k].type == TSR_READER_FLOAT32 ? 4 : 8;
      const size_t count = v.lists != nullptr ? static_cast<size_t>(v.lists[rows]) : rows;
      out.append(static_cast<const char*>(v.values), count * size);
      if (v.lists != nullptr) out.append(reinterpret_cast<const char*>(v.lists), (rows + 1) * sizeof(int64_t));
    }
  }
  return out;
}

TEST(MovieLens, ReaderEqualsThePreparedFiles) {
  const TestDirectory dir;
  write_raw(dir);
  const PreparedText text = prepare_movielens_100k(dir.path(), "user");
  const std::string described = text.form.described();
  dir.write("meta.json", R"({"dense": ["a", "b", "c", "d", "e", "f", "g"], "columns": [
    {"name": "user", "rows": 3}, {"name": "film", "rows": 3}, {"name": "occupation", "rows": 256},
    {"name": "gender", "rows": 4}, {"name": "zip3", "rows": 2048}, {"name": "genres", "rows": 256},
    {"name": "title", "rows": 8192}, {"name": "liked", "rows": 3}, {"name": "disliked", "rows": 3}]})");
  dir.write("train.tsv.gz", gzipped(text.train));
  dir.write("test.tsv", text.test);
  tessera::sdk::Options none("{}"), plain("{}");
  MovieLens raw(none);
  Prepared prepared(plain);
  EXPECT_EQ(raw.describe(dir.path()), described);
  EXPECT_THAT(described, HasSubstr(R"({"name":"disliked","column":"disliked","as":"ids","table":"disliked","rows":3,)"
                                   R"("pooling":"mean"})"));
  const std::string values = values_of(raw, dir.path());
  EXPECT_GT(values.size(), 1000U);
  EXPECT_EQ(values, values_of(prepared, dir.path()));
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
    return failure([&] { (void)prepare_movielens_100k(dir.path(), "user"); });
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
  tessera::sdk::Options wrong(R"({"split": "users"})");
  EXPECT_EQ(failure([&] { const MovieLens reader(wrong); }),
            "split is \"users\", but movielens-100k has the splits user and time");
  EXPECT_THAT(failure([&] { (void)prepare_movielens_100k("/nonexistent", "user"); }),
              HasSubstr("there is no file /nonexistent/ml-100k.user"));
}

std::string sha256(const TestDirectory& dir, const std::string& text) {
  return tessera::test::output_of("sha256sum " + dir.write("text", text)).substr(0, 64);
}

// Runs only if scripts/fetch_ml100k has put the files into data/ml-100k.
TEST(RealData, MovieLensTextHasTheKnownHashes) {
  std::string directory;
  for (const char* place : {"/data/ml-100k", "/../shared/data/ml-100k"}) {
    const std::string folder = std::string(TESSERA_SOURCE_DIR) + place;
    if (std::filesystem::exists(folder + "/ml-100k.inter")) directory = folder;
  }
  if (directory.empty()) GTEST_SKIP() << "MovieLens-100K is not here: scripts/fetch_ml100k data/ml-100k gets it";
  const TestDirectory dir;
  const PreparedText time = prepare_movielens_100k(directory, "time"), user = prepare_movielens_100k(directory, "user");
  EXPECT_EQ(sha256(dir, time.train), "17c46ac2e22f1e0836dbc5cc46d21aee1abd3b7939e6f7b9e3f13c5965a379a6");
  EXPECT_EQ(sha256(dir, time.test), "aab8e5a652f6426500f23f5610551a4025a7041d418327ec1167981ac6a809dc");
  EXPECT_EQ(sha256(dir, user.train), "2cdecf5ad354049b0853bf188802a504a5981713e9b5c3653c3b1f71e2de1fc4");
  EXPECT_EQ(sha256(dir, user.test), "9acec0e49eb2f8b960ae6c86e4d1d5ec6b65130e8b50c1f332701fcf935c9c5c");
}

}  // namespace
}  // namespace tessera_readers
