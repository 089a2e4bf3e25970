// A job publishes exactly its model, and a follower accepts nothing else.
#include "tessera/online.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "config/test_refusal.h"
#include "inference/test_model.h"
#include "publishing/test_publications.h"
#include "tessera/checkpoint.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using publishing::publications_in;
using test::copy_publication;
using test::difference;
using test::model_at;
using test::path_in;
using test::Publication;
using test::runtime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

const char* const kOnlineJob = R"(
job = {seed = 3, kernel_plugin = "cpu"}
model = {embedding_dim = 8, bottom_mlp = [8, 8], top_mlp = [8, 1]}
data = {reader = "synthetic", columns = 2, rows = [500, 20], dense = 3, samples = 192, test_samples = 10, batch = 16}
publish = {every_s = 0, every_steps = 2, base_every = 2, keep_bases = 100}
)";

class Online : public test::JobTest {
 protected:
  Online() : JobTest(kOnlineJob, {"cpu"}) {}
  std::vector<TrainPublish> train(const std::string& directory, std::vector<std::string> set = {},
                                  const TrainJobOptions& options = {}) {
    set.push_back("publish.directory=\"" + directory + "\"");
    const auto job = this->job(options, set);
    table_ = job->data().columns[0].name;
    std::vector<TrainPublish> out;
    job->train({.published = [&](const TrainPublish& p) { out.push_back(p); }});
    report_ = nlohmann::json::parse(to_json(job->report({})));
    return out;
  }
  InferenceModel packed(const std::string& checkpoint, const PackOptions& options) const {
    const std::string path = file(str_cat("packed", packed_++));
    pack_model(open_float_model(checkpoint).model, path, options);
    return open_packed_model(path);
  }

  std::string table_;
  nlohmann::json report_;
  mutable int packed_ = 0;
};

TEST_F(Online, BaseAndDeltasAreTheModelToTheBit) {
  for (const char* weights : {"fp32", "int8", "fp16"}) {
    const std::string to = file(str_cat("published-", weights)), saved = file(str_cat("saved-", weights));
    const auto told =
        train(to, {str_cat("publish.weights=", weights), "publish.tables=[\"c1=int4\"]"}, {.save = saved});
    ASSERT_EQ(told.size(), 6u);
    EXPECT_TRUE(told[0].what.base);
    EXPECT_FALSE(told[0].what.delta);
    for (size_t i = 1; i < told.size(); ++i) {
      EXPECT_EQ(told[i].what.number, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(told[i].step, static_cast<int64_t>(2 * i) + 2);
      EXPECT_TRUE(told[i].what.delta);
      EXPECT_GT(told[i].what.changed, 0);
      EXPECT_LE(told[i].what.changed, 2 * 16 * 2);  // two steps of 16 samples with one id per table
      EXPECT_EQ(told[i].error, "");
    }
    EXPECT_THAT(publications_in(to, Publication::kBase), ElementsAre(1, 3, 5));
    EXPECT_THAT(publications_in(to, Publication::kDelta), ElementsAre(2, 3, 4, 5, 6));
    const InferenceModel last =
        packed(saved, {.format = row_format_from(weights), .formats = {{"c1", RowFormat::kInt4}}});
    EXPECT_EQ(difference(model_at(to, 6).model(), last), "") << weights;
    EXPECT_NE(difference(model_at(to, 5).model(), last), "");
    for (const int64_t base : {3, 5})
      EXPECT_EQ(difference(model_at(to, base).model(), open_packed_model(path_in(to, Publication::kBase, base))), "");
    EXPECT_EQ(report_["publications"]["published"], 6);
    EXPECT_EQ(report_["publications"]["bases"], 3);
    for (const auto& entry : fs::directory_iterator(to)) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name.ends_with(".json") || name.ends_with(".safetensors") || name.starts_with("base-")) << name;
      EXPECT_FALSE(name.ends_with(".rows")) << name;
    }
  }
}

