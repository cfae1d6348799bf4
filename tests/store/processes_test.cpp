// Several processes at one store, and processes that end in the middle.
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <unistd.h>

#include "support.h"

namespace saccade::store {
namespace {

namespace fs = std::filesystem;

/// Begins a run, writes `count` measurements and tells of each as soon as it is finished.
int write_and_tell(const fs::path& file, int count, int pipe) {
  Result<Store> store = Store::open(file, Access::write);
  if (!store.ok()) {
    write_all(pipe, "! " + store.status().message());
    return 1;
  }
  const Result<std::string> id = store->begin_run(some_run());
  if (!id.ok()) {
    write_all(pipe, "! " + id.status().message());
    return 1;
  }
  write_all(pipe, id.value() + "\n");
  for (int n = 0; n < count; ++n) {
    const Status added = store->add_measurement(id.value(), some_measurement(n));
    if (!added.ok()) {
      write_all(pipe, "! " + added.message());
      return 1;
    }
    write_all(pipe, ".");
  }
  return 0;
}

struct Told {
  std::string id;  ///< empty when the run was not begun
  std::size_t finished = 0;
};

Told parse(const std::string& told) {
  EXPECT_EQ(told.find('!'), std::string::npos) << told;
  const std::size_t end = told.find('\n');
  if (end == std::string::npos) return {};
  return {told.substr(0, end), told.size() - end - 1};
}

void expect_kept(const fs::path& file, Access access, const Told& told) {
  const Result<Store> store = Store::open(file, access);
  ASSERT_TRUE(store.ok()) << store.status().message();
  const Status checked = store->check();
  EXPECT_TRUE(checked.ok()) << checked.message();
  if (told.id.empty()) return;
  const Result<WholeRun> whole = store->load(told.id);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_GE(whole->measurements.size(), told.finished);
  EXPECT_LE(whole->measurements.size(), told.finished + 1);  // one may have been finished and not told
  for (std::size_t n = 0; n < whole->measurements.size(); ++n) {
    EXPECT_TRUE(same(whole->measurements[n], some_measurement(static_cast<int>(n)))) << n;
  }
}

TEST(StoreProcesses, AKillLosesNothingThatWasFinished) {
  const TemporaryFolder folder;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> microseconds(0, 120'000);
  std::vector<Told> in_one_store;
  std::size_t finished = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    // Half of them in a new file, so that its creation is hit as well.
    const bool in_new_file = round % 2 == 0;
    const fs::path file =
        folder.path() / (in_new_file ? "new-" + std::to_string(round) + ".db" : std::string("one.db"));
    Child child([&](int pipe) { return write_and_tell(file, 100'000, pipe); });
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
    child.kill();
    const Told told = parse(child.read_to_end());
    child.wait();
    finished += told.finished;
    if (!told.id.empty()) expect_kept(file, Access::read, told);
    expect_kept(file, Access::write, told);
    if (!in_new_file) in_one_store.push_back(told);
  }
  for (const Told& told : in_one_store) expect_kept(folder / "one.db", Access::read, told);
  EXPECT_GT(finished, 60U);  // or the kills came too early to say anything
}

TEST(StoreProcesses, WriteAtOnceIntoANewStore) {
  const TemporaryFolder folder;
  constexpr int kMeasurements = 10;
  for (int round = 0; round < 10; ++round) {
    const fs::path file = folder.path() / std::to_string(round) / "store.db";
    // All wait for the end of this pipe, so that they create the file together.
    std::array<int, 2> gate{};
    ASSERT_EQ(pipe(gate.data()), 0);
    std::vector<std::unique_ptr<Child>> children;
    for (int n = 0; n < 4; ++n) {
      children.push_back(std::make_unique<Child>([&](int pipe) {
        close(gate[1]);
        char ignored = 0;
        if (read(gate[0], &ignored, 1) != 0) return 1;
        return write_and_tell(file, kMeasurements, pipe);
      }));
    }
    close(gate[0]);
    close(gate[1]);
    for (const auto& child : children) {
      const Told told = parse(child->read_to_end());
      EXPECT_EQ(child->wait(), 0);
      EXPECT_EQ(told.finished, kMeasurements);
      expect_kept(file, Access::read, told);
    }
    EXPECT_EQ(Store::open(file, Access::read)->runs()->size(), children.size());
  }
}

TEST(StoreProcesses, ReadWhileAnotherWrites) {
  const TemporaryFolder folder;
  const fs::path file = folder / "store.db";
  make_store(file, 1);
  constexpr std::size_t kMeasurements = 200;
  Child child([&](int pipe) { return write_and_tell(file, kMeasurements, pipe); });
  const Result<Store> store = Store::open(file, Access::read);
  ASSERT_TRUE(store.ok()) << store.status().message();
  std::size_t before = 0;
  int growths = 0;
  while (before < kMeasurements) {
    const auto runs = store->runs();
    ASSERT_TRUE(runs.ok()) << runs.status().message();
    if (runs->size() < 2) continue;
    const auto measurements = store->measurements(runs->back().run.id);
    ASSERT_TRUE(measurements.ok()) << measurements.status().message();
    ASSERT_GE(measurements->size(), before);
    growths += static_cast<int>(measurements->size() > before);
    before = measurements->size();
  }
  EXPECT_GT(growths, 1);
  EXPECT_EQ(parse(child.read_to_end()).finished, kMeasurements);
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace saccade::store
