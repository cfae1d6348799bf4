#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <vector>

#include "measure/cache.h"
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