TEST_F(Online, AnotherRunIsAnotherChainBehindTheOneBefore) {
  const std::string to = file("published"), saved = file("saved");
  train(to, {}, {.save = saved, .max_steps = 4});
  EXPECT_THAT(publications_in(to, Publication::kBase), ElementsAre(1));
  ModelFollower follower(runtime(), to);
  EXPECT_EQ(follower.status().number, 2);
  std::ofstream(to + "/delta-3.safetensors.publishing") << "of a run that was killed";
  train(to, {"publish.keep_bases=1"}, {.load = saved});
  EXPECT_FALSE(fs::exists(to + "/delta-3.safetensors.publishing"));
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.status().number, 6);
  EXPECT_THAT(follower.refusals(), IsEmpty());
  // The last of three bases stays, and the one that a follower holds.
  EXPECT_THAT(publications_in(to, Publication::kBase), ElementsAre(1, 5));
  EXPECT_THAT(publications_in(to, Publication::kDelta), ElementsAre(6));
  EXPECT_NE(publishing::read_publication(to, Publication::kBase, 1).chain,
            publishing::read_publication(to, Publication::kBase, 5).chain);
}

TEST_F(Online, TheNextOneHasWhatTheDiskDidNotTake) {
  const std::string to = file("published"), saved = file("saved"), in_the_way = to + "/delta-2.rows";
  std::vector<std::string> errors;
  TrainJob job(runtime(), parse_config(kOnlineJob, "job.toml", {"publish.directory=\"" + to + "\""}), {.save = saved},
               ProcessGroup::connect(runtime(), {}));
  job.train({.published = [&](const TrainPublish& p) {
    if (p.what.base && p.what.number == 1) fs::create_directories(in_the_way + "/full");
    if (!p.error.empty()) {
      errors.push_back(p.error);
      if (errors.size() == 2) fs::remove_all(in_the_way);
    }
  }});
  EXPECT_THAT(errors, ElementsAre(HasSubstr(in_the_way), HasSubstr(in_the_way)));
  EXPECT_THAT(publications_in(to, Publication::kDelta), ElementsAre(2, 3, 4));
  PackOptions as_published{.format = RowFormat::kInt8};
  EXPECT_EQ(difference(model_at(to, 4).model(), packed(saved, as_published)), "");
}

// Checkpoints of changes equal the model, whatever is published meanwhile, and even if publishing fails.
TEST_F(Online, WhatChangedIsSavedBesideIt) {
  const std::string to = file("published"), saved = file("saved"), in_the_way = to + "/delta-3.rows";
  const std::vector<std::string> without_end{"data.epochs=100000"};
  std::vector<std::string> set = without_end;
  set.push_back("publish.directory=\"" + to + "\"");
  TrainJob job(runtime(), parse_config(kOnlineJob, "job.toml", set),
               {.save = saved, .save_every = 3, .save_full_every = 1000000, .keep = 1000},
               ProcessGroup::connect(runtime(), {}));
  int failed = 0;
  std::atomic<int> published_again = 0, saves = 0;  // stop() is called by the reading thread
  TrainWatch watch;
  watch.stop = [&] { return saves >= 3 && published_again > 1; };
  watch.saved = [&](const TrainSave& save) {
    EXPECT_EQ(save.error, "");
    ++saves;
  };
  watch.published = [&](const TrainPublish& p) {
    if (p.what.number == 1) fs::create_directories(in_the_way + "/full");
    failed += p.error.empty() ? 0 : 1;
    if (failed == 2) fs::remove_all(in_the_way);
    published_again += failed == 2 && p.error.empty() ? 1 : 0;
  };
  job.train(watch);
  EXPECT_EQ(failed, 2);
  PackOptions as_published{.format = RowFormat::kInt8};
  const int64_t last = publications_in(to, Publication::kDelta).back();
  EXPECT_EQ(difference(model_at(to, last).model(), packed(saved, as_published)), "");
  for (const int save : {2, 3, saves.load()}) {
    const std::string changes = str_cat(saved, "/save-", save), plain = file(str_cat("plain-", save));
    std::ifstream in(changes + "/checkpoint.json");
    EXPECT_EQ(nlohmann::json::parse(in).at("content").at("base").at("name"), "save-1");
    const auto step = nlohmann::json::parse(saved_progress(changes)).at("step").get<int64_t>();
    TrainJob(runtime(), parse_config(kOnlineJob, "job.toml", without_end), {.save = plain, .max_steps = step},
             ProcessGroup::connect(runtime(), {}))
        .train({});
    EXPECT_EQ(difference(packed(changes, {}), packed(plain, {})), "") << step;
  }
}

