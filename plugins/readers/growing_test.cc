// Tests the reader growing over the reader csv.
#include "growing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <thread>

#include "arriving_component.h"

extern "C" const tsr_plugin* tessera_plugin_v1(const tsr_host* host, tsr_error* err);

namespace tessera_readers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const tsr_component kGrowing = tessera::sdk::component<Growing>({.id = "growing", .version = "1", .about = "it"});

class GrowingTest : public testing::Test {
 protected:
  GrowingTest() {
    tsr_error err TSR_ERROR_INIT;
    csv_.component = tessera_plugin_v1(nullptr, &err)->components[0];
    csv_.component->create(csv_.component, nullptr, "{}", nullptr, &csv_.self, &err);
    ArrivingComponent::warnings().clear();
  }
  ~GrowingTest() override { csv_.component->destroy(csv_.self); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/.new", std::ios::binary) << text;
    std::filesystem::rename(path_ + "/.new", path_ + "/" + name);
  }
  std::unique_ptr<ArrivingComponent> part(const std::string& options = "{}", const std::string& position = "") {
    auto out = std::make_unique<ArrivingComponent>(kGrowing, options, &csv_);
    out->follow(path_, position);
    out->select({want("id", TSR_READER_INT64), want("tags", TSR_READER_TEXT, TSR_READER_LIST)});
    return out;
  }

  const TestDirectory directory_;
  const std::string path_ = directory_.path();
  tsr_instance csv_{};
};

TEST_F(GrowingTest, FilesInTheOrderOfTheirNamesEachOnce) {
  const auto reader = part();
  EXPECT_THAT(reader->next(10).rows, IsEmpty());
  write("b.csv", "id,tags\n3,x y\n4,\n");
  write("a.csv", "tags,id\np,1\nq,2\n");
  EXPECT_THAT(reader->next(10).rows, ElementsAre("1|p", "2|q"));
  const auto second = reader->next(1);
  EXPECT_THAT(second.rows, ElementsAre("3|x y"));
  EXPECT_EQ(second.where, path_ + "/b.csv");
  const auto third = reader->next(10);
  EXPECT_THAT(third.rows, ElementsAre("4|"));
  EXPECT_EQ(third.first, 1);
  EXPECT_THAT(reader->next(10).rows, IsEmpty());
  write("c.csv", "id,tags\n5,z\n");
  EXPECT_THAT(reader->next(10).rows, ElementsAre("5|z"));
}

TEST_F(GrowingTest, WhatIsBeingWrittenWaits) {
  const auto reader = part(R"({"pattern": "*.csv"})");
  for (const char* name : {".a.csv", "_a.csv", "a.csv.tmp", "a.csv.part", "a.txt"})
    std::ofstream(path_ + "/" + name) << "id,tags\n1,x\n";
  EXPECT_THAT(reader->next(10).rows, IsEmpty());
  std::filesystem::rename(path_ + "/.a.csv", path_ + "/a.csv");
  EXPECT_THAT(reader->next(10).rows, ElementsAre("1|x"));
}

TEST_F(GrowingTest, GoesOnFromAPositionToTheRow) {
  write("a.csv", "id,tags\n1,a\n2,b\n3,c\n");
  std::vector<std::string> positions{part()->position()};
  {
    const auto reader = part();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(reader->next(1).rows.size(), 1u);
      positions.push_back(reader->position());
    }
  }
  write("b.csv", "id,tags\n4,d\n");
  for (size_t taken = 1; taken < positions.size(); ++taken) {
    const auto reader = part("{}", positions[taken]);
    for (size_t id = taken + 1; id <= 4; ++id)
      EXPECT_THAT(reader->next(1).rows, ElementsAre(HasSubstr(std::to_string(id) + "|"))) << positions[taken];
    EXPECT_THAT(reader->next(1).rows, IsEmpty());
  }
  std::filesystem::remove(path_ + "/a.csv");
  EXPECT_THAT(failure([&] { part("{}", positions[2]); }), HasSubstr("a.csv is gone, but its rows from 3 on"));
  EXPECT_THAT(part("{}", positions[3])->next(1).rows, ElementsAre("4|d"));  // the file was complete
  write("a.csv", "id,tags\n1,a\n");
  EXPECT_THAT(failure([&] { part("{}", positions[2]); }), HasSubstr("has 1 rows, of which 2 had been read"));
  EXPECT_THAT(failure([&] { part("{}", "{}"); }), HasSubstr("not a position of the reader growing"));
}

