// Tests the reader csv over a pipe: rows are read as they arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "arriving_component.h"
#include "csv_files.h"

extern "C" const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err);

namespace tessera_readers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CsvPipeTest : public testing::Test {
 protected:
  CsvPipeTest() {
    EXPECT_EQ(::pipe(ends_), 0);
    path_ = "/proc/self/fd/" + std::to_string(ends_[0]);
  }
  ~CsvPipeTest() override {
    ::close(ends_[0]);
    end();
  }
  void write(const std::string& text) const {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), std::ssize(text));
  }
  void end() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  std::unique_ptr<ArrivingComponent> part(const std::string& options = "{}") const {
    tsr_error err TSR_ERROR_INIT;
    auto out = std::make_unique<ArrivingComponent>(*tessera_plugin_v1(nullptr, &err)->components[0], options, nullptr,
                                                   TSR_READER_PIPE);
    out->follow(path_);
    out->select({want("id", TSR_READER_INT64), want("tags", TSR_READER_TEXT, TSR_READER_LIST)});
    return out;
  }

  int ends_[2] = {-1, -1};
  std::string path_;
};

TEST_F(CsvPipeTest, LinesAboveTheHeaderArePassedOver) {
  write("\xef\xbb\xbfsep=,\r\n\r\ntags,id\r\np q,1\r\n");
  EXPECT_THAT(part()->next(1).rows, ElementsAre("1|p q"));
}

TEST_F(CsvPipeTest, RowsAreThoseThatHaveCome) {
  write("tags,id\np q,1\nr,2\n");
  const auto reader = part();
  EXPECT_THAT(reader->next(1).rows, ElementsAre("1|p q"));
  const auto second = reader->next(10);
  EXPECT_THAT(second.rows, ElementsAre("2|r"));
  EXPECT_EQ(second.first, 1);
  EXPECT_EQ(second.where, path_);
  write("s,");
  EXPECT_THAT(reader->next(10, 0.05).rows, IsEmpty());
  write("3\n\n\"t\n");
  EXPECT_THAT(reader->next(10, 60).rows, ElementsAre("3|s"));
  write("u\",4\r\nv,5");
  EXPECT_THAT(reader->next(10, 60).rows, ElementsAre("4|t\nu"));
  EXPECT_FALSE(reader->next(10).last);
  end();
  const auto last = reader->next(10, 60);
  EXPECT_THAT(last.rows, ElementsAre("5|v"));
  EXPECT_TRUE(last.last || reader->next(10, 60).last);
}

TEST_F(CsvPipeTest, RowsBeforeAWrongOneAreGiven) {
  write("id,tags\n1,a\n2,b\nx,c\n3,d\n");
  const auto reader = part();
  EXPECT_THAT(reader->next(10).rows, ElementsAre("1|a", "2|b"));
  EXPECT_EQ(failure([&] { reader->next(10); }), path_ + ", row 3, column \"id\": \"x\" is not a whole number");
}

TEST_F(CsvPipeTest, CompressedText) {
  write(gzipped("id,tags\n1,a\n") + gzipped("2,b c\n"));
  end();
  EXPECT_THAT(part()->next(10).rows, ElementsAre("1|a", "2|b c"));
}

TEST_F(CsvPipeTest, WrongUseIsOneSentence) {
  write("id,label\n1,1\n");
  EXPECT_THAT(failure([&] { part(); }), HasSubstr(path_ + " has no column \"tags\""));
  write("id,tags\n");
  EXPECT_THAT(failure([&] { (void)part()->position(); }),
              HasSubstr("a pipe can be read only once: it has no position"));
  end();
  EXPECT_THAT(failure([&] { part(); }), HasSubstr(path_ + " is empty"));
}

}  // namespace
}  // namespace tessera_readers