// A base cannot be made from a damaged delta or without the previous base. Training goes on, and the next publication
// is a base that begins a new chain.
TEST_F(Online, ABaseThatCannotBeMadeIsFollowedByAFirstOne) {
  for (const bool gone : {false, true}) {
    const std::string to = file(str_cat("published-", gone)), saved = file(str_cat("saved-", gone));
    std::vector<TrainPublish> told;
    TrainJob job(runtime(), parse_config(kOnlineJob, "job.toml", {"publish.directory=\"" + to + "\""}), {.save = saved},
                 ProcessGroup::connect(runtime(), {}));
    job.train({.published = [&](const TrainPublish& p) {
      told.push_back(p);
      if (p.what.number != 2) return;
      if (gone) {
        fs::remove_all(path_in(to, Publication::kBase, 1));
      } else {
        std::fstream(to + "/delta-2.safetensors", std::ios::in | std::ios::out | std::ios::binary)
                .seekp(-1, std::ios::end)
            << '?';
      }
    }});
    ASSERT_EQ(told.size(), 6u);
    for (const TrainPublish& p : told) EXPECT_EQ(p.error, "");
    EXPECT_THAT(told[2].what.base_error, HasSubstr(gone ? "base-1" : "delta-2.safetensors is damaged"));
    EXPECT_TRUE(told[3].what.base && !told[3].what.delta);
    PackOptions as_published{.format = RowFormat::kInt8};
    ASSERT_TRUE(told[5].what.base);
    EXPECT_EQ(difference(open_packed_model(path_in(to, Publication::kBase, 6)), packed(saved, as_published)), "");
    ModelFollower follower(runtime(), to);
    EXPECT_EQ(follower.status().number, 6);
  }
}

TEST_F(Online, WhatCannotBePublishedIsSaidBeforeTheFirstStep) {
  const auto refused = [&](std::vector<std::string> set, const char* directory) {
    return test::refusal([&] { train(file(directory), std::move(set)); });
  };
  EXPECT_THAT(refused({"job.kernel_plugin=\"reference\""}, "published"),
              HasSubstr("kernel \"reference\", which has table \"c0\", does not report which of its rows change"));
  EXPECT_THAT(refused({"publish.every_steps=0"}, "published"), HasSubstr("set one of them"));
  EXPECT_THAT(refused({"publish.tables=[\"film\"]"}, "published"), HasSubstr("write NAME=FORMAT"));
  EXPECT_THAT(refused({"publish.tables=[\"film=int4\"]"}, "published"), HasSubstr("there is no table \"film\""));
  EXPECT_THAT(refused({"publish.weights=\"int2\"", "model.embedding_dim=4", "model.bottom_mlp=[4]"}, "published"),
              HasSubstr("multiples of 8"));
  fs::create_directories(file("other"));
  std::ofstream(file("other/notes.txt")) << "mine";
  EXPECT_THAT(refused({}, "other"), HasSubstr("holds \"notes.txt\", which is not a publication"));
  EXPECT_TRUE(fs::exists(file("other/notes.txt")));
}

// Nobody can tell if this publication is whole, so it stays.
TEST_F(Online, WhatCannotBeLookedAtIsNotRemoved) {
  const std::string to = file("published");
  fs::create_directories(to);
  std::ofstream(to + "/delta-9.safetensors") << "rows";
  fs::create_symlink("delta-9.json", to + "/delta-9.json");  // a link to itself
  EXPECT_THAT(test::refusal([&] { train(to); }), HasSubstr("cannot look at " + to + "/delta-9.json"));
  EXPECT_TRUE(fs::exists(to + "/delta-9.safetensors"));
}

// Copies the publications of a whole run into a followed directory, one by one.
class Followed : public Online {
 protected:
  void SetUp() override {
    Online::SetUp();
    if (IsSkipped()) return;
    train(from_, {"publish.base_every=4"});  // base-1, delta-2 to delta-6, base-5
    fs::create_directories(to_);
    copy_publication(from_, to_, Publication::kBase, 1);
    follower_ = std::make_unique<ModelFollower>(runtime(), to_);
  }
  void copy(Publication::Kind kind, int64_t number) { copy_publication(from_, to_, kind, number); }
  // The follower keeps its version, and reports the reason once.
  void stays(int64_t number, const std::string& why) {
    const auto before = follower_->current();
    EXPECT_FALSE(follower_->update());
    EXPECT_FALSE(follower_->update());
    EXPECT_EQ(follower_->current(), before);
    EXPECT_EQ(follower_->status().number, number);
    EXPECT_THAT(follower_->refusals(), ElementsAre(HasSubstr(why)));
  }
  void goes_on_to(int64_t number) {
    EXPECT_TRUE(follower_->update());
    EXPECT_EQ(follower_->status().number, number);
    EXPECT_THAT(follower_->refusals(), IsEmpty());
    EXPECT_EQ(scores(*follower_->current()), expected(number));
  }
  std::vector<float> scores(Predictor& predictor) {
    test::OwnInput input(predictor.model(), 64, 9);
    return test::scores_of(predictor, input.view());
  }
  std::vector<float> expected(int64_t number) {
    return scores(*make_predictor(runtime(), model_at(from_, number).model()));
  }

