// collective_suite --backend=ID [--options=JSON] [--device-type=N] [--speaker=ID] [gtest's options]: runs the tests on
// all ranks of a job. The speaker is the transport that words failures, if that is the one inside the backend.
// collective_suite --backend=ID --die=R: exchanges data until rank R kills itself; prints what it was told.
// collective_suite --backend=ID --absent=R: rank R never connects; the others give up after two seconds.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "ranks.h"

namespace tessera::test {
namespace {

std::unique_ptr<Job>& the_job() {
  static std::unique_ptr<Job> job;
  return job;
}

// Prints only failures, with the rank, because rank 0 reports for all.
class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " + std::to_string(job().rank()) + ": " + (result.file_name() ? result.file_name() : "") + ":" +
                     std::to_string(result.line_number()) + ": " + result.message() + "\n";
  }
};

// Ends when an exchange fails.
int exchange_until_failure(const Job& job, int victim) {
  const auto outcomes = job.run(job.world_size(), [&](Group& group) -> std::string {
    std::vector<int32_t> ids(static_cast<size_t>(group.world_size()) * 1000), got = ids;
    const std::vector<int64_t> counts(static_cast<size_t>(group.world_size()), 1000);
    for (int step = 0; step < 1000000; ++step) {
      if (group.rank() == victim && step == 5) kill(getpid(), SIGKILL);
      try {
        group.finish(group.all_to_all_v(View<int32_t>(ids), counts, View<int32_t>(got), counts, call("ids")));
      } catch (const std::exception& e) {
        std::cerr << "rank " + std::to_string(group.rank()) + " was told: " + e.what() + "\n";
        std::exit(1);
      }
    }
    return "nobody died";
  });
  return outcomes.empty() ? 1 : 0;
}

// The number in an option "--name=7"; -1 if the option is absent.
int number(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(name, 0) == 0) return std::stoi(argument.substr(name.size()));
  }
  return -1;
}

std::string text(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(name, 0) == 0) return argument.substr(name.size());
  }
  return "";
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string backend = text(argc, argv, "--backend=");
  const int victim = number(argc, argv, "--die="), absent = number(argc, argv, "--absent=");
  if (absent >= 0 && RankEnvironment::from_environment().rank == absent) {
    sleep(120);
    return 0;
  }
  if (const int type = number(argc, argv, "--device-type="); type > 0)
    tensor_device() = static_cast<DLDeviceType>(type);
  const std::string options = text(argc, argv, "--options=");
  the_job() = std::make_unique<Job>(JobOptions{backend, options.empty() ? "{}" : options,
                                               absent >= 0   ? 2.0
                                               : victim >= 0 ? 5.0
                                                             : 20.0,
                                               text(argc, argv, "--speaker=")});
  if (victim >= 0) return exchange_until_failure(job(), victim);
  if (job().rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  const int status = RUN_ALL_TESTS();
  the_job().reset();
  return status;
}

}  // namespace

Job& job() { return *the_job(); }

}  // namespace tessera::test

int main(int argc, char** argv) {
  try {
    return tessera::test::run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << std::string("collective_suite: ") + e.what() + "\n";
    return 1;
  }
}