// docs/data.md: a file with an invalid row must be corrected, then reading goes on.
TEST_F(GrowingTest, GoesOnInAFileThatWasCorrected) {
  write("a.csv", "id,tags\n1,a\n");
  write("b.csv", "id,tags\n2,b\nx,c\n3,d\n");
  const auto reader = part();
  EXPECT_THAT(reader->next(10).rows, ElementsAre("1|a"));
  const std::string position = reader->position();
  EXPECT_THAT(failure([&] { reader->next(10); }), HasSubstr("b.csv, row 2, column \"id\": \"x\" is not a whole "
                                                            "number"));
  write("b.csv", "id,tags\n2,b\n3,d\n");
  EXPECT_THAT(part("{}", position)->next(10).rows, ElementsAre("2|b", "3|d"));
}

TEST_F(GrowingTest, EndsByAFileOrByIdleTime) {
  write("a.csv", "id,tags\n1,a\n");
  const auto idle = part(R"({"idle_s": 0.02})");
  EXPECT_FALSE(idle->next(10).last);
  EXPECT_TRUE(idle->next(10, 60).last);
  const auto reader = part(R"({"end": "DONE"})");
  EXPECT_FALSE(reader->next(10).last);
  EXPECT_FALSE(reader->next(10).last);
  write("DONE", "");
  write("b.csv", "id,tags\n2,b\n");
  EXPECT_THAT(reader->next(10).rows, ElementsAre("2|b"));
  EXPECT_TRUE(reader->next(10).last);
}

TEST_F(GrowingTest, LateNamesArePassedOverAndTold) {
  write("b.csv", "id,tags\n1,a\n");
  const auto reader = part();
  EXPECT_THAT(reader->next(10).rows, ElementsAre("1|a"));
  write("a.csv", "id,tags\n2,b\n");
  EXPECT_THAT(reader->next(10).rows, IsEmpty());
  EXPECT_THAT(reader->next(10).rows, IsEmpty());
  EXPECT_THAT(ArrivingComponent::warnings(),
              ElementsAre(path_ + "/a.csv came after files whose names are greater, and is skipped"));
}

// File times, compared with that of the position, tell which names came while nobody looked.
TEST_F(GrowingTest, LateNamesAreToldWhenItGoesOn) {
  write("a.csv", "id,tags\n1,a\n");
  write("c.csv", "id,tags\n2,b\n");
  std::string position;
  {
    const auto reader = part();
    EXPECT_THAT(reader->next(10).rows, ElementsAre("1|a"));
    EXPECT_THAT(reader->next(10).rows, ElementsAre("2|b"));
    EXPECT_THAT(reader->next(10).rows, IsEmpty());
    position = reader->position();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // file times have a coarse resolution
  write("b.csv", "id,tags\n3,c\n");
  write("d.csv", "id,tags\n4,d\n");
  EXPECT_THAT(part("{}", position)->next(10).rows, ElementsAre("4|d"));
  EXPECT_THAT(ArrivingComponent::warnings(), ElementsAre(HasSubstr("/b.csv came after files whose names are greater")));
}

TEST_F(GrowingTest, EventTimes) {
  write("a.csv", "id,tags,at\n1,a,1970-01-01T00:01\n2,b,90\n3,c,\n");
  const auto reader = part(R"({"time": "at"})");
  EXPECT_THAT(reader->next(1).times, ElementsAre(60.0));
  const auto rest = reader->next(10);
  EXPECT_THAT(rest.rows, ElementsAre("2|b", "3|c"));
  EXPECT_EQ(rest.times.at(0), 90);
  EXPECT_TRUE(std::isnan(rest.times.at(1)));
  const auto by_id = part(R"({"time": "id"})");  // also a column of the model
  EXPECT_THAT(by_id->next(10).times, ElementsAre(1.0, 2.0, 3.0));
}

TEST_F(GrowingTest, WrongUseIsOneSentence) {
  EXPECT_THAT(failure([&] { ArrivingComponent(kGrowing, "{}"); }), HasSubstr("as in growing(csv)"));
  EXPECT_THAT(failure([&] { ArrivingComponent(kGrowing, R"({"idle": 1})", &csv_); }), HasSubstr("idle_s"));
  EXPECT_THAT(failure([&] { ArrivingComponent(kGrowing, "{}", &csv_).follow(path_ + "/none"); }),
              HasSubstr("there is no directory"));
  write("a.csv", "id,label\n1,1\n");
  EXPECT_THAT(failure([&] { part(); }), HasSubstr("has no column \"tags\""));
}

}  // namespace
}  // namespace tessera_readers