  const std::string from_ = file("published"), to_ = file("followed");
  std::unique_ptr<ModelFollower> follower_;
};

TEST_F(Followed, TakesDeltasAsTheyCome) {
  EXPECT_EQ(follower_->status().number, 1);
  EXPECT_FALSE(follower_->update());
  for (int64_t n = 2; n <= 6; ++n) {
    copy(Publication::kDelta, n);
    goes_on_to(n);
  }
  EXPECT_EQ(follower_->status().updates, 5);
  EXPECT_EQ(follower_->current()->stats().predictions, 5u);  // over all versions
  EXPECT_EQ(follower_->current()->model().version, follower_->status().version);
  ModelFollower late(runtime(), to_);
  EXPECT_EQ(late.status().version, follower_->status().version);
  copy(Publication::kBase, 5);
  ModelFollower from_base(runtime(), to_);
  EXPECT_EQ(from_base.status().version, follower_->status().version);
  EXPECT_EQ(scores(*from_base.current()), expected(6));
}

TEST_F(Followed, AVersionStaysAsItIsWhileItIsHeld) {
  copy(Publication::kDelta, 2);
  auto held = follower_->current();
  const std::vector<float> before = scores(*held);
  goes_on_to(2);
  EXPECT_EQ(scores(*held), before);
  copy(Publication::kDelta, 3);
  EXPECT_FALSE(follower_->update());  // the update would write where `held` reads
  EXPECT_EQ(follower_->status().number, 2);
  EXPECT_EQ(scores(*held), before);
  EXPECT_NE(before, expected(2));
  held.reset();
  goes_on_to(3);
}

TEST_F(Followed, AGapIsWaitedFor) {
  copy(Publication::kDelta, 3);
  stays(1, "delta-2.json is missing, but publication 3 exists");
  copy(Publication::kDelta, 2);
  goes_on_to(3);
}

TEST_F(Followed, ADuplicateIsRefusedAndTheRightOneTaken) {
  copy(Publication::kDelta, 2);
  goes_on_to(2);
  fs::copy(to_ + "/delta-2.json", to_ + "/delta-3.json");
  stays(2, "delta-3.json is damaged: it is a copy of delta-2 under another name");
  fs::remove(to_ + "/delta-3.json");
  copy(Publication::kDelta, 3);
  goes_on_to(3);
}

