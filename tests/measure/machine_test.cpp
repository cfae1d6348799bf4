#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <vector>

#include "measure/cache.h"
#include "measure/gpu.h"
#include "measure/memory.h"
#include "measure/provenance.h"

namespace saccade::measure {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(PeakGrowth, SeesMemoryThatIsGoneAgain) {
  const auto growth = peak_growth([] { std::vector<char>(64 * kMiB, 1).clear(); });
  if (!growth) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_GE(*growth, 63 * kMiB);
#ifndef __SANITIZE_THREAD__  // its shadow memory is several times as large as what it watches
  EXPECT_LE(*growth, 80 * kMiB);
#endif
}

TEST(PeakGrowth, OfNothingIsSmall) {
  const auto growth = peak_growth([] {});
  if (!growth) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_LE(*growth, 2 * kMiB);
}

TEST(PeakGrowth, CountsMemoryThatTheHeapHadKept) {
  std::vector<std::unique_ptr<std::vector<char>>> blocks;
  for (int i = 0; i < 512; ++i) blocks.push_back(std::make_unique<std::vector<char>>(64 * 1024, 1));
  blocks.clear();
  const auto growth = peak_growth([] {
    std::vector<std::unique_ptr<std::vector<char>>> again;
    for (int i = 0; i < 512; ++i) again.push_back(std::make_unique<std::vector<char>>(64 * 1024, 1));
  });
  if (!growth) GTEST_SKIP() << "this system does not tell the peak";
  EXPECT_GE(*growth, 30 * kMiB);
}

TEST(CacheEvictor, IsLargerThanTheCaches) {
  CacheEvictor evict;
  EXPECT_GE(evict.bytes(), 2 * largest_cache_bytes());
  evict();
}

TEST(Gpus, AreListedOrTheReasonIsGiven) {
  const Gpus found = read_gpus();
  EXPECT_EQ(found.gpus.empty(), !found.why_none.empty());
  for (const GpuState& gpu : found.gpus) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_FALSE(found.driver.empty());
    EXPECT_LE(gpu.sm_clock_mhz, gpu.max_sm_clock_mhz);
    EXPECT_GT(gpu.max_memory_clock_mhz, 0U);
  }
}

TEST(Gpus, TellHeatAndPowerFromOtherReasons) {
  EXPECT_TRUE(reasons_of(0).empty());
  EXPECT_EQ(reasons_of(0x45), (std::vector<std::string>{"idle", "power cap", "heat (hardware)"}));
  EXPECT_EQ(reasons_of(0x1000), std::vector<std::string>{"0x1000"});
  const auto throttled = [](std::uint64_t bits) {
    GpuState gpu;
    gpu.held_back_by = reasons_of(bits);
    return is_throttled(gpu);
  };
  for (const std::uint64_t bits : {0x04, 0x08, 0x20, 0x40, 0x80, 0x41}) EXPECT_TRUE(throttled(bits)) << bits;
  for (const std::uint64_t bits : {0x00, 0x01, 0x02, 0x10, 0x100, 0x1000})
    EXPECT_FALSE(throttled(bits)) << bits;
}

TEST(Provenance, NamesSourceBuildMachineAndCall) {
  const nlohmann::ordered_json json = collect_provenance(42, "saccade bench");
  EXPECT_TRUE(std::regex_match(json.at("commit").get<std::string>(), std::regex("unknown|[0-9a-f]{12,}")));
  EXPECT_TRUE(json.at("dirty").is_boolean());
  EXPECT_TRUE(std::regex_match(json.at("date").get<std::string>(),
                               std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ")));
  EXPECT_EQ(json.at("seed"), 42);
  EXPECT_EQ(json.at("command_line"), "saccade bench");
  for (const char* key : {"version", "compiler", "flags"})
    EXPECT_FALSE(json.at(key).get<std::string>().empty()) << key;
  const nlohmann::ordered_json& host = json.at("host");
  EXPECT_FALSE(host.at("cpu").get<std::string>().empty());
  EXPECT_GE(host.at("logical_cpus").get<int>(), 1);
  EXPECT_GT(host.at("memory_bytes").get<std::uint64_t>(), 0U);
  EXPECT_FALSE(host.at("simd_target").get<std::string>().empty());
}

}  // namespace
}  // namespace saccade::measure
