// Log lines about a model that is loaded and unloaded: each change once, under the name that clients use.
#include "serve/model_holder.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fake_predictor.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// A log in a file without a name.
class LogFile {
  std::FILE* const file_ = std::tmpfile();

 public:
  LogFile() = default;
  ~LogFile() { std::fclose(file_); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  Log log{Level::kInfo, fileno(file_)};

  // The log's lines about `event`.
  std::vector<json> lines(const std::string& event) const {
    std::string text(1 << 16, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(fileno(file_), text.data(), text.size(), 0))));
    std::vector<json> out;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      json parsed = json::parse(line);
      if (parsed["event"] == event) out.push_back(std::move(parsed));
    }
    return out;
  }
};

class ModelHolderTest : public testing::Test {
 protected:
  std::shared_ptr<Predictor> open() {
    if (!trouble_.empty()) fail(Code::kDataLoss, trouble_);
    FakeOptions options{.version = str_cat("version-", ++opened_)};
    return std::make_shared<FakePredictor>(options);
  }
  Reloaded load(ModelHolder& holder) {
    std::promise<Reloaded> promise;
    holder.reload([&](const Reloaded& result) { promise.set_value(result); });
    auto done = promise.get_future();
    return done.wait_for(20s) == std::future_status::ready ? done.get() : Reloaded{};
  }

  LogFile file_;
  Metrics metrics_;
  std::string trouble_;
  int opened_ = 0;
};

TEST_F(ModelHolderTest, ChangesAreLoggedOnceByTheServedName) {
  ModelHolder holder(
      "shown", [this] { return open(); }, metrics_, file_.log);
  EXPECT_EQ(holder.name(), "shown");
  holder.unload();
  holder.unload();
  const std::vector<json> unloaded = file_.lines("model_unloaded");
  ASSERT_EQ(unloaded.size(), 1u);
  EXPECT_EQ(unloaded[0]["model"], "shown");
  EXPECT_EQ(unloaded[0]["version"], "version-1");
  EXPECT_TRUE(load(holder).done);
  trouble_ = "tables/film.bin is truncated";
  EXPECT_FALSE(load(holder).done);
  const std::vector<json> loaded = file_.lines("model_loaded"), failed = file_.lines("model_not_loaded");
  ASSERT_EQ(loaded.size(), 1u);
  EXPECT_EQ(loaded[0]["model"], "shown");
  EXPECT_EQ(loaded[0]["version"], "version-2");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0]["model"], "shown");
  EXPECT_EQ(failed[0]["served"], "version-2");
  holder.lost(holder.current());
  const std::vector<json> lost = file_.lines("model_lost");
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0]["model"], "shown");
}

TEST_F(ModelHolderTest, ALaterVersionTakesAPlaceOnlyWhereOneIsServed) {
  ModelHolder holder(
      "", [this] { return open(); }, metrics_, file_.log);
  EXPECT_EQ(holder.name(), "fake") << "as it was packed";
  const std::shared_ptr<Predictor> later = open();
  EXPECT_TRUE(holder.replace(later));
  EXPECT_FALSE(holder.replace(later)) << "it is served already";
  EXPECT_EQ(holder.current(), later);
  holder.unload();
  EXPECT_FALSE(holder.replace(open()));
  EXPECT_EQ(holder.current(), nullptr);
}

}  // namespace
}  // namespace tessera::serve