TEST_F(Followed, DamageIsRefusedUntilTheNextBase) {
  copy(Publication::kDelta, 2);
  copy(Publication::kDelta, 3);
  std::fstream tensors(to_ + "/delta-2.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  tensors.seekp(-3, std::ios::end);
  const int byte = tensors.peek();
  tensors.put(static_cast<char>(byte ^ 1));
  tensors.close();
  stays(1, "delta-2.safetensors is damaged: its checksum is not the one in delta-2.json");
  copy(Publication::kBase, 5);
  goes_on_to(5);
  copy(Publication::kDelta, 6);
  fs::resize_file(to_ + "/delta-6.json", fs::file_size(to_ + "/delta-6.json") / 2);
  stays(5, "delta-6.json is damaged");
}

TEST_F(Followed, AShortFileAndAMissingOneAreDamage) {
  copy(Publication::kDelta, 2);
  fs::resize_file(to_ + "/delta-2.safetensors", 100);
  stays(1, "delta-2.safetensors is damaged: it has 100 bytes");
  copy(Publication::kBase, 5);
  copy(Publication::kDelta, 6);
  fs::remove(to_ + "/delta-6.safetensors");
  EXPECT_TRUE(follower_->update());
  EXPECT_EQ(follower_->status().number, 5);
  EXPECT_THAT(follower_->refusals(), ElementsAre(HasSubstr("delta-6.json lists it")));
}

TEST_F(Followed, AnotherChainAndAnotherModelAreRefused) {
  const std::string other = file("other");
  train(other, {"job.seed=4", "publish.base_every=4"});
  copy_publication(other, to_, Publication::kDelta, 2);
  stays(1, "delta-2.json belongs to another chain");
  for (const char* name : {"/delta-2.json", "/delta-2.safetensors"}) fs::remove(to_ + name);
  copy(Publication::kDelta, 2);
  goes_on_to(2);
  // The delta belongs to the right chain, but follows another publication.
  Publication third = publishing::read_publication(from_, Publication::kDelta, 3);
  fs::copy(from_ + "/delta-3.safetensors", to_ + "/delta-3.safetensors");
  third.previous = publishing::hash_of("another");
  publishing::write_publication(to_, third);
  stays(2, "it follows another one");
}

// An I/O error while looking says nothing about the publication.
TEST_F(Followed, WhatCannotBeReadIsTriedAgain) {
  copy(Publication::kBase, 5);
  const std::string manifest = to_ + "/base-5/model.json", aside = file("aside");
  ASSERT_TRUE(fs::exists(manifest));
  fs::rename(manifest, aside);
  fs::create_directory(manifest);  // it can be opened but not read
  stays(1, ": it is tried again");
  EXPECT_EQ(follower_->status().refused, 1);
  fs::remove(manifest);
  fs::rename(aside, manifest);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!follower_->update() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(follower_->status().number, 5);
  EXPECT_EQ(scores(*follower_->current()), expected(5));
}

TEST_F(Followed, ADirectoryThatBeginsAnewIsFollowed) {
  copy(Publication::kBase, 5);
  copy(Publication::kDelta, 6);
  goes_on_to(6);
  const std::string before = follower_->status().version;
  fs::remove_all(to_);
  fs::create_directories(to_);
  stays(6, "publication 6, which is followed, is no longer in");
  EXPECT_THAT(test::refusal([&] { follower_->reload(); }), HasSubstr("there is no base at"));
  const std::string other = file("other");
  train(other, {"job.seed=4", "publish.base_every=4"});
  copy_publication(other, to_, Publication::kBase, 1);
  EXPECT_TRUE(follower_->update());
  EXPECT_EQ(follower_->status().number, 1);
  copy_publication(other, to_, Publication::kDelta, 2);
  EXPECT_TRUE(follower_->update());
  EXPECT_EQ(follower_->status().number, 2);
  EXPECT_EQ(scores(*follower_->current()), scores(*make_predictor(runtime(), model_at(other, 2).model())));
  EXPECT_THAT(follower_->refusals(), IsEmpty());
  EXPECT_NE(follower_->status().version, before);
}

// A backup of the same chain is older than the followed version. A reload still takes it.
TEST_F(Followed, AReloadTakesWhatABackupHas) {
  for (int64_t n = 2; n <= 4; ++n) copy(Publication::kDelta, n);
  goes_on_to(4);
  EXPECT_EQ(follower_->reload(), follower_->current());
  EXPECT_EQ(follower_->status().updates, 1);
  for (const char* name : {"/delta-3", "/delta-4"}) {
    fs::remove(to_ + name + ".json");
    fs::remove(to_ + name + ".safetensors");
  }
  stays(4, "which has 2 as its newest");
  EXPECT_EQ(scores(*follower_->reload()), expected(2));
  EXPECT_EQ(follower_->status().number, 2);
  copy(Publication::kDelta, 3);
  goes_on_to(3);
}

TEST_F(Followed, ABaseThatIsDamagedIsRefusedToo) {
  copy(Publication::kBase, 5);
  const std::string rows = to_ + "/base-5/table-0.rows";
  fs::resize_file(rows, fs::file_size(rows) - 1);
  stays(1, "table-0.rows");
  for (int64_t n = 2; n <= 5; ++n) copy(Publication::kDelta, n);
  goes_on_to(5);
  fs::create_directories(file("empty"));
  EXPECT_THAT(test::refusal(Code::kNotFound, [&] { const ModelFollower none(runtime(), file("empty")); }),
              HasSubstr("there is no base at"));
}

}  // namespace
}  // namespace tessera
